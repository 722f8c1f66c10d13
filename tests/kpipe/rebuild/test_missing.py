"""Offsets that a rebuilt table would lack: to be read yet, or missing for good."""

from __future__ import annotations

from kpipe.ledger import transitions
from kpipe.ledger.ledger import LaneChange, Ledger
from kpipe.rebuild.exchange import missing
from kpipe.topics import PartitionId, TopicId

SOURCE = PartitionId(TopicId("c", "i", "t"), 0)


def ledger(changes: tuple[LaneChange, ...], end: int) -> Ledger:
    """A ledger whose live lane has read to an end."""
    begun = Ledger("p").after(changes)
    lane = begun.live(SOURCE)
    assert lane is not None
    return begun.after((LaneChange(lane, lane.advanced(end)),)) if end > lane.next else begun


def test_offsets_of_a_loader_that_was_taken_over_are_not_lost_silently() -> None:
    live = ledger(transitions.adopt(SOURCE, 11, 0), 20)
    assert missing(live, ledger(transitions.begin(SOURCE, 0, 0), 20)) == ([], [])
    assert missing(live, ledger(transitions.begin(SOURCE, 0, 0), 9)) == (["t/0 [11, 20)", "t/0 [9, 11)"], [])
    assert missing(live, ledger(transitions.begin(SOURCE, 8, 8), 20)) == ([], ["t/0 [0, 8)"])


def test_skipped_offsets_are_not_missing() -> None:
    live = ledger(transitions.begin(SOURCE, 5, 0), 20)
    assert missing(live, ledger(transitions.begin(SOURCE, 6, 6), 20)) == ([], ["t/0 [5, 6)"])
