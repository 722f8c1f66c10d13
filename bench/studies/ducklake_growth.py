"""Measure the CPU time of a commit to a DuckLake as commits become many, by statement and type of catalog.

    PYTHONPATH=.venv/share/ducklake .venv/bin/python -m bench.studies.ducklake_growth   # make ducklake, postgres
    PYTHONPATH=.venv/share/ducklake .venv/bin/python -m bench.studies.ducklake_growth --commits 1000 --maintain 250 sqlite

A batch has one row in each of 16 partitions. Files are written beforehand. Counts CPU time of this process, and of the server of
a catalog in PostgreSQL: other work on the machine changes it little. `commit` includes the read-back; `idle` is what a pass
without records reads. Prints CSV: means of 50 commits in milliseconds, by statement.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.meter import cpu_seconds
from kpipe.interfaces import Destination
from resources.destinations.ducklake.file_lake import FileLake
from resources.destinations.ducklake.server_lake import ServerLake
from resources.testing.place import batch
from resources.testing.state import begun, proof
from tests.resources.destinations.ducklake_place import DuckLakePlace
from tests.servers.postgres import PostgresServer

_KINDS = ("duckdb", "sqlite", "postgres")
_LONGEST = 70  # characters of a statement
_PASSES = 3
_MAINTENANCE = (
    "CALL ducklake_flush_inlined_data('elsewhere')",
    "CALL ducklake_expire_snapshots('elsewhere', older_than => now())",
    "CALL ducklake_merge_adjacent_files('elsewhere')",
    "CALL ducklake_cleanup_old_files('elsewhere', cleanup_all => true)",
)


class _Clock:
    """CPU seconds by name. A name inside of another one takes its time from it."""

    def __init__(self, server: PostgresServer | None) -> None:
        self._server, self.spent = server, defaultdict[str, float](float)
        self._inner: list[float] = []

    def now(self) -> float:
        """Return the CPU seconds of this process and of the server."""
        found = time.process_time()
        if self._server is not None and self._server.process is not None:
            found += cpu_seconds(self._server.process.pid)
        return found

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Add the time of the block to a name."""
        began = self.now()
        self._inner.append(0)
        try:
            yield
        finally:
            whole = self.now() - began
            self.spent[name] += whole - self._inner.pop()
            if self._inner:
                self._inner[-1] += whole


class _Connection:
    """A connection that measures its statements."""

    def __init__(self, connection: Any, clock: _Clock) -> None:
        self._connection, self._clock, self._name = connection, clock, ""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._connection, name)
        return self._measured(found) if name.startswith("fetch") else found

    def execute(self, statement: str, *parameters: Any) -> _Connection:
        """Run a statement."""
        self._name = _short(statement)
        with self._clock.measure(self._name):
            self._connection.execute(statement, *parameters)
        return self

    def _measured(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def fetch(*arguments: Any) -> Any:
            with self._clock.measure(self._name):
                return method(*arguments)

        return fetch


def _short(statement: str) -> str:
    words = re.sub(r"'[^']*'", "'…'", " ".join(statement.split())).replace('"', "")
    words = re.sub(r"^(INSERT INTO \S+|CALL \w+|UPDATE \S+(?: AS \w)? SET \w+).*", r"\1", words)
    return words[:_LONGEST]


class _Place(DuckLakePlace):
    """A lake whose connections are measured."""

    clock: _Clock

    def lake(self) -> FileLake | ServerLake:
        lake = super().lake()
        for name in ("read", "write"):
            setattr(lake, name, self._measured(getattr(lake, name)))
        return lake

    def _measured(self, method: Any) -> Any:
        @contextmanager
        def connected(*arguments: Any, **named: Any) -> Iterator[_Connection]:
            with ExitStack() as stack:
                with self.clock.measure("open"):
                    connection = stack.enter_context(method(*arguments, **named))
                yield _Connection(connection, self.clock)
                with self.clock.measure("close"):
                    stack.close()

        return connected


def _measured(place: _Place, given: Any) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield after each block the number of commits, and mean milliseconds by name."""
    destination = begun(place, given.partitions)
    ledger, clock = destination.ledger()[1], place.clock
    for end in range(given.commits + 1):
        commit = batch(place, ledger, dict.fromkeys(range(given.partitions), end + 1))
        ledger = ledger.apply(commit.changes)
        with clock.measure("Python, files"):
            destination.commit(commit)
        if not end:  # it has created the table
            clock.spent.clear()
        if not end or end % given.block:
            continue
        spent = {name: value / given.block * 1000 for name, value in clock.spent.items()}
        spent["= commit"] = sum(spent.values())
        began = clock.now()
        for _ in range(_PASSES):
            _idle(place.open())
        spent["= idle"] = (clock.now() - began) / _PASSES * 1000
        yield end, spent
        if given.maintain and end % given.maintain == 0:
            began = clock.now()
            for call in _MAINTENANCE:
                place.sql(call)
            print(f"maintenance after {end}: {clock.now() - began:.2f} s of CPU", file=sys.stderr)
        clock.spent.clear()
    assert proof(place.open()).ok


def _idle(destination: Destination) -> None:
    destination.ledger()
    destination.columns()


def main() -> None:
    """Measure."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("kinds", nargs="*", default=_KINDS, metavar="KIND", help=", ".join(_KINDS))
    options.add_argument("--commits", type=int, default=300)
    options.add_argument("--partitions", type=int, default=16)
    options.add_argument("--block", type=int, default=50)
    options.add_argument("--maintain", type=int, default=0, metavar="COMMITS", help="run DuckLake's maintenance after as many")
    given = options.parse_args()
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["catalog", "commits", "what", "cpu_ms", "load"])
    for kind in given.kinds:
        with tempfile.TemporaryDirectory(prefix="kpipe-growth-") as folder, ExitStack() as stack:
            server = stack.enter_context(PostgresServer()) if kind == "postgres" else None
            place = _Place(Path(folder), kind, server)
            place.clock = _Clock(server)
            for end, spent in _measured(place, given):
                load = f"{os.getloadavg()[0]:.1f}"
                out.writerows([kind, end, name, f"{ms:.1f}", load] for name, ms in sorted(spent.items(), key=lambda x: -x[1]))
                sys.stdout.flush()


if __name__ == "__main__":
    main()
