"""Map kpipe's types to PostgreSQL. A type without an equivalent is stored in another one, and recorded in a comment."""

from __future__ import annotations

import re

from kpipe.errors import InvalidPipeline
from kpipe.schema.columns import ListOf, MapOf, Scalar, Struct, Type, parse_type

__all__ = ["kpipe_type", "note", "sql_type", "text"]

_SAME = {
    "BOOLEAN": "boolean", "SMALLINT": "smallint", "INTEGER": "integer", "BIGINT": "bigint", "FLOAT": "real",
    "DOUBLE": "double precision", "VARCHAR": "text", "BLOB": "bytea", "DATE": "date", "TIME": "time without time zone",
    "TIMESTAMP": "timestamp without time zone", "TIMESTAMP WITH TIME ZONE": "timestamp with time zone", "UUID": "uuid",
    "JSON": "jsonb",
}  # fmt: skip
_WIDER = {
    "TINYINT": "smallint", "UTINYINT": "smallint", "USMALLINT": "integer", "UINTEGER": "bigint", "UBIGINT": "numeric(20,0)",
    "HUGEINT": "numeric(39,0)",
}  # fmt: skip
_BACK = {**{there: here for here, there in _SAME.items()}, "json": "JSON", "character varying": "VARCHAR"}
_NOTE = "kpipe: "
_DATED = {"DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"}


def sql_type(kind: Type) -> str:
    """Return PostgreSQL's type for kpipe's type, as PostgreSQL spells it."""
    if isinstance(kind, (ListOf, MapOf, Struct)):
        return "jsonb"
    decimal = re.fullmatch(r"DECIMAL(\(\d+,\d+\))", kind.name)
    return f"numeric{decimal[1]}" if decimal else _SAME.get(kind.name) or _WIDER[kind.name]


def note(kind: Type) -> str:
    """Return the comment of a column whose PostgreSQL type is ambiguous; empty for others."""
    return "" if _plainly(sql_type(kind)) == kind else f"{_NOTE}{kind}"


def kpipe_type(found: str, comment: str | None) -> Type | None:
    """Return kpipe's type for PostgreSQL's type and the column's comment; None if kpipe cannot write it."""
    if comment and comment.startswith(_NOTE):
        try:
            noted = parse_type(comment[len(_NOTE) :])
        except InvalidPipeline:
            return _plainly(found)  # not a comment of kpipe
        if sql_type(noted) == found:
            return noted
    return _plainly(found)


def text(value: str, kind: Type) -> str:
    """Return SQL of a value's text as DuckDB reads it: PostgreSQL writes BC after the time, DuckDB (BC) after the date.

    Args:
        value: SQL of the value.
        kind: kpipe's type of it.
    """
    dated = isinstance(kind, Scalar) and kind.name in _DATED
    return rf"regexp_replace({value}::text, '^([^ ]+)(.*) BC$', '\1 (BC)\2')" if dated else f"{value}::text"


def _plainly(found: str) -> Type | None:
    if found in _BACK:
        return Scalar(_BACK[found])
    if re.fullmatch(r"character varying\(\d+\)", found):
        return Scalar("VARCHAR")
    decimal = re.fullmatch(r"numeric\((\d+),(\d+)\)", found)
    if decimal and int(decimal[1]) <= 38 and int(decimal[2]) <= int(decimal[1]):
        return Scalar(f"DECIMAL({decimal[1]},{decimal[2]})")
    return None
