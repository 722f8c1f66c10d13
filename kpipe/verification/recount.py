"""Values that `kpipe verify` compares: the history of committed ranges, and a recount of the destination."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kpipe.batch.batch import Counts
from kpipe.ledger.ledger import ADOPTED, READ, Ledger
from kpipe.offsets import Range
from kpipe.topics import Part, PartitionId

__all__ = ["Adopted", "Entry", "Holding", "Keeping", "Recount", "TableRecount", "adopted"]

#: Topic and partition, and the exclusive end of the offsets that another loader has read there.
Adopted = Mapping[tuple[str, int], int]


@dataclass(frozen=True)
class Entry:
    """One committed range in the ledger's history.

    Attributes:
        batch: id of the batch.
        source: the partition.
        range: the offsets.
        counts: counts of their records and rows.
        reread: nothing was read: the offsets are abandoned, or to be read again on an operator's demand.
        loose: the rows were committed before the ledger (`delivery: at_least_once`): the offsets may be read again.
        given_up: nothing was read: an operator abandoned a batch of which the receiver may have accepted all or a part.
        cleared: nothing was read: the rows of the partition were cleared on purpose, and earlier ranges of `table` are
            reversed (kpipe/verification/clearing.py). With `reread`: the rows of the range were cleared since.
        table: the first table that the rows were written to; empty: the destination has only one table.
        seq: sequence number of the commit; 0: unknown. Not compared.
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
    seq: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Holding:
    """Rows of one partition in a table, and the sum of their offsets (NULL counts as 0)."""

    rows: int = 0
    offsets: int = 0

    def less(self, other: Holding) -> Holding:
        """Return the difference to another one."""
        return Holding(self.rows - other.rows, self.offsets - other.offsets)


@dataclass(frozen=True)
class Keeping:
    """Rows of a table with a key: as its commits have left it, and as found.

    Attributes:
        expected: rows according to the commits, by partition (as rows name it: with their topic, or the number).
        found: rows in the table.
        repeated_keys: number of keys of more than one row.
        unbalanced: rows according to the commits, less rows before any commit, less all inserts of batches, plus all their
            deletes; 0 if the counters of the ranges add up.
        missing: rows that an earlier kpipe did not find at the first commit with a key, and has not expected since.
    """

    expected: Mapping[Part, Holding]
    found: Mapping[Part, Holding]
    repeated_keys: int = 0
    unbalanced: int = 0
    missing: int = 0


@dataclass(frozen=True)
class TableRecount:
    """Recount of one table.

    Attributes:
        rows: rows of the table, by partition: TOPIC:NUMBER for rows that name their topic, else the number.
        expected_rows: rows of all pipelines that write the table, according to their ledgers, by partition.
        duplicates: rows that repeat an offset that was read once, by partition; empty if rows have no offset. Rows of offsets
            that were read again are not among them.
        entries: ranges with a wrong number of rows, and the number found; not for tables with a key.
        exchanged: ranges with the right number of rows and records, but other rows.
        keeping: for a table with a key, whose ranges do not determine the rows.
        problems: other problems, such as the order of rows in a topic, one sentence each.
        unproven: ranges with offsets in common of which only the numbers of rows could be compared, as text.
    """

    rows: Mapping[Part, int] = field(default_factory=dict)
    expected_rows: Mapping[Part, int] = field(default_factory=dict)
    duplicates: Mapping[Part, int] = field(default_factory=dict)
    entries: Sequence[tuple[Entry, int]] = ()
    exchanged: Sequence[Entry] = ()
    keeping: Keeping | None = None
    problems: Sequence[str] = ()
    unproven: Sequence[str] = ()


@dataclass(frozen=True)
class Recount:
    """Recount of a destination.

    Attributes:
        tables: by name: those of the definition in its order, then those that an earlier definition wrote to. Empty: the
            destination has none of the pipeline.
        dead_letters: dead letters by partition.
        by_topic: whether each topic has a table of its own (kpipe/tables/topic_tables.py).
    """

    tables: Mapping[str, TableRecount] = field(default_factory=dict)
    dead_letters: Mapping[Part, int] = field(default_factory=dict)
    by_topic: bool = False


def adopted(ledgers: Iterable[Ledger]) -> Adopted:
    """Return where another loader has read, of pipelines that write the same table: rows below may be that loader's.

    The offsets end where the first of these pipelines has begun to read: its own rows must be counted. A partition without such
    offsets is left out.
    """
    found: dict[tuple[str, int], int] = {}
    known = list(ledgers)
    for lane in (lane for ledger in known for lane in ledger.lanes.values() if lane.kind == ADOPTED and lane.end is not None):
        key = lane.source.topic.name, lane.source.partition
        found[key] = max(found.get(key, 0), lane.end or 0)
    for lane in (lane for ledger in known for lane in ledger.lanes.values() if lane.kind == READ and lane.next > lane.start):
        key = lane.source.topic.name, lane.source.partition
        if key in found:
            found[key] = min(found[key], lane.start)
    return {key: end for key, end in found.items() if end > 0}
