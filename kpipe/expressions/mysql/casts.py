"""Compile CAST, CONVERT and SingleStore's `:>` and `!:>`.

Sources: MySQL 8.4 manual, "Cast Functions and Operators"; SingleStore's manual, "Cast operators": `:>` is CAST to any
column type; `!:>` returns a value where `:>` fails, which is for JSON only.
"""

from __future__ import annotations

from dataclasses import replace

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.binding import bind_sql
from kpipe.expressions.mysql.json.json_casts import as_document, out_of_document
from kpipe.expressions.mysql.moments import LAST
from kpipe.expressions.mysql.printing import numeral
from kpipe.expressions.mysql.values import (
    Value,
    boolean,
    bytes_of,
    converted,
    date,
    datetime,
    double,
    integer,
    number,
    reading,
    span,
    unrounded,
)

__all__ = ["cast", "returned", "whole_number"]

_INTEGERS = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INT": 32, "INTEGER": 32, "BIGINT": 64, "SIGNED": 64}
_BYTES = ("BINARY", "VARBINARY", "BLOB", "TINYBLOB", "MEDIUMBLOB", "LONGBLOB")
_FAR = 1_000_000_000  # characters; DuckDB's limit is 2^32
_WHOLE = "[-+]?[0-9]+"
_WRITTEN = {"SIGNED": _WHOLE, "UNSIGNED": _WHOLE, "DECIMAL": r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"}
_TEXTS = ("CHAR", "NCHAR", "VARCHAR", "TEXT", "TINYTEXT", "MEDIUMTEXT", "LONGTEXT", "STRING")


def cast(value: Value, name: str, sizes: tuple[int, ...], strict: bool = False) -> Value:
    """Cast a value: text without a number becomes 0, a number that is too large becomes the largest of the type.

    Args:
        value: any value.
        name: of the type, upper case, followed by ` UNSIGNED` if unsigned.
        sizes: numbers in parentheses.
        strict: whether it is `!:>`, which returns NULL for an invalid JSON document; the other casts fail.

    Raises:
        Untranslated: kpipe does not support the type.
    """
    plain = name.removesuffix(" UNSIGNED")
    if name == "JSON":
        return as_document(value, strict)
    value = out_of_document(value, plain, sizes)
    if plain in _INTEGERS and plain == name:
        return _bounded(_signed(value), _INTEGERS[plain])
    if name == "UNSIGNED" or plain in _INTEGERS:
        return _unsigned(value, 64 if name == "UNSIGNED" else _INTEGERS[plain])
    if plain in ("DECIMAL", "NUMERIC", "DEC", "FIXED"):
        precision, scale = (*sizes, 10, 0)[:2] if len(sizes) != 1 else (sizes[0], 0)
        return _decimal(value, precision, scale)
    if plain in ("DOUBLE", "REAL"):
        return replace(double(value), digits=None)
    if plain == "FLOAT":
        raise Untranslated("a cast to FLOAT is not supported: it would print different digits", f"write {_instead('DOUBLE')}")
    if name in _TEXTS:
        said = converted(value)
        written = said.literal if value.kind == "text" else None  # 007 prints as 7
        return Value(f"left({said.sql}, {min(sizes[0], _FAR)})", "text") if sizes else Value(said.sql, "text", literal=written)
    if name in _BYTES:
        made = bytes_of(value)
        return Value(_filled(made, min(sizes[0], _FAR), name == "BINARY") if sizes else made, "blob")
    if name == "DATE":
        return date(value)
    if name in ("DATETIME", "TIMESTAMP"):
        return _rounded(datetime(value), sizes[0] if sizes else 0)
    if name == "TIME":
        clock = value if value.kind == "time" else span(value)
        return _rounded_time(clock, sizes[0] if sizes else 0)
    if name == "YEAR":
        return _year(value)
    if name in ("BOOL", "BOOLEAN"):
        return boolean(value)
    raise Untranslated(f"unknown type {name}", "types: BIGINT, DECIMAL(p, s), DOUBLE, CHAR, DATE, DATETIME, TIME, JSON, BOOL")


def returned(found: Value, raw: Value, name: str, sizes: tuple[int, ...]) -> Value:
    """Return JSON_VALUE's value in the type of RETURNING; NULL for a value of another type.

    Args:
        found: the value without RETURNING.
        raw: the same as JSON, which distinguishes true from "true".
        name: of the type, upper case.
        sizes: its numbers in parentheses.
    """
    pattern = _WRITTEN.get("DECIMAL" if name in ("DECIMAL", "DOUBLE", "REAL", "FLOAT") else name)
    if pattern is None:
        return cast(found, name, sizes)
    truth = f"WHEN {raw.sql} IN ('true', 'false') THEN CAST({raw.sql} = 'true' AS INTEGER)::VARCHAR"
    said = f"(CASE {truth} WHEN regexp_full_match({found.sql}, '{pattern}') THEN {found.sql} END)"
    return cast(Value(said, "text"), name, sizes)


def _year(value: Value) -> Value:
    """Compile YEAR, 1901 to 2155: two digits mean 1970 to 2069, the number 0 stays 0; NULL for any other number."""
    if value.kind in ("date", "datetime", "time"):
        return Value(f"CAST(year({datetime(value).sql}) AS BIGINT)", "int", 4)
    zero = 2000 if value.kind in ("text", "json", "blob") else 0
    short = "WHEN {0} BETWEEN 1 AND 69 THEN {0} + 2000 WHEN {0} BETWEEN 70 AND 99 THEN {0} + 1900"
    year = f"(CASE WHEN {{0}} = 0 THEN {zero} {short} WHEN {{0}} BETWEEN 1901 AND 2155 THEN {{0}} END)"
    return Value(bind_sql(year.format, integer(whole_number(value)).sql), "int", 4)


def _instead(name: str) -> str:
    return f"CAST(value AS {name})"


def whole_number(value: Value) -> Value:
    """Return the number whose integer part, or nearest integer, MySQL uses.

    A text is read up to its first non-digit, a time is rounded to seconds, `0x41` is 65.
    """
    if value.bits is not None:
        return number(value)
    if value.kind == "datetime":
        return Value(f"CAST(strftime({_rounded(value, 0).sql}, '%Y%m%d%H%M%S') AS BIGINT)", "int")
    if value.kind == "time":
        parts = "({0} // 3600 * 10000 + {0} // 60 % 60 * 100 + {0} % 60)"
        return Value(bind_sql(parts.format, f"((epoch_us({value.sql}) + 500000) // 1000000)"), "int")
    if value.kind == "json":
        return Value(f"CAST(kpipe_json('integer', [CAST({value.sql} AS VARCHAR)]) AS BIGINT)", "int")
    if value.kind not in ("text", "blob"):
        return number(value)
    # 21 digits exceed 64 bits, so further ones change nothing.
    digits = "regexp_extract({0}, '^[ \\t\\n\\v\\f\\r]*([+-]?0*[0-9]{{1,21}})', 1)"
    whole = f"(CASE WHEN {{0}} IS NOT NULL THEN coalesce(TRY_CAST({digits} AS HUGEINT), 0) END)"
    return Value(bind_sql(whole.format, reading(value)), "decimal", 38)


def _signed(value: Value) -> Value:
    """Cast to SIGNED: a text or an unsigned 64-bit integer keeps its bits; other values become the nearest integer."""
    made = whole_number(value)
    if made.kind != "decimal" or made.scale or (made.precision > 20 and value.kind not in ("text", "json", "blob")):
        return integer(made)
    most = 2**63
    beyond = -1 if value.kind in ("text", "json", "blob") else most - 1
    high = f"WHEN {{0}} >= {2 * most} THEN {beyond} WHEN {{0}} >= {most} THEN {{0}} - {2 * most}"
    whole = f"CAST(CASE {high} WHEN {{0}} < -{most} THEN -{most} ELSE {{0}} END AS BIGINT)"
    return Value(bind_sql(whole.format, made.sql), "int")


def _bounded(value: Value, bits: int) -> Value:
    if bits == 64:
        return value
    most = 2 ** (bits - 1)
    within = f"(CASE WHEN {{0}} >= {most} THEN {most - 1} WHEN {{0}} < -{most} THEN -{most} ELSE {{0}} END)"
    return Value(bind_sql(within.format, value.sql), "int")


def _unsigned(value: Value, bits: int) -> Value:
    """Cast to UNSIGNED. A negative integer keeps its 64 bits, as in MySQL; a negative DECIMAL or DOUBLE becomes 0."""
    made = whole_number(value)
    top, half = 2**bits, 2 ** (bits - 1)
    if made.kind == "double":
        near = "CAST(round_even(greatest(least({0}, 2e19), -1e19), 0) AS HUGEINT)"
        whole = bind_sql(f"(CASE WHEN {{0}} IS NOT NULL THEN {near} END)".format, made.sql)
    else:
        whole = f"CAST(round({made.sql}, 0) AS HUGEINT)" if made.scale else f"CAST({made.sql} AS HUGEINT)"
    below = "WHEN {0} < 0 THEN 0"
    if bits == 64 and value.kind not in ("decimal", "double"):
        below = f"WHEN {{0}} < -{half} THEN {half} WHEN {{0}} < 0 THEN {{0}} + {top}"
    within = f"CAST(CASE WHEN {{0}} >= {top} THEN {top - 1} {below} ELSE {{0}} END AS DECIMAL(20,0))"
    return Value(bind_sql(within.format, whole), "decimal", 20, unsigned=True)


def _decimal(value: Value, precision: int, scale: int) -> Value:
    """Return the nearest DECIMAL of that scale; a number with too many digits becomes the largest that fits."""
    if precision > 38 or scale > precision:
        raise Untranslated(f"DECIMAL({precision}, {scale}) is not supported", "a DECIMAL has at most 38 digits in total")
    most = f"{'9' * (precision - scale) or '0'}.{'9' * scale or '0'}"
    target = f"DECIMAL({precision},{scale})"

    def nearest(there: str, exact: str, near: str) -> str:
        beyond = bind_sql(lambda n: f"CASE WHEN {n} < 0 THEN '-{most}' WHEN {n} >= 1 THEN '{most}' ELSE '0' END", near)
        cut = f"coalesce(TRY_CAST({exact} AS {target}), CAST({beyond} AS {target}))"
        return f"(CASE WHEN {there} IS NOT NULL THEN {cut} END)"

    if value.kind == "text":  # a text may have more digits than a DOUBLE
        sql = bind_sql(lambda said: nearest(said, _digits(said), number(Value(said, "text")).sql), value.sql)
    else:
        made = unrounded(number(value))
        exact = numeral if made.kind == "double" else str
        sql = bind_sql(lambda there: nearest(there, exact(there), there), made.sql)
    return Value(sql, "decimal", precision, scale)


def _digits(said: str) -> str:
    """Return the number at the start of a text, as text."""
    return f"regexp_extract({said}, '^[ \\t\\n\\v\\f\\r]*([+-]?(?:[0-9]+\\.?[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)', 1)"


def _filled(sql: str, size: int, fixed: bool) -> str:
    """Return the first `size` bytes; BINARY is padded with NUL."""
    cut = f"({sql})[1:{size}]"
    return bind_sql(lambda x: f"({x} || repeat('\\x00'::BLOB, {size} - octet_length({x})))", cut) if fixed else cut


def _rounded(value: Value, digits: int) -> Value:
    """Round a timestamp half up to that many digits of a second."""
    unit = 10 ** (6 - min(digits, 6))
    if unit == 1 or value.sql.startswith("CAST(NULL"):
        return replace(value, digits=min(digits, 6))
    last = LAST // unit * unit  # a value that would round up to the year 10000 is truncated
    rounded = f"make_timestamp(CASE WHEN {{0}} > {LAST} THEN {last} ELSE {{0}} - ({{0}} % {unit} + {unit}) % {unit} END)"
    return Value(bind_sql(rounded.format, f"(epoch_us({value.sql}) + {unit // 2})"), "datetime", digits=digits)


def _rounded_time(value: Value, digits: int) -> Value:
    """Round a time to that many digits of a second; NULL if it reaches the end of the day."""
    unit = 10 ** (6 - min(digits, 6))
    if unit == 1:
        return value
    if value.kind == "span":
        signed = f"(CASE WHEN x < 0 THEN -((-x + {unit // 2}) // {unit}) ELSE (x + {unit // 2}) // {unit} END * {unit})"
        return Value(f"list_transform([{value.sql}], lambda x: {signed})[1]", "span")
    later = f"((epoch_us({value.sql}) + {unit // 2}) // {unit} * {unit})"
    within = "(CASE WHEN {0} < 86400000000 THEN TIME '00:00:00' + to_microseconds({0}) END)"
    return Value(bind_sql(within.format, later), "time")
