"""The error of an expression that cannot be taken; whoever knows where it stands makes it one of kpipe's."""

from __future__ import annotations

__all__ = ["Untranslated"]


class Untranslated(ValueError):
    """Not an expression, or it calls something that kpipe does not translate. Says what, and what to write instead.

    Attributes:
        start, end: the place in the expression's text; None: the expression as a whole.
    """

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what, hint)
        self.what, self.hint = what, hint
        self.start: int | None = None
        self.end: int | None = None

    def __str__(self) -> str:
        return f"{self.what} -> {self.hint}" if self.hint else self.what
