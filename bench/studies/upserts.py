"""Measure upserts into an Iceberg table: kpipe's commit, beside the merge of deltalake and the upsert of PyIceberg.

    .venv/bin/python -m bench.studies.upserts [ROWS] [UPSERTS] [KIND ...]

Kinds: kpipe, deltalake, pyiceberg. Prints a line for each measurement, with seconds of wall-clock time and of CPU. Each table has
ROWS rows of a BIGINT key, a text of 40 characters and a number; half of the upserts replace a row, spread over all files. Files
are staged beforehand, as tasks do: only the commit is measured. Then 20 batches of 1,000 upserts follow.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kpipe.batch.batch import Commit, Counts, StagedFile, TableWrite
from kpipe.ledger.ledger import Step
from kpipe.maintenance.facts import Maintainable
from kpipe.maintenance.plan import Limits
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from kpipe.testing.commits import commit_to
from resources.testing.place import begin, live
from resources.testing.state import proof
from tests.resources.destinations.lake_place import IcebergPlace

COLUMNS = Columns.of({"id": "BIGINT", "text": "VARCHAR", "n": "BIGINT"})
RULE = KeyRule(("id",), "replace")
SMALL, BATCHES = 1_000, 20
_STEP = 2_000_000  # rows of a batch that loads the table


def rows(ids: np.ndarray, first: int) -> pa.Table:
    """Return rows with these keys, and offsets from `first` on."""
    offsets = np.arange(first, first + len(ids))
    texts = pa.array([f"{number:040d}" for number in ids])
    places = {"_kafka_partition": pa.array(np.zeros(len(ids), np.int32)), "_kafka_offset": pa.array(offsets)}
    moments = pa.array(offsets).cast(pa.timestamp("us", "UTC"))
    return pa.table({"id": ids, "text": texts, "n": offsets, **places, "_kafka_timestamp": moments})


def ids(chance: np.random.Generator, known: int, count: int) -> np.ndarray:
    """Return distinct keys, half of which are among the first `known`."""
    old = chance.choice(known, count - count // 2, replace=False)
    return chance.permutation(np.concatenate([old, np.arange(known, known + count // 2)]))


class Kpipe:
    """A keyed Iceberg table, through the destination."""

    def __init__(self, folder: Path) -> None:
        self._place = IcebergPlace(folder)
        self._destination = self._place.open(rule=RULE)
        self._destination.commit(begin("tweets", [0]))
        self._next = 0

    def prepared(self, table: pa.Table) -> Commit:
        """Stage a batch."""
        path = self._place.staging / f"{uuid.uuid4().hex}.parquet"
        pq.write_table(table, path)
        data = path.read_bytes()
        file = StagedFile(str(path), len(data), len(table), hashlib.sha256(data).hexdigest())
        self._next += len(table)
        step = Step(live(self._destination.ledger()[1], 0), self._next)
        counts = {step.lane.key: Counts(messages=len(table), rows=len(table))}
        return commit_to(
            TableWrite(columns=COLUMNS, files=(file,)), counts, id=uuid.uuid4().hex, pipeline="tweets", changes=(step.change,),
            steps=(step,), started_ms=0, seconds=0.0,
        )  # fmt: skip

    def apply(self, commit: Commit) -> None:
        """Commit the batch."""
        self._destination.commit(commit)

    def maintain(self) -> None:
        """Compact the table, and remove what was superseded."""
        assert isinstance(self._destination, Maintainable)
        self._destination.maintain(Limits(), self._place.staging.parent / "scratch", retention_s=0)

    def check(self) -> None:
        """Prove the table."""
        assert proof(self._destination).ok


class Deltalake:
    """A merge of the library of delta-rs."""

    def __init__(self, folder: Path) -> None:
        self._place = str(folder / "delta")

    def prepared(self, table: pa.Table) -> pa.Table:
        """Return the rows: they are in memory."""
        return table

    def apply(self, table: pa.Table) -> None:
        """Merge the rows; the first ones create the table."""
        from deltalake import DeltaTable, write_deltalake

        if not DeltaTable.is_deltatable(self._place):
            write_deltalake(self._place, table)
            return
        merge = DeltaTable(self._place).merge(table, "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def check(self) -> None:
        """Do nothing: the library has no proof."""


class Pyiceberg:
    """PyIceberg's upsert."""

    def __init__(self, folder: Path) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        self._catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
        self._catalog.create_namespace("d")
        self._table = self._catalog.create_table("d.t", rows(np.arange(1), 0).schema)

    def prepared(self, table: pa.Table) -> pa.Table:
        """Return the rows: they are in memory."""
        return table

    def apply(self, table: pa.Table) -> None:
        """Upsert the rows; the first ones are appended."""
        if self._table.current_snapshot() is None:
            self._table.append(table)
        else:
            self._table.upsert(table, join_cols=["id"])

    def check(self) -> None:
        """Do nothing: the library has no proof."""


KINDS: dict[str, Callable[[Path], Kpipe | Deltalake | Pyiceberg]] = {
    "kpipe": Kpipe, "deltalake": Deltalake, "pyiceberg": Pyiceberg,
}  # fmt: skip


def measured(kind: str, folder: Path, size: int, upserts: int) -> Iterator[tuple[str, float, float]]:
    """Return what was measured, and its seconds of wall-clock time and of CPU."""
    chance = np.random.default_rng(1)
    made = KINDS[kind](folder)
    loaded = 0
    while loaded < size:  # kpipe loads in batches; the first write of the others is not an upsert
        count = min(_STEP, size - loaded) if kind == "kpipe" else size
        yield f"load {count:,} rows", *_timed(made, rows(np.arange(loaded, loaded + count), loaded))
        loaded += count
    yield f"upsert {upserts:,} into {size:,}", *_timed(made, rows(ids(chance, size, upserts), loaded))
    loaded, known = loaded + upserts, size + upserts // 2
    small = []
    for _ in range(BATCHES if kind == "kpipe" else 3):
        small.append(_timed(made, rows(ids(chance, known, SMALL), loaded)))
        loaded, known = loaded + SMALL, known + SMALL // 2
    yield f"upsert {SMALL:,} (median of {len(small)})", median(item[0] for item in small), median(item[1] for item in small)
    made.check()


def _timed(made: Kpipe | Deltalake | Pyiceberg, table: pa.Table) -> tuple[float, float]:
    prepared = made.prepared(table)
    wall, cpu = time.perf_counter(), time.process_time()
    made.apply(prepared)
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    """Measure each kind in a folder of its own."""
    size, upserts = (int(text) for text in (*sys.argv[1:3], "10000000", "1000000")[:2])
    for kind in sys.argv[3:] or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            for what, wall, cpu in measured(kind, Path(folder), size, upserts):
                print(f"{kind:10} {what:36} {wall:9.2f} s {cpu:9.2f} s CPU", flush=True)


if __name__ == "__main__":
    main()
