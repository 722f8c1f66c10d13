"""Split an expression into tokens with their positions. Handles quotes and comments, but no grammar."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Word", "words"]

_WORD = r"""(?P<space>\s+|--[^\n]*|\#[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<text>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^'BACKSLASH]|ESCAPED'')*'|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
    |(?P<quoted>"(?:[^"BACKSLASH]|ESCAPED"")*")
    |(?P<backticked>`(?:[^`]|``)+`)
    |(?P<variable>@[A-Za-z_]\w*)
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)
    |(?P<name>[^\W\d][\w$]*)
    |(?P<open>(?:['"`]|\$\w*\$).*)
    |(?P<sign><=>|!:>|:>|::[$%]|::|<=|>=|<>|!=|\|\||&&|->>|->|<<|>>|//|\*\*|.)"""


def _compiled(backslash: str, escaped: str) -> re.Pattern[str]:
    return re.compile(_WORD.replace("BACKSLASH", backslash).replace("ESCAPED", escaped), re.DOTALL | re.VERBOSE)


_DUCKDB, _MYSQL = _compiled("", ""), _compiled(r"\\", r"\\.|")


@dataclass(frozen=True)
class Word:
    """A token.

    Attributes:
        kind: `text`, `quoted`, `backticked`, `variable`, `number`, `name`, `sign`, or `open`: an unterminated quote.
        text: as written.
        start, end: its position, end exclusive.
    """

    kind: str
    text: str
    start: int
    end: int


def words(text: str, escapes: bool = False) -> Iterator[Word]:
    """Yield the tokens in order, without white space and comments.

    Args:
        text: in DuckDB's SQL.
        escapes: whether a backslash escapes the next character in quotes, as in MySQL.
    """
    for match in (_MYSQL if escapes else _DUCKDB).finditer(text):
        kind = match.lastgroup or ""
        kind = "text" if kind == "tag" else kind
        if kind != "space":
            yield Word(kind, match[0], match.start(), match.end())
