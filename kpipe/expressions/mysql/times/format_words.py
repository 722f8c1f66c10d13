"""Compile SingleStore's TO_CHAR, TO_DATE and TO_TIMESTAMP, with format elements such as `YYYY-MM-DD HH24:MI:SS`, and DATE_TRUNC.

Source: SingleStore's manual, the pages of these four functions. Elements are upper case, as there. MM after `HH:` are minutes,
as in the page's example `The time is HH:MM:SS`. A year of two digits is in this century for YY, and in 1950 to 2049 for RR.
"""

from __future__ import annotations

import re

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.binding import bound
from kpipe.expressions.mysql.function import Function
from kpipe.expressions.mysql.times.date_formats import format_of
from kpipe.expressions.mysql.times.date_reading import Parts, moment_of
from kpipe.expressions.mysql.values import Value, datetime, quoted, text

__all__ = ["FUNCTIONS"]

_WORD = re.compile(r"YYYY|YY|RR|MONTH|MON|MM|MI|DD|DY|D|HH24|HH12|HH|SS|FF[1-9]?|[AP]\.?M\.?(?![A-Za-z])", re.DOTALL)
_FOREIGN = re.compile(
    r"\b(DAY|DDD|Y,YYY|YYY|Y|IYYY|IW|WW|W|Q|J|CC|SSSSS|TZH|TZM|TZR|yyyy|yy|mm|mon|month|dd|hh24|hh12|hh|mi|ss)\b"
)
_READS = {
    "YYYY": ("year", "YYYY", "([0-9]{4})"), "YY": ("year", "YY", "([0-9]{1,2})"), "RR": ("year", "RR", "([0-9]{1,2})"),
    "MM": ("month", "m", "([0-9]{1,2})"), "MON": ("month", "b", "([A-Za-z]{3})"), "MONTH": ("month", "M", "([A-Za-z]{3,9})"),
    "DD": ("day", "d", "([0-9]{1,2})"), "HH24": ("hour", "H", "([0-9]{1,2})"), "HH12": ("hour", "h", "([0-9]{1,2})"),
    "HH": ("hour", "h", "([0-9]{1,2})"), "MI": ("minute", "i", "([0-9]{1,2})"), "SS": ("second", "s", "([0-9]{1,2})"),
}  # fmt: skip
_TRUNCATED = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "microseconds")


def _words(function: str, said: str) -> list[str]:
    """Split a format into elements and the characters between them."""
    foreign = _FOREIGN.search(said)
    if foreign:
        known = foreign[0].upper() if _WORD.fullmatch(foreign[0].upper()) else ""
        raise Untranslated(
            f"{function}: unknown format element {foreign[0]}",
            f"write {known}" if known else "elements are YYYY YY RR MON MM DY D DD HH24 HH12 MI SS FF6 AM; DATE_FORMAT has more",
        )
    found: list[str] = []
    at = 0
    while at < len(said):
        match = _WORD.match(said, at)
        # After a letter, it is part of another word.
        word = match[0] if match and not (at and said[at - 1].islower()) else said[at]
        if word == "MM" and len(found) > 1 and found[-1] == ":" and found[-2].startswith("HH"):
            word = "MI"
        found.append(word)
        at += len(match[0]) if match and len(word) > 1 else 1
    return found


def _to_char(value: Value, written: Value) -> Value:
    said = format_of("TO_CHAR", written)
    if not said:
        return Value("CAST(NULL AS VARCHAR)", "text")

    def rule(v: str) -> str:
        return "(" + " || ".join(_written(v, word) for word in _words("TO_CHAR", said)) + ")"

    return Value(bound(datetime(value).sql, lambda v: f"(CASE WHEN {v} IS NOT NULL THEN {rule(v)} END)"), "text")


def _written(v: str, word: str) -> str:
    signs = {
        "YYYY": "%Y", "YY": "%y", "RR": "%y", "MON": "%b", "MM": "%m", "DD": "%d", "DY": "%a", "HH24": "%H", "HH12": "%I",
        "HH": "%I", "MI": "%M", "SS": "%S",
    }  # fmt: skip
    if word in signs:
        return f"strftime({v}, '{signs[word]}')"
    if word == "MONTH":
        raise Untranslated("TO_CHAR: MONTH is ambiguous: the manual has two meanings", "write MON, or DATE_FORMAT(value, '%M')")
    if word == "D":
        return f"CAST(dayofweek({v}) + 1 AS VARCHAR)"
    if word.startswith("FF"):
        return f"left(strftime({v}, '%f') || '000', {word[2:] or 2})"
    if len(word) > 1:
        dots = "." if "." in word else ""
        return f"(CASE WHEN hour({v}) < 12 THEN 'A{dots}M{dots}' ELSE 'P{dots}M{dots}' END)"
    return quoted(word)


def _read(function: str, said: str) -> Parts:
    """Parse a format; any punctuation matches any other."""
    parts, pattern = Parts(), ""
    for word in _words(function, said):
        if word.startswith("FF"):
            name, sign, digits = "micros", "f", "([0-9]{1,6})[0-9]{0,3}"
        elif word in _READS:
            name, sign, digits = _READS[word]
        elif word in ("D", "DY"):
            raise Untranslated(f"{function}: {word} does not define a date", "remove it, or use STR_TO_DATE")
        elif len(word) > 1:
            name, sign, digits = "half", "p", "([AaPp]\\.?[Mm])\\.?"
        else:
            pattern += "[[:punct:]]" if re.fullmatch(r"[!-/:-@\[-`{-~]", word) else r"[ \t]+" if word == " " else re.escape(word)
            continue
        if name in parts.signs:
            raise Untranslated(f"{function}: duplicate {name} in the format", "remove one of them")
        parts.signs[name] = sign
        pattern += digits
    parts.pattern = f"^[ \\t]*{pattern}[ \\t]*$"
    if not parts.signs:
        raise Untranslated(f"{function}: the format has no elements", "write YYYY-MM-DD, for example")
    return parts


def _filled(parts: Parts, said: str) -> tuple[Parts, str]:
    """Add missing parts before the text: today's year and month, and the first day."""
    missing = {"year": ("YYYY", "%Y", "([0-9]{4})"), "month": ("m", "%m", "([0-9]{2})"), "day": ("d", "01", "([0-9]{2})")}
    missing = {name: how for name, how in missing.items() if name not in parts.signs}
    if not missing:
        return parts, said
    before = "".join(how[1] for how in missing.values())
    signs = {name: how[0] for name, how in missing.items()} | parts.signs
    pattern = "^" + "".join(how[2] for how in missing.values()) + parts.pattern.removeprefix("^")
    return Parts(pattern, signs), f"strftime(now() AT TIME ZONE 'UTC', '{before}') || {said}"


def _parsed(function: str, value: Value, written: Value) -> Value:
    """Parse a text; NULL if other characters of the format are missing, an error for an invalid date, as on the server."""
    format_text = format_of(function, written)
    if format_text is None:
        return Value("CAST(NULL AS TIMESTAMP)", "datetime")
    parts = _read(function, format_text)
    plain = text(value).sql

    def rule(v: str) -> str:
        filled, said = _filled(parts, v)
        made = moment_of(said, filled)
        if any(word.isalpha() and len(word) == 1 for word in _words(function, format_text)):
            unlike = f" AND regexp_matches({v}, {quoted(parts.pattern)})"
        else:
            unlike = ""
        wrong = quoted(f"{function}: a text is not a date of the format {format_text}")
        return bound(made.sql, lambda m: f"(CASE WHEN {m} IS NULL AND {v} IS NOT NULL{unlike} THEN error({wrong}) ELSE {m} END)")

    kind = moment_of("''", _filled(parts, "''")[0]).kind
    made = Value(bound(plain, rule), kind)
    return datetime(made) if function == "TO_TIMESTAMP" else made


def _date_trunc(unit: Value, moment: Value) -> Value:
    name = (unit.literal or "").lower()
    if name not in _TRUNCATED:
        raise Untranslated("DATE_TRUNC: expected the name of a unit first", f"units are {', '.join(map(repr, _TRUNCATED))}")
    return Value(f"CAST(date_trunc('{name}', {datetime(moment).sql}) AS TIMESTAMP)", "datetime")


FUNCTIONS: dict[str, Function] = {
    "TO_CHAR": Function(_to_char, 2),
    "TO_DATE": Function(lambda value, written: _parsed("TO_DATE", value, written), 2),
    "TO_TIMESTAMP": Function(lambda value, written: _parsed("TO_TIMESTAMP", value, written), 2),
    "DATE_TRUNC": Function(_date_trunc, 2),
}
