"""Convert rows in Arrow to records: each row is a JSON object."""

from __future__ import annotations

import pyarrow as pa

from kpipe.errors import ReadFailed, SchemaConflict
from resources.destinations.arrow_types import of_schema
from resources.destinations.json_documents import documents
from resources.kafka.record_block import COLUMNS, RecordBlock

__all__ = ["json_records", "json_rows"]


def json_rows(where: str, rows: pa.Table, offsets: pa.Array) -> RecordBlock:
    """Return rows as records at these offsets.

    Args:
        where: the split, for messages.
        rows: the rows.
        offsets: of each row, int64.

    Raises:
        ReadFailed: a column has a type that has no form in JSON, or a time has more digits than microseconds.
    """
    try:
        exact = rows.cast(pa.schema([pa.field(field.name, _exact(field.type)) for field in rows.schema]))
        return json_records(documents(exact, of_schema(exact.schema, where)), offsets)
    except pa.ArrowInvalid as error:
        raise ReadFailed(f"{where}: {error}", "write its times with microseconds") from None
    except SchemaConflict as error:
        raise ReadFailed(error.what, "leave the column out") from None


def json_records(values: list[str], offsets: pa.Array) -> RecordBlock:
    """Return documents as records at these offsets."""
    size = len(values)
    none = pa.nulls(size, pa.binary())
    lines = pa.array([f"{value}\n".encode() for value in values], pa.large_binary())
    return RecordBlock(pa.table([offsets, pa.repeat(pa.scalar(-1, pa.int64()), size), lines, none, none], schema=COLUMNS))


def _exact(kind: pa.DataType) -> pa.DataType:
    """Return the type of staged files that has the same values; microseconds are the finest unit."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz is not None else None)
    if pa.types.is_time(kind):
        return pa.time64("us")
    if pa.types.is_date(kind):
        return pa.date32()
    return pa.float32() if pa.types.is_float16(kind) else kind
