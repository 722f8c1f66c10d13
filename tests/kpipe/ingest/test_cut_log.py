"""A log that was cut and has grown again: noticed by the next read, recorded, and left to an operator."""

from __future__ import annotations

from typing import Any

import pytest

from kpipe.errors import LogTruncated
from kpipe.ingest.loop import Ingest
from kpipe.ledger.ledger import LaneChange
from kpipe.ledger.tail import RECORDS, Tail
from kpipe.offsets import Range
from kpipe.planning.seek import backfills, set_offsets
from tests.kpipe.ingest.topics import World

MODES = ("exactly_once", "at_least_once", "at_most_once")
FEW = {"batch": {"max_offsets_per_partition": 3, "max_retries": 0}}


def replace_end(world: World, at: int, number: int = 8, partition: int = 0) -> None:
    """Cut the log, and let it grow again with other records."""
    world.topics.truncate(partition, at)
    world.topics.produce(partition, *({"id": n} for n in range(900, 900 + number)))


def decide(world: World, to: int, reread: bool = False, pipeline: dict[str, Any] | None = None) -> list[str]:
    """SET OFFSETS of partition 0."""
    survey = world.ingest(pipeline).survey
    snapshot, ledger = survey.look()
    found = set_offsets(ledger, snapshot, {world.topics.source(0): to}, reread)
    for decision in found:
        survey.decide(decision.kind, decision.changes, decision.note, decision.steps)
    return [decision.kind for decision in found]


@pytest.mark.parametrize("delivery", MODES)
@pytest.mark.parametrize("cut", [0, 5, 9])
def test_it_is_noticed_on_every_run_and_nothing_behind_it_is_read(world: World, delivery: str, cut: int) -> None:
    mode = {**FEW, "delivery": delivery}
    world.topics.numbered(0, 10)
    world.run(mode)
    assert world.audit().ok
    rows = list(world.table.rows)
    replace_end(world, cut, 15 - cut)
    for _ in range(2):
        with pytest.raises(LogTruncated) as caught:
            world.run(mode)
        told = str(caught.value)
        assert told.startswith("tweets/0: the log was cut below offset 10 and has grown again: found another record at offset ")
        assert "leader epoch 0 then, 1 now" in told
        assert """ALTER PIPELINE tweets SET OFFSETS '{"0": N}' REREAD""" in told
        assert """ALTER PIPELINE tweets SET OFFSETS '{"0": 10}'""" in told
        assert list(world.table.rows) == rows
        (problem,) = world.audit().problems
        assert problem == f"tweets/0 {committed(world)}: the log was cut and has grown again: the rows may be of records that" + (
            " the topic has lost"
        )
    assert [commit.kind for commit in world.table.commits].count("cut") == 1
    assert not world.audit().lost


def committed(world: World) -> str:
    (whole,) = world.table.held.committed(world.topics.source(0))
    return str(whole)


@pytest.mark.parametrize("delivery", MODES)
def test_the_operator_continues_where_the_pipeline_is(world: World, delivery: str) -> None:
    mode = {**FEW, "delivery": delivery}
    world.topics.numbered(0, 10)
    world.run(mode)
    replace_end(world, 5)
    with pytest.raises(LogTruncated):
        world.run(mode)
    assert decide(world, 10, pipeline=mode) == ["accept_log"]
    assert decide(world, 10, pipeline=mode) == []
    world.run(mode)
    report = world.audit()
    assert report.ok and list(report.replaced) == ["tweets/0 [0, 10)"] == report.to_dict()["replaced"]
    assert [row["id"] for row in world.table.rows] == [*range(10), 905, 906, 907]
    replace_end(world, 12)
    with pytest.raises(LogTruncated):
        world.run(mode)


@pytest.mark.parametrize("delivery", MODES)
def test_the_operator_reads_the_new_log_as_well(world: World, delivery: str) -> None:
    mode = {**FEW, "delivery": delivery}
    world.topics.numbered(0, 10)
    world.run(mode)
    replace_end(world, 5)
    with pytest.raises(LogTruncated):
        world.run(mode)
    assert decide(world, 5, reread=True, pipeline=mode) == ["reread"]
    world.run(mode)
    assert [row["id"] for row in world.table.rows] == [*range(10), *range(900, 908)]
    report = world.audit()
    assert report.ok and list(report.replaced) == ["tweets/0 [0, 5)"] and report.repeated


@pytest.mark.parametrize("delivery", MODES)
def test_the_operator_skips_what_has_come_since(world: World, delivery: str) -> None:
    mode = {**FEW, "delivery": delivery}
    world.topics.numbered(0, 10)
    world.run(mode)
    replace_end(world, 5)
    with pytest.raises(LogTruncated):
        world.run(mode)
    kinds = decide(world, 13, pipeline=mode)
    assert kinds[0] == "jump"
    world.topics.numbered(0, 2)
    world.run(mode)
    report = world.audit()
    assert report.ok and report.replaced and list(report.skipped) == ["tweets/0 [10, 13)"]


def test_a_log_that_is_restored_is_read_on(world: World) -> None:
    """The cause has disappeared: the replica with the records is the leader again."""
    world.topics.numbered(0, 10)
    world.run()
    replace_end(world, 5)
    with pytest.raises(LogTruncated):
        world.run()
    world.topics.truncate(0, 5)
    world.topics.produce(0, *({"id": n} for n in range(5, 12)))
    world.run()
    world.prove_exactly_once()
    assert not world.audit().replaced


def test_one_run_names_every_partition(world: World) -> None:
    world.topics.numbered(0, 10)
    world.topics.numbered(1, 10)
    world.run()
    replace_end(world, 5)
    replace_end(world, 5, partition=1)
    with pytest.raises(LogTruncated, match=r"""SET OFFSETS '\{"0": 10, "1": 10\}'"""):
        world.run()
    assert len(world.audit().problems) == 2


def test_retention_and_compaction_are_no_alarm(world: World) -> None:
    world.topics.numbered(0, 10)
    world.run()
    world.topics.expire(0, 8)
    world.topics.numbered(0, 2)
    world.run()
    world.topics.expire(0, 12)
    world.topics.numbered(0, 2)
    world.run()
    world.topics.compact(0, 12)
    world.topics.numbered(0, 2)
    world.run()
    assert len(world.table.rows) == 16 and world.audit().ok


@pytest.mark.parametrize("gone", [(8,), (6, 7, 8), (9,), (6, 7, 8, 9)])
def test_a_topic_that_was_compacted_for_a_while_is_no_alarm(world: World, gone: tuple[int, ...]) -> None:
    """Between two runs `cleanup.policy` had compact: now it is delete, as before."""
    world.topics.numbered(0, 10)
    world.run()
    world.topics.compact(0, *gone)
    world.topics._at(0, None).compacted = False
    world.topics.numbered(0, 2)
    world.run()
    assert len(world.table.rows) == 12 and world.audit().ok


def test_a_record_that_is_missing_without_a_reason_is_one(world: World) -> None:
    world.topics.numbered(0, 10)
    world.run()
    world.topics.truncate(0, 9)
    world.topics.mark(0)
    world.topics.numbered(0, 2)
    with pytest.raises(LogTruncated, match="found no record at offset 9"):
        world.run()


def test_control_records_are_none(world: World) -> None:
    for _ in range(6):
        world.topics.numbered(0, 1)
        world.topics.mark(0)
        world.run()
    world.prove_exactly_once()
    (lane,) = world.table.held.of(world.topics.source(0))
    assert lane.tail is not None and [offset for offset, _ in lane.tail.records] == [4, 6, 8, 10]


@pytest.mark.parametrize("number", [1, 3, 50])
def test_small_batches_keep_the_records_of_earlier_ones(world: World, number: int) -> None:
    world.stager.pieces = 3
    for _ in range(5):
        world.topics.numbered(0, number)
        world.run()
    (lane,) = world.table.held.of(world.topics.source(0))
    assert lane.tail is not None
    assert [offset for offset, _ in lane.tail.records] == list(range(5 * number))[-RECORDS:]


def test_batches_that_are_prefetched_are_compared(world: World) -> None:
    """The ledger of a prefetch has the fingerprint that the batch before is about to commit."""
    world.topics.numbered(0, 12)
    steps = []
    world.stager.after = lambda batch: steps.append(batch.steps[0].after)
    assert len(world.run(FEW)) == 4
    assert steps[0] is None and [tail.end for tail in steps[1:]] == [3, 6, 9]
    assert world.stager.calls == 4


def test_a_backfill_compares_its_own_records(world: World) -> None:
    world.topics.numbered(0, 10)
    world.run({"source": {"start": "latest"}})
    world.topics.numbered(0, 2)
    world.run()
    survey = world.ingest().survey
    for decision in backfills(world.table.held, world.topics.snapshot(), 0, Range(2, 10))[0]:
        survey.decide(decision.kind, decision.changes, decision.note)
    world.run(FEW, max_batches=1)
    replace_end(world, 3, 9)
    with pytest.raises(LogTruncated, match=r"below offset 5 and .* found another record at offset 3"):
        world.run(FEW)
    assert decide(world, 12) == ["accept_log"]
    world.run(FEW)
    assert world.audit().ok and "tweets/0 [2, 5)" in world.audit().replaced


def test_a_failure_to_record_it_hides_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.topics.numbered(0, 10)
    world.run()
    replace_end(world, 5)
    world.table.store.fail_next("before")
    with pytest.raises(LogTruncated, match="the log was cut"):
        world.run()
    assert any("could not be recorded" in event.text for event in world.kinds("decided"))
    with pytest.raises(LogTruncated):
        world.run()
    assert world.audit().problems


def test_ledgers_without_fingerprints_are_read_on(world: World) -> None:
    """Lanes of an earlier version have none: the first batch is not compared, the next one is."""
    world.topics.numbered(0, 10)
    world.run()
    registered = world.table.store.pipelines["tweets"]
    (lane,) = registered.ledger.of(world.topics.source(0))
    bare = type(lane)(lane.source, lane.start, lane.next, lane.end)
    registered.ledger = registered.ledger.after([LaneChange(lane, bare)])
    registered.seal ^= lane.checksum ^ bare.checksum
    world.topics.numbered(0, 1)
    world.run()
    replace_end(world, 5)
    with pytest.raises(LogTruncated):
        world.run()


def test_the_fingerprint_is_compared_and_swapped_with_the_lane(world: World) -> None:
    world.topics.numbered(0, 10)
    loop: Ingest = world.ingest()
    list(loop.run())
    (lane,) = world.table.held.of(world.topics.source(0))
    stale = type(lane)(lane.source, lane.start, lane.next, lane.end, lane.kind, Tail.made(10, ((9, "other"),)))
    held = world.table.held
    assert held.apply([LaneChange(stale, lane.advanced(12))]) != held
    with pytest.raises(Exception, match="another run committed first"):
        held.after([LaneChange(stale, lane.advanced(12))])
