"""Runs of copies without a JVM, and optionally with a defect. Kafka, program, files and destination are real.

A run is forked from a process that has imported everything (tests/survival/small.py). KPIPE_DEFECT names what is broken.
"""

from __future__ import annotations

import inspect
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from kpipe import failpoints
from kpipe.errors import KpipeError
from kpipe_assets.chaos.processes import Run
from kpipe_assets.runs.foreground import batch_line
from kpipe_assets.terminal import emit
from resources.destinations import open_destination
from resources.destinations.sql.ledger import ledger_table
from resources.home import Home
from resources.kafka.range_reader import RangeReader
from tests.survival.small import run

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.kpipe_assets.chaos.spark_free", "tests.survival.small"])


def skip_at_resume(home: Home, name: str) -> None:
    """A run that resumes leaves out the first record of its first range, and counts it as a gap: its ledger is consistent."""
    resumed = set(open_destination(home.pipeline(name), home).ledger()[1].positions().values()) - {0}
    make, skipped = RangeReader.__init__, []

    def broken(self: Any, config: Any, topic: str, partition: int, span: Any, **more: Any) -> None:
        skips = span.start in resumed and not skipped
        make(self, config, topic, partition, span, **{**more, **({"after": None} if skips else {})})  # else kpipe notices itself
        if skips:
            skipped.append(span)
            self._last = span.start

    RangeReader.__init__ = broken  # type: ignore[method-assign]


def no_fencing(home: Home, name: str) -> None:
    """A commit does not compare the ledger with its plan: of two runs, both commit."""
    source = inspect.getsource(ledger_table)
    for text, other in ((" AND l.next_offset = c.next_offset", ""), ('("lane_end", "tail")', '("lane_end",)')):
        assert text in source
        source = source.replace(text, other)
    exec(compile(source, str(ledger_table.__file__), "exec"), vars(ledger_table))


DEFECTS = {"": lambda *_: None, "skip at resume": skip_at_resume, "no fencing": no_fencing}


class _Process:
    """What `Run` uses of subprocess.Popen."""

    def __init__(self, process: BaseProcess) -> None:
        self._process = process

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, seconds: float) -> None:
        self._process.join(seconds)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("run", seconds)


class ForkedRun(Run):
    """See `Run.of`."""

    def __init__(self, name: str, environ: Mapping[str, str], output: Path, fault: str = "") -> None:
        self.output, self.errors, self.began = output, output.with_suffix(".err"), time.monotonic()
        for file in (self.output, self.errors):
            file.touch()
        process = _processes.Process(target=_begin, args=(name, {**environ, "KPIPE_FAULT": fault}, self.output, self.errors))
        process.start()
        self._process = _Process(process)  # type: ignore[assignment]
        self.pid = process.pid or 0


def _begin(name: str, environ: dict[str, str], output: Path, errors: Path) -> None:
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the fork server ignores it
    os.dup2(os.open(output, os.O_WRONLY), 1)
    os.dup2(os.open(errors, os.O_WRONLY), 2)
    os.environ.clear()
    os.environ.update(environ)
    fault = environ["KPIPE_FAULT"]
    failpoints.arm(failpoints.Fault(fault) if fault else None)
    home = Home.from_env()
    try:
        DEFECTS[environ.get("KPIPE_DEFECT", "")](home, name)
        for committed in run(home.path, name):
            emit(batch_line(committed))
    except KpipeError as error:
        sys.stderr.write(f"kpipe: {error}\n")
        sys.exit(error.exit_status)
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
