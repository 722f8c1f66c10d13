"""Staged rows of each partition in the order of their offsets, some at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from kpipe.batch import Commit
from kpipe.keys import ORIGINAL
from kpipe.schema import Columns
from resources.destinations.arrow import of_schema
from resources.destinations.fitting import carried
from resources.destinations.lake.widening import grown
from resources.destinations.relational.matching import matched, widening
from resources.destinations.staged import Proven

__all__ = ["Block", "check", "windows"]

_BLOCK = 1024  # rows of a partition at once
_AT_ONCE = 16  # partitions of which a block is in memory


@dataclass(frozen=True)
class Block:
    """Rows of one partition, the next ones.

    Attributes:
        topic: its name; empty where rows do not name it.
        partition: its number.
        table: the rows.
    """

    topic: str
    partition: int
    table: pa.Table


@dataclass(frozen=True)
class _Run:
    """Rows of one partition that stand behind each other in a file."""

    file: Proven
    at: int
    count: int
    whole: bool


def check(commit: Commit, files: Sequence[Proven], known: Columns) -> Columns:
    """Files hold the columns of their commit, and these can stand beside those that rows had before.

    Returns:
        All payload columns that rows have had then.

    Raises:
        SchemaConflict: a column has another type than before.
        StagingFailed: a file holds other columns.
    """
    carried(commit, ())  # a payload column with the name of a coordinate is said first
    wide = grown(known, widening(known, commit.columns))
    for file in files:
        stored = of_schema(pq.read_schema(file.path), f"staged file {file.path!r}").without((ORIGINAL,))
        matched(stored, file, commit, carried(replace(commit, columns=wide), file.names))
    return wide


def windows(files: Sequence[Proven]) -> Iterator[list[Block]]:
    """All rows: a block of each of some partitions at a time, within a partition in order. The same whenever it is called."""
    waiting = iter([_blocks(topic, number, runs) for (topic, number), runs in sorted(_runs(files).items())])
    active = list(islice(waiting, _AT_ONCE))
    while active:
        found = [(source, next(source, None)) for source in active]
        blocks = [block for _, block in found if block is not None]
        if blocks:
            yield blocks
        left = [source for source, block in found if block is not None]
        active = [*left, *islice(waiting, _AT_ONCE - len(left))]


def _runs(files: Sequence[Proven]) -> dict[tuple[str, int], list[_Run]]:
    """Where the rows of each partition are: by offset, without offsets as the files come."""
    found: dict[tuple[str, int], list[tuple[int, int, _Run]]] = {}
    for at, file in enumerate(files):
        names = [name for name in ("_kafka_topic", "_kafka_partition", "_kafka_offset") if name in file.names]
        table = pq.read_table(file.path, columns=names)
        topics = table.column("_kafka_topic").to_pylist() if "_kafka_topic" in names else [None] * table.num_rows
        places = list(zip(topics, table.column("_kafka_partition").to_pylist(), strict=True))
        offsets = table.column("_kafka_offset")
        starts = [0, *(n for n in range(1, len(places)) if places[n] != places[n - 1])] if places else []
        for start, end in zip(starts, [*starts[1:], len(places)], strict=True):
            topic, number = places[start]
            run = _Run(file, start, end - start, len(starts) == 1)
            found.setdefault((topic or "", number), []).append((offsets[start].as_py() or 0, at, run))
    return {place: [run for *_, run in sorted(runs, key=lambda item: item[:2])] for place, runs in found.items()}


def _blocks(topic: str, number: int, runs: Sequence[_Run]) -> Iterator[Block]:
    for run in runs:
        if run.whole:
            with pq.ParquetFile(run.file.path) as parquet:
                for batch in parquet.iter_batches(batch_size=_BLOCK):
                    yield Block(topic, number, pa.Table.from_batches([batch]))
            continue
        rows = pq.read_table(run.file.path).slice(run.at, run.count)  # several ranges share a file where all are small
        for at in range(0, run.count, _BLOCK):
            yield Block(topic, number, rows.slice(at, _BLOCK))
