"""Compile TIME_BUCKET and MONTHS_BETWEEN (SingleStore's manual, "Time Series Functions", "Date and Time Functions")."""

from __future__ import annotations

import re

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.binding import bound
from kpipe.expressions.mysql.function import Function
from kpipe.expressions.mysql.times.intervals import MICROS
from kpipe.expressions.mysql.values import Value, date, datetime

__all__ = ["FUNCTIONS"]

_ORIGIN = "TIMESTAMP '2000-01-03 00:00:00'"  # a Monday
_UNITS = {"W": "WEEK", "D": "DAY", "H": "HOUR", "M": "MINUTE", "S": "SECOND"}
_WIDTH = re.compile(r"(\d{1,9}[wdhms])+", re.IGNORECASE | re.ASCII)


def _width(value: Value) -> int:
    """Return the microseconds of a literal bucket width: '1h30m', or INTERVAL 90 MINUTE."""
    micros = 0
    if value.kind == "text" and value.literal is not None and _WIDTH.fullmatch(value.literal):
        micros = sum(
            int(count) * MICROS[_UNITS[unit.upper()]] for count, unit in re.findall(r"(\d+)([a-z])", value.literal, re.IGNORECASE)
        )
    if value.kind == "interval":
        count = re.fullmatch(r"CAST\((\d{1,9}) AS BIGINT\)|'(\d{1,9})'", value.sql)
        unit = (value.literal or "").split(" ")[0]
        micros = int(count[1] or count[2]) * MICROS.get(unit, 0) if count else 0
    if not micros:
        raise Untranslated("TIME_BUCKET: expected a literal width of weeks to seconds", "write TIME_BUCKET('1h30m', value)")
    return micros


def _time_bucket(width: Value, moment: Value, origin: Value | None = None) -> Value:
    """Compile TIME_BUCKET: the start of the bucket that contains the timestamp."""
    size, start = _width(width), _ORIGIN if origin is None else datetime(origin).sql

    def body(at: str) -> str:
        return bound(f"(epoch_us({at}) - epoch_us({start}))", lambda behind: _start(at, behind, size))

    return Value(bound(datetime(moment).sql, body), "datetime")


def _start(at: str, behind: str, size: int) -> str:
    return f"make_timestamp(epoch_us({at}) - ({behind} % {size} + {size}) % {size})"


def _months_between(later: Value, earlier: Value) -> Value:
    """Compile MONTHS_BETWEEN: months, and days as parts of 31; whole months between equal or last days of months."""

    def body(a: str, b: str) -> str:
        months = f"((year({a}) - year({b})) * 12 + month({a}) - month({b}))"
        ends = f"last_day({a}) = {a} AND last_day({b}) = {b}"
        return f"({months} + CASE WHEN {ends} THEN 0 ELSE (day({a}) - day({b})) / 31.0::DOUBLE END)"

    return Value(bound(date(later).sql, lambda a: bound(date(earlier).sql, lambda b: body(a, b))), "double")


FUNCTIONS: dict[str, Function] = {
    "TIME_BUCKET": Function(_time_bucket, 2, 3),
    "MONTHS_BETWEEN": Function(_months_between, 2),
}
