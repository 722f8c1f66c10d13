"""Lost offsets, recreated topics, restored ledgers, and new partitions."""

from __future__ import annotations

from collections import Counter

import pytest

from kpipe.errors import (
    LedgerMismatch,
    NeedsOperator,
    OffsetsBeyondEnd,
    OffsetsLost,
    SourceIdentityChanged,
)
from kpipe.ledger.ledger import LOST
from kpipe.offsets import Range
from kpipe.planning.planner import Idle
from kpipe.run_events import Decisions, Seen
from tests.kpipe.ingest.topics import World, fill


def test_expired_offsets_need_an_operator_and_the_message_has_all_that_is_needed(world: World) -> None:
    fill(world)
    world.run({"batch": {"max_offsets_per_partition": 2}}, max_batches=1)
    world.topics.expire(1, 6)
    before = world.state()
    for _ in range(2):  # sticky: running again does not clear it
        with pytest.raises(OffsetsLost, match=r"tweets/1: offsets \[2, 6\).*log start 6.*kpipe run tweets --on-data-loss record"):
            world.run()
    assert world.state() == before


@pytest.mark.parametrize("how", ["pipeline", "operator"])
def test_a_loss_that_is_accepted_is_recorded_and_reading_goes_on(world: World, how: str) -> None:
    fill(world)
    world.run({"batch": {"max_offsets_per_partition": 2}}, max_batches=1)
    world.topics.expire(1, 6)
    if how == "pipeline":
        world.run({"source": {"on_data_loss": "record"}})
    else:
        world.run(decisions=Decisions(on_data_loss="record", who="mia"))
    source = world.topics.source(1)
    assert world.table.held.unread(source, LOST).ranges == (Range(2, 6),)
    assert world.table.held.committed(source).ranges == (Range(0, 2), Range(6, 12))
    note = next(commit.note for commit in world.table.commits if commit.kind == "loss")
    assert "tweets/1 [2, 6)" in note
    assert ("mia" in note) == (how == "operator")
    assert world.audit().ok
    assert world.coordinates() == world.expected() - Counter({(1, offset): 1 for offset in range(2, 6)})


def test_records_that_expire_between_plan_and_read_fail_the_batch_and_are_noticed_after(world: World) -> None:
    fill(world)
    world.begin()
    world.stager.before = lambda _: world.topics.expire(0, 3)
    with pytest.raises(Exception, match="out of range"):
        world.run()
    with pytest.raises(OffsetsLost, match=r"\[0, 3\)"):
        world.run()
    assert world.coordinates() == Counter()


@pytest.mark.parametrize("change", ["recreated", "failed over"])
def test_another_topic_of_that_name_is_refused_until_an_operator_begins_it(world: World, change: str) -> None:
    fill(world)
    world.run()
    if change == "recreated":
        world.topics.recreate(1)
    else:
        world.topics.fail_over("cluster-2")
        world.topics.recreate(1)
    world.topics.numbered(0, 40)  # more than before: an offset alone would not tell
    before = world.state()
    with pytest.raises(SourceIdentityChanged, match=r"topic tweets.*0: 12, 1: 12.*kpipe run tweets --on-new-topic begin"):
        world.run()
    assert world.state() == before
    committed = world.run(decisions=Decisions(on_new_topic="begin", who="mia"))
    assert committed[-1].batch.steps[0].range == Range(0, 40)
    assert world.audit().ok
    assert [commit.note for commit in world.table.commits if commit.kind == "begin"][-1].endswith("mia")
    world.topics.numbered(0, 2)
    assert len(world.run()) == 1, "once it is in the ledger nobody has to decide again"


def test_the_same_log_in_another_cluster_is_another_source(world: World) -> None:
    fill(world)
    world.run()
    world.topics.fail_over("cluster-2")
    with pytest.raises(SourceIdentityChanged, match=r"expected cluster-1.*found cluster-2"):
        world.run()


@pytest.mark.parametrize("decisions", [Decisions(), Decisions(on_data_loss="record", on_new_topic="begin")])
def test_a_truncated_log_needs_an_operator_whatever_else_was_decided(world: World, decisions: Decisions) -> None:
    fill(world)
    world.run()
    world.topics.truncate(0, 5)
    with pytest.raises(
        OffsetsBeyondEnd, match=r"tweets/0: the log was truncated or rebuilt: expected its end at 12 or later, found 5"
    ):
        world.run(decisions=decisions)


def test_a_ledger_that_went_back_is_noticed_and_can_be_accepted(world: World) -> None:
    fill(world)
    world.run({"batch": {"max_offsets_per_partition": 6}}, max_batches=1)
    table, backup = world.table, world.state()
    world.run()
    table.restore(backup)
    with pytest.raises(LedgerMismatch, match=r"too old: expected commit 3, found 2.*kpipe run tweets --on-older-ledger accept"):
        world.run()
    world.run(decisions=Decisions(on_older_ledger="accept", who="mia"))
    assert any(commit.kind == "accept_ledger" and "mia" in commit.note for commit in table.commits)
    world.prove_exactly_once()
    assert world.run() == [], "accepted once is enough"


@pytest.mark.parametrize(("uid", "words"), [("", "is missing"), ("other", "is not the ledger that this home has seen")])
def test_a_ledger_that_is_missing_or_another_one_is_an_error_and_not_a_fresh_start(world: World, uid: str, words: str) -> None:
    fill(world)
    world.run()
    memory = Seen(world.seen.uid, world.seen.seq)
    world.table.replace(uid)
    with pytest.raises(LedgerMismatch, match=words) as raised:
        world.run()
    assert raised.value.exit_status == 3
    assert world.table.held.seq == 0
    assert (world.seen.uid, world.seen.seq) == (memory.uid, memory.seq)
    world.run(decisions=Decisions(on_older_ledger="accept"))
    world.prove_exactly_once()


def test_what_was_seen_is_saved_after_every_commit(world: World) -> None:
    fill(world)
    saved: list[tuple[str, int]] = []
    world.seen.save = lambda seen: saved.append((seen.uid, seen.seq))
    world.run({"batch": {"max_offsets_per_partition": 6}})
    uid = world.table.ledger()[0]
    assert saved == [(uid, 1), (uid, 2), (uid, 3)]


# New partitions


def test_a_partition_that_appears_while_it_runs_is_read_from_its_start(world: World) -> None:
    fill(world)
    loop = world.ingest({"source": {"start": "latest"}})
    assert isinstance(loop.step(), Idle)
    world.topics.add_partitions()
    world.topics.numbered(2, 5)
    loop.step()
    assert world.coordinates() == Counter({(2, offset): 1 for offset in range(5)})


def test_every_error_that_needs_an_operator_has_exit_status_3() -> None:
    assert {e.exit_status for e in (SourceIdentityChanged, OffsetsLost, OffsetsBeyondEnd, LedgerMismatch, NeedsOperator)} == {3}
