"""The loop, with fakes on every edge."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kpipe.errors import (
    BrokerUnreachable,
    DeadLettersExceeded,
    DestinationBusy,
    DestinationError,
    Fenced,
    InvalidPipeline,
    LedgerMismatch,
    NeedsOperator,
    OffsetsBeyondEnd,
    OffsetsLost,
    OutcomeUnknown,
    SchemaConflict,
    SourceIdentityChanged,
    StagingFailed,
    TransformFailed,
)
from kpipe.ingest.loop import Decisions, Event, Seen
from kpipe.ledger.ledger import LOST, SKIPPED
from kpipe.ledger.transitions import backfill, jump
from kpipe.offsets import Range
from kpipe.planning.planner import Idle
from kpipe.schema.columns import BIGINT, DOUBLE, VARCHAR, Columns
from kpipe.testing.stager import extra_column, miscount, overlapping_piece, without_piece, wrong_piece

World = Any


def fill(world: World) -> None:
    """Two partitions with everything that a log can hold, ending in a control record."""
    for partition in (0, 1):
        world.topics.numbered(partition, 5)
        world.topics.mark(partition)
        world.topics.produce(partition, None, {"id": 7})
        world.topics.produce(partition, {"id": 8}, bad=True)
        world.topics.numbered(partition, 2)
        world.topics.compact(partition, 2, 10)
        world.topics.mark(partition)


def test_it_catches_up_and_accounts_for_every_offset(world: World) -> None:
    fill(world)
    committed = world.run()
    assert len(committed) == 1
    assert committed[0].batch.closed_by == "caught_up"
    totals = committed[0].commit.totals
    assert (totals.rows, totals.dead_letters, totals.filtered, totals.gaps) == (12, 2, 2, 8)
    world.prove_exactly_once()


def test_a_run_with_nothing_new_commits_nothing(world: World) -> None:
    fill(world)
    world.run()
    before = world.state()
    assert world.run() == []
    assert world.state() == before


def test_an_empty_topic_is_begun_but_no_batch_is_committed(world: World) -> None:
    assert world.run() == []
    assert world.table.held.seq == 1
    assert [event.text for event in world.kinds("idle")] == ["caught_up"]


def test_a_single_record_lands(world: World) -> None:
    world.topics.numbered(0, 1)
    assert [c.batch.span for c in world.run()] == [1]
    world.prove_exactly_once()


@pytest.mark.parametrize("pieces", [1, 2, 7])
@pytest.mark.parametrize("limit", [1, 4, 1000])
def test_any_size_of_batches_and_pieces_gives_each_row_once(world: World, limit: int, pieces: int) -> None:
    fill(world)
    world.stager.pieces = pieces
    committed = world.run({"batch": {"max_offsets_per_partition": limit}})
    assert len(committed) == -(-12 // limit)
    assert [c.seq for c in committed] == list(range(2, len(committed) + 2))
    world.prove_exactly_once()


def test_it_ends_at_the_limit_of_batches(world: World) -> None:
    fill(world)
    assert len(world.run({"batch": {"max_offsets_per_partition": 1}}, max_batches=3)) == 3
    assert world.run(max_batches=0) == []


def test_it_stops_after_the_batch_at_hand_when_it_is_told(world: World) -> None:
    fill(world)
    stop = itertools.chain([False, False, True]).__next__
    assert len(world.run({"batch": {"max_offsets_per_partition": 1}}, stopped=stop)) == 2


def test_it_follows_and_waits_the_interval_only_when_it_is_caught_up(world: World) -> None:
    fill(world)
    rounds = 0

    def wait(seconds: float) -> None:
        nonlocal rounds
        rounds += 1
        world.waits.append(seconds)
        if rounds < 3:
            world.topics.numbered(0, 2)

    loop = world.ingest(
        {"batch": {"interval_ms": 600_000, "max_offsets_per_partition": 6}}, wait=wait, stopped=lambda: rounds == 3
    )
    assert len(list(loop.run(follow=True))) == 4
    # From the beginning of a batch that left nothing; those before it left something, and none of them was waited for.
    assert len(world.waits) == 3
    assert all(0 < seconds <= 600 for seconds in world.waits)
    world.prove_exactly_once()


def test_chosen_partitions_are_read_and_no_others(world: World) -> None:
    fill(world)
    world.run(only={1})
    assert {partition for partition, _ in world.coordinates()} == {1}
    world.run()
    world.prove_exactly_once()


# Retries


def test_a_retriable_error_is_tried_again_with_waits_that_double_up_to_ten_times_the_interval(world: World) -> None:
    fill(world)
    world.topics.fail(*(BrokerUnreachable("no broker answered") for _ in range(6)))
    world.run({"batch": {"interval_ms": 1000, "max_retries": 6}})
    assert world.waits == [1, 2, 4, 8, 10, 10]
    assert len(world.kinds("retry")) == 6
    world.prove_exactly_once()


@pytest.mark.parametrize(
    ("batch", "waits"),
    [
        ({"retry_interval_ms": 300}, [0.3, 0.6, 1.2]),
        ({"retry_interval_ms": 300, "max_retry_interval_ms": 500}, [0.3, 0.5, 0.5]),
        ({"retry_interval_ms": 300, "exponential": False}, [0.3, 0.3, 0.3]),
        ({"interval_ms": 1000, "max_retry_interval_ms": 200}, [0.2, 0.2, 0.2]),
    ],
)
def test_the_waits_before_retries_can_be_chosen(world: World, batch: dict[str, object], waits: list[float]) -> None:
    fill(world)
    world.topics.fail(*(BrokerUnreachable("no broker answered") for _ in range(3)))
    world.run({"batch": batch})
    assert world.waits == pytest.approx(waits)


def test_after_the_last_retry_the_error_comes_out_and_nothing_was_written(world: World) -> None:
    fill(world)
    world.topics.fail(*(BrokerUnreachable("no broker answered") for _ in range(9)))
    with pytest.raises(BrokerUnreachable):
        world.run({"batch": {"interval_ms": 0}})
    assert world.topics.asked == 5
    assert world.waits == [0.1, 0.2, 0.4, 0.8]
    assert world.table.held.seq == 0


def test_a_batch_that_commits_resets_the_count_of_failures(world: World) -> None:
    fill(world)
    for call in (1, 2, 4, 5, 7, 8):
        world.stager.fail(DestinationBusy("held"), call)
    committed = world.run({"batch": {"max_offsets_per_partition": 4, "max_retries": 2}})
    assert len(committed) == 3
    assert world.waits == [2.5, 5, 2.5, 5, 2.5, 5]
    world.prove_exactly_once()


def test_an_error_that_is_not_retriable_ends_the_run_at_once(world: World) -> None:
    fill(world)
    world.stager.fail(TransformFailed("exit status 3"))
    with pytest.raises(TransformFailed):
        world.run()
    assert world.waits == []
    assert world.coordinates() == Counter()
    world.run()
    world.prove_exactly_once()


def test_each_try_plans_anew_under_a_new_id(world: World) -> None:
    fill(world)
    world.stager.fail(BrokerUnreachable("gone"))
    world.run()
    ids = [batch.id for batch, _ in world.stager.given]
    assert len(set(ids)) == 2


# Racing runs


def test_the_run_that_commits_second_is_fenced_and_leaves_nothing(world: World) -> None:
    fill(world)
    world.run(max_batches=0)
    world.run({"batch": {"max_offsets_per_partition": 2}}, max_batches=1)

    def overtake(_: object) -> None:
        world.stager.before = lambda _: None
        world.run({"batch": {"max_offsets_per_partition": 3}}, max_batches=1)
        world.after_the_winner = world.state()

    world.stager.before = overtake
    with pytest.raises(Fenced, match=r"tweets/0 .*expected next offset 2, found next offset 5") as raised:
        world.run()
    assert "run it again" in raised.value.hint
    assert world.state() == world.after_the_winner
    world.run()
    world.prove_exactly_once()


def test_runs_of_different_partitions_do_not_fence_each_other(world: World) -> None:
    fill(world)
    world.begin()
    world.stager.before = lambda batch: world.run(only={1}) if batch.steps[0].source.partition == 0 else None
    world.run(only={0})
    world.prove_exactly_once()


def test_offsets_that_another_run_committed_meanwhile_are_not_taken_for_the_end_of_the_log(world: World) -> None:
    """The brokers are asked after the ledger was read; an old answer would lie below the ledger's offsets."""
    fill(world)
    world.run()
    snapshot = world.topics.snapshot

    def slow() -> object:
        world.topics.snapshot = snapshot
        answer = snapshot()
        world.topics.numbered(0, 4)
        world.run()
        return answer

    world.topics.snapshot = slow
    world.run()
    world.prove_exactly_once()


def test_a_ledger_that_is_read_again_after_a_decision_may_be_ahead_of_the_brokers_answer(world: World) -> None:
    fill(world)
    world.run()
    world.topics.add_partitions()
    commit = world.table.commit

    def slow(wanted: Any) -> object:
        world.table.commit = commit
        result = commit(wanted)
        world.topics.numbered(0, 4)
        world.run()
        return result

    world.table.commit = slow
    world.run()
    world.prove_exactly_once()


def test_live_reading_and_a_backfill_of_the_skipped_range_take_turns(world: World) -> None:
    world.topics.numbered(0, 6)
    world.run({"source": {"start": "latest"}})
    ingest = world.ingest()
    source = world.topics.source(0)
    ingest.survey.decide("backfill", backfill(world.table.held, source, Range(0, 6)), "all of it")
    small = {"batch": {"max_offsets_per_partition": 2}}
    for _ in range(8):  # one new record before every batch: there is always something to read at the head
        world.topics.numbered(0, 1)
        world.run(small, max_batches=1)
    world.run(small)
    assert not world.table.held.unread(source, SKIPPED)
    world.prove_exactly_once()


def test_a_backfill_is_done_after_a_while_though_records_arrive_all_the_time(world: World) -> None:
    world.topics.numbered(0, 6)
    world.run({"source": {"start": "latest"}})
    source = world.topics.source(0)
    world.ingest().survey.decide("backfill", backfill(world.table.held, source, Range(0, 6)), "all of it")
    loop = world.ingest({"batch": {"max_offsets_per_partition": 2}})
    for _ in range(12):
        world.topics.numbered(0, 1)
        loop.step()
    assert world.table.held.committed(source).missing(Range(0, 6)) == ()


# Columns


def test_new_columns_are_added_and_the_batch_is_staged_once_more(world: World) -> None:
    world.topics.produce(0, {"id": 1})
    world.run()
    world.topics.produce(0, {"id": 2, "text": "hello"})
    calls = world.stager.calls
    world.run()
    assert world.stager.calls - calls == 2
    assert world.table.columns() == Columns((("id", BIGINT), ("text", VARCHAR)))
    assert world.table.rows[-1]["text"] == "hello"
    assert len(world.kinds("restaged")) == 1
    world.prove_exactly_once()


def test_two_pieces_that_see_different_types_in_a_new_column_agree_on_the_wider_one(world: World) -> None:
    world.topics.produce(0, {"id": 1})
    world.run()
    world.topics.produce(0, {"id": 2, "x": 1}, {"id": 3, "x": 1.5})
    world.stager.pieces = 2
    world.run()
    assert world.table.columns().get("x") == DOUBLE
    world.prove_exactly_once()


def test_with_ignore_new_columns_are_left_out(world: World) -> None:
    world.topics.produce(0, {"id": 1})
    world.run({"schema": "ignore"})
    world.topics.produce(0, {"id": 2, "text": "hello"})
    world.run({"schema": "ignore"})
    assert world.table.columns() == Columns((("id", BIGINT),))
    assert "text" not in world.table.rows[-1]
    assert world.stager.calls == 2
    world.prove_exactly_once()


def test_with_fail_a_new_column_stops_the_pipeline_and_is_named(world: World) -> None:
    world.topics.produce(0, {"id": 1})
    world.run({"schema": "fail"})
    world.topics.produce(0, {"id": 2, "text": "hello"})
    before = world.state()
    with pytest.raises(SchemaConflict, match="text VARCHAR"):
        world.run({"schema": "fail"})
    assert world.state() == before


def test_columns_that_turn_up_at_every_reading_are_an_error_and_not_a_loop(world: World) -> None:
    world.topics.produce(0, {"id": 1})
    for call in (1, 2, 3):
        world.stager.lie(extra_column(Columns(((f"c{call}", BIGINT),))), call)
    with pytest.raises(SchemaConflict, match="c3"):
        world.run()
    assert world.stager.calls == 3


def test_a_type_that_does_not_fit_the_table_is_a_conflict_that_names_the_column(world: World) -> None:
    world.topics.produce(0, {"id": 1})
    world.run()
    world.topics.produce(0, {"id": 2})
    world.stager.lie(extra_column(Columns((("ID", VARCHAR),))))
    with pytest.raises(SchemaConflict, match="column id is BIGINT, the records hold VARCHAR"):
        world.run()


def test_declared_columns_come_first_and_win_over_the_sample(world: World) -> None:
    world.topics.produce(0, {"id": 1, "text": "a"})
    world.run({"columns": {"ID": "DOUBLE", "extra": "DATE"}})
    assert world.table.columns().to_dict() == {"ID": "DOUBLE", "extra": "DATE", "text": "VARCHAR"}


def test_a_payload_field_never_shadows_kafkas_coordinates(world: World) -> None:
    world.topics.produce(0, {"id": 1, "_kafka_offset": 99, "_KAFKA_key": "x"})
    world.run()
    assert world.table.columns().names() == ("id",)
    assert world.coordinates() == {(0, 0): 1}


# Dead letters


def test_the_limit_of_dead_letters_stops_before_the_commit_that_would_pass_it(world: World) -> None:
    limited = {"errors": {"max_dead_letters": 2}}
    world.topics.produce(0, {"id": 0}, {"id": 1}, bad=True)
    world.run(limited)
    assert len(world.table.dead) == 2
    world.topics.produce(0, {"id": 2}, bad=True)
    before = world.state()
    with pytest.raises(DeadLettersExceeded, match=r"2 dead letters are kept, this batch adds 1.* is 2; the first: not JSON"):
        world.run(limited)
    assert world.state() == before
    world.run()
    world.prove_exactly_once()


def test_no_dead_letters_at_all_is_a_limit_too(world: World) -> None:
    world.topics.numbered(0, 3)
    world.run({"errors": {"max_dead_letters": 0}})
    world.topics.produce(0, {"id": 3}, bad=True)
    with pytest.raises(DeadLettersExceeded):
        world.run({"errors": {"max_dead_letters": 0}})


# What the tasks report


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (without_piece, "not staged"),
        (overlapping_piece, "staged twice"),
        (wrong_piece, "reports cover other offsets than the plan"),
        (miscount(rows=1), "not accounted for"),
        (miscount(gaps=-1), "not accounted for"),
        (miscount(filtered=1, rows=-1), "the file holds"),
        (miscount(filtered=-1, dead_letters=1), "the file holds"),
        (lambda reports: [], "not staged"),
        (lambda reports: [miscount(gaps=1)(reports[:1])[0], miscount(gaps=-1)(reports[1:2])[0], *reports[2:]], "not accounted"),
    ],
)
def test_reports_that_do_not_add_up_are_refused_and_nothing_is_committed(world: World, lie: Any, words: str) -> None:
    fill(world)
    world.stager.pieces = 3
    world.begin()
    before = world.state()
    world.stager.lie(lie)
    with pytest.raises(StagingFailed, match=words) as raised:
        world.run()
    assert "batch" in str(raised.value)
    assert world.state() == before
    world.run()
    world.prove_exactly_once()


def test_a_partition_that_does_not_exist_is_refused_instead_of_reading_nothing(world: World) -> None:
    fill(world)
    with pytest.raises(InvalidPipeline, match="no partition 7 -> there are 0 to 1"):
        world.run(only={0, 7})
    assert world.coordinates() == Counter()


def test_a_topic_made_again_while_it_is_read_is_noticed_before_the_commit(world: World) -> None:
    fill(world)
    world.begin()
    before = world.state()
    world.stager.after = lambda _: world.topics.recreate(2)
    with pytest.raises(SourceIdentityChanged, match="made again"):
        world.run()
    assert world.state() == before


def test_a_program_that_drops_every_record_still_moves_the_ledger(world: World) -> None:
    world.topics.produce(0, None, None, None)
    world.run()
    assert world.table.held.positions()[world.topics.source(0)] == 3
    assert world.coordinates() == Counter()


# Loss, recreation, restored ledgers


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
    with pytest.raises(SourceIdentityChanged, match=r"cluster-2.*cluster-1"):
        world.run()


@pytest.mark.parametrize("decisions", [Decisions(), Decisions(on_data_loss="record", on_new_topic="begin")])
def test_a_truncated_log_needs_an_operator_whatever_else_was_decided(world: World, decisions: Decisions) -> None:
    fill(world)
    world.run()
    world.topics.truncate(0, 5)
    with pytest.raises(OffsetsBeyondEnd, match=r"tweets/0: the ledger's next offset is 12, the log ends at 5"):
        world.run(decisions=decisions)


def test_a_ledger_that_went_back_is_noticed_and_can_be_accepted(world: World) -> None:
    fill(world)
    world.run({"batch": {"max_offsets_per_partition": 6}}, max_batches=1)
    table, backup = world.table, world.state()
    world.run()
    table.restore(backup)
    with pytest.raises(LedgerMismatch, match=r"at commit 2, this home has seen 3.*kpipe run tweets --on-older-ledger accept"):
        world.run()
    world.run(decisions=Decisions(on_older_ledger="accept", who="mia"))
    assert any(commit.kind == "accept_ledger" and "mia" in commit.note for commit in table.commits)
    world.prove_exactly_once()
    assert world.run() == [], "accepted once is enough"


@pytest.mark.parametrize(("uid", "words"), [("", "is gone"), ("other", "is not the one")])
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


# Crashes


class Crash(BaseException):
    """The process dies here."""


class Crashing:
    """An edge whose every call is an effect; the n-th one of all edges never begins, or never returns, in any thread."""

    lock = threading.Lock()

    def __init__(self, inner: Any, count: list[int], at: int | None, after: bool) -> None:
        self.inner, self.count, self.at, self.after = inner, count, at, after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        def effect(*args: Any, **kwargs: Any) -> Any:
            with self.lock:
                if self.count[0] == self.at:
                    raise Crash(name)  # dead already
                self.count[0] += 1
                mine = self.count[0] == self.at
            if mine and not self.after:
                raise Crash(name)
            result = method(*args, **kwargs)
            if mine:
                raise Crash(name)
            return result

        return effect


def crash(world: World, at: int | None, after: bool) -> int:
    """A run that dies at its n-th effect; gives the number of effects."""
    count = [0]
    edges = {name: Crashing(getattr(world, name), count, at, after) for name in ("topics", "stager")}
    edges["destination"] = Crashing(world.table, count, at, after)
    loop = world.ingest({"batch": {"max_offsets_per_partition": 5}, "source": {"on_data_loss": "record"}}, **edges)
    if at is None:
        list(loop.run())
    else:
        with contextlib.suppress(Crash):
            list(loop.run())
    return count[0]


def scene(world: World) -> None:
    fill(world)
    world.run({"batch": {"max_offsets_per_partition": 3}}, max_batches=1)
    world.topics.produce(1, {"id": 1, "text": "a new column"})
    world.topics.add_partitions()
    world.topics.numbered(2, 4)


def test_wherever_a_run_dies_the_next_one_finishes_with_every_row_exactly_once(worlds: Callable[..., World]) -> None:
    whole = worlds()
    scene(whole)
    effects = crash(whole, None, after=False)
    whole.prove_exactly_once()
    assert effects >= 15
    for at, after in itertools.product(range(1, effects + 1), (False, True)):
        world = worlds()
        scene(world)
        assert crash(world, at, after) == at, "it died where it should"
        world.run()
        world.prove_exactly_once()
        assert world.audit().counts == whole.audit().counts


def test_two_crashes_in_a_row_do_no_more_harm_than_one(worlds: Callable[..., World]) -> None:
    for first, second in itertools.product(range(1, 12, 2), repeat=2):
        world = worlds()
        scene(world)
        crash(world, first, after=True)
        crash(world, second, after=True)
        world.run()
        world.prove_exactly_once()


# The destination's answer is lost


def test_an_answer_that_is_lost_after_the_commit_landed_changes_nothing(world: World) -> None:
    fill(world)
    world.begin()
    world.table.store.fail_next("after_landed")
    assert len(world.run({"batch": {"max_offsets_per_partition": 4}})) == 3
    world.prove_exactly_once()


@pytest.mark.parametrize(("fault", "error"), [("before", DestinationError), ("unknown", OutcomeUnknown)])
@pytest.mark.parametrize("call", [0, 1, 2])
def test_a_commit_that_fails_or_whose_outcome_is_unknown_ends_the_run_and_the_next_one_finds_out(
    world: World, fault: str, error: type[Exception], call: int
) -> None:
    fill(world)
    small = {"batch": {"max_offsets_per_partition": 4}}
    world.run(small, max_batches=call)
    world.table.store.fail_next(fault)
    with pytest.raises(error):
        world.run(small)
    assert world.waits == [], "it is not simply sent again"
    world.run(small)
    world.prove_exactly_once()


# What is told


def test_events_come_in_order_with_what_they_are_about(world: World) -> None:
    fill(world)
    world.run()
    assert [event.kind for event in world.events] == ["decided", "planned", "staged", "committed", "idle"]
    assert world.kinds("committed")[0].committed.batch.id == world.kinds("planned")[0].batch.id


def test_the_metadata_to_publish_is_part_of_the_commit_and_adds_up(world: World) -> None:
    fill(world)
    commit = world.run({"batch": {"max_offsets_per_partition": 5}}, max_batches=1)[0].commit
    shown = commit.metadata[world.topics.source(0)]
    assert (shown["start_offset"], shown["end_offset"], shown["lag"]) == (0, 5, 7)
    assert shown["rows"] + shown["dead_letters"] + shown["filtered"] + shown["gaps"] == 5
    assert commit.ends[world.topics.source(0)] == (0, 12)


def test_a_jump_leaves_a_skipped_range_that_is_not_read(world: World) -> None:
    world.topics.numbered(0, 10)
    world.run({"batch": {"max_offsets_per_partition": 2}}, max_batches=1)
    loop = world.ingest()
    source = world.topics.source(0)
    loop.survey.decide("jump", jump(world.table.held, source, 8), "to 8")
    world.run()
    assert world.table.held.unread(source, SKIPPED).ranges == (Range(2, 8),)
    assert set(world.coordinates()) == {(0, 0), (0, 1), (0, 8), (0, 9)}
    assert world.audit().ok


def test_every_error_that_needs_an_operator_has_exit_status_3() -> None:
    assert {e.exit_status for e in (SourceIdentityChanged, OffsetsLost, OffsetsBeyondEnd, LedgerMismatch, NeedsOperator)} == {3}


# The next batch, extracted while one commits


class Slow:
    """A destination whose commits wait until something has happened; at the last of so many batches, not for long."""

    def __init__(self, inner: Any, until: threading.Event, batches: int) -> None:
        self.inner, self.until, self.batches, self.met = inner, until, batches, []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def commit(self, commit: Any) -> Any:
        if commit.kind == "batch":
            self.met.append(self.until.wait(600 if len(self.met) + 1 < self.batches else 0.5))
            self.until.clear()
        return self.inner.commit(commit)


def stages_when(world: World, event: threading.Event) -> None:
    after = world.stager.after

    def staged(batch: Any) -> None:
        after(batch)
        if world.stager.calls > 1:
            event.set()

    world.stager.after = staged


def test_the_next_batch_is_staged_while_one_commits(world: World) -> None:
    fill(world)
    event = threading.Event()
    stages_when(world, event)
    slow = Slow(world.table, event, 6)
    batches = list(world.ingest({"batch": {"max_offsets_per_partition": 2}}, destination=slow).run())
    assert len(batches) == 6 and world.stager.calls == len(batches), "nothing was staged twice"
    assert slow.met == [True] * (len(batches) - 1) + [False], "but for the last one, another was staged before it committed"
    world.prove_exactly_once()


def test_nothing_is_extracted_ahead_of_the_last_batch_that_is_asked_for(world: World) -> None:
    fill(world)
    list(world.ingest({"batch": {"max_offsets_per_partition": 2}}).run(max_batches=2))
    assert world.stager.calls == 2


@pytest.mark.parametrize("what", ["another run", "a column", "a partition"])
def test_what_was_extracted_ahead_is_left_when_the_world_has_changed_meanwhile(world: World, what: str) -> None:
    fill(world)
    done: list[object] = []

    def meanwhile(event: Event) -> None:
        if event.kind != "committed" or done:
            return
        done.append(event)
        if what == "another run":
            assert world.run({"batch": {"max_offsets_per_partition": 1}}, max_batches=1)
        elif what == "a column":
            table = world.table.store.tables["tweets"]
            table.columns = Columns((*table.columns.items, *Columns.of({"more": "VARCHAR"}).items))
        else:
            world.topics.add_partitions()
            world.topics.numbered(2, 3)

    loop = world.ingest({"batch": {"max_offsets_per_partition": 2}}, tell=meanwhile)
    committed = list(loop.run())
    assert done
    assert world.stager.calls > len(committed) or what == "a partition"  # it may have been asked after that, and then begins
    world.prove_exactly_once()


def test_an_extraction_ahead_that_fails_is_this_runs_failure_and_the_batch_before_it_has_landed(world: World) -> None:
    fill(world)
    world.stager.fail(StagingFailed("the disk is full"), call=2)
    with pytest.raises(StagingFailed):
        list(world.ingest({"batch": {"max_offsets_per_partition": 2, "max_retries": 0}}).run())
    assert [commit.kind for commit in world.table.commits].count("batch") == 1
    world.run()
    world.prove_exactly_once()


def test_brokers_that_fail_while_looking_ahead_are_asked_again(world: World) -> None:
    fill(world)
    snapshot, refused = world.topics.snapshot, []

    def asked() -> object:
        if threading.current_thread().name == "kpipe-ahead":
            refused.append(True)
            raise BrokerUnreachable("away")
        return snapshot()

    world.topics.snapshot = asked
    committed = list(world.ingest({"batch": {"max_offsets_per_partition": 2, "max_retries": 0}}).run())
    assert len(refused) == len(committed) - 1
    world.prove_exactly_once()


def test_a_run_that_is_told_to_stop_leaves_what_it_has_extracted_ahead(world: World) -> None:
    fill(world)
    loop = world.ingest({"batch": {"max_offsets_per_partition": 2}})
    loop.stopped = lambda: bool(world.kinds("committed"))
    assert len(list(loop.run())) == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "kpipe-ahead"]
    world.run()
    world.prove_exactly_once()
