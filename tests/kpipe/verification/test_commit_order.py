"""Older offsets are never committed behind newer ones where a deleted row would come back, whatever way leads there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kpipe.batch.batch import Counts
from kpipe.errors import Fenced, NotAvailable
from kpipe.ledger.ledger import LOST, READ, SKIPPED
from kpipe.ledger.transitions import skip
from kpipe.offsets import Range
from kpipe.planning.seek import backfills, forget
from kpipe.run_events import Decisions
from kpipe.topics import PartitionId, TopicId
from kpipe.verification.commit_order import check_may_go_back, is_ordered, reappeared, why_in_order
from kpipe.verification.verify import Entry
from tests.cases import each_case
from tests.kpipe.conftest import World, define
from tests.kpipe.planning.test_seek import SMALL, backfill, decide, lanes, offsets

INTO = {"table": "tweets", "key": ["id"], "on_conflict": "replace"}
SOURCE = PartitionId(TopicId("c", "t", "tweets"), 0)
DELETES: dict[str, Any] = {"into": {**INTO, "on_null": "delete"}}
REFUSED = r"pipeline tweets: tweets/0 \[4, 8\) cannot be read behind .*on_null: delete.* -> .*tweets SET OFFSETS ... REREAD"


@pytest.fixture
def jumped(world: World) -> World:
    """Read up to 4, and to be read from 8 on; [4, 8) is skipped."""
    world.topics.numbered(0, 10)
    world.run({**SMALL, **DELETES}, max_batches=1)
    offsets(world, {0: 8}, pipeline=DELETES)
    return world


def test_only_a_definition_that_needs_the_order_is_refused() -> None:
    check_may_go_back(define())
    check_may_go_back(define(into=INTO))
    with pytest.raises(NotAvailable, match=r"pipeline tweets: offsets cannot be read behind later offsets .*on_null: delete"):
        check_may_go_back(define(**DELETES))


TOPIC = {"type": "kafka", "brokers": "localhost:9092", "topic": "out"}
HOOK = {"type": "webhook", "url": "https://hooks.example.com/", "table": "sent"}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"into": TOPIC}, ""),  # no reader can tell which of two records without a key counts
        ({"into": {**TOPIC, "key": ["id"]}}, "records of the topic have keys"),
        ({"into": TOPIC, "metadata": ["partition", "offset", "timestamp", "key"]}, "records of the topic have keys"),
        ({"into": {**TOPIC, "format": "raw"}, "format": {"type": "raw"}}, "records of the topic have keys"),
        ({"into": HOOK}, "into.type: webhook"),
    ],
)
def test_readers_that_take_what_comes_last_get_nothing_older_behind_it(jumped: World, fields: dict[str, Any], why: str) -> None:
    assert why in why_in_order(define(**fields)) and bool(why) == bool(why_in_order(define(**fields)))
    if why:
        before = jumped.state()
        with pytest.raises(NotAvailable, match=rf"\[4, 8\) cannot be read behind later .*{why}.* -> .* SET OFFSETS ... REREAD"):
            _backfill(jumped, fields)
        assert jumped.state() == before
        assert offsets(jumped, {0: 4}, reread=True, pipeline=fields), "the way out that the error names"


def _backfill(world: World, pipeline: dict[str, Any]) -> list[str]:
    return decide(world, lambda ledger, at: backfills(ledger, at)[0], pipeline=pipeline)


def _back(world: World, pipeline: dict[str, Any]) -> list[str]:
    return offsets(world, {0: 4}, pipeline=pipeline)


def test_what_was_skipped_is_not_read_behind_what_comes_later(jumped: World) -> None:
    before = jumped.state()
    with pytest.raises(NotAvailable, match=REFUSED):
        _backfill(jumped, DELETES)
    assert jumped.state() == before
    assert _backfill(jumped, {"into": INTO}) == ["backfill: tweets/0 [4, 8)"]


def test_back_to_where_nothing_behind_was_read_keeps_the_order(jumped: World) -> None:
    assert _back(jumped, DELETES) == ["rewind: tweets/0 from 4"]
    assert lanes(jumped) == [(0, 4, 4, READ), (4, 4, None, READ)]
    jumped.run({**SMALL, **DELETES})
    assert [entry.range for entry in jumped.table.history()][-2:] == [Range(4, 8), Range(8, 10)]


def test_a_backfill_is_refused_after_later_offsets_were_read(jumped: World) -> None:
    jumped.run(DELETES)
    before = jumped.state()
    with pytest.raises(NotAvailable, match=REFUSED):
        _backfill(jumped, DELETES)
    assert jumped.state() == before


def test_reading_again_from_there_on_keeps_the_order(jumped: World) -> None:
    jumped.run(DELETES)
    assert offsets(jumped, {0: 4}, reread=True, pipeline=DELETES) == ["reread: tweets/0 from 4, [8, 10) again"]
    jumped.run({**SMALL, **DELETES})
    assert [entry.range for entry in jumped.table.history()][-2:] == [Range(4, 8), Range(8, 10)]


def test_forgetting_a_partition_keeps_the_order(jumped: World) -> None:
    jumped.run(DELETES)
    assert decide(jumped, forget, [0], reread=True, pipeline=DELETES)
    assert lanes(jumped) == [(0, 0, None, READ)]


def test_a_definition_that_begins_to_delete_while_a_backfill_waits_reads_nothing(jumped: World) -> None:
    backfill(jumped)
    before = jumped.state()
    with pytest.raises(NotAvailable, match=REFUSED):
        jumped.run(DELETES)
    assert jumped.state() == before
    assert offsets(jumped, {0: 4}, reread=True, pipeline=DELETES), "the way out that the error names"
    assert len(jumped.run({**SMALL, **DELETES})) == 2
    assert [entry.range for entry in jumped.table.history()][-2:] == [Range(4, 8), Range(8, 10)]


def test_a_definition_may_begin_to_delete_when_the_backfill_is_done(jumped: World) -> None:
    backfill(jumped)
    jumped.run({"into": INTO})
    jumped.topics.numbered(0, 3)
    assert jumped.run(DELETES)


def test_a_loss_inside_of_a_backfill_is_recorded_and_still_refused(jumped: World) -> None:
    backfill(jumped)
    jumped.topics.expire(0, 6)
    lossy = {**DELETES, "source": {"on_data_loss": "record"}}
    with pytest.raises(NotAvailable, match=r"tweets/0 \[6, 8\) cannot be read"):
        jumped.run(lossy)
    assert (4, 4, 6, LOST) in lanes(jumped)


def test_what_was_skipped_at_the_end_of_a_bounded_pipeline_may_be_read(world: World) -> None:
    world.topics.numbered(0, 10)
    bounded = {**DELETES, "source": {"end": {"0": 10, "1": 0}}}
    world.run({**SMALL, **bounded}, max_batches=2)
    source = world.topics.source(0)
    lane = world.table.held.live(source)
    assert lane is not None
    world.ingest(bounded).survey.decide("skip", skip(lane, 10), "skip")
    assert lanes(world)[-1] == (8, 10, 10, SKIPPED)
    assert decide(world, lambda ledger, at: backfills(ledger, at)[0], pipeline=bounded) == ["backfill: tweets/0 [8, 10)"]
    world.run(bounded)
    world.prove_exactly_once()


def test_other_partitions_are_not_looked_at(jumped: World) -> None:
    jumped.topics.numbered(1, 5)
    assert offsets(jumped, {1: 5}, pipeline=DELETES) == ["jump: tweets/1 from 0 to 5"]
    jumped.run(DELETES)
    with pytest.raises(NotAvailable, match=r"tweets/1 \[2, 5\)"):
        decide(jumped, lambda ledger, at: backfills(ledger, at, 1, Range(2, 5))[0], pipeline=DELETES)


REPLACES: dict[str, Any] = {"into": INTO}
MIXED = r"pipeline tweets: tweets/0 \[0, 4\) cannot be read behind .*partition number and offsets.* -> .*SET OFFSETS ... REREAD"


def _recreated(world: World, records: int, pipeline: dict[str, Any], at: int = 4) -> None:
    """The topic had 12 records and was recreated with some, of which those below `at` are skipped."""
    world.topics.numbered(0, 12)
    world.run(pipeline)
    world.topics.recreate()
    world.topics.numbered(0, records)
    world.ingest(pipeline, decisions=Decisions(on_new_topic="begin")).survey.look()
    offsets(world, {0: at}, pipeline=pipeline)


@pytest.mark.parametrize("more", [{}, {"metadata": ["topic", "partition", "offset"]}])
def test_offsets_that_a_topic_before_it_was_recreated_had_too_are_not_read_behind_later_ones(
    world: World, more: dict[str, Any]
) -> None:
    """A row of partition 0 and offset 5 may be of either; live reading of the new one has not come to the others' end."""
    pipeline = {**REPLACES, **more}
    _recreated(world, 4, pipeline)
    before = world.state()
    with pytest.raises(NotAvailable, match=MIXED):
        _backfill(world, pipeline)
    assert world.state() == before
    world.topics.numbered(0, 2)
    world.run(pipeline)
    with pytest.raises(NotAvailable, match=MIXED):
        _backfill(world, pipeline)
    assert offsets(world, {0: 0}, reread=True, pipeline=pipeline), "the way out that the error names"
    assert world.run(pipeline)


@pytest.mark.parametrize(
    "pipeline",
    [
        {},
        {"into": {**INTO, "on_conflict": "ignore"}},
        {"into": {**INTO, "on_conflict": "update", "update": {"n": "n + 1"}}},
    ],
)
def test_whose_offsets_they_are_does_not_count_where_none_are_compared(world: World, pipeline: dict[str, Any]) -> None:
    _recreated(world, 4, pipeline)
    assert _backfill(world, pipeline) == ["backfill: tweets/0 [0, 4)"]


@each_case("also", ["replace", "update"])
def test_offsets_are_compared_in_any_table(also: str) -> None:
    more = {"also": [{"table": "other", "key": ["id"], "on_conflict": also}]}
    assert is_ordered(define(**more)) and not is_ordered(define())


def test_offsets_that_no_other_topic_had_are_read_behind_later_ones(world: World) -> None:
    _recreated(world, 14, REPLACES, at=12)
    assert _backfill(world, REPLACES) == ["backfill: tweets/0 [0, 12)"]
    assert world.run(REPLACES)


def test_topics_that_rows_name_are_told_apart(world: World) -> None:
    """One topic, and then two: rows name theirs."""
    named = {**REPLACES, "metadata": ["topic", "partition", "offset"]}
    world.topics.numbered(0, 12)
    world.run(named)
    world.topics.create("web", 2)
    world.topics.name("web")
    world.topics.numbered(0, 4, "web")
    web = {**named, "source": {"topic": "web", "start": "latest"}}
    world.run(web)
    found = world.ingest(web).survey.look
    snapshot, ledger = found()
    for change in backfills(ledger, snapshot)[0]:
        world.ingest(web).survey.decide(change.kind, change.changes, change.note)
    with pytest.raises(NotAvailable, match=r"web/0 \[0, 4\) cannot be read"):
        world.run({**web, "metadata": ["partition", "offset"]})
    assert world.run(web)


def test_rows_that_were_claimed_do_not_land_behind_those_of_a_later_claim(world: World) -> None:
    """`delivery: at_most_once` with two runs at once: the first one's rows stay lost, and the ledger says so."""
    world.topics.numbered(0, 8)
    mode = {**SMALL, **DELETES, "delivery": "at_most_once"}
    first = world.ingest({**mode, "batch": {**SMALL["batch"], "max_retries": 0}})
    world.stager.after = lambda _: _overtake(world, mode)
    with pytest.raises(Fenced):
        first.step()
    assert lanes(world) == [(0, 0, 4, LOST), (4, 8, None, READ)]
    assert world.audit().lost == ["tweets/0 [0, 4)"]


def test_a_first_run_that_was_overtaken_is_fenced(worlds: Any) -> None:
    """Retention came between the looks of two first runs, so that they begin at different offsets."""
    world = worlds(1)
    world.topics.numbered(0, 8)
    late = world.ingest({**SMALL, **DELETES})
    settle = late.survey.settle

    def settle_late(*seen: Any) -> Any:
        world.topics.expire(0, 2)
        world.ingest({**SMALL, **DELETES}).step()
        return settle(*seen)

    late.survey.settle = settle_late  # type: ignore[method-assign]
    with pytest.raises(Fenced, match="another run committed first"):
        late.step()
    assert lanes(world) == [(2, 6, None, READ)]


def _overtake(world: World, mode: dict[str, Any]) -> None:
    world.stager.after = lambda _: None
    assert world.ingest(mode).step()


# What verification says of a history in which it happened all the same


def entry(batch: str, start: int, end: int, reread: bool = False, **counts: int) -> Entry:
    return Entry(batch, SOURCE, Range(start, end), Counts(messages=end - start, **counts), reread)


INSERTED = {"rows": 4, "inserted": 4}


@each_case(
    ("history", "found"),
    [
        ([entry("a", 0, 4, **INSERTED), entry("b", 4, 8, deletes=4, deleted=4)], 0),
        ([entry("b", 4, 8, deletes=4, deleted=4), entry("a", 0, 4, **INSERTED)], 1),
        ([entry("b", 4, 8, deletes=4), entry("a", 0, 4, rows=4)], 1),  # a topic settles nothing
        ([entry("b", 4, 8, deletes=4), entry("a", 0, 4, rows=4, ignored=4)], 0),
        ([entry("b", 4, 8, deletes=4), entry("a", 0, 4, rows=4, updated=4)], 0),
        ([entry("b", 4, 8, **INSERTED), entry("a", 0, 4, **INSERTED)], 0),
        ([entry("b", 4, 8, deletes=4), entry("a", 0, 4, filtered=4)], 0),
        # Read again, in order: the tombstones are behind the rows.
        ([entry("b", 4, 8, deletes=4), entry("a", 0, 4, **INSERTED), entry("r", 4, 8, True)], 0),
        ([entry("b", 4, 8, deletes=4), entry("a", 0, 4, **INSERTED), entry("r", 6, 8, True)], 1),
        ([entry("b", 4, 8, deletes=4), entry("r", 0, 8, True), entry("a", 0, 4, **INSERTED)], 0),
    ],
)
def test_a_row_that_came_behind_a_tombstone_is_not_proven(history: Sequence[Entry], found: int) -> None:
    problems = reappeared(SOURCE, history)
    assert len(problems) == found, problems
    assert all("tweets/0 [0, 4): batch a has inserted rows behind the tombstones of [" in problem for problem in problems)
