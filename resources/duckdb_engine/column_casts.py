"""Convert values of expressions to values of columns, only if nothing is lost (docs/design.md 4.6)."""

from __future__ import annotations

import re

from kpipe.errors import InvalidPipeline
from kpipe.expressions.json_text import composed, contains, json_text
from kpipe.schema.columns import BLOB, JSON, VARCHAR, ListOf, MapOf, Scalar, Struct, Type, parse_type
from resources.duckdb_engine import in_memory
from resources.duckdb_engine.arrow_types import LARGEST_FLOAT
from resources.duckdb_engine.strict_json import IS_JSON
from resources.type_compatibility import fits

__all__ = ["NotCoercible", "coercion", "equality"]

# Types whose JSON text may be invalid: DuckDB reads JSON that is not strict, and writes NaN and infinities as bare words.
_DOUBTFUL = {"JSON", "FLOAT", "DOUBLE"}
_NUMBERS = re.compile(r"U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\(\d+,\d+\)")


class NotCoercible(ValueError):
    """No value of the one type can become a value of the other."""


def coercion(have: str, want: Type) -> tuple[str, str]:
    """Return SQL templates, with {0} for the value: the column's value in its staged form, and whether it is invalid.

    Args:
        have: type of the expression, DuckDB's name.
        want: type of the column.

    Returns:
        The value, and a condition that is true if the conversion would lose something; empty: it never does.

    Raises:
        NotCoercible: no value can be converted.
    """
    have_type = _parsed_type(have)
    if have == '"NULL"':
        return f"CAST(NULL AS {stored(want)})", ""
    value, bad = _converted(have, have_type, want)
    if isinstance(want, Scalar) or not contains(want, {"JSON"}):
        return value, bad
    inner = f"NOT coalesce({IS_JSON}({_json_only(f'TRY_CAST({{0}} AS {_plain(want)})', want)}), true)"
    return value, f"({bad}) OR {inner}" if bad else inner


def equality(have: str, want: Type) -> str:
    """Return a template that is true if the converted value equals the value: `coercion` rounds some numbers.

    A FLOAT equals a DOUBLE also if both are printed alike, as 0.1. A text equals the DOUBLE or FLOAT that is nearest to it.

    Args:
        have: type of the value, DuckDB's name.
        want: type that it is converted to.

    Returns:
        The template, with {0} for the value; empty: every converted value equals its value.
    """
    have_type = _parsed_type(have)
    if not isinstance(want, Scalar) or not _NUMBERS.fullmatch(want.name):
        return ""
    if have_type == VARCHAR:
        scale = want.name.removesuffix(")").rpartition(",")[2]
        return f"kpipe_at_scale({{0}}, {scale})" if want.name.startswith("DECIMAL") else ""
    if have_type is None or have_type == want or not _NUMBERS.fullmatch(str(have_type)):
        return ""
    value = coercion(have, want)[0]
    if want.name.startswith("DECIMAL"):  # the shortest text of a DOUBLE or FLOAT, as in coercion
        value = f"CAST({value} AS VARCHAR)"
    same = f"TRY_CAST({value} AS {have}) IS NOT DISTINCT FROM {{0}}"
    return f"({same} OR CAST({value} AS VARCHAR) = CAST({{0}} AS VARCHAR))" if want.name == "FLOAT" else same


# Text of a JSON string; any other value as it is written. DuckDB's function would print a number with a fraction as a DOUBLE.
_JSON_TEXT = (
    "CASE json_type({0}) WHEN 'VARCHAR' THEN json_extract_string({0}, '$') WHEN 'NULL' THEN NULL ELSE CAST({0} AS VARCHAR) END"
)


def _converted(have: str, have_type: Type | None, want: Type) -> tuple[str, str]:
    """Return the templates of `coercion`, which checks JSON inside of values."""
    if want == JSON and have_type in (VARCHAR, JSON):
        text = "CAST({0} AS VARCHAR)" if have_type == JSON else "{0}"
        return text, f"{{0}} IS NOT NULL AND NOT {IS_JSON}({text})"
    if have_type == want:
        return _staged("{0}", want), ""
    if isinstance(want, Scalar) and want.name not in ("JSON", "VARCHAR", "BLOB") and have_type in (VARCHAR, JSON):
        text = "{0}" if have_type == VARCHAR else _JSON_TEXT
        value = in_memory.parse_sql(text, want.name)
        return value, f"{text} IS NOT NULL AND ({value}) IS NULL"
    if want == VARCHAR and have_type == BLOB:
        return "TRY(decode({0}))", "{0} IS NOT NULL AND TRY(decode({0})) IS NULL"
    if want == VARCHAR and (isinstance(have_type, Scalar) or have_type is None):
        return "CAST({0} AS VARCHAR)", ""
    if want in (JSON, VARCHAR):
        value = "CAST(to_json({0}) AS VARCHAR)" if have_type is None else _template(json_text(_VALUE, have_type))
        doubtful = have_type is None or contains(have_type, _DOUBTFUL)
        return value, f"{{0}} IS NOT NULL AND NOT {IS_JSON}({value})" if doubtful else ""
    if want == BLOB:
        if have_type == VARCHAR:
            return "encode({0})", ""
        raise NotCoercible(f"cannot convert {have} to BLOB")
    if have_type in (VARCHAR, JSON):
        raise NotCoercible(f"cannot convert {have} to {want}")
    if have_type is not None and fits(have_type, want):
        return _staged(f"CAST({{0}} AS {_plain(want)})", want), ""
    if isinstance(want, Scalar) and have_type is not None and _NUMBERS.fullmatch(str(have_type)):
        if want.name == "FLOAT":
            wide = "CAST({0} AS DOUBLE)"
            fit = f"(abs({wide}) <= {LARGEST_FLOAT} OR NOT isfinite({wide}))"
            return f"CASE WHEN {fit} THEN CAST({wide} AS FLOAT) END", f"NOT {fit}"
        if want.name == "DOUBLE":
            return "CAST({0} AS DOUBLE)", ""
        if want.name.startswith("DECIMAL"):  # rounded to its scale, as by all readers
            value = in_memory.decimal_sql("{0}", str(have_type), want.name)
            return value, f"{{0}} IS NOT NULL AND {value} IS NULL"
    value = f"TRY_CAST({{0}} AS {_plain(want)})"
    return _staged(value, want), f"{{0}} IS NOT NULL AND TRY_CAST({value} AS {_braced(have)}) IS DISTINCT FROM {{0}}"


# The value in SQL whose braces are not yet doubled.
_VALUE = "\0"


def _template(sql: str) -> str:
    return _braced(sql).replace(_VALUE, "{0}")


def _json_only(value: str, kind: Type) -> str:
    """Return the template of a JSON text that is valid if the JSON inside of a value is."""

    def text(part: str, inner: Type) -> str:
        return f"CAST({part} AS VARCHAR)" if inner == JSON else "'null'"

    return _template(composed(_VALUE, kind, lambda part: contains(part, {"JSON"}), text)).replace("{0}", value)


def stored(kind: Type) -> str:
    """Return the SQL type of a column in a staged file."""
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


def _parsed_type(have: str) -> Type | None:
    try:
        return parse_type(have)
    except InvalidPipeline:
        return None


def _braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
