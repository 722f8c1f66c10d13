"""Compile arithmetic of dates and times: DATE_ADD, TIMEDIFF, MAKEDATE, TO_DAYS.

Source: MySQL 8.4 manual, "Date and Time Functions"; a result outside of the years 1 to 9999 is NULL.
"""

from __future__ import annotations

from collections.abc import Callable

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.binding import bind_sql, bound
from kpipe.expressions.mysql.function import Function
from kpipe.expressions.mysql.moments import DATED, LONGEST, composed, has_clock, moment_of_text, plain_span, span_of_text, within
from kpipe.expressions.mysql.times.intervals import MICROS, MONTHS, moved, shifted
from kpipe.expressions.mysql.value_binding import bind
from kpipe.expressions.mysql.values import Value, date, datetime, double, integer, reading, span, text

__all__ = ["FUNCTIONS"]

_TEXTS = ("text", "json", "blob")
_DATED = ("date", "datetime")


def _moved(sign: str, days: bool) -> Callable[[Value, Value], Value]:
    def rule(moment: Value, step: Value) -> Value:
        if step.kind == "interval":
            return moved(moment, step, sign)
        if not days:
            raise Untranslated("expected an interval", "write DATE_ADD(at, INTERVAL 3 DAY) or ADDDATE(at, 3)")
        return shifted(moment, "DAY", step, sign)

    return rule


def _timestamp_add(unit: Value, count: Value, moment: Value) -> Value:
    return shifted(moment, str(unit.literal), count, "+")


def _timestamp_diff(unit: Value, begin: Value, end: Value) -> Value:
    """Compile TIMESTAMPDIFF: whole units between two timestamps, rounded towards 0."""
    name, a, b = str(unit.literal), datetime(begin).sql, datetime(end).sql
    if name in MICROS:
        return Value(f"((epoch_us({b}) - epoch_us({a})) // {MICROS[name]})", "int")
    if name not in MONTHS:
        raise Untranslated(f"TIMESTAMPDIFF: unsupported unit {name}", "units are MICROSECOND, SECOND ... YEAR")
    return Value(bind_sql(lambda x, y: f"({_months_between(x, y)} // {MONTHS[name]})", a, b), "int")


def _months_between(a: str, b: str) -> str:
    rest = [f"(epoch_us({v}) - epoch_us(date_trunc('month', {v})))" for v in (a, b)]
    later = f"WHEN {{0}} > 0 AND {rest[1]} < {rest[0]} THEN {{0}} - 1"
    months = f"(CASE {later} WHEN {{0}} < 0 AND {rest[1]} > {rest[0]} THEN {{0}} + 1 ELSE {{0}} END)"
    return bind_sql(months.format, f"(year({b}) * 12 + month({b}) - year({a}) * 12 - month({a}))")


def _date_diff(end: Value, begin: Value) -> Value:
    return Value(f"CAST({date(end).sql} - {date(begin).sql} AS BIGINT)", "int", 7)


def _clipped(sql: str) -> str:
    return bound(sql, lambda v: f"(CASE WHEN {v} IS NOT NULL THEN greatest(least({v}, {LONGEST}), -{LONGEST}) END)")


def _time_diff(end: Value, begin: Value) -> Value:
    """Compile TIMEDIFF: NULL for a time and a timestamp. The value of a text determines its type."""

    def rule(end: Value, begin: Value) -> Value:
        (a, a_dated), (b, b_dated) = _micros(end), _micros(begin)
        return Value(_clipped(f"(CASE WHEN {a_dated} = {b_dated} THEN {a} - {b} END)"), "span")

    return bind(rule, end, begin)


def _micros(value: Value) -> tuple[str, str]:
    """Return microseconds, and SQL that is true if they are those of a timestamp."""
    if value.kind in _DATED:
        return f"epoch_us({datetime(value).sql})", "true"
    if value.kind not in _TEXTS:
        return span(value).sql, "false"
    said = reading(value)
    sql = bound(said, lambda v: f"(CASE WHEN {has_clock(v)} THEN epoch_us({moment_of_text(v)}) ELSE {plain_span(v)} END)")
    return sql, has_clock(said)


def _time_of(value: Value) -> str:
    """Return the second argument of ADDTIME, which may be a time but not a date."""
    if value.kind in _DATED:
        return "CAST(NULL AS BIGINT)"
    if value.kind not in _TEXTS:
        return span(value).sql
    return bound(reading(value), lambda v: f"(CASE WHEN NOT regexp_matches({v}, '{DATED}') THEN {span_of_text(v)} END)")


def _time_added(sign: str) -> Callable[[Value, Value], Value]:
    def rule(value: Value, more: Value) -> Value:
        step = _time_of(more)
        if value.kind in _DATED:
            return Value(within(f"(epoch_us({datetime(value).sql}) {sign} {step})"), "datetime")
        if value.kind not in _TEXTS:
            return Value(_clipped(f"({span(value).sql} {sign} {step})"), "span")

        def of_text(v: str, more: str) -> str:
            moment = text(Value(within(f"(epoch_us({moment_of_text(v)}) {sign} {more})"), "datetime")).sql
            longer = text(Value(_clipped(f"({plain_span(v)} {sign} {more})"), "span")).sql
            return f"(CASE WHEN {has_clock(v)} THEN {moment} ELSE {longer} END)"

        return Value(bind_sql(of_text, reading(value), step), "text")

    return rule


def _timestamp(moment: Value, more: Value | None = None) -> Value:
    made = datetime(moment)
    return made if more is None else Value(within(f"(epoch_us({made.sql}) + {_time_of(more)})"), "datetime")


def _make_date(year: Value, day: Value) -> Value:
    def rule(y: str, n: str) -> str:
        whole = f"(CASE WHEN {y} < 70 THEN 2000 + {y} WHEN {y} < 100 THEN 1900 + {y} ELSE {y} END)"
        made = f"(make_date({whole}, 1, 1) + CAST({n} - 1 AS INTEGER))"
        return f"(CASE WHEN {y} BETWEEN 0 AND 9999 AND {n} BETWEEN 1 AND 3700000 AND year({made}) <= 9999 THEN {made} END)"

    return Value(bind_sql(rule, integer(year).sql, integer(day).sql), "date")


def _make_time(hour: Value, minute: Value, second: Value) -> Value:
    def rule(h: str, m: str, s: str) -> str:
        made = composed(
            f"least(greatest({h}, -1000), 1000) * sign({h})",
            m,
            f"CAST(trunc({s}) AS BIGINT)",
            f"CAST({s} % 1 * 1000000 AS BIGINT)",
        )
        return f"(CASE WHEN {s} >= 0 THEN {made} * (CASE WHEN {h} < 0 THEN -1 ELSE 1 END) END)"

    exact = f"TRY_CAST({double(second).sql} AS DECIMAL(18,6))"
    m = f"TRY_CAST({integer(minute).sql} AS INTEGER)"
    return Value(bind_sql(rule, integer(hour).sql, m, exact), "span")


def _sec_to_time(seconds: Value) -> Value:
    bounds = "greatest(least({0}, 3020399), -3020399)"
    if seconds.kind in ("int", "bool"):
        return Value(
            bound(integer(seconds).sql, lambda v: f"(CASE WHEN {v} IS NOT NULL THEN {bounds.format(v)} * 1000000 END)"), "span"
        )
    made = "(CASE WHEN {0} IS NOT NULL THEN CAST(round(" + bounds + " * 1000000) AS BIGINT) END)"
    return Value(bound(double(seconds).sql, made.format), "span")


def _time_to_sec(value: Value) -> Value:
    return Value(f"({span(value).sql} // 1000000)", "int", 7)


def _days(moment: str) -> str:
    return f"(CAST(CAST({moment} AS DATE) - DATE '0001-01-01' AS BIGINT) + 366)"


def _to_days(moment: Value) -> Value:
    return Value(_days(date(moment).sql), "int", 7)


def _to_seconds(moment: Value) -> Value:
    return Value(f"((epoch_us({datetime(moment).sql}) + 62135596800000000) // 1000000 + 31622400)", "int", 12)


def _from_days(count: Value) -> Value:
    made = "(CASE WHEN {0} BETWEEN 366 AND 3652424 THEN DATE '0001-01-01' + CAST({0} - 366 AS INTEGER) END)"
    return Value(bound(integer(count).sql, made.format), "date")


def _period_months(p: str) -> str:
    years = f"({p} // 100 + CASE WHEN {p} < 7000 THEN 2000 WHEN {p} < 10000 THEN 1900 ELSE 0 END)"
    return f"(CASE WHEN {p} = 0 THEN 0 WHEN {p} BETWEEN 1 AND 999912 THEN {years} * 12 + {p} % 100 - 1 END)"


def _period_add(period: Value, months: Value) -> Value:
    def later(m: str) -> str:
        years = f"({m} // 12 + CASE WHEN {m} // 12 < 70 THEN 2000 WHEN {m} // 12 < 100 THEN 1900 ELSE 0 END)"
        return f"(CASE WHEN {m} > 0 THEN {years} * 100 + {m} % 12 + 1 END)"

    def rule(p: str, n: str) -> str:
        made = f"(CASE WHEN {n} BETWEEN -1000000 AND 1000000 THEN {_period_months(p)} + {n} END)"
        return f"(CASE WHEN {p} = 0 AND {n} IS NOT NULL THEN 0 ELSE {bound(made, later)} END)"

    return Value(bind_sql(rule, integer(period).sql, integer(months).sql), "int")


def _period_diff(end: Value, begin: Value) -> Value:
    a, b = (bound(integer(item).sql, _period_months) for item in (end, begin))
    return Value(f"({a} - {b})", "int")


FUNCTIONS: dict[str, Function] = {
    "DATE": Function(date, 1),
    "TIME": Function(lambda value: value if value.kind == "time" else span(value), 1),
    "TIMESTAMP": Function(_timestamp, 1, 2),
    "DATE_ADD": Function(_moved("+", days=False), 2),
    "ADDDATE": Function(_moved("+", days=True), 2),
    "DATE_SUB": Function(_moved("-", days=False), 2),
    "SUBDATE": Function(_moved("-", days=True), 2),
    "TIMESTAMPADD": Function(_timestamp_add, 3),
    "TIMESTAMPDIFF": Function(_timestamp_diff, 3),
    "DATEDIFF": Function(_date_diff, 2),
    "TIMEDIFF": Function(_time_diff, 2),
    "ADDTIME": Function(_time_added("+"), 2),
    "SUBTIME": Function(_time_added("-"), 2),
    "MAKEDATE": Function(_make_date, 2),
    "MAKETIME": Function(_make_time, 3),
    "SEC_TO_TIME": Function(_sec_to_time, 1),
    "TIME_TO_SEC": Function(_time_to_sec, 1),
    "TO_DAYS": Function(_to_days, 1),
    "TO_SECONDS": Function(_to_seconds, 1),
    "FROM_DAYS": Function(_from_days, 1),
    "PERIOD_ADD": Function(_period_add, 2),
    "PERIOD_DIFF": Function(_period_diff, 2),
}
