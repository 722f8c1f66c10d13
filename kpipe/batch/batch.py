"""Values of a batch: its ranges, the reports of the tasks, and the commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from kpipe.batch.counts import SETTLED, Counts, total
from kpipe.batch.routes import Routes
from kpipe.batch.table_write import ByLane, Mark, StagedFile, TableReport, TableWrite, combined, of_also
from kpipe.definition.lookups import Version
from kpipe.ledger.ledger import LaneChange, Step
from kpipe.ledger.tail import Tail
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId

__all__ = [
    "SETTLED", "Batch", "Commit", "Committed", "Counts", "Mark", "Piece", "RangeReport", "StagedFile", "TableReport",
    "TableWrite", "listed", "total",
]  # fmt: skip


@dataclass(frozen=True)
class Batch:
    """Bounded ranges, fixed before anything is read; read and committed as a whole. Immutable: a retry may make a new plan.

    Attributes:
        id: unique, 32 random hexadecimal digits: the key by which a commit is read back, in logs and lineage, and the trace's id.
        pipeline: the pipeline's name.
        steps: one for each lane to read, sorted by partition and offset.
        routes: tables by a field's value, known when the batch is staged; None: tables do not depend on records.
    """

    id: str
    pipeline: str
    steps: tuple[Step, ...]
    routes: Routes | None = None

    @property
    def span(self) -> int:
        """Number of offsets in the batch."""
        return sum(len(step.range) for step in self.steps)

    @property
    def closed_by(self) -> str:
        """Reason for its end: `bytes` or `offsets` if a limit cut a range, a `transaction` of the source, else `caught_up`."""
        reasons = {step.closed_by for step in self.steps}
        return next((reason for reason in ("bytes", "offsets", "transaction") if reason in reasons), "caught_up")


@dataclass(frozen=True)
class Piece:
    """Range of one partition that one task reads: a step or a part of one.

    Attributes:
        source: the partition.
        range: the offsets.
        after: fingerprint of the records before the range, which the task compares; None: nothing to compare.
        epoch: leader epoch of the partition at plan time, for messages.
    """

    source: PartitionId
    range: Range
    after: Tail | None = None
    epoch: int = -1

    @classmethod
    def of(cls, step: Step, part: Range) -> Piece:
        """Return a part of a step's range."""
        return cls(step.source, part, step.after if part.start == step.range.start else None, step.epoch)


@dataclass(frozen=True)
class RangeReport:
    """A task's report of one range: counts and files, no records.

    Attributes:
        source: the partition.
        range: the offsets that were read.
        records: counts of its records (`Counts.of_records`).
        tables: the staged files for each table, in the order of the definition.
        dead_letters: file of dead letters; None without dead letters.
        seconds: time spent reading, decoding and writing.
        sample_dead_letter: reason of the first dead letter, for messages; empty without dead letters.
        poison_records: records that make the program fail, with the reasons, by offset; they were left out of its input.
        lookups: version of each lookup that was used, by name (kpipe/definition/lookups.py).
        host: the machine that read the range; empty on a single machine.
        began: wall clock of that machine, seconds since 1970 UTC; 0: unknown.
        stages: parts of `seconds`: `read`, `program`, `decode`, and `stage` (expressions and files); empty: unknown.
        tail: fingerprint of the last records that were read; None: none was read.
        found: values of a field that may get a table (`Routes.least`), with the columns of their first records. No count
            includes their records: the range has to be staged again.
    """

    source: PartitionId
    range: Range
    records: Counts
    tables: tuple[TableReport, ...] = ()
    dead_letters: StagedFile | None = None
    seconds: float = 0.0
    sample_dead_letter: str = ""
    poison_records: Mapping[int, str] = field(default_factory=dict)
    lookups: Mapping[str, Version] = field(default_factory=dict)
    host: str = ""
    began: float = 0.0
    stages: Mapping[str, float] = field(default_factory=dict)
    tail: Tail | None = None
    found: Mapping[str, Columns] = field(default_factory=dict)

    @property
    def counts(self) -> Counts:
        """Counts of the range as the ledger stores them."""
        return combined(self.records, [table.counts for table in self.tables])


@dataclass(frozen=True)
class Commit:
    """Everything that becomes visible at once: lane changes, files, counts, and the metadata to publish.

    Attributes:
        id: the batch's id, or a fresh one for a ledger-only commit.
        pipeline: the pipeline's name.
        changes: compare-and-swap of lanes; all must succeed.
        kind: `batch`, or the type of a ledger-only commit: `begin`, `jump`, `loss`, `skip`, `backfill`, `reread`,
            `retire`, `give_up`, `cut`, `accept_log`, `accept_ledger`, `exchange`, `claim`, `release`
            (kpipe/ingest/at_most_once.py), `advance`; `rows`, a batch that changes no lane, as `advance` will
            (`delivery: at_least_once`); or `replay` (kpipe/batch/dead_letter_replay.py).
        steps: the ranges, for the history; empty in a ledger-only commit, except for `reread` (ranges to read again)
            and `give_up` (ranges that the receiver may have accepted).
        tables: the writes to each table, in the order of the definition; empty in a ledger-only commit.
        records: by partition and start offset of its step, counts of the records (`Counts.of_records`).
        dead_letters: files of dead letters.
        ends: log start and high watermark of each partition at plan time, for the cursors view.
        metadata: by partition, metadata for Dagster; stored in the same transaction, published afterwards.
        run_id: Dagster's run id, or the id of a process.
        version: of pipeline and program.
        started_ms: wall clock, UTC.
        seconds: time since the plan.
        task_seconds: by partition and start offset of its step, seconds that tasks spent on the range, each on one core.
        note: text of a ledger-only commit: the decision and its author.
        multi_topic: whether the metadata names partitions with their topic.
        by_field: whether the tables are those of a field's values: a range's rows are then those of all tables.
        registered: registration id of the ledger that it was planned from; empty: not checked. Only a destination that can
            exchange a rebuilt table checks it (kpipe/rebuild/exchange.py).
    """

    id: str
    pipeline: str
    changes: tuple[LaneChange, ...]
    kind: str = "batch"
    steps: tuple[Step, ...] = ()
    tables: tuple[TableWrite, ...] = ()
    records: Mapping[ByLane, Counts] = field(default_factory=dict)
    dead_letters: tuple[StagedFile, ...] = ()
    ends: Mapping[PartitionId, tuple[int, int]] = field(default_factory=dict)
    metadata: Mapping[PartitionId, Mapping[str, object]] = field(default_factory=dict)
    run_id: str = ""
    version: str = ""
    started_ms: int = 0
    seconds: float = 0.0
    task_seconds: Mapping[ByLane, float] = field(default_factory=dict)
    note: str = ""
    multi_topic: bool = False
    by_field: bool = False
    registered: str = ""

    @cached_property
    def counts(self) -> Mapping[ByLane, Counts]:
        """Counts of each range as the ledger stores them, by lane."""
        lanes = dict.fromkeys((*self.records, *(lane for write in self.tables for lane in write.counts)))
        none = Counts()
        return {
            lane: combined(
                self.records.get(lane, none),
                [write.counts[lane] for write in self.tables if lane in write.counts],
                self.by_field,
            )
            for lane in lanes
        }

    @cached_property
    def totals(self) -> Counts:
        """Counts of the whole commit."""
        return total(self.counts.values())

    @property
    def only(self) -> TableWrite:
        """The only table's write, for a destination with one table; an empty one in a ledger-only commit.

        Raises:
            ValueError: several tables are written.
        """
        (write,) = self.tables or (TableWrite(),)
        return write

    def writing(self, **changes: Any) -> Commit:
        """Return the commit to one table, with other values in these fields of its `TableWrite`.

        Raises:
            ValueError: several tables are written.
        """
        return replace(self, tables=(replace(self.only, **changes),))

    def alone(self, write: TableWrite) -> Commit:
        """Return the commit as if it wrote only that table and no dead letters."""
        mine = replace(self, tables=(write,), dead_letters=(), metadata={})
        if not write.counts or all(step.lane.key in write.counts for step in self.steps):
            return mine
        steps = tuple(step for step in self.steps if step.lane.key in write.counts)  # the others are of other tables
        return replace(mine, steps=steps, records={lane: self.records[lane] for lane in write.counts if lane in self.records})

    def settled(self, tables: Sequence[Mapping[ByLane, Counts]]) -> Commit:
        """Return the commit with the outcome of its rows in each table, in the counts and in the metadata to publish."""
        writes = (replace(write, counts=dict(counts)) for write, counts in zip(self.tables, tables, strict=True))
        done = replace(self, tables=tuple(writes))
        metadata = {source: dict(values) for source, values in self.metadata.items()}
        names = (*SETTLED, "rows", "dead_letters", "filtered")
        also = listed(done.tables if self.by_field else of_also(done.tables))
        by_source: dict[PartitionId, list[Counts]] = {}
        for (source, _), found in done.counts.items():
            by_source.setdefault(source, []).append(found)
        for source, values in metadata.items():
            mine = total(by_source.get(source, ()))
            values.update({name: getattr(mine, name) for name in names if name in values})
            if "targets" in values:
                values["targets"] = also.get(source, {})
        return replace(done, metadata=metadata)

    def stored(self, counts: Mapping[ByLane, Counts]) -> Commit:
        """Return the commit with the counts that the ledger stores: of its records, and of the rows of a range's first table."""
        records = {lane: found.of_records for lane, found in counts.items()}
        first: dict[ByLane, int] = {}  # position of the table whose rows a range's counts include
        for at, write in enumerate(self.tables):
            first = {**dict.fromkeys(write.counts, at), **first}
        rows = [{lane: n for lane, n in write.counts.items() if first[lane] != at} for at, write in enumerate(self.tables)]
        for lane, found in counts.items() if rows else ():
            rows[first.get(lane, 0)][lane] = found.of_rows
        return replace(self, records=records).settled(rows)

    def table_by_lane(self) -> Mapping[ByLane, str]:
        """Return the name of the first table that takes the records of each range."""
        return {lane: write.table for write in reversed(self.tables) for lane in write.counts}


@dataclass(frozen=True)
class Committed:
    """A commit that has been read back from the destination.

    Attributes:
        commit: the commit.
        seq: its number.
        batch: the batch, if it is one.
        age: `Ledger.age` after it, where that is not its number.
    """

    commit: Commit
    seq: int
    batch: Batch | None = None
    age: int | None = None

    def heads(self) -> dict[PartitionId, int]:
        """Next offsets of the live lanes that the commit moved; backfills of older ranges do not count."""
        lanes = (change.become for change in self.commit.changes)
        read = {step.source: step.end for step in self.commit.steps if step.lane.open}
        return read | {lane.source: lane.next for lane in lanes if lane is not None and lane.open}


def listed(writes: Iterable[TableWrite]) -> dict[PartitionId, dict[str, dict[str, int]]]:
    """Return counts of the rows and their outcomes in each of these tables, by partition and table name."""
    result: dict[PartitionId, dict[str, dict[str, int]]] = {}
    for write in writes:
        for (source, _), counts in write.counts.items():
            mine = result.setdefault(source, {}).setdefault(write.table, dict.fromkeys(("rows", *SETTLED), 0))
            for name in mine:
                mine[name] += getattr(counts, name)
    return result
