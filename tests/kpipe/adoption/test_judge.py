"""Positions of another loader against the brokers, and against a second source."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kpipe.adoption.judge import Difference, compare, differences, judge, origin_of
from kpipe.adoption.positions import Positions
from kpipe.ledger.ledger import ADOPTED, LOST, READ, Ledger
from kpipe.offsets import Range
from kpipe.topics import PartitionId, PartitionState, TopicId, TopicSnapshot


def at(number: int, topic: str = "web") -> PartitionId:
    return PartitionId(TopicId("c", f"id-{topic}", topic), number)


def brokers(**more: PartitionState) -> TopicSnapshot:
    """Partition 0 has all of its log, partition 1 has lost its first 10 offsets, an open transaction begins at 30 of 2."""
    states = {0: PartitionState(0, 20, 20), 1: PartitionState(10, 20, 20), 2: PartitionState(0, 30, 40)}
    return TopicSnapshot({at(number): state for number, state in states.items()} | {at(0, name): more[name] for name in more})


def positions(offsets: Mapping[int, int], topic: str = "web", **more: list[str]) -> Positions:
    return Positions("group old", {(topic, number): offset for number, offset in offsets.items()}, **more)


def lanes(ledger: Ledger, number: int) -> list[tuple[int, int, int | None, str]]:
    return [(lane.start, lane.next, lane.end, lane.kind) for lane in ledger.of(at(number))]


def test_all_partitions_begin_where_the_loader_stopped() -> None:
    found = judge(positions({0: 0, 1: 20, 2: 35}), brokers())
    assert not found.problems
    assert [start.lag for start in found.starts] == [20, 0, 5]
    assert found.note == "adopt: group old -> web/0 at 0, web/1 at 20, web/2 at 35"
    assert origin_of(f"{found.note}; me") == "group old"
    assert origin_of("begin: web/0 at 3") == ""
    ledger = Ledger("p").after(found.changes)
    assert lanes(ledger, 0) == [(0, 0, None, READ)]
    assert lanes(ledger, 1) == [(0, 0, 20, ADOPTED), (20, 20, None, READ)]
    assert any("beyond the last stable offset, 30" in note for note in found.notes)


def test_a_partition_that_the_loader_never_saw_begins_at_the_log_start() -> None:
    found = judge(positions({0: 20, 2: 1}), brokers())
    assert not found.problems
    assert [note for note in found.notes if "web/1" in note] == ["web/1: not in group old: it begins at the log start, 10"]
    ledger = Ledger("p").after(found.changes)
    assert lanes(ledger, 1) == [(10, 10, None, READ)]


def test_offsets_that_kafka_has_deleted_need_a_decision() -> None:
    found = judge(positions({0: 1, 1: 4, 2: 1}), brokers())
    assert [problem for problem in found.problems if "web/1: offsets [4, 10) were deleted" in problem]
    found = judge(positions({0: 1, 1: 4, 2: 1}), brokers(), accept_loss=True)
    assert not found.problems
    assert lanes(Ledger("p").after(found.changes), 1) == [(0, 0, 4, ADOPTED), (4, 4, 10, LOST), (10, 10, None, READ)]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (positions({0: 21, 1: 20, 2: 1}), "web/0: position 21 is beyond the end of the log, 20"),
        (positions({0: 1, 1: 20, 2: 1, 7: 3}), "web/7: the topic has no such partition"),
        (positions({0: 1}, "shop"), "group old: no position of web"),
        (positions({0: 1, 1: 20, 2: 1}, problems=["active"]), "active"),
    ],
)
def test_what_is_refused(given: Positions, problem: str) -> None:
    found = judge(given, brokers())
    assert any(problem in text for text in found.problems), found.problems


def test_positions_of_other_topics_are_left_out() -> None:
    given = Positions("group old", {("web", 0): 1, ("web", 1): 20, ("web", 2): 3, ("shop", 9): 4})
    found = judge(given, brokers())
    assert not found.problems
    assert "positions of other topics are left out: shop" in found.notes


def test_two_sources_differ_where_one_has_read_further() -> None:
    adoption = judge(positions({0: 10, 1: 15, 2: 35}), brokers())
    other = Positions("table t", {("web", 0): 8, ("web", 1): 18, ("web", 2): 25})
    found = compare(adoption, other)
    assert found == (
        Difference(at(0), Range(8, 10), ahead=True, readable=True),
        Difference(at(1), Range(15, 18), ahead=False, readable=True),
        Difference(at(2), Range(25, 35), ahead=True, readable=False),
    )
    notes, problems = differences(other, found, {found[0]: (2, True), found[1]: (1, False)})
    assert not notes
    assert problems[0] == "web/0 [8, 10): not in table t, would be lost: 2 committed records"
    assert problems[1] == "web/1 [15, 18): in table t, would be duplicated: at least 1 committed record"
    assert problems[2].startswith("web/2 [25, 35): not in table t, would be lost: the log does not contain")


def test_offsets_without_records_are_no_difference() -> None:
    adoption = judge(positions({0: 10, 1: 20, 2: 1}), brokers())
    found = compare(adoption, Positions("table t", {("web", 0): 9, ("web", 1): 20, ("web", 2): 1}))
    notes, problems = differences(Positions("table t", {}), found, {found[0]: (0, True)})
    assert not problems
    assert notes == ["web/0 [9, 10): without committed records, so both positions are the same for a reader"]


def test_a_partition_without_rows_counts_as_unread() -> None:
    adoption = judge(positions({0: 10, 1: 10, 2: 0}), brokers())
    found = compare(adoption, Positions("table t", {}))
    assert [(item.source, item.range, item.ahead) for item in found] == [(at(0), Range(0, 10), True)]
