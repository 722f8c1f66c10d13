"""A `kpipe serve` on a home of its own, as a test drives it."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from tests.commandline import Kpipe

PATIENCE_S = 150.0


@dataclass
class Serving:
    """A running service.

    Attributes:
        process: its supervisor.
        lines: what it has printed.
    """

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    readers: list[threading.Thread] = field(default_factory=list)

    def wait_for(self, text: str, after: int = 0) -> None:
        until(lambda: any(text in line for line in self.lines[after:]), lambda: f"{text!r} in {self.lines[-40:]}")

    def worker(self) -> psutil.Process:
        """The process that runs the pipelines."""
        found: list[psutil.Process] = []

        def look() -> bool:
            found[:] = psutil.Process(self.process.pid).children()
            return bool(found)

        until(look)
        return found[0]

    def end(self, patience: float = PATIENCE_S) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(patience)


def until(holds: Callable[[], bool], what: Callable[[], str] = lambda: "", patience: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline, f"not within {patience:g} s: {what()}"
        time.sleep(0.05)


def start(kpipe: Kpipe, *arguments: str, **more: str) -> Serving:
    process = kpipe.start("serve", *(arguments or ("--port", "0", "--json")), **more)
    serving = Serving(process)
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        serving.readers.append(threading.Thread(target=_read, args=(stream, serving.lines), daemon=True))
        serving.readers[-1].start()
    return serving


def _read(stream: IO[str], lines: list[str]) -> None:
    with stream:
        lines.extend(stream)


@contextmanager
def serving(kpipe: Kpipe, *arguments: str, **more: str) -> Iterator[Serving]:
    """A service while inside; everything that it has started is gone afterwards."""
    started = start(kpipe, *arguments, **more)
    try:
        yield started
    finally:
        kill(started)


def kill(started: Serving) -> None:
    """Kill supervisor and service, as a power cut would."""
    try:
        supervisor = psutil.Process(started.process.pid)
        tree = [supervisor, *supervisor.children(recursive=True)]
    except psutil.NoSuchProcess:
        tree = []
    for process in tree:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(tree, timeout=60)
    started.process.wait(60)
    for reader in started.readers:
        reader.join(60)


def lock(home: Path) -> dict[str, object]:
    return dict(json.loads((home / "state" / "serve.lock").read_text() or "{}"))
