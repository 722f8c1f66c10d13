"""What a decoder takes and gives: a block of payloads in, a table and what could not become a row out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import pyarrow as pa

from kpipe.schema import Columns

__all__ = ["Decoded", "Decoder", "Payloads"]


class Payloads:
    """A block of payloads, held as a list or as one buffer with a newline behind each, whichever came first.

    Args:
        values: the payloads, none of them None.
        joined: or the payloads joined by newlines, without one at the end, and their number.
    """

    def __init__(self, values: Sequence[bytes] | None = None, joined: bytes | None = None, count: int = 0) -> None:
        self._values = values
        self._joined = joined
        self.count = len(values) if values is not None else count

    def __len__(self) -> int:
        return self.count

    @cached_property
    def values(self) -> Sequence[bytes]:
        """The payloads one by one."""
        if self._values is not None:
            return self._values
        assert self._joined is not None
        return self._joined.split(b"\n") if self.count else []

    @cached_property
    def joined(self) -> bytes:
        """The payloads in one buffer, a newline between each two."""
        return self._joined if self._joined is not None else b"\n".join(self._values or ())

    def part(self, start: int, end: int) -> Payloads:
        """Payloads `[start, end)`."""
        return Payloads(self.values[start:end])


@dataclass(frozen=True)
class Decoded:
    """A decoded block.

    Attributes:
        table: payload columns, in the order of the pipeline's columns, in staged types.
        rows: number of rows: a table without columns does not know.
        kept: index of the payload of each row, ascending; None: all of them.
        rejects: (index of the payload, reason) of those that could not become a row.
        new_columns: what the payloads hold beyond the columns.
    """

    table: pa.Table
    rows: int
    kept: Sequence[int] | None = None
    rejects: Sequence[tuple[int, str]] = ()
    new_columns: Columns = field(default_factory=Columns)


class Decoder(Protocol):
    """Makes rows of payloads, one row for one payload, in order; never fewer without a reject that says why."""

    def decode(self, payloads: Payloads) -> Decoded:
        """Decode a block. Never raises for what the payloads hold."""
        ...
