"""Decide what became of an offset, from the facts that a destination has recorded.

A decision is stated only if the facts exclude every other one. Otherwise the possible ones are listed: counts of a range do not
name offsets, and rows may have been replaced, deleted, or written by another reading with the same coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kpipe.ledger.ledger import ADOPTED, LOST, READ, SKIPPED, Lane
from kpipe.provenance.facts import CommitInfo, Facts, Reading
from kpipe.topics import PartitionId
from kpipe.verification.clearing import standing

__all__ = [
    "DEAD_LETTER", "DELETE", "FILTERED", "GAP", "PROCESSED", "ROW", "Answer", "Evidence", "Fate", "decide", "explain", "sources",
]  # fmt: skip

ROW, DELETE, DEAD_LETTER, FILTERED, GAP = "row", "delete", "dead_letter", "filtered", "gap"
#: The record went through a program or an expression that may give any number of rows, also none.
PROCESSED = "processed"


@dataclass(frozen=True)
class Evidence:
    """Present state of the offset on the brokers.

    Attributes:
        log_start, end, high: of the partition, as in `PartitionState`.
        present: whether a committed record exists at the offset; None: unknown.
        compacted: whether Kafka may have removed records between others.
    """

    log_start: int
    end: int
    high: int
    present: bool | None = None
    compacted: bool = True


@dataclass(frozen=True)
class Fate:
    """Decision about one reading of the record.

    Attributes:
        reading: the reading.
        possible: decisions that the facts do not exclude; one: it is certain. Empty: the facts contradict each other.
        rows: rows with the coordinates of the offset, by table, that no other reading can have written.
        unattributed: the same, where another reading may have written them.
        outcome: of a certain row that is not in its table: `ignored`, `superseded`, `missing` or `unknown`; else empty.
        retried: of a dead letter: `no`, `failed_again`, or `unknown`: a retry has run since, of the same version. Of a row: `no`,
            or `unknown`: a retry may have written it in place of the batch.
        cleared: whether the rows were cleared since, on purpose.
    """

    reading: Reading
    possible: tuple[str, ...]
    rows: Mapping[str, int] = field(default_factory=dict)
    unattributed: Mapping[str, int] = field(default_factory=dict)
    outcome: str = ""
    retried: str = "no"
    cleared: bool = False

    @property
    def decision(self) -> str:
        """The only possible decision; empty: not determined."""
        return self.possible[0] if len(self.possible) == 1 else ""


@dataclass(frozen=True)
class Answer:
    """Explanation of an offset of one source.

    Attributes:
        source: the partition.
        offset: the offset.
        state: `read`, `not_read`, `skipped`, `tried` (skipped after every batch failed, or its rows were cleared), `lost`,
            `adopted` (another loader has read it), `before_start`, `after_end` or `no_lane`.
        fates: what each reading made of it, in order of commit.
        lane: the lane that contains it; None: there is none.
        pending: whether the offset will be read, or read again.
        behind: offsets that the lane reads before it; None: it is not waiting.
        given_up: commits that abandoned a batch with the offset, of which the receiver may have accepted a part.
        rereads: commits that demanded another reading.
        decisions: see `Facts`.
        evidence: see `Evidence`; None: the brokers were not queried.
        searched: see `Facts`.
    """

    source: PartitionId
    offset: int
    state: str
    fates: tuple[Fate, ...] = ()
    lane: Lane | None = None
    pending: bool = False
    behind: int | None = None
    given_up: tuple[CommitInfo, ...] = ()
    rereads: tuple[CommitInfo, ...] = ()
    decisions: tuple[CommitInfo, ...] = ()
    evidence: Evidence | None = None
    searched: bool = True

    @property
    def determined(self) -> bool:
        """True if each reading has exactly one possible decision."""
        return all(fate.decision for fate in self.fates)


def sources(facts: Facts, topic: str, partition: int) -> list[PartitionId]:
    """Return every source of that name that the ledger contains: a topic may have been recreated."""
    known = {source for source in facts.ledger.sources() if (source.topic.name, source.partition) == (topic, partition)}
    return sorted(known | {reading.entry.source for reading in facts.readings})


def explain(facts: Facts, source: PartitionId, offset: int, evidence: Evidence | None = None) -> Answer:
    """Explain an offset of one source.

    Args:
        facts: recorded facts about the offset.
        source: the partition, one of `sources`.
        offset: the offset.
        evidence: present state on the brokers, of the same source.
    """
    mine = [reading for reading in facts.readings if reading.entry.source == source]
    left = {id(entry) for entry in standing([reading.entry for reading in mine])}
    within = [reading for reading in mine if offset in reading.entry.range]
    real = [reading for reading in within if not (reading.entry.reread or reading.entry.cleared or reading.entry.given_up)]
    several = [reading for reading in real if id(reading.entry) in left]
    fates = tuple(
        decide(reading, id(reading.entry) not in left, several, facts.retries, evidence, facts.searched) for reading in real
    )
    lane, state = _lane(facts.ledger.of(source), offset)
    if any(not fate.cleared for fate in fates):
        state = "read"
    waiting = lane is not None and lane.kind == READ and offset >= lane.next
    return Answer(
        source,
        offset,
        state,
        fates,
        lane,
        waiting,
        offset - lane.next if waiting and lane is not None else None,
        tuple(reading.commit for reading in within if reading.entry.given_up),
        tuple(reading.commit for reading in within if reading.entry.reread and not reading.entry.given_up),
        tuple(facts.decisions),
        evidence,
        facts.searched,
    )


def _lane(lanes: Sequence[Lane], offset: int) -> tuple[Lane | None, str]:
    """Return the lane that contains the offset, and the state that follows from it."""
    for lane in lanes:
        if lane.start <= offset and (lane.end is None or offset < lane.end):
            if lane.kind == SKIPPED:
                return lane, "tried" if offset < lane.next else "skipped"
            if lane.kind in (LOST, ADOPTED):
                return lane, lane.kind
            return lane, "read" if offset < lane.next else "not_read"
    if not lanes:
        return None, "no_lane"
    if not any(lane.open for lane in lanes):  # `retire` may have removed a lane, also the first one
        return None, "after_end" if offset >= max(lane.end or 0 for lane in lanes) else "no_lane"
    return None, "before_start" if offset < lanes[0].start else "no_lane"


def decide(
    reading: Reading,
    cleared: bool,
    several: Sequence[Reading],
    retries: Sequence[CommitInfo] = (),
    evidence: Evidence | None = None,
    searched: bool = True,
) -> Fate:
    """Decide what a reading made of the record.

    Args:
        reading: the reading.
        cleared: whether its rows were cleared since.
        several: all readings of the offset by this source whose rows were not cleared.
        retries: newest retries of dead letters.
        evidence: present state on the brokers, if known.
        searched: whether dead letters and rows were searched.
    """
    later = [commit for commit in retries if commit.seq > reading.commit.seq]
    rows, unattributed = _rows(reading, several) if not cleared else ({}, {})
    if reading.letters:
        last = reading.letters[-1]
        retried = "no" if not later else "failed_again" if last.version != reading.commit.version else "unknown"
        return Fate(reading, (DEAD_LETTER,), rows, unattributed, "", retried, cleared)
    possible = _possible(reading, rows, unattributed, cleared, searched)
    if possible == (GAP,) and evidence is not None and evidence.present:
        # As many rows as the batch has written, but of other records: another client has changed some.
        possible = _possible(reading, rows, unattributed, cleared, searched, intact=False)
    if evidence is not None and evidence.present:  # a record never appears later at an offset below the last stable one
        possible = tuple(item for item in possible if item != GAP)
    elif evidence is not None and evidence.present is False and not evidence.compacted and GAP in possible:
        possible = (GAP,)
    outcome, retried = "", "no"
    if possible == (ROW,):
        retried = "unknown" if later and not any(table.keyed for table in reading.tables) else "no"
        if not rows:
            outcome = _outcome(reading, unattributed, cleared)
    return Fate(reading, possible, rows, unattributed, outcome, retried, cleared)


def _rows(reading: Reading, several: Sequence[Reading]) -> tuple[dict[str, int], dict[str, int]]:
    """Return rows at the offset by table: those of this reading for certain, and those that may be of another one."""
    rows: dict[str, int] = {}
    unattributed: dict[str, int] = {}
    for table in reading.tables:
        if table.at_offset:
            shared = table.shared_offset or len(several) > 1
            (unattributed if shared else rows)[table.table] = table.at_offset
    return rows, unattributed


def _possible(
    reading: Reading,
    rows: Mapping[str, int],
    unattributed: Mapping[str, int],
    cleared: bool,
    searched: bool,
    intact: bool = True,
) -> tuple[str, ...]:
    """Return the decisions that the counts of the range and the rows of the tables do not exclude.

    Unless `intact`, as many rows at other offsets of the range prove nothing.
    """
    counts = reading.entry.counts
    if rows:
        return (ROW,)
    found: list[str] = []
    if counts.rows or counts.given or any(table.written for table in reading.tables):
        if unattributed or cleared or not (intact and _is_elsewhere(reading)):
            # Each of the records has given a row if a table has rows of so many.
            each = not counts.given or any(table.gave == counts.given for table in reading.tables)
            found.append(ROW if each else PROCESSED)
        elif counts.given and reading.records != counts.given:
            found.append(PROCESSED)
    if counts.deletes:
        found.append(DELETE)
    unlocated = counts.dead_letters - reading.letters_in_range
    # With `given`, dead letters without an offset are output of a program, whose records are `given`.
    if unlocated > 0 and (not counts.given or counts.set_aside_before or not searched):
        found.append(DEAD_LETTER)
    if counts.filtered:
        found.append(FILTERED)
    if counts.gaps:
        found.append(GAP)
    return tuple(found)


def _is_elsewhere(reading: Reading) -> bool:
    """Return whether all rows of the range are in their tables, at other offsets: then the offset gave none.

    Rows and offsets are compared, so that a doubled row does not hide a deleted one.
    """
    given = reading.entry.counts.given
    for table in reading.tables:
        offsets = table.written if not given else given if table.gave is None else table.gave
        intact = (table.at_offset, table.in_range, table.records) == (0, table.written, offsets)
        if not intact or not table.exists or table.keyed or table.shared_range:
            return False
    return bool(reading.tables)


def _outcome(reading: Reading, unattributed: Mapping[str, int], cleared: bool) -> str:
    """Return why the rows of a record that certainly gave one are not in the table."""
    counts, tables = reading.entry.counts, reading.tables
    if cleared or unattributed or not tables or any(table.at_offset is None for table in tables):
        return "" if cleared or unattributed else "unknown"
    if any(table.keyed for table in tables):
        if counts.ignored == counts.rows:
            return "ignored"
        return "unknown" if counts.ignored or len(tables) > 1 else "superseded"
    return "missing"
