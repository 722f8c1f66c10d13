"""A function of expressions: its rule and its number of arguments."""

from __future__ import annotations

from collections.abc import Callable

from kpipe.expressions.mysql.values import Value

__all__ = ["Function"]

Rule = Callable[..., Value]


class Function:
    """A supported function.

    Attributes:
        rule: compiles the call from its compiled arguments.
        least, most: number of arguments; None: unlimited.
    """

    def __init__(self, rule: Rule, least: int, most: int | None = -1) -> None:
        self.rule, self.least = rule, least
        self.most = least if most == -1 else most
