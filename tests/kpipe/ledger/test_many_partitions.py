"""Changes of many partitions are checked without comparing each partition with every change."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kpipe.ledger.ledger import Conflict, Lane, LaneChange, Ledger
from kpipe.topics import PartitionId, TopicId

_TOPICS = [TopicId("c", f"id-{name}", name) for name in ("a", "b")]


class Counted(list[LaneChange]):
    """Changes that count how often they are walked through."""

    walks = 0

    def __iter__(self) -> Iterator[LaneChange]:
        self.walks += 1
        return super().__iter__()


def lane(source: PartitionId, start: int, end: int | None) -> Lane:
    return Lane(source, start, start, end)


@pytest.mark.parametrize("partitions", [1, 3, 300])
def test_the_changes_are_read_as_often_for_many_partitions_as_for_one(partitions: int) -> None:
    sources = [PartitionId(topic, number) for topic in _TOPICS for number in range(partitions)]
    changes = Counted(LaneChange(None, lane(source, 0, None)) for source in sources)
    ledger = Ledger("p", lanes={change.key: change.become for change in changes if change.become is not None})
    changes.walks = 0
    assert ledger.overlap(changes) is None
    assert changes.walks == 2


@pytest.mark.parametrize("at", [0, 150, 299])
@pytest.mark.parametrize("own", [True, False])
def test_an_overlap_in_one_of_many_partitions_is_found(at: int, own: bool) -> None:
    sources = [PartitionId(topic, number) for topic in _TOPICS for number in range(150)]
    bad, changes = sources[at], [LaneChange(None, lane(source, 10, 20)) for source in sources]
    other = lane(bad, 15, 30)
    if own:
        ledger, changes = Ledger("p"), [*changes, LaneChange(None, other)]
    else:
        ledger = Ledger("p", lanes={other.key: other})
    found = ledger.apply(changes)
    assert isinstance(found, Conflict)
    assert (found.own, found.change.key[0]) == (own, bad)
    assert {found.change.key[1], found.found.start if found.found else None} == {10, 15}


def test_partitions_of_topics_that_were_recreated_are_different() -> None:
    old, new = (PartitionId(TopicId("c", name, "a"), 0) for name in ("id-1", "id-2"))
    assert old != new
    assert len({old, new}) == 2
    assert hash(old) == hash(PartitionId(TopicId("c", "id-1", "a"), 0))
    ledger = Ledger("p").apply([LaneChange(None, lane(source, 0, None)) for source in (old, new)])
    assert isinstance(ledger, Ledger)
    assert [len(ledger.of(source)) for source in (old, new)] == [1, 1]
