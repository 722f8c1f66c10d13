"""Expand comparisons of lists, `(a, b) = (1, 2)` and `(a, b) IN ((1, 2), (3, 4))`, to comparisons of their items.

Source: MySQL 8.4 manual, "Comparison Functions and Operators": `(a, b) < (x, y)` is `a < x OR (a = x AND b < y)`.
"""

from __future__ import annotations

from functools import reduce

from kpipe.expressions.mysql.syntax.tree import Node, refused

__all__ = ["unrowed"]

_ORDERED = ("<", "<=", ">", ">=")


def unrowed(node: Node) -> Node | None:
    """Expand a comparison of lists; None if it contains no list.

    Raises:
        Untranslated: the lists have different lengths, or the operator does not support them.
    """
    if all(item.kind != "row" for item in node.args):
        return None
    left, *others = node.args
    if node.kind == "in":
        return _joined("OR", [_compared("=", left, other) for other in others])
    if node.kind not in (*_ORDERED, "=", "<>", "<=>"):
        raise refused(f"{node.kind} does not support lists", "write (a, b) = (1, 2)", node.start, node.end)
    return _compared(node.kind, left, others[0])


def _compared(sign: str, left: Node, right: Node) -> Node:
    if left.kind != "row" or right.kind != "row" or len(left.args) != len(right.args):
        raise refused(
            "a list can only be compared with a list of the same length", "write (a, b) = (1, 2)", right.start, right.end
        )
    pairs = list(zip(left.args, right.args, strict=True))
    if sign not in _ORDERED:
        return _joined("OR" if sign == "<>" else "AND", [_part(sign, *pair) for pair in pairs])
    *first, last = pairs
    comparison = _part(sign, *last)
    for a, b in reversed(first):
        comparison = _joined("OR", [_part(sign[0], a, b), _joined("AND", [_part("=", a, b), comparison])])
    return comparison


def _part(sign: str, left: Node, right: Node) -> Node:
    if "row" in (left.kind, right.kind):
        return _compared(sign, left, right)
    return Node(sign, None, (left, right), left.start, right.end)


def _joined(sign: str, parts: list[Node]) -> Node:
    return reduce(lambda a, b: Node(sign, None, (a, b), a.start, b.end), parts)
