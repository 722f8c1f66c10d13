"""Staged files as records, a block at a time, in the order that readers of the topic are promised."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from heapq import merge

import pyarrow as pa
import pyarrow.parquet as pq

from kpipe.batch import Commit
from kpipe.schema import Columns
from resources.destinations.arrow import of_schema
from resources.destinations.fitting import COORDINATES
from resources.destinations.kafka.messages import Message, Shape
from resources.destinations.relational.matching import matched
from resources.destinations.staged import Proven, Writes

__all__ = ["blocks", "check", "in_order", "written"]

_Made = tuple[pa.Table, list[Message]]
_BLOCK = 4096  # rows that are records at once


def blocks(file: Proven) -> Iterator[pa.Table]:
    """The rows of a file, some at a time."""
    with pq.ParquetFile(file.path) as parquet:
        for batch in parquet.iter_batches(batch_size=_BLOCK):
            yield pa.Table.from_batches([batch])


def in_order(files: Sequence[Proven]) -> list[Proven]:
    """Files by the partition and offset of their first row; those without offsets stay in the order of the reports."""

    def first(at: int) -> tuple[int, int, int]:
        head = next(blocks(files[at])).slice(0, 1).to_pylist()[0] if files[at].rows else {}
        return head.get("_kafka_partition") or 0, head.get("_kafka_offset") or 0, at

    return [files[at] for _, _, at in sorted(map(first, range(len(files))))]


def check(commit: Commit, writes: Writes, key: Sequence[str], known: Columns) -> None:
    """Files hold the columns of their commit.

    Raises:
        StagingFailed: one does not.
    """
    lowered = {name.lower() for name in key}
    keys = Columns(tuple((name, kind) for name, kind in commit.columns if name.lower() in lowered))
    for files, meant in ((writes.rows, commit), (writes.deletes, replace(commit, columns=keys))):
        for file in files:
            matched(of_schema(pq.read_schema(file.path), f"staged file {file.path!r}"), file, meant, known)


def written(commit: Commit, writes: Writes, shape: Shape, known: Columns) -> Iterator[list[Message]]:
    """Everything that a batch writes, as lists of records: within a partition in the order of offsets.

    Where there are no tombstones, blocks go through as they are; else both kinds are merged by partition and offset, a block
    of each in memory.
    """
    topics = {step.source.partition: step.source.topic.name for step in commit.steps}
    meant = Columns(tuple((name, kind) for name, kind in known if name in commit.columns or name in COORDINATES))
    # A type that the table has widened is written as the batch has it: the document is the same.
    meant = Columns(tuple((name, commit.columns.get(name) or kind) for name, kind in meant))

    def made(files: Sequence[Proven], make: Callable[[pa.Table, Columns, str], Iterator[Message]]) -> Iterator[_Made]:
        for file in in_order(files):
            held = {name.lower() for name in file.names}
            columns = Columns(tuple((name, kind) for name, kind in meant if name.lower() in held))
            for block in blocks(file):
                yield block, list(make(block, columns, _topic(block, topics)))

    rows = made(writes.rows, shape.rows)
    if not writes.deletes:
        yield from (messages for _, messages in rows)
        return
    streams = [_placed(rows, 1), _placed(made(writes.deletes, shape.deletes), 0)]
    some: list[Message] = []
    for _, message in merge(*streams, key=lambda item: item[0]):
        some.append(message)
        if len(some) >= _BLOCK:
            yield some
            some = []
    yield some


def _placed(made: Iterator[_Made], kind: int) -> Iterator[tuple[tuple[int, int, int], Message]]:
    for block, messages in made:
        partitions, offsets = (block.column(f"_kafka_{name}").to_pylist() for name in ("partition", "offset"))
        for partition, offset, message in zip(partitions, offsets, messages, strict=True):
            yield (partition, offset, kind), message


def _topic(block: pa.Table, topics: dict[int, str]) -> str:
    """Name of the topic that the rows of a block come from: all of one partition."""
    if "_kafka_topic" in block.column_names:  # of several topics, two may have a partition of this number
        return str(block.column("_kafka_topic")[0].as_py())
    partition = block.column("_kafka_partition")[0].as_py()
    return topics.get(partition, next(iter(topics.values()), ""))
