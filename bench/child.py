"""Run a contender in a separate process: it executes orders sent as JSON lines, and is measured meanwhile."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.meter import Meter

__all__ = ["ANSWER", "Child", "clean_environment", "serve", "stop"]

ANSWER = "@answer "
"""Begins the lines of a child's stdout that are for us; libraries print there, too."""

_ANSWER_SECONDS = 900.0
_END_SECONDS = 30.0


def clean_environment(**more: str) -> dict[str, str]:
    """Return the caller's variables without those that change measurements: unbuffered output, another Spark, faults."""
    others = ("PYTHON", "PYSPARK_", "SPARK_", "KPIPE_")
    return {**{name: value for name, value in os.environ.items() if not name.startswith(others)}, **more}


def stop(process: subprocess.Popen[Any], wait_s: float = _END_SECONDS) -> None:
    """Send SIGTERM, and later SIGKILL, to the process's group; the process was started as its leader."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Child:
    """A started contender; leaving the context ends it.

    Args:
        command: what to run; it calls `serve`, or speaks the same way.
        log: where its stderr goes.
        environ: its environment.
    """

    def __init__(self, command: Sequence[str], log: Path, environ: Mapping[str, str] | None = None) -> None:
        self.log, self.began = log, time.time()
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                start_new_session=True,
                env=dict(environ) if environ is not None else clean_environment(),
            )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            stop(self.process)

    def ask(self, do: str, **order: Any) -> dict[str, Any]:
        """Send an order and wait for its answer.

        Raises:
            RuntimeError: it failed or ended; with the end of its log.
        """
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **order}) + "\n")
        self.process.stdin.flush()
        try:
            line = self._lines.get(timeout=_ANSWER_SECONDS)
        except queue.Empty:
            line = None
        answer = json.loads(line) if line else {"error": "no answer"}
        if "error" in answer:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])
            msg = f"{answer['error']} ({do} {order})\n{tail}"
            raise RuntimeError(msg)
        return dict(answer)

    def measured(self, do: str, beside: Sequence[int] = (), **order: Any) -> dict[str, Any]:
        """Return the answer with `cpu_s`, `peak_rss_mb` and `roles_mb` of its process tree and of those beside it, meanwhile."""
        with Meter(self.process.pid, *beside) as meter:
            answer = self.ask(do, **order)
        return {**answer, **usage(meter)}

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(ANSWER):
                self._lines.put(line.removeprefix(ANSWER))
        self._lines.put(None)


def usage(meter: Meter) -> dict[str, Any]:
    """Return a meter's figures in the form of results."""
    roles = {role: round(size) for role, size in sorted(meter.roles.items())}
    return {"cpu_s": round(meter.cpu_s, 2), "peak_rss_mb": round(meter.peak_mb), "roles_mb": roles}


def serve(orders: Mapping[str, Callable[..., Mapping[str, Any]]], lines: Any, out: Any) -> None:
    """Execute orders in the child until stdin ends."""
    for line in lines:
        order = json.loads(line)
        try:
            answer = orders[order.pop("do")](**order)
        except Exception as error:
            import traceback

            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        out.write(ANSWER + json.dumps(answer) + "\n")
        out.flush()
