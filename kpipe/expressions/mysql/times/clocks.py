"""Compile Unix times and time zones: UNIX_TIMESTAMP, FROM_UNIXTIME, CONVERT_TZ.

Source: MySQL 8.4 manual, "Date and Time Functions": times from 1970 to 3001-01-18 23:59:59.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from zoneinfo import available_timezones

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.binding import bind_sql, bound
from kpipe.expressions.mysql.function import Function
from kpipe.expressions.mysql.times.date_formats import formatted
from kpipe.expressions.mysql.times.time_functions import now
from kpipe.expressions.mysql.values import Value, datetime, number, quoted

__all__ = ["FUNCTIONS"]

_LAST = 32_536_771_199
"""Seconds from 1970 to MySQL's last TIMESTAMP."""


def _unix_timestamp(moment: Value | None = None) -> Value:
    """Compile UNIX_TIMESTAMP: seconds with the fraction of the argument; 0 if it is out of range."""
    made = datetime(now() if moment is None else moment).sql
    within = f"BETWEEN 0 AND {_LAST}999999"
    if moment is None or moment.kind in ("date", "int", "bool"):
        return Value(
            bound(f"epoch_us({made})", lambda v: f"(CASE WHEN {v} {within} THEN {v} // 1000000 WHEN {v} IS NOT NULL THEN 0 END)"),
            "int",
            11,
        )
    digits = 6
    if moment.literal is not None:
        found = re.search(r"\.(\d*)\s*\Z", moment.literal)
        digits = min(len(found[1]), 6) if found else 0
    seconds = f"CAST({{0}} // 1000000 + CAST({{0}} % 1000000 AS DECIMAL(18,0)) * 0.000001 AS DECIMAL({12 + digits},{digits}))"
    sql = bound(
        f"epoch_us({made})", lambda v: f"(CASE WHEN {v} {within} THEN {seconds.format(v)} WHEN {v} IS NOT NULL THEN 0 END)"
    )
    return Value(sql, "decimal", 12 + digits, digits) if digits else Value(f"CAST({sql} AS BIGINT)", "int", 11)


def _from_unixtime(seconds: Value, written: Value | None = None) -> Value:
    """Compile FROM_UNIXTIME: NULL for a negative number, or one out of range."""
    made = number(seconds)
    exact = f"TRY_CAST({made.sql} AS DECIMAL(18,6))"
    moment = (
        "(CASE WHEN {0} >= 0 AND {0} < "
        + str(_LAST + 1)
        + " THEN make_timestamp(CAST(CAST({0} AS DECIMAL(30,6)) * 1000000 AS BIGINT)) END)"
    )
    value = Value(bound(exact, moment.format), "datetime")
    return value if written is None else formatted(value, written)


def _convert_tz(moment: Value, origin: Value, target: Value) -> Value:
    """Compile CONVERT_TZ: unchanged if the time in UTC is out of range.

    Where clocks change, a local time that occurs twice is the earlier one. A skipped local time is the moment of the change.
    """
    source, sink = _zone(origin), _zone(target)
    if source is None or sink is None:
        return Value("CAST(NULL AS TIMESTAMP)", "datetime")

    def rule(v: str) -> str:
        utc = f"({v} - to_minutes({source}))" if isinstance(source, int) else _from_local(v, quoted(source))
        return bound(utc, lambda u: later(v, u))

    def later(v: str, u: str) -> str:
        made = f"({u} + to_minutes({sink}))" if isinstance(sink, int) else _to_local(u, quoted(sink))
        return f"(CASE WHEN epoch_us({u}) BETWEEN 1000000 AND {_LAST}999999 THEN {made} ELSE {v} END)"

    return Value(bound(datetime(moment).sql, rule), "datetime")


def _to_local(utc: str, zone: str) -> str:
    return f"timezone({zone}, {utc} AT TIME ZONE 'UTC')"


def _from_local(v: str, zone: str) -> str:
    """Return a local time in UTC, as the server does (TIME_to_gmt_sec in MySQL's tztime.cc)."""
    # The offset a day before and a day after: they differ only where clocks change in between.
    before, after = (
        f"({v} - ({_to_local(moment, zone)} - {moment}))" for moment in (f"({v} - to_days(1))", f"({v} + to_days(1))")
    )

    def chosen(first: str, last: str) -> str:
        changed = f"{_to_local('x', zone)} - x = {v} - {last}"
        minutes = f"range(date_trunc('minute', {last}), {first} + to_minutes(1), to_minutes(1))"
        skipped = f"list_min(list_filter({minutes}, lambda x: {changed})) + ({v} - date_trunc('second', {v}))"
        forms = " ".join(f"WHEN {_to_local(utc, zone)} = {v} THEN {utc}" for utc in (first, last))
        return f"(CASE {forms} ELSE {skipped} END)"

    return bind_sql(chosen, before, after)


def _zone(zone: Value) -> int | str | None:
    """Return the minutes of an offset, or the name of a zone; None for NULL. SYSTEM is UTC.

    Raises:
        Untranslated: it is not a literal, or the zone does not exist.
    """
    if zone.kind == "null":
        return None
    literal = zone.literal
    if literal is None:
        raise Untranslated("CONVERT_TZ: expected a literal time zone", "write it in quotes, and choose among several with CASE")
    offset = re.fullmatch(r"([+-])(\d{1,2}):(\d{1,2})", literal)
    if offset:
        minutes = int(offset[2]) * 60 + int(offset[3])
        # -13:59 to +14:00: MySQL 8.4 manual, "MySQL Server Time Zone Support"
        if int(offset[3]) < 60 and minutes <= (840 if offset[1] == "+" else 839):
            return minutes if offset[1] == "+" else -minutes
        raise Untranslated(f"invalid offset {literal}:  expected '-13:59' to '+14:00'")
    if literal.upper() == "SYSTEM":
        return 0
    names = {name.lower(): name for name in available_timezones() - {"localtime"}}
    known_zone = names.get(literal.lower())
    if known_zone is None:
        near = get_close_matches(literal, names.values(), n=1)
        raise Untranslated(
            f"time zone {literal} does not exist", f"did you mean {near[0]}?" if near else "write an offset: '+02:00'"
        )
    return known_zone


FUNCTIONS: dict[str, Function] = {
    "UNIX_TIMESTAMP": Function(_unix_timestamp, 0, 1),
    "FROM_UNIXTIME": Function(_from_unixtime, 1, 2),
    "CONVERT_TZ": Function(_convert_tz, 3),
}
