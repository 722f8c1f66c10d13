"""Compile the addition of intervals: `at + INTERVAL 3 DAY`, DATE_ADD, TIMESTAMPADD.

Source: MySQL 8.4 manual, "Temporal Intervals" and DATE_ADD. A result outside of the years 1 to 9999 is NULL. A fraction counts
for seconds only: for other units a number is rounded, and a text counts by its leading digits.
"""

from __future__ import annotations

from collections.abc import Callable

from kpipe.expressions.mysql.binding import bound
from kpipe.expressions.mysql.moments import LONGEST, moment_of_text, within
from kpipe.expressions.mysql.values import Value, datetime, double, integer, reading, span, text

__all__ = ["MICROS", "MONTHS", "moved", "shifted"]

MICROS = {
    "MICROSECOND": 1, "SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000, "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}  # fmt: skip
"""Microseconds of the units of fixed length."""
MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_PLACES = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "MICROSECOND")
_MOST = 400_000_000_000_000_000  # microseconds, more than from the year 1 to 9999
_WHOLE_DAYS = ("DAY", "WEEK", "MONTH", "QUARTER", "YEAR", "YEAR_MONTH")


def moved(moment: Value, step: Value, sign: str) -> Value:
    """Add an interval to a timestamp, or subtract it. The interval's literal contains its unit and the type of its count."""
    unit, _, kind = str(step.literal).partition(" ")
    return shifted(moment, unit, Value(step.sql, kind, step.precision, step.scale), sign)


def shifted(moment: Value, unit: str, count: Value, sign: str) -> Value:
    """Add a count of units to a timestamp: a date stays a date if only days change, a text stays a text."""
    months = unit in MONTHS or unit == "YEAR_MONTH"
    amount = _months(unit, count) if months else _micros(unit, count)
    if moment.kind in ("time", "span"):
        if months:
            return Value(f"(CASE WHEN {amount} IS NULL THEN CAST(NULL AS BIGINT) END)", "span")
        later = f"({span(moment).sql} {sign} {amount})"
        return Value(bound(later, lambda v: f"(CASE WHEN abs({v}) <= {LONGEST} THEN {v} END)"), "span")
    if moment.kind in ("date", "datetime", "null"):
        made = _later(datetime(moment).sql, amount, sign, months)
        return (
            Value(f"CAST({made} AS DATE)", "date") if moment.kind == "date" and unit in _WHOLE_DAYS else Value(made, "datetime")
        )
    return Value(bound(reading(moment), lambda v: _of_text(v, unit, amount, sign, months)), "text")


def _of_text(v: str, unit: str, amount: str, sign: str, months: bool) -> str:
    long = text(Value(_later(moment_of_text(v), amount, sign, months), "datetime")).sql
    if unit not in _WHOLE_DAYS:
        return long
    # A value without a time of day stays without one.
    clock = r"[0-9][^\w]+[0-9]+[^\w]+[0-9]+(T|[^\w]+)[0-9]|^\s*[0-9T]{9}"
    return f"left({long}, CASE WHEN regexp_matches({v}, '{clock}') THEN 26 ELSE 10 END)"


def _later(moment: str, amount: str, sign: str, months: bool) -> str:
    if not months:
        return within(f"(epoch_us({moment}) {sign} {amount})")
    later = f"({moment} {sign} to_months({amount}))"
    return bound(later, lambda v: f"(CASE WHEN year({v}) BETWEEN 1 AND 9999 THEN {v} END)")


def _months(unit: str, count: Value) -> str:
    """Return an INTEGER of months; NULL if out of range."""
    if unit == "YEAR_MONTH":
        return _by_numbers(count, 2, 130_000, lambda v: f"{_part(v, 1)} * 12 + {_part(v, 0)}", "INTEGER")
    return bound(
        _whole(count), lambda v: f"CAST(CASE WHEN {v} BETWEEN -130000 AND 130000 THEN {v} * {MONTHS[unit]} END AS INTEGER)"
    )


def _micros(unit: str, count: Value) -> str:
    """Return a BIGINT of microseconds; NULL if out of range."""
    if unit == "SECOND" and count.kind not in ("int", "bool"):
        return bound(
            double(count).sql,
            lambda v: f"CASE WHEN abs({v}) <= {_MOST // 1_000_000} THEN CAST(round({v} * 1000000) AS BIGINT) END",
        )
    if unit in MICROS:
        most = _MOST // MICROS[unit]
        return bound(_whole(count), lambda v: f"(CASE WHEN {v} BETWEEN -{most} AND {most} THEN {v} * {MICROS[unit]} END)")
    first, last = unit.split("_")
    names = _PLACES[_PLACES.index(first) : _PLACES.index(last) + 1][::-1]

    def rule(v: str) -> str:
        parts = []
        for back, name in enumerate(names):
            if name == "MICROSECOND":
                parts.append(f"coalesce(CAST(rpad(left({_digits(v, back)}, 6), 6, '0') AS BIGINT), 0)")
            else:
                parts.append(f"{_part(v, back)} * {MICROS[name]}")
        return " + ".join(parts)

    return _by_numbers(count, len(names), _MOST, rule)


def _whole(count: Value) -> str:
    if count.kind not in ("text", "json", "blob"):
        return integer(count).sql
    digits = f"regexp_extract({reading(count)}, '^[ \\t\\n]*([+-]?[0-9]+)', 1)"
    return bound(digits, lambda v: f"(CASE WHEN {v} = '' THEN 0 ELSE TRY_CAST({v} AS BIGINT) END)")


def _digits(v: str, back: int) -> str:
    return f"{v}[len({v}) - {back}]"


def _part(v: str, back: int) -> str:
    """Return one of the numbers of a text, counted from its end; 0 if it has fewer."""
    return f"(CASE WHEN len({v}) > {back} THEN TRY_CAST({_digits(v, back)} AS HUGEINT) ELSE 0 END)"


def _by_numbers(count: Value, most_numbers: int, most: int, rule: Callable[[str], str], kind: str = "BIGINT") -> str:
    """Return the sum of a text's numbers, negated by a leading minus; NULL for too many numbers or too large a sum."""

    def signed(said: str, total: str) -> str:
        sign = f"(CASE WHEN regexp_matches({said}, '^[ ]*-') THEN -1 ELSE 1 END)"
        return f"CAST(CASE WHEN {total} <= {most} THEN {sign} * {total} END AS {kind})"

    def of_text(said: str) -> str:
        numbers = f"regexp_extract_all({said}, '[0-9]+')"
        total = bound(numbers, lambda v: f"(CASE WHEN len({v}) <= {most_numbers} THEN {rule(v)} END)")
        return bound(total, lambda n: signed(said, n))

    return bound(reading(count), of_text)
