"""Convert staged files to records block by block, in the order that the topic guarantees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from kpipe.batch.batch import Commit
from kpipe.schema.columns import Columns
from resources.destinations import file_blocks
from resources.destinations.arrow_types import of_schema
from resources.destinations.kafka_sink.messages import Message, Shape
from resources.destinations.offset_order import OffsetOrder
from resources.destinations.sql.column_matching import matched
from resources.destinations.staged_file_check import Proven, Writes
from resources.type_compatibility import COORDINATES

__all__ = ["blocks", "check", "written"]

_Alike = tuple[bool, pa.Schema]
_ROWS, _BYTES = 4096, 32 << 20  # of the blocks that are converted together


def blocks(file: Proven) -> Iterator[pa.Table]:
    """Read the rows of a file in blocks."""
    return file_blocks.blocks(file.path, _ROWS, _BYTES)


def check(commit: Commit, writes: Writes, key: Sequence[str], known: Columns) -> None:
    """Check that files have the columns of their commit.

    Raises:
        StagingFailed: a file has other columns.
    """
    lowered = {name.lower() for name in key}
    keys = Columns(tuple((name, kind) for name, kind in commit.only.columns if name.lower() in lowered))
    for files, meant in ((writes.rows, commit), (writes.deletes, commit.writing(columns=keys))):
        for file in files:
            matched(of_schema(pq.read_schema(file.path), f"staged file {file.path!r}"), file, meant, known)


def written(commit: Commit, writes: Writes, shape: Shape, known: Columns) -> Iterator[list[Message]]:
    """Return a batch's records as lists: those of a source partition in the order of offsets, including tombstones.

    Each record has the topic and partition of its row: one list may contain several.
    """
    topics = {step.source.partition: step.source.topic.name for step in commit.steps}
    columns = commit.only.columns
    meant = Columns(tuple((name, kind) for name, kind in known if name in columns or name in COORDINATES))
    # A column that was widened in the table keeps the batch's type here: the JSON is equal.
    meant = Columns(tuple((name, columns.get(name) or kind) for name, kind in meant))
    deletes = {file.path for file in writes.deletes}

    def made(found: Sequence[_Piece]) -> list[Message]:
        """Convert rows of one schema together, however many pieces they are in."""
        table = pa.concat_tables(piece.rows for piece in found).combine_chunks()
        held = {name.lower() for name in table.column_names}
        columns = Columns(tuple((name, kind) for name, kind in meant if name.lower() in held))
        make = shape.deletes if found[0].deletes else shape.rows
        return list(make(table, columns, _topics(table, topics)))

    order = OffsetOrder((*writes.deletes, *writes.rows), _ROWS, _BYTES)
    blocks_of = (block for origin in order.origins for block in order.blocks(origin))
    for window in _windows(_Piece(file.path in deletes, rows) for file, rows in blocks_of):
        alike: dict[_Alike, list[_Piece]] = {}
        for piece in window:
            alike.setdefault(piece.alike, []).append(piece)
        messages = {key: iter(made(found)) for key, found in alike.items()}
        yield [message for piece in window for message in islice(messages[piece.alike], piece.rows.num_rows)]


@dataclass(frozen=True)
class _Piece:
    """Consecutive rows, or tombstones, of one partition in a file."""

    deletes: bool
    rows: pa.Table

    @property
    def alike(self) -> _Alike:
        """Key that is equal for pieces that can be converted together."""
        return self.deletes, self.rows.schema


def _windows(pieces: Iterator[_Piece]) -> Iterator[list[_Piece]]:
    """Group pieces that are converted together."""
    window: list[_Piece] = []
    rows = size = 0
    for piece in pieces:
        if window and (rows + piece.rows.num_rows > _ROWS or size + piece.rows.nbytes > _BYTES):
            yield window
            window, rows, size = [], 0, 0
        window.append(piece)
        rows, size = rows + piece.rows.num_rows, size + piece.rows.nbytes
    if window:
        yield window


def _topics(table: pa.Table, topics: Mapping[int, str]) -> list[str]:
    """Return the source topic of each row."""
    if "_kafka_topic" in table.column_names:  # several topics may have a partition of this number
        names: list[str] = table.column("_kafka_topic").to_pylist()
        return names
    only = next(iter(topics.values()), "")
    return [topics.get(number, only) for number in table.column("_kafka_partition").to_pylist()]
