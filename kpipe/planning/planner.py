"""From what is committed and what the brokers hold to the next batch, or to the reason why there is none. Pure.

Nothing here trusts a default: a partition that the ledger does not know is begun explicitly, an offset that the log
does not have any more is an error, and a plan, once made, is never changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import ceil

from kpipe.batch.batch import Batch
from kpipe.errors import OffsetsBeyondEnd, OffsetsLost, SourceIdentityChanged, TopicGone
from kpipe.ledger.ledger import Lane, Ledger, Step
from kpipe.topics import Part, PartitionId, PartitionState, TopicId, TopicSnapshot, chosen

__all__ = ["Idle", "Limits", "arrivals", "check_source", "lag", "losses", "plan"]

# Records whose size is unknown are probed with this many offsets before max_bytes_per_partition can be applied: at
# Kafka's default largest record, 1 MB, it is what a worker may have to hold on disk, not in memory.
_PROBE_OFFSETS = 10_000


@dataclass(frozen=True)
class Limits:
    """Bounds of one batch.

    Attributes:
        offsets: of one partition.
        bytes: of one partition; None: no bound.
        partitions: in a batch; None: all.
        bytes_per_offset: mean size seen so far, by partition.
    """

    offsets: int = 1_000_000
    bytes: int | None = None
    partitions: int | None = None
    bytes_per_offset: Mapping[PartitionId, float] = field(default_factory=dict)

    def of(self, source: PartitionId) -> tuple[int, str]:
        """Most offsets of that partition in a batch, and which limit says so."""
        if self.bytes is None:
            return self.offsets, "offsets"
        mean = self.bytes_per_offset.get(source)
        by_bytes = _PROBE_OFFSETS if mean is None else max(1, ceil(self.bytes / max(mean, 1.0)))
        return (by_bytes, "bytes") if by_bytes < self.offsets else (self.offsets, "offsets")


@dataclass(frozen=True)
class Idle:
    """Why there is no batch.

    Attributes:
        reason: `caught_up`; `open_transaction`, records exist beyond the last stable offset and their transaction is
            still open; `finished`, a bounded pipeline has read everything; `no_partitions`, none was chosen or none exists.
        waiting: offsets between the last stable offset and the high watermark.
    """

    reason: str
    waiting: int = 0


def check_source(ledger: Ledger, snapshot: TopicSnapshot, forgetting: bool = False) -> None:
    """Proof that the ledger and the brokers speak of the same topics, and that nothing between them has vanished.

    Args:
        ledger: what is committed.
        snapshot: what the brokers hold.
        forgetting: topics that are gone may be: somebody is about to decide about them.

    Raises:
        TopicGone: a pattern had found a topic that is not there any more, and nobody has decided to forget it.
        SourceIdentityChanged: a topic of that name has another id, or lives in another cluster.
        OffsetsLost: an unfinished lane goes on below the log start.
        OffsetsBeyondEnd: a lane goes on beyond the end of the log, or a partition vanished.
    """
    present = {topic.name: topic for topic in snapshot.topics()}
    known = {source.topic for source in ledger.sources()}
    for topic in sorted(known):
        now = present.get(topic.name)
        if now is None and snapshot.means(topic.name) and not forgetting:
            _check_gone(ledger, topic)
        if now is None or now in known:
            continue
        if now.cluster != topic.cluster:
            what = f"topic {topic.name}: the brokers belong to cluster {now.cluster}, the ledger was read from {topic.cluster}"
        else:
            what = f"topic {topic.name} was deleted and made again: its id is {now.topic_id}, the ledger has {topic.topic_id}"
        heads = ", ".join(f"{s.partition}: {n}" for s, n in ledger.positions().items() if s.topic == topic)
        raise SourceIdentityChanged(
            f"{what} (next offsets in the ledger: {heads})",
            f"check the brokers; to read the new topic from its start, keeping the rows: kpipe run {ledger.pipeline}"
            " --on-new-topic begin",
        )
    for source in ledger.sources():
        if source.topic in present.values():
            _check_partition(ledger, source, snapshot.partitions.get(source))


def _check_gone(ledger: Ledger, topic: TopicId) -> None:
    heads = {s: n for s, n in ledger.positions().items() if s.topic == topic}
    if any(not lane.finished for source in heads for lane in ledger.of(source)):
        words = ", ".join(f"{s.partition}: {n}" for s, n in heads.items())
        raise TopicGone(
            f"topic {topic.name} is gone from cluster {topic.cluster} (next offsets in the ledger: {words})",
            f"make it again; or, to go on without it: ALTER PIPELINE {ledger.pipeline} DROP ORPHAN PARTITIONS",
        )


def _check_partition(ledger: Ledger, source: PartitionId, state: PartitionState | None) -> None:
    for lane in ledger.of(source):
        if lane.finished:
            continue
        if state is None:
            raise OffsetsBeyondEnd(
                f"{source} is in the ledger (next offset {lane.next}) but the topic has no such partition any more",
                "check the brokers; Kafka never removes a partition from a topic",
            )
        if lane.next < state.log_start:
            gone = min(state.log_start, lane.end) if lane.end is not None else state.log_start
            raise OffsetsLost(
                f"{source}: offsets [{lane.next}, {gone}) are gone from Kafka before they were read"
                f" (log start {state.log_start})",
                f"to note them as lost and go on: kpipe run {ledger.pipeline} --on-data-loss record",
            )
        if lane.next > state.high:
            raise OffsetsBeyondEnd(
                f"{source}: the ledger's next offset is {lane.next}, the log ends at {state.high}: it was truncated or rebuilt",
                "check the brokers; to read what is written from now on, make a pipeline of another name into the same table"
                f' with source.start {{"{source.partition}": {state.high}}}',
            )


def losses(ledger: Ledger, snapshot: TopicSnapshot) -> tuple[PartitionId, ...]:
    """Partitions of which unread offsets lie below the log start."""
    return tuple(
        source
        for source, state in sorted(snapshot.partitions.items())
        if any(not lane.finished and lane.next < state.log_start for lane in ledger.of(source))
    )


def arrivals(ledger: Ledger, snapshot: TopicSnapshot) -> tuple[PartitionId, ...]:
    """Partitions that exist and that the ledger does not know."""
    known = set(ledger.sources())
    return tuple(sorted(source for source in snapshot.partitions if source not in known))


def lag(ledger: Ledger, snapshot: TopicSnapshot) -> dict[PartitionId, int]:
    """Offsets up to the high watermark that have not been read, by partition; lost and skipped ones do not count."""
    result: dict[PartitionId, int] = {}
    for source, state in snapshot.partitions.items():
        lanes = [lane for lane in ledger.of(source) if not lane.finished]
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
    """The next batch: at most one range for each chosen partition, each ending at or below the last stable offset.

    Args:
        ledger: what is committed.
        snapshot: what the brokers hold; `check_source` has passed.
        limits: bounds.
        batch_id: id for the batch, unique.
        only: partitions to choose from; None: all.
        turn: counts up from batch to batch, and says whose turn it is; None: the ledger's sequence number.
    """
    turn = ledger.seq if turn is None else turn
    steps: list[Step] = []
    lanes = 0
    waiting = 0
    for source, state in sorted(snapshot.partitions.items()):
        if not chosen(source, only):
            continue
        unfinished = [lane for lane in ledger.of(source) if not lane.finished]
        lanes += len(unfinished)
        ready = [step for step in (_step(lane, state, limits) for lane in unfinished) if step is not None]
        if ready:
            steps.append(_first(ready, turn))
        for lane in unfinished:
            end = state.high if lane.end is None else min(lane.end, state.high)
            waiting += max(0, end - max(lane.next, state.end))
    if steps:
        return Batch(batch_id, ledger.pipeline, _fair(steps, limits.partitions, turn))
    if not lanes:
        known = any(chosen(source, only) for source in ledger.sources() if source in snapshot.partitions)
        return Idle("finished" if known else "no_partitions")
    return Idle("open_transaction" if waiting else "caught_up", waiting)


def _step(lane: Lane, state: PartitionState, limits: Limits) -> Step | None:
    end = state.end if lane.end is None else min(lane.end, state.end)
    if end <= lane.next:
        return None
    most, reason = limits.of(lane.source)
    if end - lane.next > most:
        return Step(lane, lane.next + most, reason)
    return Step(lane, end)


def _first(ready: list[Step], turn: int) -> Step:
    """The one lane of a partition that is read now.

    The live lane as long as it is behind: a backfill must not hold up what is new. Once it keeps up, the two take turns:
    where records arrive all the time, the live lane always has something, and a backfill would wait for ever.
    """
    live = next((step for step in ready if step.lane.open), None)
    others = [step for step in ready if not step.lane.open]
    if live is None or (others and live.closed_by == "caught_up" and turn % 2):
        return others[0]
    return live


def _fair(steps: list[Step], most: int | None, turn: int) -> tuple[Step, ...]:
    """The steps of this turn: with a bound on partitions every one of them gets its turn, round robin."""
    if most is None or most >= len(steps):
        return tuple(steps)
    first = (turn * most) % len(steps)
    chosen = (steps[first:] + steps[:first])[:most]
    return tuple(sorted(chosen, key=lambda step: (step.source, step.range)))
