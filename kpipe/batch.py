"""A batch on its way: what is to be read, what the tasks report, what is committed. All plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

from kpipe.ledger import Lane, LaneChange
from kpipe.offsets import Range
from kpipe.schema import Columns
from kpipe.source import PartitionId

__all__ = ["SETTLED", "Batch", "Commit", "Committed", "Counts", "Piece", "RangeReport", "StagedFile", "Step"]

#: Counts that are only known when the commit is made.
SETTLED = ("inserted", "updated", "deleted", "ignored")


@dataclass(frozen=True)
class Step:
    """One lane's share of a batch: the lane as the plan found it, and the exclusive end of what is read now.

    Attributes:
        lane: the lane; the range starts at its `next`.
        end: exclusive end of the range.
        closed_by: what ended the range: `caught_up` (nothing more to read), `offsets` or `bytes` (a limit).
    """

    lane: Lane
    end: int
    closed_by: str = "caught_up"

    @property
    def source(self) -> PartitionId:
        """The partition."""
        return self.lane.source

    @property
    def range(self) -> Range:
        """`[lane.next, end)`."""
        return Range(self.lane.next, self.end)

    @property
    def change(self) -> LaneChange:
        """What committing it does to the ledger."""
        return LaneChange(self.lane, self.lane.advanced(self.end))


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
class Counts:
    """What became of the offsets of a range (design.md, rule 7).

    Attributes:
        messages: records read.
        rows: rows staged.
        dead_letters: records, or a program's output rows, set aside.
        filtered: records that deliberately gave no row: tombstones that delete nothing, those a program dropped.
        gaps: offsets without a record: control records, aborted transactions, compacted away.
        given: where a record may give any number of rows: records given to a `flatmap` program, or records that gave rows and
            of which some gave several (CSV); 0 otherwise.
        set_aside_before: of the dead letters, those that are not among `given`; only counted with it.
        bytes: of keys and values read.
        deletes: tombstones that delete the row of their key (kpipe/keys.py).
        inserted, updated, ignored: what became of the rows in the table: `rows` together. Known when the commit is made; without
            a key rule all rows are inserted.
        deleted: of the deletes, those that found a row of their key.
    """

    messages: int = 0
    rows: int = 0
    dead_letters: int = 0
    filtered: int = 0
    gaps: int = 0
    given: int = 0
    set_aside_before: int = 0
    bytes: int = 0
    deletes: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    ignored: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def unaccounted(self, span: int) -> int:
        """Offsets of a range of that span that nothing explains; 0 when it adds up.

        Where a record gives one row at most, `span = rows + deletes + dead letters + filtered + gaps`. Where it may give
        several, the rows say nothing about the records, so those that were given stand in their place.
        """
        if self.given:
            return span - (self.given + self.set_aside_before + self.deletes + self.filtered + self.gaps)
        return span - (self.rows + self.deletes + self.dead_letters + self.filtered + self.gaps)

    @property
    def unsettled(self) -> int:
        """Rows of which the commit does not say what became of them, or more deletes done than asked for; 0 when it adds up.

        Without a key there is nothing to say: all rows are inserted.
        """
        if not (self.deletes or self.inserted or self.updated or self.ignored or self.deleted):
            return 0
        return abs(self.rows - self.inserted - self.updated - self.ignored) + max(0, self.deleted - self.deletes)


@dataclass(frozen=True)
class StagedFile:
    """A finished, immutable Parquet file that no table refers to yet.

    Attributes:
        path: absolute path or URI; holds ids only, never a name from outside.
        size: bytes.
        rows: number of rows.
        sha256: of the file's bytes, hex.
    """

    path: str
    size: int
    rows: int
    sha256: str


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


@dataclass(frozen=True)
class Commit:
    """Everything that becomes visible at once: lane changes, files, counts, and the metadata to publish.

    Attributes:
        id: the batch's id, or a fresh one for a ledger-only commit.
        pipeline: the pipeline's name.
        changes: compare-and-swap of lanes; all must hold.
        kind: `batch`, or what a ledger-only commit does: `begin`, `jump`, `loss`, `backfill`, `reread`,
            `retire`, `accept_ledger`, `claim`, `release` (kpipe/claims.py); or `replay` (kpipe/replay.py).
        steps: the ranges, for the history; empty in a ledger-only commit, but for `reread`: what is to be read again.
        columns: the table's columns that the files carry.
        files: rows.
        dead_letters: dead letters.
        deletes: keys to delete, in the order of the rows (kpipe/ports.py).
        counts: by partition and start offset of its step.
        ends: log start and high watermark of each partition at plan time, for the cursors view.
        metadata: by partition, what Dagster is to show; stored in the same transaction, published afterwards.
        run_id: who ran it: Dagster's run id or a process's.
        version: of pipeline and program.
        started_ms: wall clock, UTC.
        seconds: since the plan.
        note: free text for a ledger-only commit: who decided what.
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

    @property
    def totals(self) -> Counts:
        """Counts of the whole commit."""
        return total(self.counts.values())

    def settled(self, counts: Mapping[tuple[PartitionId, int], Counts]) -> Commit:
        """The commit with what became of its rows in the table, in the counts and in the metadata to publish."""
        metadata = {source: dict(values) for source, values in self.metadata.items()}
        for source, values in metadata.items():
            mine = total(found for (where, _), found in counts.items() if where == source)
            values.update({name: getattr(mine, name) for name in (*SETTLED, "rows", "dead_letters") if name in values})
        return replace(self, counts=dict(counts), metadata=metadata)


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


def total(counts: Iterable[Counts]) -> Counts:
    """Sum of counts."""
    return sum(counts, Counts())
