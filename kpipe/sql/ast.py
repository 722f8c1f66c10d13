"""What a parsed statement is made of, and how a complaint finds its place in the text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from lark import Token, Tree

from kpipe.expressions.quoting import name, unquoted

__all__ = ["Node", "Wrong", "child", "children", "names", "span", "string", "strings", "token", "wrong"]

Node = Tree[Token] | Token


class Wrong(Exception):
    """Something is wrong at a node; the reader knows where that is in the text.

    Attributes:
        node: the place; None: the statement as a whole.
    """

    def __init__(self, node: Node | None, what: str, hint: str = "") -> None:
        super().__init__(what, hint)
        self.node, self.what, self.hint = node, what, hint


def wrong(node: Node | None, what: str, hint: str = "") -> NoReturn:
    """Complain about a node."""
    raise Wrong(node, what, hint)


def children(tree: Tree[Token], rule: str | None = None) -> Iterator[Tree[Token]]:
    """Subtrees, all or of one rule, in order."""
    for item in tree.children:
        if isinstance(item, Tree) and rule in (None, item.data):
            yield item


def child(tree: Tree[Token], rule: str) -> Tree[Token] | None:
    """The first subtree of a rule; None where there is none."""
    return next(children(tree, rule), None)


def token(tree: Tree[Token], *kinds: str) -> Token | None:
    """The first token, or the first of these kinds; None where there is none."""
    return next((item for item in tree.children if isinstance(item, Token) and (not kinds or item.type in kinds)), None)


def strings(tree: Tree[Token]) -> list[str]:
    """Texts in quotes, in order."""
    return [unquoted(str(item.children[0])) for item in children(tree, "string")]


def string(tree: Tree[Token]) -> str:
    """The text in quotes."""
    return strings(tree)[0]


def names(tree: Tree[Token]) -> list[str]:
    """Names, in order."""
    return [name(str(item.children[0])) for item in children(tree, "name")]


def span(node: Node | None) -> tuple[int, int]:
    """Return place and length of a node in the text that was parsed."""
    if isinstance(node, Token):
        return node.start_pos or 0, len(node)
    if node is None or node.meta.empty:
        return 0, 1
    return node.meta.start_pos, node.meta.end_pos - node.meta.start_pos
