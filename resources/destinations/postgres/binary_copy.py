"""Convert staged Parquet files to PostgreSQL's binary COPY format: half of the server's time for CSV (docs/adr/0015).

DuckDB converts every column to the representation of PostgreSQL's type, compiled code writes the rows
(resources/native/pgcopy.c).
"""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kpipe.errors import DestinationError
from resources.destinations.postgres import types
from resources.destinations.sql import csv_copy
from resources.destinations.sql.column_matching import Match
from resources.duckdb_engine.sql_types import READ, fitted
from resources.native import library

__all__ = ["blocks"]

_FIXED, _BOOLEAN, _BYTES, _PREFIXED, _NUMERIC = range(5)
_BLOCK_ROWS = 8192
_HEAD, _END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
# Arrow counts from 1970, PostgreSQL from 2000.
_DAYS, _MICROSECONDS = -10_957, -946_684_800_000_000
#: By PostgreSQL's type: its code in the compiled library, and the number to add to each value.
_CODES = {
    "boolean": (_BOOLEAN, 0), "smallint": (_FIXED, 0), "integer": (_FIXED, 0), "bigint": (_FIXED, 0), "real": (_FIXED, 0),
    "double precision": (_FIXED, 0), "text": (_BYTES, 0), "bytea": (_BYTES, 0), "date": (_FIXED, _DAYS),
    "time without time zone": (_FIXED, 0), "timestamp without time zone": (_FIXED, _MICROSECONDS),
    "timestamp with time zone": (_FIXED, _MICROSECONDS), "uuid": (_BYTES, 0), "jsonb": (_PREFIXED, 0), "json": (_BYTES, 0),
}  # fmt: skip
_DUCKDB = {"smallint": "SMALLINT", "integer": "INTEGER", "bigint": "BIGINT", "real": "FLOAT", "double precision": "DOUBLE"}


def _type(match: Match, plain: bool) -> str:
    found = types.sql_type(match[2])
    return "json" if plain and found == "jsonb" else found


def _value(match: Match, found: str) -> str:
    """Return an expression over a staged file: the column in a type with the same bytes as PostgreSQL's."""
    value, have = fitted(*match), match[2]
    if found in _DUCKDB:
        return f"CAST({value} AS {_DUCKDB[found]})"
    if found == "uuid":
        return f"unhex(replace(CAST({value} AS VARCHAR), '-', ''))"
    if found.startswith("numeric"):
        return f"CAST({value} AS VARCHAR)"
    return csv_copy.text(value, have) if found in ("jsonb", "json") else value


def _select(matches: Sequence[Match]) -> str:
    """Return the statement that selects the columns; its parameter is the list of files."""
    # Named by number: two names may differ in case only.
    fields = (f"{_value(match, types.sql_type(match[2]))} AS c{at}" for at, match in enumerate(matches))
    return f"SELECT {', '.join(fields)} FROM {READ.format('?')}"


def blocks(connection: Any, matches: Sequence[Match], plain: Sequence[bool], paths: Sequence[str]) -> Generator[Any, None, None]:
    """Yield rows of files in COPY's format, in blocks.

    Args:
        connection: DuckDB's.
        matches: the columns.
        plain: of each column, whether its type in the table is `json`, not `jsonb`.
        paths: the files.

    Raises:
        DestinationError: a value is longer than a field of PostgreSQL, or a number is not a number.
    """
    found = library()
    assert found is not None
    codes = [_CODES.get(_type(match, json), (_NUMERIC, 0)) for match, json in zip(matches, plain, strict=True)]
    yield _HEAD
    with connection.sql(_select(matches), params=[list(paths)]).to_arrow_reader(_BLOCK_ROWS) as reader:
        for batch in reader:
            plan = np.array([_column(array, *code) for array, code in zip(batch.columns, codes, strict=True)], np.int64)
            address, count = plan.ctypes.data, len(codes)
            made = np.empty(found.kp_pgcopy_room(address, count, batch.num_rows), np.uint8)
            used = found.kp_pgcopy(address, count, batch.num_rows, made.ctypes.data)
            if used < 0:
                raise DestinationError(
                    "a value is longer than 2 GB, or a number is invalid: PostgreSQL does not accept it; nothing was written",
                    "remove it in a transform",
                )
            yield made.data[:used]
    yield _END


def _column(array: pa.Array, code: int, add: int) -> tuple[int, ...]:
    """Return the description of a column that pgcopy.c reads."""
    valid, *rest = array.buffers()
    known = valid.address if valid is not None and array.null_count else 0
    if code in (_FIXED, _BOOLEAN):
        width = array.type.bit_width // 8
        at = rest[0].address + (array.offset * width if code == _FIXED else 0)
        return (code, width, add, array.offset, known, at, 0)
    if not (pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)):
        raise TypeError(f"not a column of texts with long offsets: {array.type}")
    ends, values = rest
    return (code, 0, 0, array.offset, known, values.address if values is not None else 0, ends.address + array.offset * 8)
