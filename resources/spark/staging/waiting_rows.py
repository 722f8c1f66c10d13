"""Bound the rows that the writers of a task keep in memory until they fill a row group, however many writers there are."""

from __future__ import annotations

from typing import Protocol

__all__ = ["WaitingRows"]

_BYTES = 64 << 20


class Writer(Protocol):
    """A writer of row groups."""

    def flush(self) -> None:
        """Write the rows in memory as a row group, and drop them (`WaitingRows.drop`)."""


class WaitingRows:
    """Sizes of the rows that wait in writers: of tables, of divisions of a table, of dead letters and of keys.

    Args:
        most: bytes. Beyond it the largest writers write row groups, until half of it is left.
    """

    def __init__(self, most: int = _BYTES) -> None:
        self._most, self._total = most, 0
        self._sizes: dict[Writer, int] = {}

    def add(self, writer: Writer, size: int) -> None:
        """Count rows that wait in a writer; may write some.

        Raises:
            StagingFailed: the disk is full, or the folder cannot be written.
        """
        self._sizes[writer] = self._sizes.get(writer, 0) + size
        self._total += size
        if self._total <= self._most:
            return
        for largest in sorted(self._sizes, key=lambda each: -self._sizes[each]):
            if self._total <= self._most // 2:
                break
            largest.flush()

    def drop(self, writer: Writer) -> None:
        """Count nothing for a writer: its rows do not wait any more."""
        self._total -= self._sizes.pop(writer, 0)
