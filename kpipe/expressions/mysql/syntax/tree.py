"""The words and the syntax tree of an expression, each with its place in the text, and the error that points there."""

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

_MEANS = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


@dataclass(frozen=True)
class Word:
    """A word of an expression.

    Attributes:
        kind: name of a group of `_WORD`, or `end`.
        text: as it is written.
        start, end: its place in the text.
    """

    kind: str
    text: str
    start: int
    end: int

    @property
    def folded(self) -> str:
        """The word in upper case if it is a name or a sign, else empty: a text is no keyword."""
        return self.text.upper() if self.kind in ("name", "sign") else ""


@dataclass(frozen=True)
class Node:
    """A part of an expression.

    Attributes:
        kind: what it is: `null`, `number`, `text`, `column`, `call`, `cast`, an operator such as `+`; see parser.py.
        value: what belongs to it beside its arguments: the text of a literal, the name of a function.
        args: its parts, in order.
        start, end: its place in the text.
    """

    kind: str
    value: Any = None
    args: tuple[Node, ...] = ()
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)

    @cached_property
    def depth(self) -> int:
        """Levels of nodes below this one, itself included."""
        return 1 + max((item.depth for item in self.args), default=0)

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below it."""
        yield self
        for item in self.args:
            yield from item.walk()


def words(text: str) -> list[Word]:
    """Return the words in order, without white space and comments, and one of kind `end`.

    Raises:
        Untranslated: a quote or a comment does not end.
    """
    found = []
    for match in _WORD.finditer(text):
        kind = match.lastgroup or ""
        if kind == "open":
            raise refused(f"the text or comment that begins with {match[0][:20]} does not end", "", match.start(), match.end())
        if kind != "space":
            found.append(Word(kind, match[0], match.start(), match.end()))
    return [*found, Word("end", "", len(text), len(text))]


def refused(what: str, hint: str = "", start: int | None = None, end: int | None = None) -> Untranslated:
    """Return the error that points at a place of the expression."""
    error = Untranslated(what, hint)
    error.start, error.end = start, end
    return error


def unquoted(literal: str) -> str:
    """Return what a text in quotes says. `\\%` and `\\_` keep their backslash, for LIKE (MySQL 8.4 manual, "String Literals")."""
    quote = literal[0]

    def mean(match: re.Match[str]) -> str:
        found = match[0]
        return _MEANS.get(found[1], found[1]) if found[0] == "\\" else quote

    return re.sub(rf"\\.|{quote}{quote}", mean, literal[1:-1], flags=re.DOTALL)
