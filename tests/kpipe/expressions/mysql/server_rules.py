"""Which row of the page of functions explains a recorded difference between MySQL and MariaDB, and which server kpipe follows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tests.kpipe.expressions.mysql.recorded import Answer, answers, mysql_answers
from website.reference.server_differences import DIFFERENCES

__all__ = ["differing_pairs", "expected", "explained"]

#: MySQL's and MariaDB's value of one row.
Pair = tuple[str | None, str | None]
Rule = Callable[[str, Sequence[Pair]], bool]


def _written(pattern: str) -> Rule:
    return lambda said, _: re.search(pattern, said) is not None


def _equal_numbers(_: str, pairs: Sequence[Pair]) -> bool:
    try:
        return bool(pairs) and all(float(ours or "") == float(theirs or "") for ours, theirs in pairs)
    except ValueError:
        return False


def _equal_members(_: str, pairs: Sequence[Pair]) -> bool:
    """Whether documents, or lists of members and their keys, hold the same in another order."""

    def sorted_parts(said: str | None) -> list[str]:
        return sorted(re.findall(r'"[^"]*"|[^\s,:{}\[\]]+', said or ""))

    return all((ours or " ")[0] in "[{" and sorted_parts(ours) == sorted_parts(theirs) for ours, theirs in pairs)


def _huge_text(said: str, pairs: Sequence[Pair]) -> bool:
    return all(theirs is None and re.fullmatch(r"\d+( characters)?", ours or "") is not None for ours, theirs in pairs)


_BITS = r"[&|^~]|<<|>>|\bXOR\b|BIT_COUNT|\bHEX\(|\bBIN\("
_JSON_COMPARED = r"JSON_EXTRACT\(.*\) *(=|>|IN\b)"
_ROUNDED = r"(ROUND|TRUNCATE)\("
_CONDITION = r"\b(IF|CASE|IFNULL|COALESCE|LEAST|NVL2)\b"
_DATED = r"\b(dt|at|DATE)\b"
_COMPARED = r"[<>=]|\bBETWEEN\b|\bIN\b"
_TIMES = r"\b(ADDTIME|SUBTIME|TIMEDIFF|TIMESTAMP|TIME)\("
#: By the first column of the table.
RULES: dict[str, Rule] = {
    "digits of a quotient that is computed with further": _written("/"),
    "bits of a text with a fraction": _written(_BITS),
    "bits of a DOUBLE that ends in .5": _written(_BITS),
    "a shift by 2^32 or more": _written(r"(<<|>>) '?(i2?\b|42949)"),
    "a negative fraction, or a large DOUBLE, as UNSIGNED": _written("AS UNSIGNED"),
    "a hexadecimal literal as a number": _written(r"\b0x[0-9A-F]{2}"),
    "a hexadecimal literal of more than 64 bits": _written(r"\b0x\w{17}"),
    "a number of more than 64 bits in CONV": _written(r"CONV\('-?\d{20}"),
    "zeros of a rounded DOUBLE": lambda said, pairs: (
        _equal_numbers(said, pairs) or (said.startswith("CONCAT(") and re.search(_ROUNDED, said) is not None)
    ),
    "zeros of a condition's value": lambda said, pairs: (
        re.search(_CONDITION, said) is not None and (_equal_numbers(said, pairs) or said.startswith("CONCAT("))
    ),
    "minus zero": lambda said, pairs: any("-0" in (ours or "") and "-0" not in (theirs or "") for ours, theirs in pairs),
    "a small or large DOUBLE as a text": lambda said, pairs: (
        _equal_numbers(said, pairs) or (said.startswith(("CONCAT(", "LENGTH(")) and re.search(r"f|e0|1e", said) is not None)
    ),
    "more than 30 decimals in FORMAT": _written(r"^FORMAT\(.*, (3[1-9]|4\d)\)"),
    "overflow of an integer": lambda said, pairs: not pairs and "PERIOD" not in said,
    "large integers beside texts": _written(r"'90071992547409\d\d'"),
    "a JSON text beside a number, a JSON number beside a text": _written(_JSON_COMPARED),
    "JSON's true and false beside a number": _written(_JSON_COMPARED),
    "order of JSON's members": _equal_members,
    "digits of JSON's numbers": _written(r"JSON_EXTRACT\('\[1"),
    "element 0 of a JSON object in JSON_KEYS": _written(r"JSON_KEYS\(.*'\$\[0\]'\)"),
    "type of a large JSON integer": _written(r"JSON_TYPE\("),
    "a date beside a text that is not a date": lambda said, _: (
        re.search(_DATED, said) is not None and re.search(_COMPARED, said) is not None
    ),
    "a time beside a text that is not a time": lambda said, _: "tm" in said or "TIME '" in said,
    "a time with a plus sign": _written(r"\b(TIME|HOUR|MINUTE|SECOND|MICROSECOND|TIME_TO_SEC)\(|^ADDTIME|^SUBTIME|'\+"),
    "a date as a time": _written(r"(HOUR|TIME)\(\d+\)"),
    "other characters in a date or time": _written(r"CAST\('.*' AS DATETIME|TIME\('2013|CAST\(1000101"),
    "rounding beyond the year 9999": _written("9999-12-31"),
    "dates without a time, in functions of times": _written(_TIMES),
    "a date as the second argument": _written(_TIMES),
    "a time plus days": _written(r"(tm|TIME '[^']*') \+ INTERVAL|EXTRACT\(DAY FROM"),
    "more than six digits of microseconds in INTERVAL": _written(r"INTERVAL .* \w*MICROSECOND"),
    "the year 0": _written("'0001-01-01'"),
    "NULL as the mode of WEEK and YEARWEEK": _written(r"WEEK\(.*NULL\)"),
    "seconds of a text that is not a date": _written("UNIX_TIMESTAMP"),
    "years in TIME_FORMAT": _written(r"TIME_FORMAT\(.*%Y"),
    "a day of the year without a year": _written(r"STR_TO_DATE\(.*%j"),
    "a number as a time in EXTRACT": _written(r"EXTRACT\(HOUR FROM \d"),
    "months beyond 12 in PERIOD_ADD and PERIOD_DIFF": _written("PERIOD_(ADD|DIFF)"),
    "padding with an empty text": _written(r"[LR]PAD\(t, \d, (''|t2)\)|LPAD\('abc', 6, ''\)"),
    "texts of more than 16 MiB": _huge_text,
    "an empty text behind the last character": _written(r"LOCATE\(''"),
    "punctuation in patterns": _written(r"\[\[:punct:\]\]"),
    "groups in a replacement; `$1` is a group, too": _written("REGEXP_REPLACE"),
    "NULL as an address": _written("IS_IPV4"),
    "a date or a number, as a number": _written(r"\bIF\((0x1F, at|TRUE, TIMESTAMP)"),
    "a date rounded to tens": _written(r"ROUND\((dt|DATE)"),
}


def explained(said: str, pairs: Sequence[Pair]) -> list[str]:
    """Return the rows that may explain a difference.

    Args:
        said: the expression.
        pairs: the values that differ; none if MySQL rejects the expression.
    """
    return [item.what for item in DIFFERENCES if RULES[item.what](said, pairs)]


def differing_pairs(family: str, said: str) -> list[Pair]:
    """Return the values that differ; none if one of the servers rejects the expression."""
    mysql, mariadb = mysql_answers(family)[said], answers(family)[said]
    if isinstance(mysql, str) or isinstance(mariadb, str):
        return []
    return [(value, mariadb[row]) for row, value in mysql.items()]


def expected(family: str, said: str) -> Answer:
    """Return the answer that kpipe gives: MariaDB's, or MySQL's where the page says so."""
    mariadb, mysql = answers(family)[said], mysql_answers(family).get(said)
    if isinstance(mariadb, str) or mysql is None or isinstance(mysql, str):
        return mariadb
    return [mysql[row] if row in mysql and _follows_mysql(said, mysql[row]) else value for row, value in enumerate(mariadb)]


def _follows_mysql(said: str, value: str | None) -> bool:
    shift, behind = "a shift by 2^32 or more", "an empty text behind the last character"
    return (RULES[shift](said, ()) and value == "0") or RULES[behind](said, ())
