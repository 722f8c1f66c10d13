"""Tokens and syntax tree of an expression, with positions in the text, and errors with positions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kpipe.expressions.errors import Untranslated

__all__ = ["Node", "Word", "refused", "unquoted", "words"]

_WORD = re.compile(
    r"""(?P<space>\s+|--(?=\s|\Z)[^\n]*|\#[^\n]*|/\*(?!!).*?\*/)
    |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<backticked>`(?:[^`]|``)+`)
    |(?P<variable>@[A-Za-z_]\w*)
    |(?P<hex>0x[0-9A-Fa-f]+\b|[xX]'[0-9A-Fa-f]*')
    |(?P<bits>0b[01]+\b|[bB]'[01]*')
    |(?P<null>\\N\b)
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)
    |(?P<name>[^\W\d][\w$]*)
    |(?P<open>['"`].*|/\*.*)
    |(?P<sign><=>|!:>|:>|::[$%]|::|<=|>=|<>|!=|\|\||&&|->>|->|<<|>>|:=|.)""",
    re.DOTALL | re.VERBOSE,
)

_UNESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


@dataclass(frozen=True)
class Word:
    """A token of an expression.

    Attributes:
        kind: name of a group of `_WORD`, or `end`.
        text: as written.
        start, end: its position in the text, end exclusive.
    """

    kind: str
    text: str
    start: int
    end: int

    @property
    def folded(self) -> str:
        """The token in upper case if it is a name or a sign, else empty: a quoted text is never a keyword."""
        return self.text.upper() if self.kind in ("name", "sign") else ""


@dataclass(frozen=True)
class Node:
    """A node of the syntax tree.

    Attributes:
        kind: node type: `null`, `number`, `text`, `column`, `call`, `cast`, an operator such as `+`; see parser.py.
        value: data beside its arguments, such as the text of a literal or the name of a function.
        args: its children, in order.
        start, end: its position in the text, end exclusive.
    """

    kind: str
    value: Any = None
    args: tuple[Node, ...] = ()
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)

    @cached_property
    def depth(self) -> int:
        """Number of levels, including this node."""
        return 1 + max((item.depth for item in self.args), default=0)

    def walk(self) -> Iterator[Node]:
        """Yield this node and all nodes below it."""
        yield self
        for item in self.args:
            yield from item.walk()


def words(text: str) -> list[Word]:
    """Return the tokens in order, without white space and comments, then one of kind `end`.

    Raises:
        Untranslated: a quote or a comment is not terminated.
    """
    tokens = []
    for match in _WORD.finditer(text):
        kind = match.lastgroup or ""
        if kind == "open":
            raise refused(f"unterminated quote or comment: {match[0][:20]}", "", match.start(), match.end())
        if kind != "space":
            tokens.append(Word(kind, match[0], match.start(), match.end()))
    return [*tokens, Word("end", "", len(text), len(text))]


def refused(what: str, hint: str = "", start: int | None = None, end: int | None = None) -> Untranslated:
    """Return an error with a position in the expression."""
    error = Untranslated(what, hint)
    error.start, error.end = start, end
    return error


def unquoted(literal: str) -> str:
    """Return the value of a quoted text. `\\%` and `\\_` keep their backslash, for LIKE (MySQL 8.4 manual, "String Literals")."""
    quote = literal[0]

    def unescape(match: re.Match[str]) -> str:
        escape = match[0]
        return _UNESCAPED.get(escape[1], escape[1]) if escape[0] == "\\" else quote

    return re.sub(rf"\\.|{quote}{quote}", unescape, literal[1:-1], flags=re.DOTALL)
