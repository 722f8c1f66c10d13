"""Compile FORMAT: a number as text, with commas between thousands (MySQL 8.4 manual, "String Functions and Operators")."""

from __future__ import annotations

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.binding import bind_sql
from kpipe.expressions.mysql.function import Function
from kpipe.expressions.mysql.functions.text_arguments import written_number
from kpipe.expressions.mysql.values import Value, decimal, number

__all__ = ["FUNCTIONS"]

_MOST_DIGITS = 38


def _format(value: Value, digits: Value, locale: Value | None = None) -> Value:
    """Compile FORMAT, rounded half away from zero; a DOUBLE half to even, as its ROUND.

    Raises:
        Untranslated: the number of digits is not a literal, or the locale is not en_US.
    """
    if locale is not None and (locale.literal or "").lower() != "en_us":
        raise Untranslated("FORMAT: expected locale en_US", "remove the third argument")
    if digits.kind == "null":
        return Value("CAST(NULL AS VARCHAR)", "text")
    count = min(max(written_number(digits, "the number of digits of FORMAT"), 0), _MOST_DIGITS)
    made = number(value)
    plain = _of_double(made.sql, count) if made.kind == "double" else _exact(made, count)
    return Value(bind_sql(lambda x: _with_commas(x, count), plain), "text")


def _exact(made: Value, count: int) -> str:
    if made.scale <= count:
        return f"CAST({made.sql} AS VARCHAR)"
    rounded = decimal(made, min(made.precision - made.scale + count + 1, _MOST_DIGITS), count)
    return f"CAST({rounded.sql} AS VARCHAR)"


def _of_double(sql: str, count: int) -> str:
    """Return the shortest digits of the rounded number, without an exponent."""
    tens = f"CAST(1e{count} AS DOUBLE)"
    rounded = f"(CASE WHEN abs({{0}}) < 1e17 THEN round_even({{0}} * {tens}, 0) / {tens} ELSE {{0}} END)"

    def spread(said: str) -> str:
        parts = f"regexp_extract({said}, '^(-?)([0-9])[.]?([0-9]*)e([+-][0-9]+)$', ['sign', 'first', 'rest', 'power'])"
        return bind_sql(_spread, said, parts)

    return bind_sql(spread, f"CAST({bind_sql(rounded.format, sql)} AS VARCHAR)")


def _spread(said: str, parts: str) -> str:
    power = f"CAST({parts}.power AS INTEGER)"
    large = f"{parts}.sign || rpad({parts}.first || {parts}.rest, {power} + 1, '0')"
    small = f"{parts}.sign || '0.' || repeat('0', -{power} - 1) || {parts}.first || {parts}.rest"
    return f"(CASE WHEN NOT contains({said}, 'e') THEN {said} WHEN contains({said}, 'e-') THEN {small} ELSE {large} END)"


def _with_commas(said: str, count: int) -> str:
    """Separate thousands by commas, with that many decimal places, and without a sign before zero."""
    whole = f"reverse(regexp_extract({said}, '^-?([0-9]+)', 1))"
    apart = f"reverse(regexp_replace(regexp_replace({whole}, '([0-9]{{3}})', '\\1,', 'g'), ',$', ''))"
    behind = f" || '.' || rpad(regexp_extract({said}, '[.]([0-9]*)$', 1), {count}, '0')" if count else ""
    sign = f"CASE WHEN {said} LIKE '-%' AND regexp_matches({said}, '[1-9]') THEN '-' ELSE '' END"
    return f"(({sign}) || {apart}{behind})"


FUNCTIONS: dict[str, Function] = {"FORMAT": Function(_format, 2, 3)}
