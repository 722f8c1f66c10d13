"""Convert staged Parquet files to text for a database: DuckDB writes blocks, no row passes through Python.

The database reads the same value from every text. Nested values are JSON with unchanged numbers, instants are in UTC. Lines of
CSV are for PostgreSQL's COPY: texts are quoted, NULL is an empty field, bytes are hexadecimal. Other databases build their own
lines from `text`.
"""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kpipe.expressions.json_text import composed, contains, json_text
from kpipe.schema.columns import INSTANT, ListOf, MapOf, Scalar, Struct, Type
from resources.destinations.sql.column_matching import Match
from resources.duckdb_engine.sandbox import literal
from resources.duckdb_engine.sql_types import READ, fitted

__all__ = ["blocks", "field", "filled", "joined", "lines", "sizes", "text"]

_BLOCK_ROWS = 8192  # a block of tweets is some 4 MB
_QUOTED = {"VARCHAR", "JSON"}
# to_json writes these in another form than PostgreSQL must read: long numbers in JSON lose digits, bytes are escaped.
_BY_HAND = {"JSON", "BLOB", "TIMESTAMP WITH TIME ZONE"}


def field(match: Match, nul: str = "") -> str:
    """Return a field of a line: an expression over a staged file that results in a text, or NULL.

    Args:
        match: the column.
        nul: replaces the character NUL in texts, which PostgreSQL would reject; empty: NUL stays.
    """
    value, have = fitted(*match), match[2]
    if nul and have == Scalar("VARCHAR"):
        value = f"replace({value}, chr(0), {literal(nul)})"
    return filled(value, have)


def filled(value: str, kind: Type) -> str:
    """Return a field of a line from an expression of that type."""
    found = text(value, kind)
    quoted = isinstance(kind, (ListOf, MapOf, Struct)) or kind.name in _QUOTED
    return f"""'"' || replace({found}, '"', '""') || '"'""" if quoted else found


def lines(matches: Sequence[Match], nul: str = "", first: Sequence[str] = ()) -> str:
    """Return the statement that selects a line for each row of its parameter, the files; `first`: fields before the columns."""
    fields = ", ',', ".join([*first, *(field(match, nul) for match in matches)])
    return f"SELECT concat({fields}, chr(10)) FROM {READ.format('?')}"  # concat skips NULL


def text(value: str, kind: Type) -> str:
    """Return an expression for the value as text that PostgreSQL's type reads."""
    if not isinstance(kind, Scalar):
        return composed(value, kind, lambda part: contains(part, _BY_HAND), _part)
    if kind.name == "BLOB":
        return f"'\\x' || hex({value})"
    if kind.name == "TIMESTAMP WITH TIME ZONE":
        # Infinity has no microseconds: it is a word, without a zone.
        return f"coalesce({_year(f'make_timestamp(epoch_us({value}))')} || '+00', CAST({value} AS VARCHAR))"
    return _year(value) if kind.name in ("DATE", "TIMESTAMP") else f"CAST({value} AS VARCHAR)"


def _year(value: str) -> str:
    return f"replace(CAST({value} AS VARCHAR), ' (BC)', ' BC')"


def _part(value: str, kind: Type) -> str:
    """Return the JSON text of a part of a nested value: instants with the zone UTC."""
    return f"CAST(to_json({text(value, kind)}) AS VARCHAR)" if kind == INSTANT else json_text(value, kind)


def blocks(connection: Any, statement: str, parameters: Sequence[Any]) -> Generator[memoryview, None, None]:
    """Yield the result of a statement with one text column, in blocks: the bytes of all texts, concatenated."""
    with connection.sql(statement, params=list(parameters)).to_arrow_reader(_BLOCK_ROWS) as reader:
        for batch in reader:
            if batch.num_rows:
                yield joined(batch.column(0))


def joined(array: Any) -> memoryview:
    """Return the memory of an Arrow array of texts without NULL: their bytes, concatenated."""
    offsets = _offsets(array)
    return memoryview(array.buffers()[2])[int(offsets[0]) : int(offsets[-1])]


def sizes(array: Any) -> Any:
    """Return the number of bytes of each text."""
    return np.diff(_offsets(array))


def _offsets(array: Any) -> Any:
    large = pa.types.is_large_string(array.type)
    if not large and not pa.types.is_string(array.type):
        raise TypeError(f"not a text column: {array.type}")
    kind: Any = np.int64 if large else np.int32
    return np.frombuffer(array.buffers()[1], kind)[array.offset : array.offset + len(array) + 1]
