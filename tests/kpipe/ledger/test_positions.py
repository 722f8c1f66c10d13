"""The next offsets of partitions, also of a topic that was recreated."""

from __future__ import annotations

import pytest

from kpipe.ledger.ledger import Lane, Ledger
from kpipe.topics import PartitionId, TopicId


@pytest.mark.parametrize("ids", [("a", "b"), ("b", "a")])
def test_of_a_recreated_topic_the_one_that_the_brokers_have_counts(ids: tuple[str, str]) -> None:
    old, new = (PartitionId(TopicId("c", topic_id, "web"), 0) for topic_id in ids)
    other = PartitionId(TopicId("c", "o", "shop"), 0)
    lanes = (Lane(old, 0, 5), Lane(new, 0, 1), Lane(other, 0, 2))
    ledger = Ledger("p", 3, {lane.key: lane for lane in lanes})
    assert ledger.current_positions({new, other}) == {new: 1, other: 2}
    assert ledger.current_positions({new}) == {new: 1, other: 2}, "of other partitions, as the ledger has them"
    assert ledger.current_positions({old}) == {old: 5, other: 2}
    retired = Ledger("p", 3, {lane.key: lane for lane in (Lane(old, 0, 5, 5), Lane(new, 0, 1))})
    assert retired.current_positions() == {new: 1}
