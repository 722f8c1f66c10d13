"""Positions of another loader: the next offset of each partition, and where they are recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Key", "Positions"]

#: Topic and partition. Other loaders record no topic ids.
Key = tuple[str, int]


@dataclass(frozen=True)
class Positions:
    """Next offsets by partition, as one source records them.

    Attributes:
        origin: the source in words, without secrets, such as `consumer group connect-orders`.
        offsets: next offset to read; partitions that the source does not name are missing.
        notes: facts that an operator should read, one sentence each.
        problems: reasons not to use these positions, one sentence each.
    """

    origin: str
    offsets: Mapping[Key, int]
    notes: Sequence[str] = ()
    problems: Sequence[str] = ()
