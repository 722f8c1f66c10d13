"""Partition values of files: all rows of a file share them, which its footer proves."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kpipe.definition.lakehouse_options import Part
from kpipe.errors import DestinationError, SchemaConflict
from resources.destinations.arrow_types import owners
from resources.table_partitions import Values, apart
from resources.type_compatibility import COORDINATES

__all__ = ["agreed", "division"]


def division(file: pq.ParquetFile, parts: Sequence[Part]) -> Values | None:
    """Return the partition values that all rows of a file share; None: they differ, or the footer does not show it.

    Parquet writers leave out long bounds: PyArrow those of texts of more than 4,096 bytes (`DEFAULT_MAX_STATISTICS_SIZE`).

    Raises:
        SchemaConflict: the column's type cannot be a partition column.
    """
    meta, schema = file.metadata, file.schema_arrow
    found: list[Any] = []
    for part in parts:
        at = next((at for at, name in enumerate(schema.names) if name.lower() == part.column.lower()), None)
        if at is None:
            found.append(None)
            continue
        field = schema.field(at)
        column = owners(schema).index(at)
        told = [meta.row_group(group).column(column).statistics for group in range(meta.num_row_groups)]
        if any(item is None or not item.has_null_count for item in told):
            return None
        ends = [end for item in told if item.has_min_max for end in _ends(item, field.type)]
        nulls = sum(item.null_count for item in told)
        if nulls != meta.num_rows and (nulls or not all(item.has_min_max for item in told)):
            return None
        # Computed by the code that splits rows into partitions.
        shared = list(apart(pa.table({field.name: pa.array(ends or [None], _stored(field.type)).cast(field.type)}), [part]))
        if len(shared) != 1:
            return None
        found.append(shared[0][0][0])
    return tuple(found)


def _stored(kind: pa.DataType) -> pa.DataType:
    """Return the integer type that times are stored as: Python's dates cover years 1 to 9999 only."""
    return pa.int64() if pa.types.is_timestamp(kind) else pa.int32() if pa.types.is_date32(kind) else kind


def _ends(statistics: Any, kind: pa.DataType) -> tuple[Any, Any]:
    """Return the bounds of a row group."""
    return (statistics.min, statistics.max) if _stored(kind) == kind else (statistics.min_raw, statistics.max_raw)


def agreed(has: Sequence[Part], wanted: Sequence[Part], fresh: bool, known: Collection[str], place: str) -> tuple[Part, ...]:
    """Return the partition columns that a table is to have.

    Args:
        has: its partition columns.
        wanted: those of the definition; empty: keep the table's.
        fresh: whether the table has no rows, so that its partitioning can change.
        known: names of all columns after this commit. A table is created before its columns are known, and partitioned with its
            first rows.
        place: for messages.

    Raises:
        DestinationError: the table has other partition columns.
        SchemaConflict: the first rows lack such a column. They would make a table without partitions permanently.
    """
    names = {name.lower(): name for name in known}
    spelled = tuple(Part(names.get(part.column.lower(), part.column), part.unit) for part in wanted)
    if has and wanted and [str(part).lower() for part in has] != [str(part).lower() for part in wanted]:
        said = ", ".join(map(str, has))
        raise DestinationError(
            f"{place}: into.partition_by differs: the table is partitioned by {said}",
            f"set into.partition_by: [{said}], or leave it out",
        )
    if has or not wanted:
        return tuple(has)
    if not fresh:
        raise DestinationError(
            f"{place}: into.partition_by is {', '.join(map(str, wanted))}: the table has rows and is not partitioned",
            "remove into.partition_by, or choose another table: existing rows are not rewritten",
        )
    absent = [part.column for part in wanted if part.column.lower() not in names]
    if absent and (payload := [name for name in known if name not in COORDINATES.names()]):
        raise SchemaConflict(
            f"{place}: into.partition_by: no column {', '.join(absent)}: the first rows have {', '.join(payload)}",
            "correct into.partition_by; or declare the column (columns), if later records have it",
        )
    return () if absent else spelled
