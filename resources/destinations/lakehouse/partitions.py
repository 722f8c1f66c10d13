"""Files of tables that are divided by values of columns: each holds rows of one division, which its footer proves."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kpipe.definition.lakehouse_options import Part
from kpipe.errors import DestinationError
from resources.table_partitions import Values, apart

__all__ = ["agreed", "division"]


def division(file: pq.ParquetFile, parts: Sequence[Part]) -> Values | None:
    """The values that all rows of a file share; None where they do not, or its footer does not tell.

    Raises:
        SchemaConflict: a table cannot be divided by a column of that type.
    """
    meta, schema = file.metadata, file.schema_arrow
    found: list[Any] = []
    for part in parts:
        at = next((at for at, name in enumerate(schema.names) if name.lower() == part.column.lower()), None)
        if at is None:
            found.append(None)
            continue
        field = schema.field(at)
        column = next(i for i in range(meta.num_columns) if meta.schema.column(i).path.split(".")[0] == field.name)
        told = [meta.row_group(group).column(column).statistics for group in range(meta.num_row_groups)]
        if any(item is None or not item.has_null_count for item in told):
            return None
        ends = [end for item in told if item.has_min_max for end in _ends(item, field.type)]
        nulls = sum(item.null_count for item in told)
        if nulls not in (0, meta.num_rows) or (not nulls and not ends):
            return None
        # Decided by the very code that took rows apart.
        shared = list(apart(pa.table({field.name: pa.array(ends or [None], _stored(field.type)).cast(field.type)}), [part]))
        if len(shared) != 1:
            return None
        found.append(shared[0][0][0])
    return tuple(found)


def _stored(kind: pa.DataType) -> pa.DataType:
    """The numbers that times are stored as: Python has them of years 1 to 9999 only."""
    return pa.int64() if pa.types.is_timestamp(kind) else pa.int32() if pa.types.is_date32(kind) else kind


def _ends(statistics: Any, kind: pa.DataType) -> tuple[Any, Any]:
    """Bounds of a row group."""
    return (statistics.min, statistics.max) if _stored(kind) == kind else (statistics.min_raw, statistics.max_raw)


def agreed(has: Sequence[Part], wanted: Sequence[Part], fresh: bool, known: Collection[str], place: str) -> tuple[Part, ...]:
    """What a table is to be divided by.

    Args:
        has: what it is divided by.
        wanted: what the definition says; nothing: as it is.
        fresh: whether it holds no rows, so that it can still be divided.
        known: names of its columns, as they will be. A table is made before its columns are known, and divided with its first
            rows.
        place: for messages.

    Raises:
        DestinationError: it is divided by something else.
    """
    names = {name.lower(): name for name in known}
    spelled = tuple(Part(names.get(part.column.lower(), part.column), part.unit) for part in wanted)
    if has and wanted and [str(part).lower() for part in has] != [str(part).lower() for part in wanted]:
        said = ", ".join(map(str, has))
        raise DestinationError(f"{place} is divided by {said}", f"write into.partition_by: [{said}], or leave it out")
    if has or not wanted:
        return tuple(has)
    if not fresh:
        raise DestinationError(
            f"{place} is not divided, and into.partition_by asks for {', '.join(map(str, wanted))}",
            "leave it out, or name another table: rows that are there stay where they are",
        )
    return spelled if all(part.column.lower() in names for part in wanted) else ()
