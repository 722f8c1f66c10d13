"""The error of an expression that kpipe cannot compile; the caller adds the pipeline and the field."""

from __future__ import annotations

__all__ = ["Untranslated"]


class Untranslated(ValueError):
    """The text is not an expression, or it uses something that kpipe does not support.

    Attributes:
        what: the problem.
        hint: what to write instead.
        start, end: characters of the expression's text, end exclusive; None: the whole expression.
    """

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what, hint)
        self.what, self.hint = what, hint
        self.start: int | None = None
        self.end: int | None = None

    def __str__(self) -> str:
        return f"{self.what} -> {self.hint}" if self.hint else self.what
