"""What breaks on a cluster while a run goes on: the rows are exact each time, and no process is left on any host.

One run follows its topic while hosts and links are taken from it, as in production.
"""

from __future__ import annotations

import time

import pytest

from tests.cluster.cluster import Cluster, wait
from tests.cluster.following import held, host_of
from tests.cluster.site import PARTITIONS, Site

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.chaos]


def test_an_undisturbed_batch(caught_up: Site) -> None:
    held(caught_up)
    caught_up.release()
    caught_up.exact()


def test_a_worker_killed_in_mid_batch(cluster: Cluster, caught_up: Site) -> None:
    """All of a host at once, as a power cut would; its tasks are run elsewhere, the others are not."""
    told = held(caught_up)
    victim = host_of(cluster, told)
    assert victim.kill() >= 3  # worker, executor, Python, program
    try:
        caught_up.release()  # each worker has one core: what it did is done by one of the others when that is free
        again = caught_up.at_work(PARTITIONS + 1)[PARTITIONS]
        assert again.host != victim.name and (again.partition, again.attempt) == (0, 1), caught_up.told()
        caught_up.exact()
        assert victim.processes() == []
    finally:
        cluster.start_worker(victim.name)


def test_an_executor_lost_after_it_has_staged(cluster: Cluster, caught_up: Site) -> None:
    """What it has left in the staging place counts; nothing of it is read again."""
    told = held(caught_up)
    victim = host_of(cluster, told, 0)
    before = set(caught_up.folder.glob("staging/*/*"))
    caught_up.release(0)
    wait(lambda: bool(set(caught_up.folder.glob("staging/*/*")) - before), "a staged file")
    wait(lambda: not victim.processes("program.sh"), "the end of the program")
    time.sleep(3)  # its report is on its way
    assert victim.kill("CoarseGrainedExecutorBackend") >= 1
    time.sleep(3)  # Spark hears of it
    caught_up.release()
    caught_up.exact()
    first = caught_up.told()[: PARTITIONS + 1]
    assert not [begun for begun in first if begun.partition == 0 and begun.attempt > 0], caught_up.told()


def test_a_worker_cut_from_the_driver(cluster: Cluster, caught_up: Site) -> None:
    """Nothing says goodbye: the driver gives it up when it has been silent too long, and its tasks are run elsewhere."""
    told = held(caught_up)
    victim = host_of(cluster, told)
    victim.cut(cluster["client"])
    try:
        caught_up.release()
        again = caught_up.at_work(PARTITIONS + 1)[PARTITIONS]
        assert again.host != victim.name and (again.partition, again.attempt) == (0, 1), caught_up.told()
        caught_up.exact()
    finally:
        victim.mend(cluster["client"])
