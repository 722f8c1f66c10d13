"""The base class of kpipe's errors. The others, and all of them as a tree: kpipe/errors.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from kpipe.terminal import plain_lines

if TYPE_CHECKING:
    from kpipe.topics import PartitionId

__all__ = ["KpipeError"]

_Raised = TypeVar("_Raised", bound="KpipeError")


class KpipeError(Exception):
    """Base class of kpipe's errors.

    Args:
        what: the problem and its place (topic, partition, offsets), in one sentence.
        hint: the command or field to change next; empty when running again is enough.

    Attributes:
        exit_status: exit status of the command line.
        retriable: whether the same run may retry by itself, with back-off.
        record: partition and offset of the record that caused the error, if one record did.
        field: path of the invalid field in the definition, as in YAML; empty if unknown, or if no field is the cause.
        word: the invalid part of that field's text; empty: all of it.
        may_quote: whether `what` may contain a part of a record, which logs must not.
    """

    exit_status: int = 1
    retriable: bool = False
    record: tuple[PartitionId, int] | None = None
    field: tuple[str, ...] = ()
    word: str = ""
    may_quote: bool = False

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what, hint)
        self.what = what
        self.hint = hint

    def about(self: _Raised, *field: str, word: str = "") -> _Raised:
        """Name the invalid field of the definition, unless one is named already."""
        if not self.field:
            self.field, self.word = field, word
        return self

    def __str__(self) -> str:
        """Return the message, safe to print: `what` may contain parts of a record."""
        return plain_lines(f"{self.what} -> {self.hint}" if self.hint else self.what)
