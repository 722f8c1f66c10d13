"""A `kpipe serve` on a home of its own, as a test drives it."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import duckdb
import psutil

from kpipe_assets.runs.run_locks import is_locked
from tests.commandline import Kpipe
from tests.patience import looks

PATIENCE_S = 300.0


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
        status = self.process.wait(patience)
        for reader in self.readers:  # its last lines are still to be read
            reader.join(patience)
        return status


def until(holds: Callable[[], bool], what: Callable[[], str] = lambda: "", patience: float = PATIENCE_S) -> None:
    assert any(holds() for _ in looks(patience)), f"not within {patience:g} s: {what()}"


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
    except BaseException:
        print("".join(started.lines[-200:]))
        raise
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
    psutil.wait_procs(tree, timeout=PATIENCE_S)
    started.process.wait(PATIENCE_S)
    for reader in started.readers:
        reader.join(PATIENCE_S)


_counted: dict[tuple[Path, str], tuple[tuple[tuple[int, int], ...], int]] = {}


def rows(kpipe: Kpipe, table: str) -> int:
    """Rows of the table; 0 while there is none, and while a commit holds the database.

    Opening a database takes a twentieth of a second of CPU: a test that waits reads it again only after it was written.
    """
    file = kpipe.home / "data" / "kpipe.duckdb"
    with suppress(duckdb.Error, FileNotFoundError):
        written = tuple((part.stat().st_mtime_ns, part.stat().st_size) for part in (file, *file.parent.glob(f"{file.name}.*")))
        if _counted.get((file, table), (None,))[0] != written:
            try:
                found = int(kpipe.sql(f"SELECT count(*) FROM {table}")[0][0])
            except duckdb.CatalogException:  # there is no such table yet
                found = 0
            _counted[file, table] = (written, found)
        return _counted[file, table][1]
    return 0


@contextmanager
def without_pipelines(kpipe: Kpipe) -> Iterator[None]:
    """Stop and drop all pipelines at the end of the block, whose service others go on to use."""
    try:
        yield
    finally:
        kpipe("sql", "STOP ALL PIPELINES", status=None)
        for file in (kpipe.home / "pipelines").glob("*.yaml"):
            file.unlink()
        until(lambda: not any(map(is_locked, kpipe.home.glob("state/*.run"))))


def lock(home: Path) -> dict[str, object]:
    return dict(json.loads((home / "state" / "serve.lock").read_text() or "{}"))
