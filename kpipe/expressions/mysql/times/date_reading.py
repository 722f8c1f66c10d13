"""Compile STR_TO_DATE, which parses a text by a format (MySQL 8.4 manual, STR_TO_DATE).

The format becomes one regular expression. White space before each specifier is skipped, text after the last one is ignored,
and a text may end before the format does. Missing parts are 0; a date with month or day 0 is NULL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.binding import bound
from kpipe.expressions.mysql.function import Function
from kpipe.expressions.mysql.moments import composed, within_years
from kpipe.expressions.mysql.times.date_formats import format_of
from kpipe.expressions.mysql.values import Value, quoted, reading

__all__ = ["FUNCTIONS", "Parts", "moment_of", "read"]

MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
# Specifier: name of the part, and its largest number of digits; 0: a word.
_SIGNS = {
    "Y": ("year", 4), "y": ("year", 2), "m": ("month", 2), "c": ("month", 2), "M": ("month", 0), "b": ("month", 0),
    "d": ("day", 2), "e": ("day", 2), "D": ("day", 2), "j": ("yearday", 3), "W": ("weekday", 0), "a": ("weekday", 0),
    "w": ("weekday", 1), "U": ("week", 2), "u": ("week", 2), "V": ("week", 2), "v": ("week", 2), "X": ("weekyear", 4),
    "x": ("weekyear", 4), "H": ("hour", 2), "k": ("hour", 2), "h": ("hour", 2), "I": ("hour", 2), "l": ("hour", 2),
    "i": ("minute", 2), "s": ("second", 2), "S": ("second", 2), "f": ("micros", 6), "p": ("half", 0),
}  # fmt: skip
_SKIPPED = {"@": "[A-Za-z]*", "#": "[0-9]*", ".": "[[:punct:]]*"}
_CLOCK = {"hour", "minute", "second", "micros", "half"}
_SPACE = r"[ \t\n\v\f\r]*"


@dataclass
class Parts:
    """The parts that a format parses.

    Attributes:
        pattern: a regular expression with a group for each part.
        signs: part to its specifier, in the order of the groups.
        common: the pattern of texts with all digits of every number, and DuckDB's format for them; empty: no such format.
    """

    pattern: str = ""
    signs: dict[str, str] = field(default_factory=dict)
    common: tuple[str, str] | tuple[()] = ()


def _numbers(words: tuple[str, ...], short: bool) -> tuple[str, str]:
    """Return two lists: each unambiguous prefix of a word, and the numbers of these words."""
    names = [word[:3] if short else word for word in words]
    found = {name[:size]: at + 1 for at, name in enumerate(names) for size in range(1, len(name) + 1)
             if sum(other.startswith(name[:size]) for other in names) == 1}  # fmt: skip
    return "[" + ", ".join(quoted(name) for name in found) + "]", str(list(found.values()))


def read(said: str) -> Parts:
    """Parse a format.

    Raises:
        Untranslated: a specifier is unsupported, or two specifiers parse the same part.
    """
    said = re.sub(r"%([rT])", lambda match: {"r": "%I:%i:%S %p", "T": "%H:%i:%S"}[match[1]], said)
    items: list[str] = []
    parts = Parts()
    tokens = re.findall(r"%.|[\s\S]", said)
    for at, token in enumerate(tokens):
        if len(token) == 1:
            if not token.isspace():
                items.append(re.escape(token) if token.isascii() else token)
            continue
        sign = token[1]
        if sign in _SKIPPED:
            items.append(_SKIPPED[sign])
            continue
        if sign not in _SIGNS:
            raise Untranslated(
                f"STR_TO_DATE: {token} is not supported", f"specifiers are {' '.join('%' + name for name in _SIGNS)} %r %T"
            )
        name, digits = _SIGNS[sign]
        if name in parts.signs:
            raise Untranslated(f"STR_TO_DATE: duplicate {name} in the format", "remove one of them")
        parts.signs[name] = sign
        after = next((item for item in tokens[at + 1 :] if not item.isspace()), "")
        items.append(_item(sign, digits, after))
    parts.pattern = "^" + _nested(items)
    parts.common = _common(tokens, parts.signs)
    return parts


# Specifiers that DuckDB parses the same way if all digits are present.
_COMMON = {"Y": "%Y", "m": "%m", "d": "%d", "H": "%H", "i": "%M", "s": "%S", "S": "%S", "b": "%b", "f": "%f"}


def _common(tokens: list[str], signs: dict[str, str]) -> tuple[str, str] | tuple[()]:
    """Return pattern and format of the most common texts. STRPTIME takes a tenth of the time of a regular expression."""
    if not {"year", "month", "day"} <= set(signs) or any(
        token == "%" or (len(token) > 1 and token[1] not in _COMMON) for token in tokens
    ):
        return ()
    pattern, native = "", ""
    for token in tokens:
        if len(token) == 1:
            pattern, native = pattern + (re.escape(token) if token.isascii() else token), native + token
        else:
            digits = _SIGNS[token[1]][1]
            pattern += f"[0-9]{{{digits}}}" if digits else "[A-Za-z]{3}"
            native += _COMMON[token[1]]
    return pattern, native


def _item(sign: str, digits: int, after: str) -> str:
    if sign == "p":
        return "([AaPp][Mm])"
    if not digits:
        return "([A-Za-z]+)"
    tail = r"[\s\S]{0,2}" if sign == "D" else ""
    another = after.isdigit() or (len(after) == 2 and _SIGNS.get(after[1], ("", 0))[1] > 0)
    if digits > 1 and another and not tail:  # digits are not left for the next number
        return f"([0-9]{{{digits}}}|[0-9]{{1,{digits - 1}}}(?:[ \\t\\n]|$))"
    return f"([0-9]{{1,{digits}}}){tail}"


def _nested(items: list[str]) -> str:
    """Nest the items of a pattern, so that a text may end before each."""
    made = ""
    for item in reversed(items):
        made = f"(?:{_SPACE}$|{_SPACE}{item}{made})"
    return made


def moment_of(said: str, parts: Parts) -> Value:
    """Return the date, time or timestamp that was parsed, by the specifiers of the format."""
    names = [f"'{name}'" for name in parts.signs]
    pattern = quoted(parts.pattern)
    dated, clocked = bool(set(parts.signs) - _CLOCK), bool(set(parts.signs) & _CLOCK)
    kind = "datetime" if dated and clocked else "span" if clocked else "date"
    if not dated and not clocked:
        return Value("CAST(NULL AS DATE)", "date")

    def rule(p: str) -> str:
        of_day = _clock(p, parts.signs) if clocked else ""
        if kind == "span":
            return of_day
        day = within_years(_day(p, parts.signs), "DATE")
        return f"({day} + to_microseconds({of_day}))" if clocked else day

    def parsed(v: str) -> str:
        found = bound(f"regexp_extract({v}, {pattern}, [{', '.join(names)}])", rule)
        slow = f"(CASE WHEN regexp_matches({v}, {pattern}) THEN {found} END)"
        if not parts.common:
            return slow
        shape, native = map(quoted, parts.common)
        fast = f"CASE WHEN regexp_full_match({v}, {shape}) THEN TRY_STRPTIME({v}, {native}) END"
        return f"coalesce({fast}, {slow})" if clocked else f"coalesce(CAST({fast} AS DATE), {slow})"

    return Value(bound(said, parsed), kind)


def _number(p: str, signs: dict[str, str], name: str) -> str:
    return f"TRY_CAST(nullif(trim({p}.{name}), '') AS INTEGER)" if name in signs else "NULL"


def _clock(p: str, signs: dict[str, str]) -> str:
    hour, minute, second = (f"coalesce({_number(p, signs, name)}, 0)" for name in ("hour", "minute", "second"))
    micros = f"CAST(rpad(trim({p}.micros), 6, '0') AS INTEGER)" if "micros" in signs else "0"
    pm, twelve = "0", "false"
    if "half" in signs:
        pm, twelve = f"(CASE WHEN {p}.half ILIKE 'p%' THEN 12 ELSE 0 END)", f"{p}.half <> ''"
    if signs.get("hour") in ("h", "I", "l"):
        twelve = f"{p}.hour <> ''"
    most = f"(CASE WHEN {twelve} THEN {hour} BETWEEN 1 AND 12 ELSE {hour} <= 23 END)"
    shown = f"(CASE WHEN {twelve} THEN {hour} % 12 + {pm} ELSE {hour} END)"
    return f"(CASE WHEN {most} THEN {composed(shown, minute, second, micros)} END)"


def _day(p: str, signs: dict[str, str]) -> str:
    year = _year(p, signs)
    month = _month(p, signs)
    plain = f"TRY_CAST(lpad(CAST({year} AS VARCHAR), 4, '0') || '-' || {month} || '-' || {_number(p, signs, 'day')} AS DATE)"
    cases = ""
    if "yearday" in signs:
        day = _number(p, signs, "yearday")
        cases += f" WHEN {day} > 0 THEN make_date({year}, 1, 1) + ({day} - 1)"
    if "week" in signs and "weekday" in signs:
        cases += f" WHEN {p}.week <> '' AND {p}.weekday <> '' THEN {_of_week(p, signs, year)}"
    elif "month" not in signs or "day" not in signs:
        plain = "CAST(NULL AS DATE)"
    made = f"(CASE{cases} ELSE {plain} END)" if cases else plain
    checks = f" AND {_weekday(p, signs)} IS NOT NULL" if "weekday" in signs else ""
    asked = f"coalesce({year}, {_number(p, signs, 'weekyear')})"
    return f"(CASE WHEN {asked} > 0{checks} THEN {made} END)"


def _year(p: str, signs: dict[str, str]) -> str:
    if "year" not in signs:
        return "CAST(NULL AS INTEGER)"
    number = _number(p, signs, "year")
    if signs["year"] in ("YY", "RR"):  # SingleStore's format elements
        return f"({number} + {2000 if signs['year'] == 'YY' else f'CASE WHEN {number} < 50 THEN 2000 ELSE 1900 END'})"
    if signs["year"] == "YYYY":
        return number
    century = f"CASE WHEN length(trim({p}.year)) > 2 THEN 0 WHEN {number} < 70 THEN 2000 ELSE 1900 END"
    return f"({number} + {century})"


def _month(p: str, signs: dict[str, str]) -> str:
    if signs.get("month") in ("M", "b"):
        names, numbers = _numbers(MONTHS, short=signs["month"] == "b")
        return f"{numbers}[list_position({names}, lower({p}.month))]"
    return _number(p, signs, "month")


def _weekday(p: str, signs: dict[str, str]) -> str:
    """Return 1 for Monday to 7; 0 if the text ends before the word; NULL for an unknown word."""
    if signs["weekday"] == "w":
        number = _number(p, signs, "weekday")
        return f"(CASE WHEN {p}.weekday = '' THEN 0 WHEN {number} = 0 THEN 7 WHEN {number} < 7 THEN {number} END)"
    names, numbers = _numbers(_WEEKDAYS, short=signs["weekday"] == "a")
    return f"(CASE WHEN {p}.weekday = '' THEN 0 ELSE {numbers}[list_position({names}, lower({p}.weekday))] END)"


def _of_week(p: str, signs: dict[str, str], year: str) -> str:
    """Return the date of a week: %V and %v need %X and %x, %U and %u need %Y."""
    sign, strict = signs["week"], signs["week"] in "Vv"
    if ("weekyear" in signs) != strict or (strict and signs["weekyear"] != {"V": "X", "v": "x"}[sign]):
        return "CAST(NULL AS DATE)"
    first = f"make_date({_number(p, signs, 'weekyear') if strict else year}, 1, 1)"
    week, weekday = _number(p, signs, "week"), _weekday(p, signs)
    if sign in "UV":
        begin = f"CAST(dayofweek({first}) AS INTEGER)"
        shift = f"(CASE WHEN {begin} = 0 THEN 0 ELSE 7 END) - {begin} + ({week} - 1) * 7 + {weekday} % 7"
    else:
        begin = f"CAST(isodow({first}) - 1 AS INTEGER)"
        shift = f"(CASE WHEN {begin} <= 3 THEN 0 ELSE 7 END) - {begin} + ({week} - 1) * 7 + {weekday} - 1"
    return f"(CASE WHEN {week} BETWEEN {1 if strict else 0} AND 53 THEN {first} + CAST({shift} AS INTEGER) END)"


def _str_to_date(value: Value, written: Value) -> Value:
    said = format_of("STR_TO_DATE", written)
    if said is None:
        return Value("CAST(NULL AS DATE)", "date")
    return moment_of(reading(value), read(said))


FUNCTIONS: dict[str, Function] = {"STR_TO_DATE": Function(_str_to_date, 2)}
