"""Measure a table for each value of a field: a commit, and what a batch and an idle pass read, by tables and by history.

    .venv/bin/python -m bench.studies.field_tables                        # DuckDB, PostgreSQL (make postgres)
    .venv/bin/python -m bench.studies.field_tables --history 0,200,10000 --tables 100 postgres

A batch has a row of each table in each of 4 partitions. After each number of batches in `--history`, which are written into the
ledger by SQL, three batches are measured. Counts CPU time of this process and of PostgreSQL: other work on the machine changes it
little. `first` creates the tables; `names` is `tables_written` of a new run; `batch` is what the next batch of the same run reads
before it is staged; `idle` is what a pass without records reads. Prints CSV, medians in milliseconds.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from bench.meter import cpu_seconds
from kpipe.batch.batch import Commit, Mark, TableWrite
from kpipe.batch.counts import Counts
from resources.destinations.sql.ledger.table_definitions import BATCHES, TARGETS
from resources.testing.place import COLUMNS, Place, begin, live, read_step
from tests.resources.destinations.place import DuckDBPlace
from tests.resources.destinations.postgres_place import PostgresPlace
from tests.servers.postgres import PostgresServer

_TEMPLATE = "e_{field.type}"
_PARTITIONS = range(4)
_REPEATS = 3


def _batch(place: Place, destination: Any, names: list[str]) -> Commit:
    """Build a batch with a row of each table in each partition."""
    ledger = destination.ledger()[1]
    steps = []
    for number in _PARTITIONS:
        lane = live(ledger, number)
        steps.append(read_step(lane, lane.next + len(names)))
    writes = []
    for at, name in enumerate(names):
        offsets = {step.lane.key: step.range.start + at for step in steps}
        rows = [
            {"id": at, "text": name, "_kafka_partition": number, "_kafka_offset": offset, "_kafka_timestamp": 0}
            for number, offset in zip(_PARTITIONS, offsets.values(), strict=True)
        ]
        counts = {key: Counts(rows=1, inserted=1) for key in offsets}
        marks = {key: Mark(1, offset) for key, offset in offsets.items()}
        writes.append(TableWrite(name, COLUMNS, (place.staged(rows),), counts=counts, marks=marks))
    return Commit(
        uuid.uuid4().hex, "tweets", tuple(step.change for step in steps), steps=tuple(steps), tables=tuple(writes),
        records={step.lane.key: Counts(messages=len(names), given=len(names)) for step in steps}, by_field=True,
        ends={step.source: (0, step.end) for step in steps}, run_id="r", version="v",
    )  # fmt: skip


def _lengthen(place: Place, batches: int) -> None:
    """Write as many batches into the history as copies of the last one."""
    ((last,),) = place.sql("SELECT last_batch_id FROM kpipe_pipelines")
    for table in (BATCHES, TARGETS):
        values = ", ".join(f"concat('copy {batches} ', n)" if name == "batch_id" else f'"{name}"' for name in table.columns)
        copies = f"(SELECT generate_series AS n FROM generate_series(1, {batches})) AS c"
        place.sql(f"INSERT INTO {table.name} SELECT {values} FROM {table.name}, {copies} WHERE batch_id = '{last}'")


class _Clock:
    """CPU milliseconds of this process and of a server."""

    def __init__(self, server: PostgresServer | None) -> None:
        self._server = server

    def now(self) -> float:
        """Return the CPU seconds."""
        found = time.process_time()
        if self._server is not None and self._server.process is not None:
            found += cpu_seconds(self._server.process.pid)
        return found

    def spent(self, work: Callable[[], Any]) -> float:
        """Return the milliseconds of a call."""
        began = self.now()
        work()
        return (self.now() - began) * 1000

    def median(self, work: Callable[[], Any]) -> str:
        """Return the median of some calls, in milliseconds."""
        return f"{statistics.median(self.spent(work) for _ in range(_REPEATS)):.1f}"


def _measured(place: Place, clock: _Clock, names: list[str]) -> dict[str, str]:
    """Measure three batches after the history that there is."""
    destination: Any = place.open(table=_TEMPLATE)

    def opened() -> Any:
        return place.open(table=_TEMPLATE)

    found = {"names": clock.median(lambda: opened().tables_written())}
    destination.tables_written()
    commits = [clock.spent(partial(destination.commit, _batch(place, destination, names))) for _ in range(_REPEATS)]
    found["commit"] = f"{statistics.median(commits):.1f}"
    found["batch"] = clock.median(lambda: (destination.tables_written(), destination.columns_of(names)))
    found["idle"] = clock.median(lambda: opened().ledger())
    return found


def main() -> None:
    """Measure."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("kinds", nargs="*", default=["duckdb", "postgres"], metavar="KIND")
    options.add_argument("--tables", default="1,10,100")
    options.add_argument("--history", default="10,200")
    given = options.parse_args()
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["destination", "tables", "batches", "what", "cpu_ms", "load"])
    with ExitStack() as stack:
        server = stack.enter_context(PostgresServer()) if "postgres" in given.kinds else None
        for kind in given.kinds:
            for tables in map(int, given.tables.split(",")):
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kpipe-fields-")))
                place: Place = DuckDBPlace(folder) if server is None or kind != "postgres" else PostgresPlace(folder, server)
                clock, names = _Clock(server if kind == "postgres" else None), [f"e_{number:03d}" for number in range(tables)]
                destination: Any = place.open(table=_TEMPLATE)
                destination.commit(begin("tweets", _PARTITIONS))
                first = clock.spent(partial(destination.commit, _batch(place, destination, names)))
                out.writerow([kind, tables, 0, "first", f"{first:.1f}", f"{os.getloadavg()[0]:.1f}"])
                done = 1
                for goal in map(int, given.history.split(",")):
                    if goal > done:
                        _lengthen(place, goal - done)
                    done = max(goal, done) + _REPEATS
                    for what, ms in _measured(place, clock, names).items():
                        out.writerow([kind, tables, goal, what, ms, f"{os.getloadavg()[0]:.1f}"])
                    sys.stdout.flush()


if __name__ == "__main__":
    main()
