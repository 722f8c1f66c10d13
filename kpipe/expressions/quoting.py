"""Texts and names as they stand in a statement, and what they mean. MySQL's rules, but for expressions."""

from __future__ import annotations

import re

__all__ = ["name", "quoted", "quoted_name", "unquoted"]

_MEANS = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_WRITTEN = {"\0": "\\0", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", "'": "''"}


def unquoted(literal: str) -> str:
    """What a text in quotes says: quotes inside are doubled or follow a backslash, `\\n`, `\\t`, `\\0` ... as in MySQL."""
    quote, inner = literal[0], literal[1:-1]

    def mean(match: re.Match[str]) -> str:
        found = match[0]
        return _MEANS.get(found[1], found[1]) if found[0] == "\\" else quote

    return re.sub(rf"\\[\s\S]|{quote}{quote}", mean, inner)


def quoted(text: str) -> str:
    """The text in single quotes; `unquoted` gives it back."""
    return "'" + re.sub(r"[\0\n\r\t\\']", lambda match: _WRITTEN[match[0]], text) + "'"


def name(token: str) -> str:
    """What a name says, with or without backticks."""
    return token[1:-1].replace("``", "`") if token.startswith("`") else token


def quoted_name(text: str) -> str:
    """The name in backticks: whatever it is, no word of the grammar."""
    return "`" + text.replace("`", "``") + "`"
