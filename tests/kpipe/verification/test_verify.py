"""The audit proves what adds up, and finds each kind of thing that does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kpipe.batch.batch import Counts
from kpipe.ledger.ledger import Lane
from kpipe.offsets import Range
from kpipe.topics import Part
from kpipe.verification.verify import Entry, Holding, Keeping, Recount, TableRecount, audit

World = Any


@pytest.fixture
def full(world: World) -> World:
    for partition in (0, 1):
        world.topics.numbered(partition, 4)
        world.topics.produce(partition, {"id": 4}, bad=True)
        world.topics.produce(partition, None)
        world.topics.mark(partition)
    world.run({"batch": {"max_offsets_per_partition": 4}})
    return world


def test_what_adds_up_is_proven_and_printed(full: World) -> None:
    report = full.audit()
    assert report.ok
    shown = report.to_dict()
    assert {name: shown[name] for name in ("ok", "span", "rows", "dead_letters", "filtered", "gaps", "problems")} == {
        "ok": True, "span": 14, "rows": 8, "dead_letters": 2, "filtered": 2, "gaps": 2, "problems": [],
    }  # fmt: skip
    assert shown["partitions"]["1"] == {
        "ranges": [[0, 7]], "span": 7, "rows": 4, "dead_letters": 1, "filtered": 1, "gaps": 1, "rows_found": 4,
        "deletes": 0, "inserted": 4, "updated": 0, "deleted": 0, "ignored": 0,
    }  # fmt: skip


def recount(full: World, **changed: Any) -> Recount:
    found = full.table.recount()
    ((name, table),) = found.tables.items()
    return replace(found, tables={name: replace(table, **changed)})


def problems(full: World, **changed: Any) -> str:
    report = audit(full.table.held, full.table.history(), recount(full, **changed))
    assert not report.ok
    assert report.to_dict()["ok"] is False
    return "\n".join(report.problems)


def test_a_missing_row_is_found(full: World) -> None:
    full.table.rows.pop()
    assert "partition 1: expected 4 rows, found 3 in the table" in problems(full)


def test_a_row_too_many_is_found(full: World) -> None:
    full.table.rows.append({"_kafka_partition": 0, "_kafka_offset": 99})
    assert "partition 0: expected 4 rows, found 5 in the table" in problems(full)


def test_rows_of_a_partition_that_the_ledger_does_not_know_are_found(full: World) -> None:
    full.table.rows.append({"_kafka_partition": 9, "_kafka_offset": 0})
    assert "partition 9: expected 0 rows, found 1 in the table" in problems(full)


def test_a_doubled_row_is_found_even_when_another_is_missing(full: World) -> None:
    mine = [row for row in full.table.rows if row["_kafka_partition"] == 0]
    full.table.rows.remove(mine[0])
    full.table.rows.append(mine[1])
    assert "partition 0: 1 rows repeat an offset" in problems(full)


@pytest.mark.parametrize("partition", [0, 9])
def test_a_dead_letter_missing_or_too_many_is_found(full: World, partition: int) -> None:
    full.table.dead.append({"_kafka_partition": partition})
    assert (
        f"partition {partition}: expected {1 if partition == 0 else 0} dead letters, found {2 if partition == 0 else 1}"
        in problems(full)
    )


def test_rows_of_other_pipelines_in_the_table_count_as_expected(full: World) -> None:
    shared = recount(full, rows={0: 10, 1: 4}, expected_rows={0: 10, 1: 4})
    assert audit(full.table.held, full.table.history(), shared).ok
    gone = recount(full, expected_rows={0: 4, 1: 4, 2: 6})
    assert audit(full.table.held, full.table.history(), gone).problems == ["partition 2: expected 6 rows, found 0 in the table"]


def test_a_range_with_other_rows_than_committed_is_found(full: World) -> None:
    entry = full.table.entries[0]
    assert problems(full, entries=((entry, 3),)) == f"tweets/0 [0, 4): 3 rows found, 4 committed by batch {entry.batch}"


def test_offsets_that_nothing_explains_are_found(full: World) -> None:
    entry = full.table.entries[-1]
    full.table.entries[-1] = replace(entry, counts=entry.counts + Counts(gaps=-1))
    assert "tweets/1 [4, 7): 1 offsets of batch" in problems(full)


def test_a_range_that_was_committed_twice_is_found(full: World) -> None:
    full.table.entries.append(replace(full.table.entries[0], batch="again"))
    assert "tweets/0: committed twice: [0, 4) overlaps [0, 4)" in problems(full)


def test_history_and_ledger_that_differ_are_found(full: World) -> None:
    full.table.entries.pop()
    assert "tweets/1: expected [0, 4) from the history, found [0, 7) in the ledger" in problems(full)


def test_offsets_between_two_lanes_that_no_lane_has_are_found(full: World) -> None:
    """As if offsets were jumped over, and nothing was left behind that says so."""
    source = full.topics.source(0)
    ledger = full.table.held
    (live,) = ledger.of(source)
    closed, after = replace(live, end=live.next), Lane(source, 9, 9)
    holed = replace(ledger, lanes={**ledger.lanes, closed.key: closed, after.key: after})
    report = audit(holed, full.table.history(), full.table.recount())
    assert report.problems == [f"{source} [7, 9): the ledger has no lane for these offsets"]


def test_a_ledger_that_contradicts_itself_is_found_and_not_a_crash(full: World) -> None:
    source = full.topics.source(0)
    lanes = {**full.table.held.lanes, (source, 2): Lane(source, 2, 6, 6)}
    report = audit(replace(full.table.held, lanes=lanes), full.table.history(), full.table.recount())
    assert any("tweets/0: lane from 2 overlaps" in problem for problem in report.problems)


def test_history_of_a_source_without_any_lane_is_found(full: World) -> None:
    other = replace(full.topics.source(0), partition=5)
    full.table.entries.append(Entry("stray", other, Range(0, 2), Counts(messages=2, rows=2)))
    assert "tweets/5: expected [0, 2) from the history, found nothing in the ledger" in problems(full)


def test_flatmap_is_counted_by_the_records_given_to_the_program() -> None:
    counts = Counts(messages=10, rows=35, dead_letters=3, given=8, set_aside_before=1, filtered=1, gaps=2)
    assert counts.unaccounted(12) == 0
    assert counts.unaccounted(13) == 1


def test_what_is_wrong_with_a_further_table_beyond_numbers_of_rows_is_found(full: World) -> None:
    found = full.table.recount()
    both = {**found.tables, "a": TableRecount(problems=("topic a is missing",))}
    report = audit(full.table.held, full.table.history(), replace(found, tables=both))
    assert report.problems == ["table a: topic a is missing"]


def judged(full: World, multi_topic: bool, expected: dict[Part, Holding], held: dict[Part, Holding]) -> Sequence[str]:
    """Return the problems of a table with a key; partition 1 is as the commits have left it."""
    rest = {1: Holding(4, 6)}
    keeping = Keeping({**expected, **rest}, {**held, **rest})
    rows, stated = ({name: item.rows for name, item in items.items()} for items in (keeping.found, keeping.expected))
    table = recount(full, rows=rows, expected_rows=stated, keeping=keeping)
    if multi_topic:
        table = replace(table, dead_letters={"tweets:0": 1, "tweets:1": 1})
    return audit(full.table.held, full.table.history(), table, multi_topic).problems


@pytest.mark.parametrize("multi_topic", [True, False])
def test_a_row_of_another_topic_in_place_of_a_missing_one_is_found(full: World, multi_topic: bool) -> None:
    """Where some rows of a number name no topic, the ledgers add up; the balance of a table with a key tells them apart."""
    expected: dict[Part, Holding] = {0: Holding(1, 7), "a:0": Holding(2, 9), "b:0": Holding(1, 3)}
    found = {**expected, "a:0": Holding(1, 4), "b:0": Holding(2, 8)}
    assert not judged(full, multi_topic, expected, expected)
    assert judged(full, multi_topic, expected, found) == [
        "partition a:0: expected 2 rows, found 1 in the table",
        "partition b:0: expected 1 rows, found 2 in the table",
    ]


@pytest.mark.parametrize("multi_topic", [True, False])
def test_rows_that_got_or_lost_the_name_of_their_topic_are_those_of_the_commits(full: World, multi_topic: bool) -> None:
    unnamed: dict[Part, Holding] = {0: Holding(5, 10), "a:0": Holding(2, 9)}
    assert not judged(full, multi_topic, unnamed, {"a:0": Holding(7, 19)})
    assert not judged(full, multi_topic, {"a:0": Holding(5, 10)}, {0: Holding(5, 10)})
    assert judged(full, multi_topic, unnamed, {"a:0": Holding(7, 20)}) == [
        "partition 0: the rows in the table are not those of the commits (sum of their offsets: +1)"
    ]


def test_rows_of_the_history_without_any_table_are_found(full: World) -> None:
    report = audit(full.table.held, full.table.history(), Recount(dead_letters=full.table.recount().dead_letters))
    assert report.problems == [f"partition {number}: expected 4 rows, found 0 in the table" for number in (0, 1)]
