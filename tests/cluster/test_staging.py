"""Workers that die, or fall behind, while they stage: between the beginning of a Parquet file and its footer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.cluster.cluster import Cluster, wait
from tests.cluster.following import PYTHON_WORKERS, held, host_of
from tests.cluster.hosts import Host
from tests.cluster.site import PARTITIONS, Site, idle

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.chaos]


def stopped(host: Host) -> list[psutil.Process]:
    """Processes of tasks that have reached the crash-point at which they stop."""
    return [process for process in host.processes(PYTHON_WORKERS) if process.status() == psutil.STATUS_STOPPED]


def resume(cluster: Cluster) -> bool:
    """Let all of those go on; True."""
    for host in cluster.workers:
        for process in stopped(host):
            process.resume()
    return True


def torn(one: Site) -> set[Path]:
    """Staged files without a footer."""
    return {file for file in one.folder.glob("staging/*/*.parquet") if file.read_bytes()[-4:] != b"PAR1"}


def test_workers_killed_while_they_stage(cluster: Cluster, site: Callable[..., Site]) -> None:
    """All of one's host, and of another one the task's process. Their ranges are staged elsewhere; no torn file is left."""
    one = site("torn")
    one.write(records=300)
    running = one.start("--json", fault="stage.close:1:stop")
    wait(lambda: all(stopped(host) for host in cluster.workers), "three that stage")
    assert len(torn(one)) >= PARTITIONS and one.batches() == []
    told = [begun for begun in one.told() if begun.host != "client"]
    powerless, unlucky = host_of(cluster, told, 0), host_of(cluster, told, 1)
    try:
        for process in stopped(unlucky):
            process.kill()
        assert powerless.kill() >= 3
        wait(lambda: resume(cluster) and running.poll() is not None, "the run's end")
        assert running.returncode == 0, one.said()
        one.exact()
        again = {begun.partition: begun.host for begun in one.told() if begun.attempt > 0}
        assert set(again) == {0, 1} and again[0] != powerless.name and again[1] != unlucky.name, one.told()
        assert list(one.folder.glob("staging/*")) == []
        assert powerless.processes() == []
    finally:
        cluster.start_worker(powerless.name)
    cluster.wait_for_workers()
    assert idle(cluster) == []


# A task is begun again when it takes a little longer than half of the others did, and the only one of a batch after 10 s.
SPECULATION = {
    "spark_speculation": "true",
    "spark_speculation_interval": "500ms",
    "spark_speculation_quantile": "0.5",
    "spark_speculation_multiplier": "1.2",
    "spark_speculation_task_duration_threshold": "10s",
}


def _more(one: Site, than: int) -> bool:
    return len(one.batches()) > than


def test_speculation_takes_one_of_two_attempts(cluster: Cluster, site: Callable[..., Site]) -> None:
    """The first, the second, or whichever is sooner: rows are exact each time, and of the other nothing is left."""
    one = site("twice", variables=SPECULATION)
    one.write()
    one.start("--follow", "--json")
    one.exact()
    for way in ("first", "second", "both", "frozen"):
        one.forget()
        before = len(one.batches())
        one.hold(1, attempt=1)
        told = held(one)
        slow = host_of(cluster, told, 1)
        one.release(0, 2)
        again = one.at_work(PARTITIONS + 1)[PARTITIONS]
        assert (again.partition, again.attempt) == (1, 1) and again.host != slow.name, (way, again, told)
        frozen = slow.processes(PYTHON_WORKERS) if way == "frozen" else []
        assert frozen or way != "frozen"
        for process in frozen:  # a worker that is as slow as one can be: it wakes up when the batch is in
            process.suspend()
        if way == "first":
            (one.folder / "hold-1-0").unlink()
        elif way == "second":
            (one.folder / "hold-1-1").unlink()
        else:
            one.release()
        wait(partial(_more, one, before), f"{way}: the batch")
        one.release()  # what a transaction left for another batch is that one's first attempt
        one.exact()
        wait(lambda: not any(host.processes("program.sh") for host in cluster.workers), f"{way}: the end of the other attempt")
        for process in frozen:
            if process.is_running():
                process.resume()
        one.release()
        wait(lambda: list(one.folder.glob("staging/*")) == [], f"{way}: nothing staged is left")
    one.stop()
    one.exact()
    assert "Traceback" not in one.said()
    assert idle(cluster) == []
