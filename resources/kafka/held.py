"""Records that a task holds: read, and not yet paired with their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Held"]

Headers = Sequence[tuple[str, bytes | None]]


@dataclass
class Held:
    """Parallel lists, one item a record, in offset order.

    Attributes:
        offsets: of the records.
        timestamps: ms since 1970 UTC; -1 when there is none.
        values: None for a tombstone.
        messages: the client's own objects, from which keys and headers are taken only where they are needed.
    """

    offsets: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.offsets)

    def extend(self, other: Held) -> None:
        """Append others."""
        self.offsets += other.offsets
        self.timestamps += other.timestamps
        self.values += other.values
        self.messages += other.messages

    def take(self, count: int) -> Held:
        """Remove the first ones and give them."""
        if count == len(self):
            taken = Held(self.offsets, self.timestamps, self.values, self.messages)
            self.offsets, self.timestamps, self.values, self.messages = [], [], [], []
            return taken
        taken = Held(self.offsets[:count], self.timestamps[:count], self.values[:count], self.messages[:count])
        del self.offsets[:count], self.timestamps[:count], self.values[:count], self.messages[:count]
        return taken

    def pick(self, indices: Sequence[int]) -> Held:
        """Those at these positions."""
        return Held(
            [self.offsets[i] for i in indices],
            [self.timestamps[i] for i in indices],
            [self.values[i] for i in indices],
            [self.messages[i] for i in indices],
        )

    def keys(self) -> list[bytes | None]:
        """Keys."""
        return [message.key() for message in self.messages]

    def headers(self) -> list[Headers | None]:
        """Headers in order; None where there are none."""
        return [message.headers() for message in self.messages]

    def split_tombstones(self) -> tuple[Held, int]:
        """The records that have a value, and how many have none."""
        if None not in self.values:
            return self, 0
        kept = [at for at, value in enumerate(self.values) if value is not None]
        return self.pick(kept), len(self) - len(kept)
