"""Formats of dates and times: MySQL's to DuckDB's."""

from __future__ import annotations

import re

from kpipe.sql.untranslated import Untranslated

__all__ = ["date_format", "parse_format"]

_DATE = {
    "Y": "%Y",
    "y": "%y",
    "m": "%m",
    "c": "%-m",
    "d": "%d",
    "e": "%-d",
    "M": "%B",
    "b": "%b",
    "W": "%A",
    "a": "%a",
    "j": "%j",
}
_TIME = {
    "H": "%H", "k": "%-H", "h": "%I", "I": "%I", "l": "%-I", "i": "%M", "s": "%S", "S": "%S", "f": "%f", "p": "%p",
    "T": "%H:%M:%S", "r": "%I:%M:%S %p",
}  # fmt: skip
_SIGN = re.compile(r"%(.)", re.DOTALL)


def date_format(text: str, function: str) -> str:
    """A format for writing.

    Raises:
        Untranslated: DuckDB has no such sign.
    """
    return _converted(text, function, {**_DATE, **_TIME, "w": "%w"})


def parse_format(text: str, function: str) -> tuple[str, str]:
    """A format for reading, and the type that it gives: DATE, TIME, or TIMESTAMP for both.

    Raises:
        Untranslated: DuckDB has no such sign.
    """
    signs = set(_SIGN.findall(text))
    kind = "TIMESTAMP" if signs & set(_DATE) and signs & set(_TIME) else "TIME" if signs & set(_TIME) else "DATE"
    return _converted(text, function, {**_DATE, **_TIME}), kind


def _converted(text: str, function: str, known: dict[str, str]) -> str:
    def sign(match: re.Match[str]) -> str:
        found = match[1]
        if found in known:
            return known[found]
        if found == "%":
            return "%%"
        if found.isalpha():
            raise Untranslated(f"{function}: %{found} is not translated", f"known: {' '.join('%' + item for item in known)}")
        return found  # MySQL writes an unknown sign as it is

    if re.search(r"%\Z", text.replace("%%", "")):
        raise Untranslated(f"{function}: the format ends with %")
    return _SIGN.sub(sign, text)
