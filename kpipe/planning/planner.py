"""Plan the next batch from the ledger and the broker offsets, or return the reason why nothing is planned.

Nothing is assumed: a partition that is not in the ledger is begun explicitly, and an offset that is not in the log any
more is an error. A plan never changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from math import ceil

from kpipe.batch.batch import Batch
from kpipe.errors import OffsetsBeyondEnd, OffsetsLost, SourceIdentityChanged, TopicGone
from kpipe.ledger.ledger import Lane, Ledger, Step
from kpipe.topics import Part, PartitionId, PartitionState, TopicId, TopicSnapshot, chosen

__all__ = ["Idle", "Limits", "arrivals", "check_source", "disappeared", "lag", "losses", "plan", "step_of"]

# The probe for records of unknown size: max_bytes_per_partition needs a mean size. At Kafka's default maximum of 1 MB
# a record, a worker may have to store 10 GB on disk, not in memory.
_PROBE_OFFSETS = 10_000
# Fields that change what the positions of a source mean.
_MEANINGS = {"file": "source.files or format.skip_lines", "table": "source.table.column", "list": "source.http"}
# Fields that name the table or list, by the noun of a source that has one.
_ADDRESSES = {"table": "source.table", "list": "source.http.url", "data file": "source.lake"}


@dataclass(frozen=True)
class Limits:
    """Limits of one batch.

    Attributes:
        offsets: offsets of one partition.
        bytes: bytes of one partition; None: no limit.
        partitions: partitions in a batch; None: all.
        total: offsets of all partitions together; None: no limit.
        bytes_per_offset: mean size so far, by partition.
        unknown_bytes: mean size for other partitions; None: they are probed.
    """

    offsets: int = 1_000_000
    bytes: int | None = None
    partitions: int | None = None
    total: int | None = None
    bytes_per_offset: Mapping[PartitionId, float] = field(default_factory=dict)
    unknown_bytes: float | None = None

    def of(self, source: PartitionId) -> tuple[int, str]:
        """Return the maximum number of offsets of that partition, and the limit that sets it."""
        if self.bytes is None:
            return self.offsets, "offsets"
        mean = self.bytes_per_offset.get(source, self.unknown_bytes)
        by_bytes = _PROBE_OFFSETS if mean is None else max(1, ceil(self.bytes / max(mean, 1.0)))
        return (by_bytes, "bytes") if by_bytes < self.offsets else (self.offsets, "offsets")


@dataclass(frozen=True)
class Idle:
    """Reason for a pass without a batch.

    Attributes:
        reason: `caught_up`; `open_transaction`: all records beyond the last stable offset are in an open transaction;
            `finished`: a bounded pipeline has read everything; `no_partitions`: no partition exists or is selected;
            `source_transaction`: with `batch.cut: transaction`, no transaction of the source is complete.
        waiting: offsets between the last stable offset and the high watermark; for `source_transaction` all unread offsets.
        detail: for `source_transaction`, what is missing.
    """

    reason: str
    waiting: int = 0
    detail: str = ""


def check_source(ledger: Ledger, snapshot: TopicSnapshot, forgetting: bool = False) -> None:
    """Check that the ledger and the brokers have the same topics, and that no unread offset is missing.

    Args:
        ledger: the committed ledger.
        snapshot: the broker offsets.
        forgetting: whether topics may be missing, as an operator is about to decide about them.

    Raises:
        TopicGone: a topic that the pattern matched before no longer exists, and no operator has dropped it.
        SourceIdentityChanged: the topic has another id, or is in another cluster; or the source is another table than before.
        OffsetsLost: the next offset of an unfinished lane is below the log start.
        OffsetsBeyondEnd: the next offset of a lane is beyond the end of the log, or a partition is missing.
    """
    present = {topic.name: topic for topic in snapshot.topics()}
    known = {source.topic for source in ledger.sources()}
    for topic in sorted(known):
        now = present.get(topic.name)
        if now is None and snapshot.means(topic.name) and not forgetting:
            _check_gone(ledger, topic, snapshot)
        if now is None or now in known:
            continue
        if snapshot.appearing and now.cluster != topic.cluster:
            what = f"{snapshot.noun} {topic.name} was read from another place: expected {topic.cluster}, found {now.cluster}"
        elif snapshot.appearing:
            what = f"{snapshot.noun} {topic.name} was replaced: expected content {topic.topic_id}, found {now.topic_id}"
        elif now.cluster != topic.cluster:
            what = f"topic {topic.name}: the brokers belong to a different cluster: expected {topic.cluster}, found {now.cluster}"
        else:
            what = f"topic {topic.name} was recreated: expected topic id {topic.topic_id}, found {now.topic_id}"
        heads = ", ".join(f"{s.partition}: {n}" for s, n in ledger.positions().items() if s.topic == topic)
        check = "restore it, or write new content to a new name" if snapshot.appearing else "check source.brokers"
        if snapshot.noun in _MEANINGS:
            check += f"; or undo a change of {_MEANINGS[snapshot.noun]}"
        raise SourceIdentityChanged(
            f"{what} (next offsets in the ledger: {heads})",
            f"{check}; to read the new {snapshot.noun} from its start and keep the rows: kpipe run {ledger.pipeline}"
            " --on-new-topic begin",
        )
    existing = set(present.values())
    if snapshot.noun in _ADDRESSES and known.isdisjoint(existing):
        _check_address(ledger, snapshot)
    for source in ledger.sources():
        if source.topic in existing:
            _check_partition(ledger, source, snapshot.partitions.get(source), snapshot.noun)


def _check_address(ledger: Ledger, snapshot: TopicSnapshot) -> None:
    """Check that a source of one table or list did not become another one, which may have the same rows by another name.

    Files of the same table were replaced, and an operator has decided: see `_check_gone`.
    """
    others = (source for source in ledger.sources() if not snapshot.means(source.topic.name))
    read = next((lane for source in others for lane in ledger.of(source) if not lane.finished), None)
    if read is None or not snapshot.partitions:
        return
    field = _ADDRESSES[snapshot.noun]
    raise SourceIdentityChanged(
        f"pipeline {ledger.pipeline}: {field} names another source than was read: expected {read.source.topic}"
        f" (next offset in the ledger: {read.next}), found {snapshot.topics()[0]}",
        f"undo a change of {field}: another spelling of a name is another source, too; to read the new one from its start and"
        f" keep the rows: kpipe run {ledger.pipeline} --on-new-topic begin",
    )


def _check_gone(ledger: Ledger, topic: TopicId, snapshot: TopicSnapshot) -> None:
    noun = snapshot.noun
    heads = {s: n for s, n in ledger.positions().items() if s.topic == topic}
    if any(not lane.finished for source in heads for lane in ledger.of(source)):
        words = ", ".join(f"{s.partition}: {n}" for s, n in heads.items())
        raise TopicGone(
            f"{noun} {topic.name} no longer exists in {'cluster ' if noun == 'topic' else ''}{topic.cluster}"
            f" (next offsets in the ledger: {words})",
            snapshot.on_removal
            or f"recreate it; or, to continue without it: ALTER PIPELINE {ledger.pipeline} DROP ORPHAN PARTITIONS",
        )


def _check_partition(ledger: Ledger, source: PartitionId, state: PartitionState | None, noun: str) -> None:
    for lane in ledger.of(source):
        if lane.finished:
            continue
        if state is None:
            raise OffsetsBeyondEnd(
                f"{source} is in the ledger (next offset {lane.next}) but not in the topic any more",
                "check the brokers; Kafka never removes a partition from a topic",
            )
        if lane.next < state.log_start:
            gone = min(state.log_start, lane.end) if lane.end is not None else state.log_start
            raise OffsetsLost(
                f"{source}: offsets [{lane.next}, {gone}) were deleted from Kafka before they were read"
                f" (log start {state.log_start})",
                f"to record them as lost and continue: kpipe run {ledger.pipeline} --on-data-loss record",
            )
        if lane.next > state.high and noun != "topic":
            raise OffsetsBeyondEnd(
                f"{noun} {source.topic.name} was truncated: expected its end at {lane.next} or later, found {state.high}",
                f"restore it; or remove it, and continue: ALTER PIPELINE {ledger.pipeline} DROP ORPHAN PARTITIONS",
            )
        if lane.next > state.high:
            raise OffsetsBeyondEnd(
                f"{source}: the log was truncated or rebuilt: expected its end at {lane.next} or later, found {state.high}",
                "check the brokers; to read new records, create a pipeline of another name into the same table, with an offset of"
                " each partition in source.start: of this one where the new log begins, such as"
                f' {{"{source.partition}": {state.high}}}',
            )


def losses(ledger: Ledger, snapshot: TopicSnapshot) -> tuple[PartitionId, ...]:
    """Return the partitions with unread offsets below the log start."""
    return tuple(
        source
        for source, state in sorted(snapshot.partitions.items())
        if any(not lane.finished and lane.next < state.log_start for lane in ledger.of(source))
    )


def disappeared(ledger: Ledger, snapshot: TopicSnapshot) -> tuple[PartitionId, ...]:
    """Return the partitions with unfinished lanes whose topics belong to the snapshot and no longer exist."""
    present = {topic.name for topic in snapshot.topics()}
    missing = [s for s in ledger.sources() if s.topic.name not in present and snapshot.means(s.topic.name)]
    return tuple(source for source in missing if any(not lane.finished for lane in ledger.of(source)))


def arrivals(ledger: Ledger, snapshot: TopicSnapshot) -> tuple[PartitionId, ...]:
    """Return the partitions that exist and are not read: they are not in the ledger, or were retired and are back."""
    return tuple(sorted(source for source in snapshot.partitions if not ledger.of(source) or ledger.retired(source)))


def lag(ledger: Ledger, snapshot: TopicSnapshot) -> dict[PartitionId, int]:
    """Return the unread offsets up to the high watermark, by partition; lost and skipped ones do not count."""
    result: dict[PartitionId, int] = {}
    for source, state in snapshot.partitions.items():
        lanes = [*(lane for lane in ledger.of(source) if not lane.finished), *ledger.retired(source)]
        ends = ((lane, state.high if lane.end is None else min(lane.end, state.high)) for lane in lanes)
        result[source] = sum(max(0, end - lane.next) for lane, end in ends)
        if not ledger.of(source):
            result[source] = state.high - state.log_start
    return result


def plan(
    ledger: Ledger,
    snapshot: TopicSnapshot,
    limits: Limits,
    batch_id: str,
    only: Collection[Part] | None = None,
    turn: int | None = None,
) -> Batch | Idle:
    """Plan the next batch: at most one range for each selected partition, up to the last stable offset at most.

    Args:
        ledger: the committed ledger.
        snapshot: the broker offsets; `check_source` has passed.
        limits: limits of the batch.
        batch_id: unique id for the batch.
        only: selected partitions; None: all.
        turn: number that increases with each batch and rotates the partitions; None: the ledger's sequence number.
    """
    turn = ledger.seq if turn is None else turn
    ready: list[list[Step]] = []
    lanes = 0
    waiting = 0
    for source, state in sorted(snapshot.partitions.items()):
        if not chosen(source, only):
            continue
        unfinished = [lane for lane in ledger.of(source) if not lane.finished]
        lanes += len(unfinished)
        if steps := [step for step in (_step(ledger, lane, state, limits) for lane in unfinished) if step is not None]:
            ready.append(steps)
        for lane in unfinished:
            end = state.high if lane.end is None else min(lane.end, state.high)
            waiting += max(0, end - max(lane.next, state.end))
    if ready:
        turns = _turns(len(ready), limits)
        chosen_steps = [_first(each, turn // turns) for each in ready]
        return Batch(batch_id, ledger.pipeline, _within(_fair(chosen_steps, limits.partitions, turn), limits.total, turn))
    if snapshot.appearing and snapshot.partitions:
        return Idle("open_transaction" if waiting else "caught_up", waiting)
    if not lanes:
        known = any(chosen(source, only) for source in ledger.sources() if source in snapshot.partitions)
        return Idle("finished" if known else "no_partitions")
    return Idle("open_transaction" if waiting else "caught_up", waiting)


def _step(ledger: Ledger, lane: Lane, state: PartitionState, limits: Limits) -> Step | None:
    end = state.end if lane.end is None else min(lane.end, state.end)
    if end <= lane.next:
        return None
    most, reason = limits.of(lane.source)
    if end - lane.next > most:
        return step_of(ledger, lane, lane.next + most, state, reason)
    return step_of(ledger, lane, end, state)


def step_of(ledger: Ledger, lane: Lane, end: int, state: PartitionState | None, closed_by: str = "caught_up") -> Step:
    """Return a lane's part of a batch, which begins by comparing the records before it with those that were read.

    Args:
        ledger: the committed ledger.
        lane: the lane.
        end: exclusive end of the range.
        state: offsets of the partition; None: unknown.
        closed_by: what limited the range.
    """
    tail = ledger.tail(lane)
    after = tail and tail.comparable(0 if state is None else state.log_start)
    return Step(lane, end, closed_by, after, -1 if state is None else state.epoch)


def _turns(partitions: int, limits: Limits) -> int:
    """Return the number of turns in which each partition has at least one, or is the first one."""
    if limits.total is not None:
        return partitions
    return 1 if limits.partitions is None else max(1, -(-partitions // limits.partitions))


def _first(ready: list[Step], turn: int) -> Step:
    """Return the step of the lane that a partition reads next.

    The live lane goes first while it is behind: a backfill must not delay new records. Once it keeps up, the two alternate:
    records may arrive all the time, and the backfill would never run.

    Args:
        ready: steps of the partition's lanes.
        turn: increases once every partition has had its turn: else some could have only even ones.
    """
    live = next((step for step in ready if step.lane.open), None)
    others = [step for step in ready if not step.lane.open]
    if live is None or (others and live.closed_by == "caught_up" and turn % 2):
        return others[0]
    return live


def _fair(steps: list[Step], most: int | None, turn: int) -> tuple[Step, ...]:
    """Return the steps of this turn: with a limit on partitions, they take turns, round robin."""
    if most is None or most >= len(steps):
        return tuple(steps)
    first = (turn * most) % len(steps)
    chosen = (steps[first:] + steps[:first])[:most]
    return tuple(sorted(chosen, key=lambda step: (step.source, step.range)))


def _within(steps: tuple[Step, ...], most: int | None, turn: int) -> tuple[Step, ...]:
    """Return as many steps as have this number of offsets together, at least one; they take turns. The last one may be cut."""
    if most is None or sum(len(step.range) for step in steps) <= most:
        return steps
    first, left, result = turn % len(steps), most, []
    for step in steps[first:] + steps[:first]:
        if left <= 0:
            break
        result.append(step if len(step.range) <= left else replace(step, end=step.range.start + left, closed_by="offsets"))
        left -= len(step.range)
    return tuple(sorted(result, key=lambda step: (step.source, step.range)))
