"""Staged Parquet files as texts for a database: DuckDB writes them in blocks, no row passes through Python.

Everything is written so that the database reads the same value: nested values as JSON with every number as it is, instants in
UTC. Lines of CSV are for PostgreSQL's COPY: texts quoted, NULL as nothing at all, bytes as hexadecimal. Other databases make
lines of their own from `text`.
"""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kpipe.schema.columns import ListOf, MapOf, Scalar, Struct, Type
from resources.destinations.sql.column_matching import Match
from resources.duckdb_engine.sandbox import literal
from resources.duckdb_engine.sql_types import READ, fitted

__all__ = ["blocks", "field", "filled", "joined", "lines", "sizes", "text"]

_BLOCK_ROWS = 8192  # a block of tweets is some 4 MB
_QUOTED = {"VARCHAR", "JSON"}
# to_json writes these otherwise than PostgreSQL shall read them: JSON's long numbers lose digits, bytes are escaped.
_BY_HAND = {"JSON", "BLOB", "TIMESTAMP WITH TIME ZONE"}


def field(match: Match, nul: str = "") -> str:
    """A field of a line: an expression over a staged file that gives a text, or NULL.

    Args:
        match: the column.
        nul: what stands for the character NUL in texts, which PostgreSQL would refuse; empty: it is left as it is.
    """
    value, have = fitted(*match), match[2]
    if nul and have == Scalar("VARCHAR"):
        value = f"replace({value}, chr(0), {literal(nul)})"
    return filled(value, have)


def filled(value: str, kind: Type) -> str:
    """A field of a line from an expression of that type."""
    found = text(value, kind)
    quoted = isinstance(kind, (ListOf, MapOf, Struct)) or kind.name in _QUOTED
    return f"""'"' || replace({found}, '"', '""') || '"'""" if quoted else found


def lines(matches: Sequence[Match], nul: str = "", first: Sequence[str] = ()) -> str:
    """The statement that gives a line for each row of the files that are its parameter; `first` are fields before the columns."""
    fields = ", ',', ".join([*first, *(field(match, nul) for match in matches)])
    return f"SELECT concat({fields}, chr(10)) FROM {READ.format('?')}"  # concat takes NULL for nothing


def text(value: str, kind: Type) -> str:
    """An expression for the value as PostgreSQL's own type reads it."""
    if not isinstance(kind, Scalar):
        return _json(value, kind, 0)
    if kind.name == "BLOB":
        return f"'\\x' || hex({value})"
    if kind.name == "TIMESTAMP WITH TIME ZONE":
        # Infinity has no microseconds: it is a word, to which no zone belongs.
        return f"coalesce({_year(f'make_timestamp(epoch_us({value}))')} || '+00', CAST({value} AS VARCHAR))"
    return _year(value) if kind.name in ("DATE", "TIMESTAMP") else f"CAST({value} AS VARCHAR)"


def _year(value: str) -> str:
    return f"replace(CAST({value} AS VARCHAR), ' (BC)', ' BC')"


def _json(value: str, kind: Type, depth: int) -> str:
    if not _by_hand(kind):
        return f"CAST(to_json({value}) AS VARCHAR)"
    if isinstance(kind, ListOf):
        item = f"i{depth}"
        made = f"list_transform({value}, lambda {item}: coalesce({_json(item, kind.item, depth + 1)}, 'null'))"
        return f"'[' || array_to_string({made}, ',') || ']'"
    if isinstance(kind, MapOf):
        entry = f"i{depth}"
        member = f"to_json({entry}.key) || ':' || coalesce({_json(f'{entry}.value', kind.item, depth + 1)}, 'null')"
        return f"'{{' || array_to_string(list_transform(map_entries({value}), lambda {entry}: {member}), ',') || '}}'"
    if isinstance(kind, Struct):
        parts = []
        for name, inner in kind.fields:
            member = f"struct_extract({value}, {literal(name)})"
            head = literal(json.dumps(name, ensure_ascii=False) + ":")
            parts.append(f"{head}, coalesce({_json(member, inner, depth)}, 'null')")
        return f"CASE WHEN {value} IS NOT NULL THEN concat('{{', {', '.join(_between(parts))}, '}}') END"
    if kind.name == "JSON":
        return f"CAST({value} AS VARCHAR)"
    if kind.name == "BLOB":
        return f"""'"' || base64({value}) || '"'"""
    return f"CAST(to_json({text(value, kind)}) AS VARCHAR)"


def _between(parts: Sequence[str]) -> Iterator[str]:
    for at, part in enumerate(parts):
        yield part if not at else f"',', {part}"


def _by_hand(kind: Type) -> bool:
    if isinstance(kind, (ListOf, MapOf)):
        return _by_hand(kind.item)
    if isinstance(kind, Struct):
        return any(_by_hand(item) for _, item in kind.fields)
    return kind.name in _BY_HAND


def blocks(connection: Any, statement: str, parameters: Sequence[Any]) -> Generator[memoryview, None, None]:
    """What a statement of one text column gives, as bytes one behind the other."""
    with connection.sql(statement, params=list(parameters)).to_arrow_reader(_BLOCK_ROWS) as reader:
        for batch in reader:
            if batch.num_rows:
                yield joined(batch.column(0))


def joined(array: Any) -> memoryview:
    """The texts of an Arrow array, none of them NULL, as they lie in memory: one behind the other."""
    offsets = _offsets(array)
    return memoryview(array.buffers()[2])[int(offsets[0]) : int(offsets[-1])]


def sizes(array: Any) -> Any:
    """How many bytes each text has."""
    return np.diff(_offsets(array))


def _offsets(array: Any) -> Any:
    large = pa.types.is_large_string(array.type)
    if not large and not pa.types.is_string(array.type):
        raise TypeError(f"not a text column: {array.type}")
    kind: Any = np.int64 if large else np.int32
    return np.frombuffer(array.buffers()[1], kind)[array.offset : array.offset + len(array) + 1]
