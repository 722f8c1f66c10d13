"""What proves the order of a topic: any record that is not where the commits have put it is found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from resources.destinations.kafka_sink.order_check import OrderCheck

A, B, AGAIN = (0, 5), (5, 10), (3, 10)


def row(start: int, end: int, **more: Any) -> dict[str, Any]:
    """A row of `kpipe_batches`."""
    known = {"cluster_id": "c", "topic_id": "t", "topic": "s", "batch_source_partition_id": 0, "batch_id": "b"}
    kinds = {"closed_by": "caught_up", "batch_state": "Succeeded", "target_table": "out"}
    return {**known, **kinds, "batch_earliest_offset": start, "batch_latest_offset": end, "deletes": 0, **more}


def checked(ranges: Sequence[tuple[int, int]], *offsets: int, partition: int = 0) -> list[str]:
    check = OrderCheck("out", [row(*found) for found in ranges])
    for at, offset in enumerate(offsets):
        check.add(partition, at, ("s", 0), offset, tombstone=False)
    return check.order()


@pytest.mark.parametrize(
    ("ranges", "offsets", "wrong"),
    [
        ((A, B), (0, 1, 1, 4, 5, 9), ""),  # one record may give several rows, and many give none
        ((A, B), (0, 2, 1), "s/0: offset 1 comes behind offset 2 at out/0 offset 2"),
        ((A, B), (5, 0), "offset 0 comes behind offset 5"),
        ((B, A), (5, 9, 0, 4), ""),  # a backfill
        ((B, A), (0, 5), "offset 5 comes behind offset 0"),
        ((A, B, AGAIN), (0, 4, 5, 9, 3, 4, 9), ""),  # read again
        ((A, B, AGAIN), (0, 4, 5, 9, 3, 9, 4), "offset 4 comes behind offset 9"),
        ((A, B, AGAIN), (9, 3, 9, 5), "offset 5 comes behind offset 9"),
        ((A,), (7,), "offset 7 comes first"),
        ((A, B), (0, 7, 20), "offset 20 comes behind offset 7"),
    ],
)
def test_records_must_be_where_the_commits_have_put_them(
    ranges: Sequence[tuple[int, int]], offsets: Sequence[int], wrong: str
) -> None:
    found = checked(ranges, *offsets)
    assert len(found) == bool(wrong)
    assert not wrong or wrong in found[0]


def test_partitions_of_the_topic_have_no_order_among_them() -> None:
    check = OrderCheck("out", [row(0, 10)])
    for partition, offset in ((0, 5), (1, 3), (0, 6), (1, 4)):
        check.add(partition, offset, ("s", 0), offset, tombstone=False)
    assert check.order() == []


def test_source_partitions_have_no_order_among_them() -> None:
    check = OrderCheck("out", [row(0, 10), row(0, 10, batch_source_partition_id=1), row(0, 10, topic="r")])
    for topic, partition, offset in (("s", 0, 5), ("s", 1, 1), ("r", 0, 0), ("s", 0, 6)):
        check.add(0, 0, (topic, partition), offset, tombstone=False)
    assert check.order() == []


def test_rows_of_unknown_offset_are_not_checked() -> None:
    check = OrderCheck("out", [row(0, 10)])
    check.add(0, 0, ("s", 0), None, tombstone=False)
    assert check.order() == []


def test_what_went_to_another_topic_or_is_to_be_read_again_wrote_nothing() -> None:
    rows = [row(0, 10, target_table="former"), row(0, 10, closed_by="reread")]
    check = OrderCheck("out", rows)
    check.add(0, 0, ("s", 0), 3, tombstone=False)
    assert len(check.order()) == 1


def test_tombstones_are_counted() -> None:
    check = OrderCheck("out", [row(0, 10, deletes=2), row(0, 5, batch_source_partition_id=1, deletes=1)])
    check.add(0, 0, ("s", 0), 3, tombstone=True)
    check.add(0, 1, ("s", 1), 4, tombstone=True)
    assert check.tombstones() == ["s/0: topic out: expected 2 tombstones, found 1"]


def test_a_long_history_is_searched_and_not_gone_through() -> None:
    """One look-up in 20,000 ranges for each of 20,000 records; going through them would take hours."""
    ends = range(0, 20_000 * 3, 3)
    check = OrderCheck("out", [row(end, end + 3) for end in ends])
    for partition in range(2):
        for end in ends:
            check.add(partition, end, ("s", 0), end, tombstone=False)
    assert check.order() == []
