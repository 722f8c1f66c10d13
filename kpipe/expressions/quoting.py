"""Quote and unquote the texts and names of a statement, by MySQL's rules. Expressions have tokens.py."""

from __future__ import annotations

import re

__all__ = ["name", "quoted", "quoted_name", "unquoted"]

_UNESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_ESCAPED = {"\0": "\\0", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", "'": "''"}


def unquoted(literal: str) -> str:
    """Return the value of a quoted text: quotes inside are doubled or escaped; `\\n`, `\\t`, `\\0` ... as in MySQL."""
    quote, inner = literal[0], literal[1:-1]

    def unescape(match: re.Match[str]) -> str:
        escape = match[0]
        return _UNESCAPED.get(escape[1], escape[1]) if escape[0] == "\\" else quote

    return re.sub(rf"\\[\s\S]|{quote}{quote}", unescape, inner)


def quoted(text: str) -> str:
    """Return the text in single quotes; the inverse of `unquoted`."""
    return "'" + re.sub(r"[\0\n\r\t\\']", lambda match: _ESCAPED[match[0]], text) + "'"


def name(token: str) -> str:
    """Return a name without its backticks, if it has any."""
    return token[1:-1].replace("``", "`") if token.startswith("`") else token


def quoted_name(text: str) -> str:
    """Return the name in backticks, so that the grammar never reads it as a keyword."""
    return "`" + text.replace("`", "``") + "`"
