"""Workers that are slow, not gone: a link that carries next to nothing, a worker that stands still. Speculation is on.

Nobody reports an error then, so none makes anything run again: what helps is that Spark begins a task a second time elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.cluster.cluster import Cluster, wait
from tests.cluster.following import PYTHON_WORKERS, held, host_of
from tests.cluster.site import PARTITIONS, Site
from tests.cluster.test_staging import SPECULATION

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.chaos]

# Some 170 bytes each: on such a link a third of them takes a minute and a half.
RECORDS, KBIT = 12_000, 64


@pytest.fixture(scope="module")
def differs() -> Mapping[str, Any]:
    return {
        "variables": SPECULATION,
        "config": {"queued.max.messages.kbytes": 32, "fetch.message.max.bytes": 16_384, "queued.min.messages": 10},
    }


def test_a_worker_on_a_slow_link(cluster: Cluster, caught_up: Site) -> None:
    """Its range is read elsewhere, too, and taken from there; what the slow one still does is thrown away."""
    one, slow = caught_up, cluster.workers[0]
    before = len(one.batches())
    cluster.network.slow(slow, KBIT)
    try:
        told = held(one, records=RECORDS)
        (partition,) = [begun.partition for begun in told if begun.host == slow.name]
        one.release()
        wait(lambda: len(one.batches()) > before, "the batch")
        again = [begun for begun in one.told()[PARTITIONS:] if begun.partition == partition]
        assert again and again[0].host != slow.name, one.told()
    finally:
        cluster.network.slow(slow, 0)
    one.exact()


def test_a_worker_that_stands_still(cluster: Cluster, caught_up: Site) -> None:
    """Its Python is stopped while Spark's executor goes on saying that it lives. Batches of one task get past it, too."""
    one = caught_up
    told = held(one)
    frozen = host_of(cluster, told)
    processes = frozen.processes(PYTHON_WORKERS)
    assert processes
    for process in processes:
        process.suspend()
    try:
        one.release()
        one.exact()
        for _ in range(4):  # one task each: among them is one for the worker that stands still
            with cluster["client"].network():
                one.writer.plain(1)
            one.exact()
    finally:
        for process in processes:
            if process.is_running():
                process.resume()
    one.exact()
