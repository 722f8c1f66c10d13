"""Split an expression into tokens with their positions. Handles quotes and comments, but no grammar."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Word", "words"]

_WORD = re.compile(
    r"""(?P<space>\s+|--[^\n]*|\#[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<text>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
    |(?P<quoted>"(?:[^"]|"")*")
    |(?P<backticked>`(?:[^`]|``)+`)
    |(?P<variable>@[A-Za-z_]\w*)
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)
    |(?P<name>[^\W\d][\w$]*)
    |(?P<open>['"`].*)
    |(?P<sign><=>|!:>|:>|::[$%]|::|<=|>=|<>|!=|\|\||&&|->>|->|<<|>>|//|\*\*|.)""",
    re.DOTALL | re.VERBOSE,
)


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


def words(text: str) -> Iterator[Word]:
    """Yield the tokens in order, without white space and comments."""
    for match in _WORD.finditer(text):
        kind = match.lastgroup or ""
        kind = "text" if kind == "tag" else kind
        if kind != "space":
            yield Word(kind, match[0], match.start(), match.end())
