"""What a statement gives back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Result"]


@dataclass(frozen=True)
class Result:
    """Rows, or a sentence, or both.

    Attributes:
        message: what was done, for people; empty where the rows say it.
        columns: their names; none where the statement gives no rows.
        rows: in order.
        text: rows are one text each, to be printed as they are.
    """

    message: str = ""
    columns: Sequence[str] = ()
    rows: Iterable[Sequence[Any]] = ()
    text: bool = False
