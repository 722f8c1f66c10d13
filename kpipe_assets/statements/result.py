"""The result of a statement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kpipe.errors import KpipeError

__all__ = ["Result"]


@dataclass(frozen=True)
class Result:
    """Rows, a message, or both.

    Attributes:
        message: what the statement did; empty if the rows report it.
        columns: names of the columns; empty if the statement returns no rows.
        rows: in order.
        text: whether each row is one text, printed unchanged.
        failure: raised after the result, if the statement failed for some of its pipelines.
    """

    message: str = ""
    columns: Sequence[str] = ()
    rows: Iterable[Sequence[Any]] = ()
    text: bool = False
    failure: KpipeError | None = None
