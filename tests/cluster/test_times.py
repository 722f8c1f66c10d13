"""How long a batch takes whose work has to move, beside one that nothing disturbs. Rows are asserted, times are shown.

Each range is the same work: a program that takes some seconds of nothing, so that other things on this machine count little.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.cluster.cluster import KAFKAS, Cluster, wait
from tests.cluster.following import PYTHON_WORKERS, held, host_of
from tests.cluster.hosts import Host
from tests.cluster.site import PARTITIONS, Site
from tests.cluster.test_staging import SPECULATION

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.chaos]

# Longer than silence is borne (spark.network.timeout, 15 s), as the batches are that people wait for.
WORK_S = 20


@pytest.fixture(scope="module")
def differs() -> Mapping[str, Any]:
    return {"variables": SPECULATION}


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[dict[str, float]]:
    """Seconds by fault; shown at the end."""
    seconds: dict[str, float] = {}
    yield seconds
    plugins, base = request.config.pluginmanager, seconds.get("none")
    reporter, capture = plugins.get_plugin("terminalreporter"), plugins.get_plugin("capturemanager")
    if base is None or reporter is None or capture is None:
        return
    with capture.global_and_fixture_disabled():
        reporter.write_line(f"\n\n{'fault':40} {'undisturbed s':>14} {'disturbed s':>12} {'ratio':>6}")
        for fault, found in seconds.items():
            reporter.write_line(f"{fault:40} {base:14.1f} {found:12.1f} {found / base:6.2f}")


Fault = tuple[Callable[[Cluster, Host], object], Callable[[Cluster, Host], object]]


def none(cluster: Cluster, host: Host) -> None:
    """Nothing is done, or undone."""


def back(cluster: Cluster, host: Host) -> None:
    cluster.start_kafka("kafka1")
    cluster.wait_for_kafka()


FAULTS: dict[str, Fault] = {
    "none": (none, none),
    "a worker's host killed": (lambda _, host: host.kill(), lambda cluster, host: cluster.start_worker(host.name)),
    "an executor killed": (lambda _, host: host.kill("CoarseGrainedExecutorBackend"), none),
    "a task's process killed": (lambda _, host: host.kill(PYTHON_WORKERS), none),
    "a worker cut from the driver": (
        lambda cluster, host: host.cut(cluster["client"]), lambda cluster, host: host.mend(cluster["client"]),
    ),
    "a broker killed": (lambda cluster, _: cluster[KAFKAS[0]].kill(), back),
}  # fmt: skip


@pytest.mark.parametrize("fault", list(FAULTS))
def test_the_time_of_a_batch(cluster: Cluster, caught_up: Site, table: dict[str, float], fault: str) -> None:
    """From the plan to the commit, by the run's own clock; the fault comes at the half of the work."""
    one, (begin, end) = caught_up, FAULTS[fault]
    (one.folder / "work").write_text(str(WORK_S))
    try:
        before = len(one.batches())
        # Held until all have begun: on a busy machine, one host may end its work before another has begun.
        told = held(one)
        victim = host_of(cluster, told)
        assert len({begun.host for begun in told}) == PARTITIONS, told
        one.release()
        time.sleep(WORK_S / 2)
        assert begin(cluster, victim) != 0, "there was no process to kill"
        try:
            wait(lambda: len(one.batches()) > before, "the batch")
        finally:
            end(cluster, victim)
    finally:
        (one.folder / "work").unlink()
    table[fault] = one.batches()[before]["seconds"]
    one.exact()
