"""How many tasks a batch is cut into, and the end of waiting for executors, with a SparkContext that is played."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kpipe.batch.batch import Batch
from kpipe.errors import KpipeError
from kpipe.ledger.ledger import Lane, Step
from kpipe.topics import PartitionId, TopicId
from resources.spark.cluster import executors, kubernetes
from resources.spark.cluster.executors import attended, slots
from resources.spark.driver import remote_workers
from resources.spark.driver.remote_workers import RemoteWorkers

DYNAMIC = {"spark.dynamicAllocation.enabled": "true"}


class Context:
    """What is asked of a SparkContext; so many executors are there, and the driver."""

    master = "spark://somewhere:7077"

    def __init__(self, executors: int = 0, **settings: str) -> None:
        self.defaultParallelism, self.there, self._conf = max(2, executors), executors, settings
        self.cancelled = threading.Event()

    def cancelJobGroup(self, group: str) -> None:
        assert group == "batch"
        self.cancelled.set()

    @property
    def _jsc(self) -> Any:
        return self

    sc = getExecutorMemoryStatus = lambda self: self

    def size(self) -> int:
        return self.there + 1


@pytest.mark.parametrize(
    ("there", "settings", "tasks"),
    [
        (0, {}, 2),
        (3, {}, 3),
        (0, DYNAMIC, 7),
        (9, DYNAMIC, 9),
        (0, DYNAMIC | {"spark.dynamicAllocation.maxExecutors": "4"}, 4),
        (0, DYNAMIC | {"spark.dynamicAllocation.maxExecutors": "4", "spark.executor.cores": "4", "spark.task.cpus": "2"}, 8),
        (0, DYNAMIC | {"spark.dynamicAllocation.maxExecutors": "1"}, 2),
    ],
)
def test_a_batch_of_seven_ranges_is_cut_for_executors_that_may_come(there: int, settings: dict[str, str], tasks: int) -> None:
    context: Any = Context(there, **settings)
    assert slots(context, 7) == tasks


@pytest.mark.parametrize(
    ("records", "program", "tasks"), [(10, None, 1), (19_999, None, 1), (100_000, None, 5), (100_000, "slow", 5)]
)
def test_one_long_range_is_cut_too_where_nothing_limits_executors(
    monkeypatch: pytest.MonkeyPatch, records: int, program: str | None, tasks: int
) -> None:
    """A piece of 20,000 offsets is worth an executor; of a short range there is one task, however many there may be."""
    source, given = PartitionId(TopicId("c", "i", "t"), 0), list[Any]()
    monkeypatch.setattr(RemoteWorkers, "sent", lambda self, context, job: job)
    monkeypatch.setattr(remote_workers, "run_pieces", lambda context, job, shares: given.append(shares))
    context: Any = Context(0, **DYNAMIC)
    job: Any = SimpleNamespace(program=program)
    RemoteWorkers().run(context, job, Batch("batch", "orders", (Step(Lane(source, 0, 0), records),)))
    (shares,) = given
    assert len(shares) == tasks and sum(len(piece.range) for share in shares for piece in share) == records


def test_waiting_without_an_executor_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "_LOOK_S", 0.01)
    context: Any = Context(0, **{executors.TIMEOUT: "0.05s"})
    with pytest.raises(KpipeError, match="Spark gets no executor: none came within") as told, attended(context, "batch"):
        assert context.cancelled.wait(300)
        raise ValueError("what Spark says of a job that was cancelled")
    assert executors.TIMEOUT in told.value.hint


def test_with_an_executor_a_batch_may_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "_LOOK_S", 0.01)
    context: Any = Context(1, **{executors.TIMEOUT: "0.05"})
    with pytest.raises(ValueError, match="of its own"), attended(context, "batch"):
        assert not context.cancelled.wait(0.5)
        raise ValueError("of its own")


def test_the_last_refusal_in_sparks_log(tmp_path: Path) -> None:
    """As Spark 4.3 logs it; the line is from a run."""
    log = tmp_path / "spark.log"
    said = (
        "io.fabric8.kubernetes.client.KubernetesClientException: Failure executing: POST at: https://10.0.0.1/api/v1/pods. "
        'Message: pods is forbidden: User "a:b" cannot create resource "pods". Received status: Status(apiVersion=v1, code=403)'
    )
    log.write_text(f"WARN ExecutorPodsSnapshotsStoreImpl: Exception when notifying snapshot subscriber.\n{said}\n\tat io\n")
    assert kubernetes.refusal(log) == 'pods is forbidden: User "a:b" cannot create resource "pods"'
    assert kubernetes.refusal(log, since=log.stat().st_size) == "", "of an earlier batch"
    log.write_text(said.replace("code=403", "code=503"))
    assert kubernetes.refusal(log) == "", "an API server that is away for a moment"
    assert kubernetes.refusal(tmp_path / "none") == "" == kubernetes.refusal(None)
