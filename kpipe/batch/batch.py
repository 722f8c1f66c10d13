"""A batch on its way: what is to be read, what the tasks report, what is committed. All plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from kpipe.batch.counts import SETTLED, Counts, total
from kpipe.definition.lookups import Version
from kpipe.ledger.ledger import LaneChange, Step
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId

__all__ = [
    "SETTLED", "Batch", "Commit", "Committed", "Counts", "Mark", "Piece", "Portion", "RangeReport", "Share", "StagedFile",
    "shares", "total",
]  # fmt: skip


@dataclass(frozen=True)
class Batch:
    """Bounded ranges, fixed before anything is read; read and committed as a whole. Never modified: a retry may plan anew.

    Attributes:
        id: unique (uuid4 as hex); the key by which a commit is read back.
        pipeline: the pipeline's name.
        steps: one for each lane that is read, sorted by partition and offset.
    """

    id: str
    pipeline: str
    steps: tuple[Step, ...]

    @property
    def span(self) -> int:
        """Number of offsets in it."""
        return sum(len(step.range) for step in self.steps)

    @property
    def closed_by(self) -> str:
        """What ended the batch: `bytes` or `offsets` when a limit cut some range, else `caught_up`."""
        reasons = {step.closed_by for step in self.steps}
        return next((reason for reason in ("bytes", "offsets") if reason in reasons), "caught_up")


@dataclass(frozen=True)
class Piece:
    """What one read works on: a range of one partition, whole or a part of a step."""

    source: PartitionId
    range: Range


@dataclass(frozen=True)
class StagedFile:
    """A finished, immutable Parquet file that no table refers to yet.

    Attributes:
        path: absolute path or URI; holds ids only, never a name from outside.
        size: bytes.
        rows: number of rows.
        sha256: of the file's bytes, hex.
        share: in a report, how many of the rows are that range's, where several ranges share the file; None: all of them.
    """

    path: str
    size: int
    rows: int
    sha256: str
    share: int | None = None

    @property
    def own(self) -> int:
        """Rows of the range that names the file."""
        return self.rows if self.share is None else self.share


@dataclass(frozen=True)
class Mark:
    """What rows of a range are told by where a record may give several of them, beyond their number.

    Attributes:
        records: that gave at least one of them.
        offsets: of the rows, summed up.
    """

    records: int = 0
    offsets: int = 0

    def __add__(self, other: Mark) -> Mark:
        return Mark(self.records + other.records, self.offsets + other.offsets)


@dataclass(frozen=True)
class Share:
    """What a further table gets of a range (kpipe/tables/multi_table.py).

    Attributes:
        count: rows.
        mark: of these.
        rows: file of rows; None when there is no row.
        new_columns: columns that the records hold and the table's lack, with the types seen.
        parts: further files of rows, where the table is divided by values of columns (`into.partition_by`).
    """

    count: int = 0
    mark: Mark = Mark()
    rows: StagedFile | None = None
    new_columns: Columns = field(default_factory=Columns)
    parts: tuple[StagedFile, ...] = ()


@dataclass(frozen=True)
class RangeReport:
    """What a task tells the driver about one range: facts only, never records.

    Attributes:
        source: the partition.
        range: what was read.
        counts: what became of it.
        rows: file of rows; None when there is no row.
        dead_letters: file of dead letters; None when there is none.
        new_columns: columns that the records hold and the given ones lack, with the types seen.
        seconds: time spent reading, decoding and writing.
        sample_dead_letter: reason of the first dead letter, for messages; empty when there is none.
        killers: records that make the program fail, with the reasons, by offset; they were not given to it.
        lookups: what was asked, by name (kpipe/definition/lookups.py).
        mark: of the rows of the first table; made where a record may give several rows.
        also: what each further table gets, in the order of the definition.
        host: the machine that did it; empty where there is only one.
        parts: further files of rows of the first table, where it is divided by values of columns (`into.partition_by`).
    """

    source: PartitionId
    range: Range
    counts: Counts
    rows: StagedFile | None = None
    dead_letters: StagedFile | None = None
    deletes: StagedFile | None = None
    new_columns: Columns = field(default_factory=Columns)
    seconds: float = 0.0
    sample_dead_letter: str = ""
    killers: Mapping[int, str] = field(default_factory=dict)
    lookups: Mapping[str, Version] = field(default_factory=dict)
    mark: Mark = Mark()
    also: tuple[Share, ...] = ()
    host: str = ""
    parts: tuple[StagedFile, ...] = ()

    @property
    def files(self) -> tuple[StagedFile, ...]:
        """All files of rows of the first table."""
        return (*(() if self.rows is None else (self.rows,)), *self.parts)


@dataclass(frozen=True)
class Portion:
    """What a commit writes to a further table.

    Attributes:
        table: its name.
        columns: that the files carry.
        files: rows.
        counts: by partition and start offset of its step: `rows` and what became of them, and in `given` the records that gave
            at least one of them.
        marks: the same way, marks of the rows.
    """

    table: str
    columns: Columns = field(default_factory=Columns)
    files: tuple[StagedFile, ...] = ()
    counts: Mapping[tuple[PartitionId, int], Counts] = field(default_factory=dict)
    marks: Mapping[tuple[PartitionId, int], Mark] = field(default_factory=dict)

    @property
    def totals(self) -> Counts:
        """Counts of all its ranges."""
        return total(self.counts.values())


@dataclass(frozen=True)
class Commit:
    """Everything that becomes visible at once: lane changes, files, counts, and the metadata to publish.

    Attributes:
        id: the batch's id, or a fresh one for a ledger-only commit.
        pipeline: the pipeline's name.
        changes: compare-and-swap of lanes; all must hold.
        kind: `batch`, or what a ledger-only commit does: `begin`, `jump`, `loss`, `skip`, `backfill`, `reread`,
            `retire`, `give_up`, `accept_ledger`, `claim`, `release` (kpipe/ingest/at_most_once.py), `advance`; `rows`, a batch
            that changes no lane, as `advance` will (`delivery: at_least_once`); or `replay` (kpipe/batch/dead_letters.py).
        steps: the ranges, for the history; empty in a ledger-only commit, but for `reread` (what is to be read
            again) and `give_up` (what a receiver may have taken).
        columns: the table's columns that the files carry.
        files: rows.
        dead_letters: dead letters.
        deletes: keys to delete, in the order of the rows (kpipe/interfaces.py).
        counts: by partition and start offset of its step.
        ends: log start and high watermark of each partition at plan time, for the cursors view.
        metadata: by partition, what Dagster is to show; stored in the same transaction, published afterwards.
        run_id: who ran it: Dagster's run id or a process's.
        version: of pipeline and program.
        started_ms: wall clock, UTC.
        seconds: since the plan.
        note: free text for a ledger-only commit: who decided what.
        marks: as `counts`, marks of the rows of the first table; only where a record may give several rows.
        also: what is written to further tables; all other fields that speak of rows are the first table's.
        several: whether the metadata names partitions with their topic.
    """

    id: str
    pipeline: str
    changes: tuple[LaneChange, ...]
    kind: str = "batch"
    steps: tuple[Step, ...] = ()
    columns: Columns = field(default_factory=Columns)
    files: tuple[StagedFile, ...] = ()
    dead_letters: tuple[StagedFile, ...] = ()
    deletes: tuple[StagedFile, ...] = ()
    counts: Mapping[tuple[PartitionId, int], Counts] = field(default_factory=dict)
    ends: Mapping[PartitionId, tuple[int, int]] = field(default_factory=dict)
    metadata: Mapping[PartitionId, Mapping[str, object]] = field(default_factory=dict)
    run_id: str = ""
    version: str = ""
    started_ms: int = 0
    seconds: float = 0.0
    note: str = ""
    marks: Mapping[tuple[PartitionId, int], Mark] = field(default_factory=dict)
    also: tuple[Portion, ...] = ()
    several: bool = False

    @cached_property
    def totals(self) -> Counts:
        """Counts of the whole commit."""
        return total(self.counts.values())

    def alone(self, portion: Portion) -> Commit:
        """The commit as if a further table were the only one, and nothing was set aside."""
        return replace(
            self, columns=portion.columns, files=portion.files, counts=portion.counts, dead_letters=(), deletes=(),
            metadata={}, marks={}, also=(),
        )  # fmt: skip

    def settled(self, counts: Mapping[tuple[PartitionId, int], Counts]) -> Commit:
        """The commit with what became of its rows in the table, in the counts and in the metadata to publish."""
        metadata = {source: dict(values) for source, values in self.metadata.items()}
        names = (*SETTLED, "rows", "dead_letters", "filtered")
        for source, values in metadata.items():
            mine = total(found for (where, _), found in counts.items() if where == source)
            values.update({name: getattr(mine, name) for name in names if name in values})
        return replace(self, counts=dict(counts), metadata=metadata)

    def settled_also(self, counts: Sequence[Mapping[tuple[PartitionId, int], Counts]]) -> Commit:
        """The same for the rows of the further tables, in their order."""
        also = tuple(replace(portion, counts=dict(mine)) for portion, mine in zip(self.also, counts, strict=True))
        metadata = {source: dict(values) for source, values in self.metadata.items()}
        found = shares(also)
        for source, values in metadata.items():
            if "targets" in values:
                values["targets"] = found.get(source, {})
        return replace(self, also=also, metadata=metadata)


@dataclass(frozen=True)
class Committed:
    """A commit that has been read back from the destination."""

    commit: Commit
    seq: int
    batch: Batch | None = None

    def heads(self) -> dict[PartitionId, int]:
        """Next offsets at the head of the partitions that it moved; backfills of older ranges do not count."""
        lanes = (change.become for change in self.commit.changes)
        read = {step.source: step.end for step in self.commit.steps if step.lane.open}
        return read | {lane.source: lane.next for lane in lanes if lane is not None and lane.open}


def shares(also: Iterable[Portion]) -> dict[PartitionId, dict[str, dict[str, int]]]:
    """By partition, rows of each further table, and what became of them, by the table's name."""
    result: dict[PartitionId, dict[str, dict[str, int]]] = {}
    for portion in also:
        for (source, _), counts in portion.counts.items():
            mine = result.setdefault(source, {}).setdefault(portion.table, dict.fromkeys(("rows", *SETTLED), 0))
            for name in mine:
                mine[name] += getattr(counts, name)
    return result
