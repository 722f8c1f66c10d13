"""Read staged rows block by block, in the order of offsets within each partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from kpipe.batch.batch import Commit
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import ORIGINAL
from resources.destinations.arrow_types import of_schema
from resources.destinations.lakehouse.schema_evolution import grown
from resources.destinations.offset_order import OffsetOrder, Origin
from resources.destinations.sql.column_matching import matched, widening
from resources.destinations.staged_file_check import Proven
from resources.type_compatibility import carried

__all__ = ["BLOCK_BYTES", "Block", "check", "windows"]

#: Bytes of a block, which one row may exceed.
BLOCK_BYTES = 4 << 20
_BLOCK = 1024  # rows of a partition in one block
_AT_ONCE = 16  # partitions with a block in memory


@dataclass(frozen=True)
class Block:
    """The next rows of one partition.

    Attributes:
        topic: name of the topic; empty where rows have no topic column.
        partition: number of the partition.
        table: the rows.
    """

    topic: str
    partition: int
    table: pa.Table


def check(commit: Commit, files: Sequence[Proven], known: Columns) -> Columns:
    """Check that files have the columns of their commit, and that their types match those of earlier rows.

    Returns:
        All payload columns of earlier rows and of these.

    Raises:
        SchemaConflict: a column has another type than before.
        StagingFailed: a file has other columns.
    """
    carried(commit, ())  # first, so that a payload column with a coordinate's name is reported
    wide = grown(known, widening(known, commit.only.columns))
    for file in files:
        stored = of_schema(pq.read_schema(file.path), f"staged file {file.path!r}").without((ORIGINAL,))
        matched(stored, file, commit, carried(commit.writing(columns=wide), file.names))
    return wide


def windows(files: Sequence[Proven], size: int | None) -> Iterator[list[Block]]:
    """Return all rows in windows: a block of each of several partitions, in the order of offsets. The same at each call.

    Args:
        files: the files of the rows.
        size: limit of bytes in a block; None: no limit.
    """
    order = OffsetOrder(files, _BLOCK, size)
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
