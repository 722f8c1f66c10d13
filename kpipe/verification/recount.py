"""The history of committed ranges, and what a destination holds, counted afresh: what the audit compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kpipe.batch.batch import Counts
from kpipe.offsets import Range
from kpipe.topics import Part, PartitionId

__all__ = ["Entry", "Holding", "Keeping", "Recount"]


@dataclass(frozen=True)
class Entry:
    """One committed range in the ledger's history.

    Attributes:
        batch: id of the batch.
        source: the partition.
        range: the offsets.
        counts: what became of them.
        reread: nothing was read: the offsets are to be read again, on an operator's demand, or are given up.
        loose: the rows landed before the ledger moved (`delivery: at_least_once`): the offsets may be read again.
        given_up: nothing was read: an operator gave up a batch that the receiver may have taken, in whole or in part.
        cleared: nothing was read: the rows of the partition were cleared on purpose, and what was read before into `table` is
            taken back (kpipe/verification/clearing.py). With `reread`: the rows that are spoken of were cleared since.
        table: the first table that the rows went to; empty: the destination has one only.
    """

    batch: str
    source: PartitionId
    range: Range
    counts: Counts
    reread: bool = False
    loose: bool = False
    given_up: bool = False
    cleared: bool = False
    table: str = ""


@dataclass(frozen=True)
class Holding:
    """Rows of one partition in a table, and the sum of their offsets (NULL counts as 0)."""

    rows: int = 0
    offsets: int = 0


@dataclass(frozen=True)
class Keeping:
    """A table that is written with a key: what its commits have left in it, and what it holds.

    Attributes:
        expected: as the commits have left it, by partition (as rows name it: with their topic, or the number).
        found: counted afresh.
        repeated_keys: keys that more than one row has.
        unbalanced: rows that were left, less those that were there before any commit, less all that batches have inserted, plus
            all that they have deleted; 0 when the counters of the ranges add up.
    """

    expected: Mapping[Part, Holding]
    found: Mapping[Part, Holding]
    repeated_keys: int = 0
    unbalanced: int = 0


@dataclass(frozen=True)
class Recount:
    """What the destination really holds, counted afresh.

    Attributes:
        rows: of the table, by partition: TOPIC:NUMBER of rows that name their topic, else the number.
        dead_letters: by partition.
        duplicates: rows that share topic, partition and offset with another, by partition; always empty where rows do not
            carry an offset.
        entries: rows by (batch, partition, start) whose range does not hold as many as the ledger says: found, expected.
        expected_rows: what the ledgers of all pipelines that write this table say together, by partition.
        keeping: where the table is written with a key; ranges then say nothing about which rows are there.
        exchanged: ranges that hold as many rows as the ledger says, and of as many records, but not these.
        also: each further table of the pipeline counted afresh, by its name; dead letters left out.
        problems: what is wrong beyond numbers of rows, such as their order in a topic, one sentence each.
    """

    rows: Mapping[Part, int] = field(default_factory=dict)
    dead_letters: Mapping[Part, int] = field(default_factory=dict)
    duplicates: Mapping[Part, int] = field(default_factory=dict)
    entries: Sequence[tuple[Entry, int]] = ()
    expected_rows: Mapping[Part, int] = field(default_factory=dict)
    keeping: Keeping | None = None
    exchanged: Sequence[Entry] = ()
    also: Mapping[str, Recount] = field(default_factory=dict)
    problems: Sequence[str] = ()
