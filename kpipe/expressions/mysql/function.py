"""A function that expressions may call: its rule, and how many arguments it takes."""

from __future__ import annotations

from collections.abc import Callable

from kpipe.expressions.mysql.values import Value

__all__ = ["Function"]

Rule = Callable[..., Value]


class Function:
    """A function of the list.

    Attributes:
        rule: takes compiled arguments, and gives the compiled call.
        least, most: how many arguments it takes; None: any number.
    """

    def __init__(self, rule: Rule, least: int, most: int | None = -1) -> None:
        self.rule, self.least = rule, least
        self.most = least if most == -1 else most
