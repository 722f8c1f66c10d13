"""Access parts of a parsed statement, and report errors at their position in the text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from lark import Token, Tree

from kpipe.expressions.quoting import name, unquoted

__all__ = ["Node", "Wrong", "child", "children", "names", "span", "string", "strings", "token", "wrong"]

Node = Tree[Token] | Token


class Wrong(Exception):
    """An error at a node of a statement; parser.py adds the position in the text.

    Attributes:
        node: the node; None: the whole statement.
        what: the problem.
        hint: what to write instead.
    """

    def __init__(self, node: Node | None, what: str, hint: str = "") -> None:
        super().__init__(what, hint)
        self.node, self.what, self.hint = node, what, hint


def wrong(node: Node | None, what: str, hint: str = "") -> NoReturn:
    """Raise an error about a node."""
    raise Wrong(node, what, hint)


def children(tree: Tree[Token], rule: str | None = None) -> Iterator[Tree[Token]]:
    """Yield the subtrees in order, all of them or those of one rule."""
    for item in tree.children:
        if isinstance(item, Tree) and rule in (None, item.data):
            yield item


def child(tree: Tree[Token], rule: str) -> Tree[Token] | None:
    """Return the first subtree of a rule, or None."""
    return next(children(tree, rule), None)


def token(tree: Tree[Token], *kinds: str) -> Token | None:
    """Return the first token, or the first of these types, or None."""
    return next((item for item in tree.children if isinstance(item, Token) and (not kinds or item.type in kinds)), None)


def strings(tree: Tree[Token]) -> list[str]:
    """Return the values of the quoted texts, in order."""
    return [unquoted(str(item.children[0])) for item in children(tree, "string")]


def string(tree: Tree[Token]) -> str:
    """Return the value of the quoted text."""
    return strings(tree)[0]


def names(tree: Tree[Token]) -> list[str]:
    """Return the names, in order."""
    return [name(str(item.children[0])) for item in children(tree, "name")]


def span(node: Node | None) -> tuple[int, int]:
    """Return the position and length of a node in the parsed text."""
    if isinstance(node, Token):
        return node.start_pos or 0, len(node)
    if node is None or node.meta.empty:
        return 0, 1
    return node.meta.start_pos, node.meta.end_pos - node.meta.start_pos
