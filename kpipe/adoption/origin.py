"""Find the source that a pipeline's adopted offsets were taken over from, in the ledger's decisions."""

from __future__ import annotations

from kpipe.adoption.judge import origin_of
from kpipe.interfaces import Destination
from kpipe.ledger.ledger import ADOPTED, Ledger
from kpipe.provenance.facts import Traceable

__all__ = ["adopted_from"]


def adopted_from(destination: Destination, ledger: Ledger) -> str:
    """Return the origin in words; empty if nothing was adopted, or if the destination cannot search its decisions."""
    lane = next((lane for _, lane in sorted(ledger.lanes.items()) if lane.kind == ADOPTED), None)
    if lane is None or not isinstance(destination, Traceable):
        return ""
    facts = destination.trace(lane.source.topic.name, lane.source.partition, lane.start)
    return next((origin for commit in facts.decisions if (origin := origin_of(commit.note))), "")
