"""What a run that ended by itself must have read: rule C9 of oracle.py."""

from __future__ import annotations

from typing import Any

from kpipe.ledger.ledger import READ, Ledger
from tests.combinations.log import Cluster

__all__ = ["unread"]


def unread(ledger: Ledger, cluster: Cluster, bound: Any) -> list[str]:
    """Findings: offsets up to the end that are neither read nor recorded as skipped or lost.

    Args:
        ledger: the pipeline's.
        cluster: the topics.
        bound: `source.end` of the definition.
    """
    reached: dict[tuple[str, int], int] = {}
    for lane in sorted(ledger.lanes.values(), key=lambda lane: lane.start):
        place = lane.source.topic.name, lane.source.partition
        behind = lane.next if lane.kind == READ else lane.end or 0
        if lane.start <= reached.get(place, lane.start):
            reached[place] = max(reached.get(place, 0), behind)
    problems = []
    for topic, number, log in cluster.places():
        end = _end(topic, number, log.end, bound)
        have = reached.get((topic, number), 0)
        if end is not None and have < end:
            problems.append(f"C9 {topic}/{number}: the run has ended at {have}, {end} is due")
    return problems


def _end(topic: str, number: int, stable: int, bound: Any) -> int | None:
    if bound is None:
        return stable
    return min(stable, bound.get(f"{topic}:{number}", 0)) if isinstance(bound, dict) else None
