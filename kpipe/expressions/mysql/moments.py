"""Parse texts and numbers as timestamps and as time spans, by MySQL's rules.

Sources: MySQL 8.4 manual, "Date and Time Literals" (delimiters, digits in a row, years of two digits, offsets); "Fractional
Seconds in Time Values" (more than six digits are rounded); "The TIME Type". All are tested against a server.

All functions take and return DuckDB's SQL. A span is a BIGINT of microseconds from -838:59:59 to 838:59:59: MySQL's TIME may
be negative and longer than a day, DuckDB's may not.
"""

from __future__ import annotations

from kpipe.expressions.mysql.binding import bound

__all__ = [
    "DATED", "LAST", "LONGEST", "clock_of_text", "compared_moment", "composed", "fraction", "has_clock", "moment_of_number",
    "moment_of_text", "plain_span", "span_of_number", "span_of_text", "text_of_span", "time_of_day", "within", "within_years",
]  # fmt: skip

LONGEST = 3_020_399_000_000
"""838:59:59 in microseconds."""

_FIRST = -62_135_596_800_000_000
LAST = 253_402_300_799_999_999
"""The last microsecond of the year 9999."""

# The common forms, which DuckDB parses the same way. Other forms are parsed by slower expressions.
_COMMON = r"[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}(?:[ T](?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z?)?"
_NEXT = r"(?:T|[ \t\n\v\f\r]+|[[:punct:]])"
_DELIMITED = (
    r"^[ \t\n\v\f\r]*\+?([0-9]{1,4}|0[0-9]{4})[[:punct:]]0*([0-9]{1,2})[[:punct:]]0*([0-9]+)(?:" + _NEXT +
    r"([0-9]+)(?:[[:punct:]]([0-9]+)(?:[[:punct:]]([0-9]+)(?:\.([0-9]*))?)?)?)?(?:[ ]*)([+-][0-9]{2}:[0-9]{2})?"
)  # fmt: skip
_CLOCK = r"^[ \t\n\v\f\r]*\+?[0-9]{1,5}[[:punct:]][0-9]+[[:punct:]][0-9]+(?:T|[ \t\n\v\f\r]+)[0-9]"
DATED = r"^[ \t\n\v\f\r]*\+?[0-9]{1,5}[-/.^][0-9]+[-/.^][0-9]+"
"""A text that begins with a date."""
_RUN = r"^[ \t\n\v\f\r]*\+?([0-9][0-9T]*)(?:[ \t\n\v\f\r]*$|\.|[^[:punct:] \t\n\v\f\r])"
_REST = r"([0-9]{2})([0-9]{1,2})(?:T?([0-9]{1,2})(?:([0-9]{1,2})(?:([0-9]{1,2})(?:\.([0-9]*))?)?)?)?([+-][0-9]{2}:[0-9]{2})?"
_LONG_RUN = r"^[ \t\n\v\f\r]*\+?([0-9]{4})" + _REST
_SHORT_RUN = r"^[ \t\n\v\f\r]*\+?([0-9]{2})" + _REST
_PARTS = "['y','mo','d','h','mi','s','f','z']"
_SPAN = (
    r"^[ \t\n\v\f\r]*([+-]?)[ \t\n\v\f\r]*(?:([0-9]+)[ \t\n\v\f\r]+)?([0-9]+)"
    r"(?::([0-9]+)(?::([0-9]+))?)?(?:\.([0-9]*))?([eE][+-]?[0-9])?"
)  # fmt: skip
_SPAN_PARTS = "['sign','d','h','mi','s','f','e']"


def moment_of_text(text: str) -> str:
    """Parse a text as TIMESTAMP: trailing text is ignored, a UTC offset is subtracted; NULL if it is not a date."""
    return bound(
        text,
        lambda v: (
            f"(CASE WHEN regexp_full_match({v}, '{_COMMON}') THEN TRY_CAST({v} AS TIMESTAMP)"
            f" ELSE {bound(_parts(v), _moment)} END)"
        ),
    )


def _parts(v: str) -> str:
    """Split a text into year to offset. In a run of digits, the year has four if there are 8, or 14 or more."""
    delimited, long, short = (f"regexp_extract({v}, '{form}', {_PARTS})" for form in (_DELIMITED, _LONG_RUN, _SHORT_RUN))
    run = bound(
        f"length(regexp_extract({v}, '{_RUN}', 1))",
        lambda count: f"(CASE WHEN {count} = 8 OR {count} >= 14 THEN {long} WHEN {count} > 4 THEN {short} END)",
    )
    return f"(CASE WHEN regexp_matches({v}, '{_DELIMITED}') THEN {delimited} ELSE {run} END)"


def compared_moment(text: str) -> str:
    """Parse a text that is compared with a timestamp; a text that is not a date sorts before all timestamps.

    A day beyond the end of its month, a month 0 and a day 0 sort right before the next valid day.
    """
    before_all = f"make_timestamp({_FIRST - 1})"

    def rule(v: str) -> str:
        between = bound(_parts(v), _before_the_next)
        return f"coalesce({moment_of_text(v)}, {between}, CASE WHEN {v} IS NOT NULL THEN {before_all} END)"

    return bound(text, rule)


def _before_the_next(p: str) -> str:
    month, day = (f"TRY_CAST({p}.{name} AS INTEGER)" for name in ("mo", "d"))
    first = f"TRY_CAST(({_year(p)}) || '-' || lpad(CAST(greatest({month}, 1) AS VARCHAR), 2, '0') || '-01' AS TIMESTAMP)"
    clock = " AND ".join(
        f"coalesce(TRY_CAST(nullif({p}.{name}, '') AS INTEGER), 0) < {end}" for name, end in (("h", 24), ("mi", 60), ("s", 60))
    )
    later = f"to_months(CASE WHEN {month} > 0 AND {day} > 0 THEN 1 ELSE 0 END)"
    return f"(CASE WHEN {month} BETWEEN 0 AND 12 AND {day} <= 31 AND {clock} THEN {first} + {later} - to_microseconds(1) END)"


def _year(p: str) -> str:
    return (
        f"CASE WHEN length({p}.y) = 2 THEN CASE WHEN {p}.y < '70' THEN '20' ELSE '19' END || {p}.y"
        f" ELSE lpad(ltrim({p}.y, '0'), 4, '0') END"
    )


def within_years(moment: str, kind: str = "TIMESTAMP") -> str:
    """Return a TIMESTAMP or DATE, NULL outside of the years 1 to 9999."""
    last = "9999-12-31 23:59:59.999999" if kind == "TIMESTAMP" else "9999-12-31"
    return bound(moment, lambda v: f"(CASE WHEN {v} BETWEEN {kind} '0001-01-01' AND {kind} '{last}' THEN {v} END)")


def _moment(p: str) -> str:
    # Numbers that are too long are not cut, so that the cast to TIMESTAMP gives NULL.
    padded = [
        f"(CASE WHEN length({p}.{name}) > 2 THEN {p}.{name} ELSE lpad({p}.{name}, 2, '0') END)"
        for name in ("mo", "d", "h", "mi", "s")
    ]
    whole = f"({_year(p)}) || '-' || {padded[0]} || '-' || {padded[1]}"
    whole += f" || ' ' || {padded[2]} || ':' || {padded[3]} || ':' || {padded[4]}"
    minutes = f"(60 * CAST(substr({p}.z, 2, 2) AS BIGINT) + CAST(right({p}.z, 2) AS BIGINT))"
    offset = f"(CASE left({p}.z, 1) WHEN '+' THEN {minutes} WHEN '-' THEN -{minutes} ELSE 0 END)"
    rounded = f"TRY_CAST({whole} AS TIMESTAMP) + to_microseconds({fraction(f'{p}.f')})"
    local = bound(rounded, lambda v: f"(CASE WHEN epoch_us({v}) > {LAST} THEN make_timestamp({LAST}) ELSE {v} END)")
    made = f"{local} - to_minutes({offset})"
    return f"(CASE WHEN (ltrim({p}.y, '0') <> '' OR length({p}.y) = 2) AND {p}.h <> '24' THEN {within_years(made)} END)"


def fraction(digits: str) -> str:
    """Return the decimal places of a second as microseconds, rounded."""
    return f"CAST(round(CAST('0.' || left({digits}, 12) || '0' AS DOUBLE) * 1000000) AS BIGINT)"


def has_clock(text: str) -> str:
    """Return whether a text is a date with a time of day, which TIME reads as such."""
    return f"(regexp_matches({text}, '{_CLOCK}') OR length(regexp_extract({text}, '{_RUN}', 1)) >= 12)"


def span_of_text(text: str) -> str:
    """Parse a text as microseconds: `-12:30`, `1 2:3:4`, `103015`, or the time of day of a timestamp; else NULL."""
    return bound(text, lambda v: f"(CASE WHEN {has_clock(v)} THEN {time_of_day(moment_of_text(v))} ELSE {plain_span(v)} END)")


def plain_span(text: str) -> str:
    """Parse a text that is not a timestamp as microseconds; see `span_of_text`."""
    return bound(f"regexp_extract({text}, '{_SPAN}', {_SPAN_PARTS})", _span)


def clock_of_text(text: str) -> str:
    """Parse a text as microseconds for EXTRACT, which reads a date alone as midnight."""
    return bound(
        text,
        lambda v: f"(CASE WHEN regexp_matches({v}, '{DATED}') THEN {time_of_day(moment_of_text(v))} ELSE {span_of_text(v)} END)",
    )


def time_of_day(moment: str) -> str:
    """Return the microseconds since midnight."""
    return bound(moment, lambda v: f"(epoch_us({v}) - epoch_us(date_trunc('day', {v})))")


def _span(p: str) -> str:
    hours, minutes, seconds, days = (f"TRY_CAST('0' || {p}.{name} AS INTEGER)" for name in ("h", "mi", "s", "d"))
    row = composed(f"{hours} // 10000", f"({hours} // 100 % 100)", f"({hours} % 100)", fraction(f"{p}.f"))
    spelled = composed(f"({days} * 24 + {hours})", minutes, seconds, fraction(f"{p}.f"))
    made = f"(CASE WHEN {p}.mi = '' AND {p}.d = '' THEN {row} ELSE {spelled} END)"
    return f"(CASE WHEN {p}.h <> '' AND {p}.e = '' THEN {made} * (CASE WHEN {p}.sign = '-' THEN -1 ELSE 1 END) END)"


def composed(hours: str, minutes: str, seconds: str, micros: str) -> str:
    """Return the microseconds of the parts, at most `LONGEST`; NULL if minutes or seconds exceed 59."""
    whole = f"(CAST({hours} AS BIGINT) * 3600 + {minutes} * 60 + {seconds}) * 1000000 + {micros}"
    within_units = f"{minutes} BETWEEN 0 AND 59 AND {seconds} BETWEEN 0 AND 59 AND {hours} IS NOT NULL"
    return f"(CASE WHEN {within_units} THEN least({whole}, {LONGEST}) END)"


def moment_of_number(exact: str) -> str:
    """Return the TIMESTAMP of a DECIMAL(38, 6): YYYYMMDD or YYMMDD, optionally followed by hhmmss."""
    return bound(exact, lambda v: bound(_expanded(v), lambda n: _split(n, v)))


def _expanded(v: str) -> str:
    n = f"CAST(trunc({v}) AS BIGINT)"
    steps = (
        ("< 101", "NULL"),
        ("<= 691231", f"({n} + 20000000) * 1000000"),
        ("< 700101", "NULL"),
        ("<= 991231", f"({n} + 19000000) * 1000000"),
        ("< 10000101", "NULL"),
        ("<= 99991231", f"{n} * 1000000"),
        ("< 101000000", "NULL"),
        ("<= 691231235959", f"{n} + 20000000000000"),
        ("< 700101000000", "NULL"),
        ("<= 991231235959", f"{n} + 19000000000000"),
        ("<= 99991231235959.999999", n),
    )
    return f"(CASE {' '.join(f'WHEN {v} {test} THEN {made}' for test, made in steps)} END)"


def _split(n: str, v: str) -> str:
    said = f"lpad(CAST({n} AS VARCHAR), 14, '0')"
    cuts = [f"substr({said}, {start}, {size})" for start, size in ((1, 4), (5, 2), (7, 2), (9, 2), (11, 2), (13, 2))]
    written = f"{cuts[0]} || '-' || {cuts[1]} || '-' || {cuts[2]} || ' ' || {cuts[3]} || ':' || {cuts[4]} || ':' || {cuts[5]}"
    micros = f"CAST(({v} - trunc({v})) * 1000000 AS BIGINT)"
    clock = f"(CASE WHEN {v} > 99991231 THEN {micros} ELSE 0 END)"
    return f"(CASE WHEN {cuts[3]} < '24' THEN TRY_CAST({written} AS TIMESTAMP) + to_microseconds({clock}) END)"


def span_of_number(exact: str) -> str:
    """Return the microseconds of a DECIMAL(38, 6): hhmmss, or the time of day of a timestamp."""

    def rule(v: str) -> str:
        n = f"CAST(trunc(abs({v})) AS BIGINT)"
        micros = f"CAST((abs({v}) - trunc(abs({v}))) * 1000000 AS BIGINT)"
        plain = composed(f"{n} // 10000", f"{n} // 100 % 100", f"{n} % 100", micros)
        moment = time_of_day(moment_of_number(v))
        beyond = f"WHEN {v} > 8385959.999999 THEN coalesce({moment}, {LONGEST}) WHEN {v} < -8385959.999999 THEN -{LONGEST}"
        dated = f"WHEN {v} >= 10000000000 AND {v} < 99991231235960 THEN {moment}"
        return f"(CASE {dated} {beyond} ELSE {plain} * (CASE WHEN {v} < 0 THEN -1 ELSE 1 END) END)"

    return bound(exact, rule)


def within(micros: str) -> str:
    """Return the TIMESTAMP of microseconds since 1970, NULL outside of the years 1 to 9999."""
    return bound(micros, lambda v: f"(CASE WHEN {v} BETWEEN {_FIRST} AND {LAST} THEN make_timestamp({v}) END)")


def text_of_span(span: str) -> str:
    """Print a span as MySQL does: hours of two or three digits, a fraction only if it is not 0."""

    def rule(v: str) -> str:
        n = f"abs({v})"
        hours = f"lpad(CAST({n} // 3600000000 AS VARCHAR), CASE WHEN {n} >= 360000000000 THEN 3 ELSE 2 END, '0')"
        rest = [f"lpad(CAST({n} // {unit} % 60 AS VARCHAR), 2, '0')" for unit in (60_000_000, 1_000_000)]
        tail = f"(CASE WHEN {n} % 1000000 = 0 THEN '' ELSE '.' || lpad(CAST({n} % 1000000 AS VARCHAR), 6, '0') END)"
        return f"((CASE WHEN {v} < 0 THEN '-' ELSE '' END) || {hours} || ':' || {rest[0]} || ':' || {rest[1]} || {tail})"

    return bound(span, rule)
