"""Compile the current time, and parts of dates and times (MySQL 8.4 manual, "Date and Time Functions"). Times are UTC.

A date with month or day 0 is NULL, and so are its parts.
"""

from __future__ import annotations

from collections.abc import Callable

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.binding import bound
from kpipe.expressions.mysql.function import Function
from kpipe.expressions.mysql.moments import DATED, clock_of_text, has_clock
from kpipe.expressions.mysql.value_binding import bind
from kpipe.expressions.mysql.values import Value, date, datetime, reading, span

__all__ = ["FUNCTIONS", "extracted", "week_of"]

_TEXTS = ("text", "json", "blob")
_NOW = "CAST(now() AT TIME ZONE 'UTC' AS TIMESTAMP)"
# Unit to its microseconds, and to its number in the next larger unit.
_CLOCK = {"HOUR": (3_600_000_000, None), "MINUTE": (60_000_000, 60), "SECOND": (1_000_000, 60), "MICROSECOND": (1, 1_000_000)}
_DATE_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY")
_PLACES = ("DAY", "HOUR", "MINUTE", "SECOND", "MICROSECOND")


def now(digits: Value | None = None) -> Value:
    """Return the time at which the statement started, with that many digits of a second.

    Raises:
        Untranslated: the digits are not a literal from 0 to 6.
    """
    said = "0" if digits is None else digits.literal
    if said not in [str(count) for count in range(7)]:
        raise Untranslated("NOW: expected 0 to 6 digits of a second", "write NOW(6)")
    unit = 10 ** (6 - int(said))
    return Value(_NOW if unit == 1 else f"make_timestamp(epoch_us({_NOW}) // {unit} * {unit})", "datetime")


def _today() -> Value:
    return date(now())


def _clock_now(digits: Value | None = None) -> Value:
    return Value(f"CAST({now(digits).sql} AS TIME)", "time")


def clock(value: Value) -> Value:
    """Return the time of day for EXTRACT, which, unlike HOUR, reads a date alone as midnight."""
    return Value(clock_of_text(reading(value)), "span") if value.kind in _TEXTS else span(value)


def _unit_of_clock(unit: str, sql: str) -> str:
    """Return a unit of non-negative microseconds."""
    below, count = _CLOCK[unit]
    return f"{sql} // {below}" + (f" % {count}" if count else "")


def _clock_part(unit: str) -> Callable[[Value], Value]:
    return lambda value: Value(f"({_unit_of_clock(unit, f'abs({span(value).sql})')})", "int", 7)


def _date_part(name: str) -> Callable[[Value], Value]:
    return lambda value: Value(f"CAST({name}({datetime(value).sql}) AS BIGINT)", "int", 4)


def _named(name: str) -> Callable[[Value], Value]:
    return lambda value: Value(f"{name}({datetime(value).sql})", "text")


def extracted(unit: str, moment: Value) -> Value:
    """Compile EXTRACT(unit FROM moment); several units become one number, as 20102 for DAY_MINUTE of the 2nd, 01:02."""
    if unit == "WEEK":
        return week_of(moment)
    if unit in _DATE_UNITS:
        if unit == "DAY" and moment.kind in ("time", "span"):
            return Value(f"({span(moment).sql} * 0)", "int")
        return _date_part(unit.lower())(moment)
    if unit == "YEAR_MONTH":
        sql = bound(datetime(moment).sql, lambda v: f"(year({v}) * 100 + month({v}))")
        return Value(f"CAST({sql} AS BIGINT)", "int", 6)
    return bind(lambda m: _multi_topic(unit, m), moment)


def _multi_topic(unit: str, moment: Value) -> Value:
    first, _, last = unit.partition("_")
    units = _PLACES[_PLACES.index(first) : _PLACES.index(last or first) + 1]
    of_day = ""
    if first == "DAY":
        of_day, units = _day(moment), units[1:]
    made = bound(clock(moment).sql, lambda v: f"({_together(units, f'abs({v})')} * (CASE WHEN {v} < 0 THEN -1 ELSE 1 END))")
    if of_day:
        digits = sum(6 if name == "MICROSECOND" else 2 for name in units)
        made = f"({of_day} * {10**digits} + {made})"
    return Value(f"CAST({made} AS BIGINT)", "int")


def _day(moment: Value) -> str:
    if moment.kind in ("time", "span"):
        return "0"
    day = f"CAST(day({datetime(moment).sql}) AS BIGINT)"
    if moment.kind not in _TEXTS:
        return day
    said = reading(moment)
    return bound(said, lambda v: f"(CASE WHEN regexp_matches({v}, '{DATED}') OR {has_clock(v)} THEN {day} ELSE 0 END)")


def _together(units: tuple[str, ...], sql: str) -> str:
    parts, factor = [], 1
    for name in reversed(units):
        parts.append(f"({_unit_of_clock(name, sql)}) * {factor}")
        factor *= 1_000_000 if name == "MICROSECOND" else 100
    return "(" + " + ".join(parts) + ")"


# The bits of a week's mode: whether Monday is the first day; whether a week belongs to one year only; and which week is the
# first one: the first that begins in the year, or the first with four days in it.


def _mode(mode: Value | None) -> int:
    if mode is None or mode.kind == "null":
        return 0
    if mode.literal is None or not mode.literal.isdigit():
        raise Untranslated("the mode of a week must be a literal number", "write WEEK(value, 3) for weeks of ISO 8601")
    return int(mode.literal) % 8


def _week(moment: Value, mode: int, year: bool) -> str:
    monday, own, first = mode & 1, mode & 2 or year, bool(mode & 4) != bool(not mode & 1)

    def rule(v: str) -> str:
        back = f"CAST(isodow({v}) - 1 AS INTEGER)" if monday else f"CAST(dayofweek({v}) AS INTEGER)"
        # The day of the week that determines the year of the week.
        deciding = f"({v} - {back} + {0 if first else 3})"
        number = f"(dayofyear({deciding}) - 1) // 7 + 1"
        if year:
            return f"(year({deciding}) * 100 + {number})"
        if own:
            return f"({number})"
        before = f"(dayofyear({deciding} - 7) - 1) // 7 + 2"
        return (
            f"(CASE WHEN year({deciding}) < year({v}) THEN 0 WHEN year({deciding}) > year({v}) THEN {before} ELSE {number} END)"
        )

    return bound(date(moment).sql, rule)


def week_of(moment: Value, mode: Value | None = None) -> Value:
    """Compile WEEK(moment, mode)."""
    return Value(f"CAST({_week(moment, _mode(mode), False)} AS BIGINT)", "int", 2)


def year_week_of(moment: Value, mode: Value | None = None) -> Value:
    """Compile YEARWEEK(moment, mode)."""
    return Value(f"CAST({_week(moment, _mode(mode), True)} AS BIGINT)", "int", 6)


def _weekday(moment: Value) -> Value:
    return Value(f"CAST(isodow({datetime(moment).sql}) - 1 AS BIGINT)", "int", 1)


def _day_of_week(moment: Value) -> Value:
    return Value(f"CAST(dayofweek({datetime(moment).sql}) + 1 AS BIGINT)", "int", 1)


def _last_day(moment: Value) -> Value:
    return Value(f"last_day({date(moment).sql})", "date")


_NOWS = ("NOW", "SYSDATE", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP", "UTC_TIMESTAMP")

FUNCTIONS: dict[str, Function] = {
    **{name: Function(now, 0, 1) for name in _NOWS},
    **{name: Function(_today, 0) for name in ("CURDATE", "CURRENT_DATE", "UTC_DATE")},
    **{name: Function(_clock_now, 0, 1) for name in ("CURTIME", "CURRENT_TIME", "UTC_TIME")},
    **{name: Function(_clock_part(name), 1) for name in _CLOCK},
    **{name: Function(_date_part(name.lower()), 1) for name in ("YEAR", "QUARTER", "MONTH", "DAY", "DAYOFMONTH", "DAYOFYEAR")},
    "WEEK": Function(week_of, 1, 2),
    "YEARWEEK": Function(year_week_of, 1, 2),
    "WEEKOFYEAR": Function(lambda moment: week_of(moment, Value("3", "int", literal="3")), 1),
    "WEEKDAY": Function(_weekday, 1),
    "DAYOFWEEK": Function(_day_of_week, 1),
    "DAYNAME": Function(_named("dayname"), 1),
    "MONTHNAME": Function(_named("monthname"), 1),
    "LAST_DAY": Function(_last_day, 1),
}
