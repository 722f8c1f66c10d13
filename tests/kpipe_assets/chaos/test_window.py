"""Offsets that copies load: bounded, divided among partitions, within the pipeline's own bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kpipe.definition.pipeline import Source
from kpipe.errors import KpipeError
from kpipe.offsets import Range
from kpipe.topics import PartitionId, PartitionState, TopicId, TopicSnapshot
from kpipe_assets.chaos.window import Window, choose, shares

WEB, APP = TopicId("c", "1", "web"), TopicId("c", "2", "app")


class Topics:
    """Answers one timestamp only."""

    def offsets_at(self, _: object, snapshot: TopicSnapshot) -> Mapping[PartitionId, int]:
        return dict.fromkeys(snapshot.partitions, 40)


def snapshot(*states: tuple[int, int], topic: TopicId = WEB) -> TopicSnapshot:
    return TopicSnapshot({PartitionId(topic, at): PartitionState(low, end, end + 5) for at, (low, end) in enumerate(states)})


def chosen(found: Window) -> list[tuple[int, int]]:
    return [(span.start, span.end) for span in found.ranges.values()]


def source(**fields: Any) -> Source:
    return Source(brokers="b:1", topic="web", **fields)


@pytest.mark.parametrize(
    ("sizes", "most", "expected"),
    [
        ([10, 0, 100, 5], 60, [10, 0, 45, 5]),
        ([3, 3], 100, [3, 3]),
        ([100, 100, 100], 100, [33, 33, 34]),
        ([1000, 1000, 1000], 2, [0, 1, 1]),
        ([], 5, []),
    ],
)
def test_shares_are_even_and_never_exceed_the_sizes_or_the_limit(sizes: list[int], most: int, expected: list[int]) -> None:
    assert shares(sizes, most) == expected
    assert sum(shares(sizes, most)) == min(most, sum(sizes))


def test_the_newest_offsets_end_at_the_last_stable_offset_and_the_oldest_begin_at_the_log_start() -> None:
    found = snapshot((10, 110), (0, 20), (7, 7))
    assert chosen(choose(source(), Topics(), found, 60)) == [(70, 110), (0, 20), (7, 7)]  # type: ignore[arg-type]
    assert chosen(choose(source(), Topics(), found, 60, newest=False)) == [(10, 50), (0, 20), (7, 7)]  # type: ignore[arg-type]


def test_bounds_of_the_definition_apply_where_they_are_offsets_or_a_timestamp() -> None:
    bounded = source(start={0: 50}, end={0: 90, 1: 15})
    assert chosen(choose(bounded, Topics(), snapshot((10, 110), (0, 20)), 1000)) == [(50, 90), (0, 15)]  # type: ignore[arg-type]
    at = source(start={"timestamp": "2026-01-01"})
    assert chosen(choose(at, Topics(), snapshot((10, 110)), 1000)) == [(40, 110)]  # type: ignore[arg-type]
    latest = source(start="latest", end="latest")
    assert chosen(choose(latest, Topics(), snapshot((10, 110)), 1000)) == [(10, 110)]  # type: ignore[arg-type]


def test_a_start_that_retention_has_passed_becomes_the_log_start() -> None:
    moved = source(start={0: 5}, end={0: 8})
    with pytest.raises(KpipeError, match="web: the topic contains no offset"):
        choose(moved, Topics(), snapshot((10, 110)), 1000)  # type: ignore[arg-type]
    assert chosen(choose(source(start={0: 5}), Topics(), snapshot((10, 12)), 9)) == [(10, 12)]  # type: ignore[arg-type]


def test_an_empty_topic_is_refused() -> None:
    with pytest.raises(KpipeError, match="web: the topic contains no offset"):
        choose(source(), Topics(), snapshot((3, 3)), 10)  # type: ignore[arg-type]


def test_names_of_partitions_and_ranges_of_a_topic() -> None:
    ranges = {PartitionId(WEB, 0): Range(1, 4), PartitionId(APP, 0): Range(0, 0), PartitionId(APP, 1): Range(5, 9)}
    many = Window(ranges, multi_topic=True)
    assert {name: str(span) for name, span in many.named().items()} == {"app:0": "[0, 0)", "app:1": "[5, 9)", "web:0": "[1, 4)"}
    assert many.topics == ("app", "web")
    assert (len(many), many.longest) == (7, 4)
    assert many.of_topic("app") == {1: Range(5, 9)}
    assert list(Window({PartitionId(WEB, 0): Range(1, 4)}).named()) == [0]


def test_changes_of_the_topic_that_make_a_result_inconclusive() -> None:
    window = choose(source(), Topics(), snapshot((10, 110), (4, 4)), 1000)  # type: ignore[arg-type]
    assert window.changed(snapshot((10, 500), (9, 9), (0, 3))) == ""  # grown; nothing was to be read of partition 1
    assert "web/0: the log starts at 11" in window.changed(snapshot((11, 500), (4, 4)))
    assert "recreated" in window.changed(snapshot((10, 110), (4, 4), topic=TopicId("c", "9", "web")))
