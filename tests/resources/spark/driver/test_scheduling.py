"""How a batch is shared out over tasks."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.batch.batch import Batch
from kpipe.definition.formats import Format
from kpipe.errors import (
    BrokerUnreachable,
    KpipeError,
    LogTruncated,
    ReadFailed,
    ReadStalled,
    RecordRejected,
    StoreUnreachable,
    TransformFailed,
)
from kpipe.ledger.ledger import Lane, Step
from kpipe.ledger.tail import Tail
from kpipe.offsets import RangeSet
from kpipe.topics import PartitionId, TopicId
from resources.object_store.store import StoreFailed
from resources.spark.driver.scheduling import Moved, _first, _task, lost, share_out
from resources.spark.staging.staged_files import StagingWriter
from resources.spark.task.task_spec import Failure, JobSpec
from tests.cases import each_case

TOPIC = TopicId("c", "t", "tweets")


def batch(*lengths: int) -> Batch:
    steps = [Step(Lane(PartitionId(TOPIC, n), 0, 10 * n), 10 * n + length) for n, length in enumerate(lengths) if length]
    return Batch("b", "p", tuple(steps))


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=30), st.integers(1, 9), st.integers(1, 700))
def test_pieces_cover_every_range_once_and_no_task_is_empty(lengths: list[int], cores: int, smallest: int) -> None:
    asked = batch(*lengths)
    tasks = share_out(asked, cores, smallest)
    assert len(tasks) <= cores and all(tasks)
    for step in asked.steps:
        pieces = [piece.range for task in tasks for piece in task if piece.source == step.source]
        assert RangeSet.of(pieces).ranges == (step.range,)


def test_a_hot_partition_is_split_when_cores_would_idle() -> None:
    tasks = share_out(batch(100_000), cores=4, smallest=20_000)
    assert [[str(piece.range) for piece in task] for task in tasks] == [
        ["[0, 25000)"], ["[25000, 50000)"], ["[50000, 75000)"], ["[75000, 100000)"],
    ]  # fmt: skip


def test_one_partition_with_most_of_the_data_does_not_become_the_slowest_task() -> None:
    tasks = share_out(batch(900_000, 50_000, 50_000), cores=2)
    loads = [sum(len(piece.range) for piece in task) for task in tasks]
    assert max(loads) <= 1.2 * min(loads)


def test_small_ranges_share_a_task_for_each_core() -> None:
    tasks = share_out(batch(*[100] * 64), cores=2)
    assert [sum(len(piece.range) for piece in task) for task in tasks] == [3200, 3200]


def test_a_batch_of_little_work_is_one_task() -> None:
    """A second task would cost more CPU time than it shares."""
    assert [len(task) for task in share_out(batch(*[1000] * 4), cores=2)] == [4]
    assert [len(task) for task in share_out(batch(*[5000] * 4), cores=2)] == [2, 2]
    assert [len(task) for task in share_out(batch(*[1] * 1000), cores=2)] == [500, 500]


def test_short_ranges_of_a_program_run_side_by_side() -> None:
    """A program may take seconds for a record, which the number of records does not say."""
    assert [len(task) for task in share_out(batch(*[30] * 3), cores=3, program=True)] == [1, 1, 1]
    assert [len(task) for task in share_out(batch(*[30] * 5), cores=2, program=True)] == [3, 2]


@pytest.fixture
def thawed() -> Iterator[None]:
    """A task freezes what its process holds; this process goes on."""
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_a_task_that_reaches_nothing_from_its_worker_is_given_back_to_spark_once(tmp_path: Path) -> None:
    """What another worker may not have is raised, so that Spark runs the task elsewhere; other errors are answers."""
    job = JobSpec("b", {}, str(tmp_path / "not-shared"), Format(), (), remote=True)
    (answer,) = _task(job, [], ())
    assert isinstance(answer, Failure) and answer.kind == "StagingFailed"
    with pytest.raises(Moved, match="is not shared with the driver"):
        list(_task(replace(job, moves=True), [], ()))
    kinds = [BrokerUnreachable, ReadStalled, StoreUnreachable, RecordRejected, TransformFailed, ReadFailed]
    assert [Failure.of(kind("x"), "").worth_retrying_elsewhere for kind in kinds] == [True, True, True, False, False, False]


@each_case(("status", "again"), [(0, True), (429, True), (500, True), (503, True), (403, False), (404, False)])
def test_a_store_that_gives_no_answer_is_asked_again(status: int, again: bool) -> None:
    found = StagingWriter("s3://bucket/b")._failed(StoreFailed("no answer", status))
    assert found.retriable is again and isinstance(found, StoreUnreachable) is again


def test_spark_is_quoted_and_not_what_carries_its_words() -> None:
    py4j = "An error occurred while calling z:PythonRDD.collectAndServe.\n: org.apache.spark.SparkException: "
    shut = lost("batch 1", RuntimeError(f"{py4j}Job 2 cancelled because SparkContext was shut down\n\tat java.lang.Thread"))
    other = lost("batch 1", RuntimeError(f"{py4j}Task not serializable\n\tat java.lang.Thread"))
    assert shut.what == "batch 1: Spark could not finish its tasks: the cluster has ended the application"
    assert other.what == "batch 1: Spark could not finish its tasks: Task not serializable"


def test_logs_that_were_cut_are_one_error_with_all_places() -> None:
    """Also from the Spark of another process, which sends the error as a `Failure` again."""
    tail = Tail.made(9, ((7, "a"), (8, "b")))

    def failure(number: int, offset: int) -> Failure:
        found = tail.difference({7: "a", 8: "x"} if offset == 8 else {7: "y", 8: "b"}, lambda: 0)
        assert found is not None
        error = tail.error(f"t/{number}", found)
        error.record = (PartitionId(TopicId("c", "i", "t"), number), found.offset)
        return Failure.of(error, "")

    busy = Failure.of(BrokerUnreachable("no broker"), "")
    first = _first(item.error() for item in (busy, failure(0, 8), failure(1, 7)))
    again = Failure.of(first, "").error()
    for error in (first, again):
        assert isinstance(error, LogTruncated)
        found = [(str(one.record[0]), one.record[1], one.before) for one in (error, *error.others) if one.record]
        assert found == [("t/0", 8, "b"), ("t/1", 7, "a")]
    assert _first([busy.error(), KpipeError("fix it")]).what == "fix it"
