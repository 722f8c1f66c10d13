"""From the value of an expression to the value of a column: only where nothing is lost, by the rules of docs/design.md 4.6."""

from __future__ import annotations

import re

from kpipe.errors import InvalidPipeline
from kpipe.schema.columns import BLOB, JSON, VARCHAR, ListOf, MapOf, Scalar, Struct, Type, parse_type
from resources.duckdb_engine import in_memory
from resources.duckdb_engine.arrow_types import LARGEST_FLOAT
from resources.type_compatibility import fits

__all__ = ["NotCoercible", "coercion"]

_NUMBERS = re.compile(r"U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\(\d+,\d+\)")


class NotCoercible(ValueError):
    """No value of the one type is a value of the other."""


def coercion(have: str, want: Type) -> tuple[str, str]:
    """SQL templates with the value's place ({0}): the column's value in its staged form, and whether there is none.

    Args:
        have: type of the expression, as DuckDB names it.
        want: type of the column.

    Returns:
        The value, and a condition that holds where the value cannot be had without loss; empty: it always can.

    Raises:
        NotCoercible: it never can.
    """
    known = _known(have)
    if have == '"NULL"':
        return f"CAST(NULL AS {stored(want)})", ""
    if known == want:
        return _staged("{0}", want), ""
    if isinstance(want, Scalar) and want.name not in ("JSON", "VARCHAR", "BLOB") and known in (VARCHAR, JSON):
        text = "{0}" if known == VARCHAR else "json_extract_string({0}, '$')"
        value = in_memory.parse_sql(text, want.name)
        return value, f"{text} IS NOT NULL AND ({value}) IS NULL"
    if want == JSON:
        if known == VARCHAR:
            return "{0}", "{0} IS NOT NULL AND NOT json_valid({0})"
        return "CAST(to_json({0}) AS VARCHAR)", ""
    if want == VARCHAR:
        if known == BLOB:
            return "TRY(decode({0}))", "{0} IS NOT NULL AND TRY(decode({0})) IS NULL"
        return ("CAST({0} AS VARCHAR)" if isinstance(known, Scalar) or known is None else "CAST(to_json({0}) AS VARCHAR)"), ""
    if want == BLOB:
        if known == VARCHAR:
            return "encode({0})", ""
        raise NotCoercible(f"a value of type {have} is no BLOB")
    if known in (VARCHAR, JSON):
        raise NotCoercible(f"a value of type {have} is no {want}")
    if known is not None and fits(known, want):
        return _staged(f"CAST({{0}} AS {_plain(want)})", want), ""
    if isinstance(want, Scalar) and known is not None and _NUMBERS.fullmatch(str(known)):
        if want.name == "FLOAT":
            wide = "CAST({0} AS DOUBLE)"
            fit = f"(abs({wide}) <= {LARGEST_FLOAT} OR NOT isfinite({wide}))"
            return f"CASE WHEN {fit} THEN CAST({wide} AS FLOAT) END", f"NOT {fit}"
        if want.name == "DOUBLE":
            return "CAST({0} AS DOUBLE)", ""
        if want.name.startswith("DECIMAL"):  # rounded to its scale, as everywhere
            value = f"TRY_CAST({{0}} AS {want})"
            return value, f"{{0}} IS NOT NULL AND {value} IS NULL"
    value = f"TRY_CAST({{0}} AS {_plain(want)})"
    return _staged(value, want), f"{{0}} IS NOT NULL AND TRY_CAST({value} AS {_braced(have)}) IS DISTINCT FROM {{0}}"


def stored(kind: Type) -> str:
    """The type, in SQL, in which a column stands in a staged file."""
    if isinstance(kind, Struct):
        return "STRUCT(" + ", ".join(f"{_quoted(name)} {stored(item)}" for name, item in kind.fields) + ")"
    if isinstance(kind, ListOf):
        return f"{stored(kind.item)}[]"
    if isinstance(kind, MapOf):
        return f"MAP(VARCHAR, {stored(kind.item)})"
    return "VARCHAR" if kind.name in ("JSON", "UUID", "HUGEINT") else kind.name


def _plain(kind: Type) -> str:
    if isinstance(kind, Struct):
        return "STRUCT(" + ", ".join(f"{_quoted(name)} {_plain(item)}" for name, item in kind.fields) + ")"
    if isinstance(kind, MapOf):
        return f"MAP(VARCHAR, {_plain(kind.item)})"
    return f"{_plain(kind.item)}[]" if isinstance(kind, ListOf) else kind.name


def _staged(value: str, kind: Type) -> str:
    return value if stored(kind) == _plain(kind) else f"CAST({value} AS {stored(kind)})"


def _quoted(name: str) -> str:
    return _braced('"' + name.replace('"', '""') + '"')


def _known(have: str) -> Type | None:
    try:
        return parse_type(have)
    except InvalidPipeline:
        return None


def _braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
