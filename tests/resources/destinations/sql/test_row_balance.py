from __future__ import annotations

from kpipe.topics import Part
from kpipe.verification.verify import Holding
from resources.destinations.sql.ledger.opening_balance import opening
from resources.destinations.sql.ledger.row_balance import NOWHERE


def begin(found: dict[Part, int], written: dict[Part, int], numbered: bool = True) -> tuple[dict[Part, int], int]:
    held, baseline = opening({name: Holding(rows, rows) for name, rows in found.items()}, written, numbered)
    return {name: item.rows for name, item in held.items()}, baseline


def test_only_rows_that_no_batch_has_written_are_in_the_baseline() -> None:
    assert begin({0: 12, 1: 5, NOWHERE: 3}, {"t:0": 10, "t:1": 5}) == ({NOWHERE: 3, 0: 12, 1: 5}, 5)


def test_missing_rows_stay_expected_beside_rows_of_others() -> None:
    assert begin({0: 12, 1: 4}, {"t:0": 10, "t:1": 5}) == ({NOWHERE: 0, 0: 12, 1: 5}, 2)
    assert begin({0: 9, NOWHERE: 3}, {"t:0": 10}) == ({NOWHERE: 3, 0: 10}, 3)
    assert begin({}, {"t:0": 10}) == ({NOWHERE: 0, "t:0": 10}, 0)


def test_rows_that_do_not_name_their_topic_are_compared_by_number() -> None:
    assert begin({0: 10, "a:0": 10, "b:0": 5}, {"a:0": 20, "b:0": 5}) == ({NOWHERE: 0, 0: 10, "a:0": 10, "b:0": 5}, 0)
    assert begin({0: 9, "a:0": 10, "b:0": 5}, {"a:0": 20, "b:0": 5}) == ({NOWHERE: 0, 0: 10, "a:0": 10, "b:0": 5}, 0)
    assert begin({"a:0": 21, "b:0": 4}, {"a:0": 20, "b:0": 5}) == ({NOWHERE: 0, "a:0": 21, "b:0": 5}, 1)


def test_rows_without_a_partition_are_counted_as_a_whole() -> None:
    assert begin({NOWHERE: 10}, {"t:0": 10}, numbered=False) == ({NOWHERE: 10}, 0)
    assert begin({NOWHERE: 9}, {"t:0": 10}, numbered=False) == ({NOWHERE: 9}, -1)


def test_missing_rows_are_expected_with_their_offsets() -> None:
    known = {"t:0": 45, "t:1": 10}
    assert opening({0: Holding(10, 45), 1: Holding(4, 7)}, {"t:0": 10, "t:1": 5}, True, known)[0][1] == Holding(5, 10)
    assert opening({}, {"t:1": 5}, True, known)[0]["t:1"] == Holding(5, 10)
    other = opening({1: Holding(5, 12)}, {"t:1": 5}, True, known)[0][1]
    assert other == Holding(5, 10), "a row of another program in place of a missing one"
    assert opening({1: Holding(6, 12)}, {"t:1": 5}, True, known)[0][1] == Holding(6, 12), "rows of others beside all of them"
    assert opening({1: Holding(4, 7)}, {"t:1": 5}, True, {})[0][1] == Holding(5, 7), "of earlier versions: not known"


def test_rows_of_another_loader_do_not_stand_for_missing_ones() -> None:
    held, baseline = opening({0: Holding(104, 20)}, {"t:0": 5}, True, {"t:0": 15}, {0: Holding(100, 10)})
    assert (held[0], baseline) == (Holding(105, 25), 100)
