"""Compile DATE_FORMAT, TIME_FORMAT and GET_FORMAT, which print dates and times (MySQL 8.4 manual, DATE_FORMAT, GET_FORMAT).

For STR_TO_DATE, which parses the same specifiers, see date_reading.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.binding import bound
from kpipe.expressions.mysql.function import Function
from kpipe.expressions.mysql.times.time_functions import week_of, year_week_of
from kpipe.expressions.mysql.values import Value, datetime, literal_text, quoted, span

__all__ = ["FUNCTIONS", "format_of", "formatted"]

# Specifiers that DuckDB's strftime supports.
_SAME = {
    "Y": "%Y", "y": "%y", "m": "%m", "c": "%-m", "d": "%d", "e": "%-d", "M": "%B", "b": "%b", "W": "%A", "a": "%a", "j": "%j",
    "w": "%w", "H": "%H", "k": "%-H", "h": "%I", "I": "%I", "l": "%-I", "i": "%M", "s": "%S", "S": "%S", "f": "%f", "p": "%p",
    "T": "%H:%M:%S", "r": "%I:%M:%S %p",
}  # fmt: skip
_SIGNS = re.compile(r"%(.)|([^%]+|%\Z)", re.DOTALL)
_GET_FORMAT = {
    "DATE": {"USA": "%m.%d.%Y", "JIS": "%Y-%m-%d", "ISO": "%Y-%m-%d", "EUR": "%d.%m.%Y", "INTERNAL": "%Y%m%d"},
    "DATETIME": {
        "USA": "%Y-%m-%d %H.%i.%s", "JIS": "%Y-%m-%d %H:%i:%s", "ISO": "%Y-%m-%d %H:%i:%s", "EUR": "%Y-%m-%d %H.%i.%s",
        "INTERNAL": "%Y%m%d%H%i%s",
    },
    "TIME": {"USA": "%h:%i:%s %p", "JIS": "%H:%i:%s", "ISO": "%H:%i:%s", "EUR": "%H.%i.%s", "INTERNAL": "%H%i%s"},
}  # fmt: skip


def format_of(function: str, value: Value) -> str | None:
    """Return a literal format; None for NULL.

    Raises:
        Untranslated: it is not a literal.
    """
    if value.kind == "null":
        return None
    found = literal_text(value)
    if found is None:
        raise Untranslated(
            f"{function}: expected a literal format",
            f"write it in quotes: {function}(value, '...'); choose among several with CASE",
        )
    return found


def formatted(moment: Value, written: Value) -> Value:
    """Compile DATE_FORMAT(moment, format). An empty format gives NULL, as on the server.

    Raises:
        Untranslated: the format is not a literal.
    """
    said = format_of("DATE_FORMAT", written)
    if not said:
        return Value("CAST(NULL AS VARCHAR)", "text")
    return Value(bound(datetime(moment).sql, lambda v: _written(said, v)), "text")


def _written(said: str, v: str) -> str:
    day = f"CAST(day({v}) AS VARCHAR)"
    endings = (("1, 21, 31", "st"), ("2, 22", "nd"), ("3, 23", "rd"))
    cases = " ".join(f"WHEN day({v}) IN ({days}) THEN '{letters}'" for days, letters in endings)
    ending = f"CASE {cases} ELSE 'th' END"
    parts = {"D": f"{day} || ({ending})", "Y": f"lpad(CAST(year({v}) AS VARCHAR), 4, '0')"}
    for sign, mode in (("U", 0), ("u", 1), ("V", 2), ("v", 3)):
        parts[sign] = f"lpad(CAST({week_of(Value(v, 'datetime'), _literal(mode)).sql} AS VARCHAR), 2, '0')"
    for sign, mode in (("X", 2), ("x", 3)):
        year = f"{year_week_of(Value(v, 'datetime'), _literal(mode)).sql} // 100"
        parts[sign] = f"lpad(CAST({year} AS VARCHAR), 4, '0')"
    return _joined(said, parts, lambda signs: f"strftime({v}, {quoted(signs)})")


def _literal(mode: int) -> Value:
    return Value(str(mode), "int", literal=str(mode))


def _joined(said: str, parts: dict[str, str], together: Callable[[str], str]) -> str:
    """Return the SQL of a format: runs of specifiers that strftime supports use one call, each other specifier its own SQL."""
    found, signs = [], ""
    for match in _SIGNS.finditer(said):
        sign, plain = match[1], match[2]
        if sign is not None and sign in parts:
            found += [together(signs)] if signs else []
            found.append(f"({parts[sign]})")
            signs = ""
        elif sign is not None and sign in _SAME:
            signs += _SAME[sign]
        else:  # an unknown specifier is printed as its letter
            signs += (sign if sign is not None else plain).replace("%", "%%")
    found += [together(signs)] if signs else []
    return "(" + " || ".join(found) + ")"


def _time_formatted(value: Value, written: Value) -> Value:
    """Compile TIME_FORMAT(value, format): hours may exceed 23; NULL if the format has a date specifier."""
    said = format_of("TIME_FORMAT", written)
    signs = {match[1] for match in _SIGNS.finditer(said or "")}
    if not said or signs & set("YymcdeMbWajwDUuVvXx"):
        return Value("CAST(NULL AS VARCHAR)", "text")

    def rule(v: str) -> str:
        n, minus = f"abs({v})", f"(CASE WHEN {v} < 0 THEN '-' ELSE '' END)"
        hours, noon = f"({n} // 3600000000)", f"(({n} // 3600000000 + 11) % 12 + 1)"
        half = f"(CASE WHEN {hours} % 24 < 12 THEN 'AM' ELSE 'PM' END)"
        rest = f"lpad(CAST({n} // 60000000 % 60 AS VARCHAR), 2, '0')", f"lpad(CAST({n} // 1000000 % 60 AS VARCHAR), 2, '0')"
        clock_of = {
            "H": _two(hours),
            "k": f"CAST({hours} AS VARCHAR)",
            "h": _two(noon),
            "I": _two(noon),
            "l": f"CAST({noon} AS VARCHAR)",
            "i": rest[0],
            "s": rest[1],
            "S": rest[1],
            "f": f"lpad(CAST({n} % 1000000 AS VARCHAR), 6, '0')",
            "p": half,
            "T": f"{_two(hours)} || ':' || {rest[0]} || ':' || {rest[1]}",
            "r": f"{_two(noon)} || ':' || {rest[0]} || ':' || {rest[1]} || ' ' || {half}",
        }
        made = _joined(said, clock_of, lambda plain: quoted(plain.replace("%%", "%")))
        return f"(CASE WHEN {v} IS NOT NULL THEN {minus} || {made} END)"

    return Value(bound(span(value).sql, rule), "text")


def _two(number: str) -> str:
    return f"lpad(CAST({number} AS VARCHAR), CASE WHEN {number} > 99 THEN 3 ELSE 2 END, '0')"


def _get_format(kind: Value, place: Value) -> Value:
    """Compile GET_FORMAT(DATE, 'USA'), which returns a format."""
    name = {"TIMESTAMP": "DATETIME"}.get(str(kind.literal), str(kind.literal))
    if name not in _GET_FORMAT or place.literal is None:
        raise Untranslated("GET_FORMAT: expected DATE, TIME or DATETIME, and a text", "write GET_FORMAT(DATE, 'ISO')")
    said = _GET_FORMAT[name].get(place.literal.upper())
    return Value("CAST(NULL AS VARCHAR)", "null") if said is None else Value(quoted(said), "text", literal=said)


FUNCTIONS: dict[str, Function] = {
    "DATE_FORMAT": Function(formatted, 2),
    "TIME_FORMAT": Function(_time_formatted, 2),
    "GET_FORMAT": Function(_get_format, 2),
}
