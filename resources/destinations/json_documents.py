"""Convert rows to JSON documents, in blocks by DuckDB, for destinations without columns.

`resources/decode/` reads the same values back: numbers keep all digits, JSON columns keep their text. Times are ISO 8601
(instants in UTC, with Z), bytes are base64. Values without a JSON form are strings: NaN, infinite numbers, times and dates.
"""

# ruff: noqa: S608 - names are quoted or kpipe's, values are columns
from __future__ import annotations

import json
import re
import threading
from collections.abc import Sequence
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from kpipe.schema.columns import JSON, Columns, ListOf, MapOf, Struct, Type
from resources.duckdb_engine.sandbox import closed, literal, quote

__all__ = ["documents", "encoded", "plain"]

_BARE = {
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT",
}  # fmt: skip


def documents(block: pa.Table, columns: Columns) -> list[str]:
    """Return one JSON object for each row, with members in the order of the columns.

    Args:
        block: the rows; other columns are ignored.
        columns: names, and types as in the pipeline.
    """
    found: list[str] = _asked(block, [_object([(name, quote(name), kind) for name, kind in columns])])[0]
    return _finite(found) if any(_has_json(kind) for _, kind in columns) else found


def encoded(block: pa.Table, columns: Columns) -> list[list[str]]:
    """Return each column as a list of JSON values; NULL is null."""
    if not columns:
        return []
    found: list[list[str]] = _asked(block, [f"coalesce({_text(quote(name), kind)}, 'null')" for name, kind in columns])
    return [_finite(texts) if _has_json(kind) else texts for texts, (_, kind) in zip(found, columns, strict=True)]


def plain(block: pa.Table, columns: Columns) -> list[list[str | None]]:
    """Return each column as a list of texts: strings unchanged, other values as in a document. None is NULL."""
    if not columns:
        return []
    found: list[list[str | None]] = _asked(block, [_plain(quote(name), kind) for name, kind in columns])
    return [_finite(texts) if _has_json(kind) else texts for texts, (_, kind) in zip(found, columns, strict=True)]


_Text = TypeVar("_Text", str, str | None)
_CONSTANT = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<bare>-?(?:nan|inf(?:inity)?))', re.IGNORECASE | re.DOTALL)


def _finite(texts: list[_Text]) -> list[_Text]:
    """Quote NaN and infinities: DuckDB writes and reads them as bare words, in upper or lower case."""

    def quoted(found: re.Match[str]) -> str:
        return f'"{found["bare"]}"' if found["bare"] else found[0]

    def odd(text: str) -> bool:
        lowered = text.lower()
        return "nan" in lowered or "inf" in lowered

    return [_CONSTANT.sub(quoted, text) if text is not None and odd(text) else text for text in texts]


def _has_json(kind: Type) -> bool:
    if isinstance(kind, Struct):
        return any(_has_json(item) for _, item in kind.fields)
    return _has_json(kind.item) if isinstance(kind, (ListOf, MapOf)) else kind == JSON


def _asked(block: pa.Table, values: Sequence[str]) -> list[Any]:
    engine = _engine()
    engine.register("block", block)
    try:
        chosen = ", ".join(f"{value} AS c{at}" for at, value in enumerate(values))
        found: pa.Table = engine.sql(f"SELECT {chosen} FROM block").to_arrow_table()
    except (duckdb.FatalException, duckdb.InternalException):
        del _own.engine  # it would fail every later statement
        raise
    finally:
        engine.unregister("block")
    return [found.column(at).to_pylist() for at in range(len(values))]


_own = threading.local()


def _engine() -> duckdb.DuckDBPyConnection:
    """Return this thread's engine: several pipelines may use the module in one process."""
    if not hasattr(_own, "engine"):
        # One thread keeps the order; texts of a block may exceed 2 GiB.
        _own.engine = closed((), (), settings=("threads = 1", "arrow_large_buffer_size = true"))
    engine: duckdb.DuckDBPyConnection = _own.engine
    return engine


def _plain(value: str, kind: Type) -> str:
    if str(kind) in ("VARCHAR", "UUID", "DATE", "TIME"):
        return f"CAST({value} AS VARCHAR)"
    text = _text(value, kind)
    return f"trim({text}, '\"')" if str(kind) == "BLOB" or str(kind).startswith("TIMESTAMP") else text


def _object(members: Sequence[tuple[str, str, Type]], depth: int = 0) -> str:
    """Return SQL of an object, with one function for all members: a chain of `||` hits `max_expression_depth`."""
    parts = [f"{literal(_key(name) + ':')} || coalesce({_text(value, kind, depth)}, 'null')" for name, value, kind in members]
    return "'{' || concat_ws(',', " + ", ".join(parts) + ") || '}'" if parts else "'{}'"


def _key(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _text(value: str, kind: Type, depth: int = 0) -> str:
    """Return SQL of a value as JSON; NULL stays NULL."""
    if isinstance(kind, ListOf):
        each = f"e{depth}"
        inside = f"coalesce({_text(each, kind.item, depth + 1)}, 'null')"
        return f"'[' || array_to_string(list_transform({value}, lambda {each}: {inside}), ',') || ']'"
    if isinstance(kind, MapOf):
        each = f"e{depth}"
        member = f"to_json({each}.key) || ':' || coalesce({_text(f'{each}.value', kind.item, depth + 1)}, 'null')"
        return f"'{{' || array_to_string(list_transform(map_entries({value}), lambda {each}: {member}), ',') || '}}'"
    if isinstance(kind, Struct):
        fields = [(name, f"{value}[{literal(name)}]", item) for name, item in kind.fields]
        return f"CASE WHEN {value} IS NOT NULL THEN {_object(fields, depth + 1)} END"
    name = str(kind)
    if name == "JSON":
        return value
    if name in _BARE or name.startswith("DECIMAL"):
        return f"CAST({value} AS VARCHAR)"
    if name in ("FLOAT", "DOUBLE"):
        return f"CAST(CASE WHEN isfinite({value}) THEN to_json({value}) ELSE to_json(CAST({value} AS VARCHAR)) END AS VARCHAR)"
    if name == "BLOB":
        return f"'\"' || base64({value}) || '\"'"
    if name == "TIMESTAMP":
        return _time(value, value, "")
    if name == "TIMESTAMP WITH TIME ZONE":
        return _time(value, f"{value} AT TIME ZONE 'UTC'", "Z")
    return f"CAST(to_json(CAST({value} AS VARCHAR)) AS VARCHAR)"


def _time(value: str, local: str, zone: str) -> str:
    """Return SQL of a time as JSON. PostgreSQL and DuckDB have infinite ones, which strftime leaves without quotes."""
    written = f"strftime({local}, '\"%Y-%m-%dT%H:%M:%S.%f{zone}\"')"
    return f"CASE WHEN isfinite({value}) THEN {written} ELSE '\"' || CAST({value} AS VARCHAR) || '\"' END"
