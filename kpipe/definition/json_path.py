"""Paths to a value in a record: `user::name`, `tags::0`, `%` for the whole record.

Members are separated by `::`. A number is an index of an array, from 0. A member's name must be in backticks if it is
a number, or contains other characters than letters, digits, `_` and `$`. Backticks inside are doubled: ``` `a b`::`0` ```.
A leading `%::` is optional. (As in SingleStore's LOAD DATA, which has no array indexes.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["parse_path", "write_path"]

_MEMBER = re.compile(r"`(?:[^`]|``)+`|(?:(?!::)[^`])+")
_PLAIN = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
# Longer numbers exceed any array, and are slow to convert.
_INDEX = re.compile(r"[0-9]{1,9}")


def parse_path(text: str) -> tuple[str | int, ...]:
    """Parse a path to members (text) and array indexes (numbers), from the outside in; empty for the whole record.

    Raises:
        ValueError: the path is invalid.
    """
    rest = text.strip()
    parts: list[str | int] = []
    if rest == "%":
        return ()
    rest = rest.removeprefix("%::")
    while True:
        found = _MEMBER.match(rest)
        member = found[0].strip() if found else ""
        if not found or not member:
            msg = f"{text!r} is not a path; write a::b, a::0 for a member of an array, or % for the whole record"
            raise ValueError(msg)
        if member.startswith("`"):
            parts.append(member[1:-1].replace("``", "`"))
        else:
            parts.append(int(member) if _INDEX.fullmatch(member) else member)
        rest = rest[found.end() :].strip()
        if not rest:
            return tuple(parts)
        if not rest.startswith("::"):
            msg = f"{text!r} is not a path: members are separated by ::"
            raise ValueError(msg)
        rest = rest[2:].strip()


def write_path(parts: Iterable[str | int]) -> str:
    """Format a path; `parse_path` returns the same parts."""
    return "::".join(map(_member, parts)) or "%"


def _member(part: str | int) -> str:
    if isinstance(part, int):
        return str(part)
    return part if _PLAIN.fullmatch(part) else "`" + part.replace("`", "``") + "`"
