"""Staged rows of each partition in the order of their offsets, some at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from kpipe.batch.batch import Commit
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import ORIGINAL
from resources.destinations.arrow_types import of_schema
from resources.destinations.lakehouse.type_widening import grown
from resources.destinations.offset_order import OffsetOrder, Origin
from resources.destinations.sql.column_matching import matched, widening
from resources.destinations.staged_file_check import Proven
from resources.type_compatibility import carried

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
    """Return all rows: a block of each of some partitions at a time, within a partition in order. The same at each call."""
    order = OffsetOrder(files, _BLOCK)
    waiting = iter([_blocks(order, origin) for origin in sorted(order.origins)])
    active = list(islice(waiting, _AT_ONCE))
    while active:
        found = [(source, next(source, None)) for source in active]
        blocks = [block for _, block in found if block is not None]
        if blocks:
            yield blocks
        left = [source for source, block in found if block is not None]
        active = [*left, *islice(waiting, _AT_ONCE - len(left))]


def _blocks(order: OffsetOrder, origin: Origin) -> Iterator[Block]:
    for _, table in order.blocks(origin):
        yield Block(*origin, table)
