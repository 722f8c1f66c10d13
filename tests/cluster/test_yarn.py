"""A pipeline on a real YARN: containers that know nothing of kpipe, what breaks, and what is refused."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping

import psutil
import pytest

from resources.spark.cluster.python_environment import Packed
from tests.cluster import hadoop
from tests.cluster.cluster import ROOT, UNPACKING, Cluster, wait
from tests.cluster.following import asleep, held
from tests.cluster.site import PARTITIONS, PROGRAM, Site, Told, idle
from tests.cluster.test_runs import MATERIALIZE
from tests.cluster.yarn import Yarn

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.chaos]


@pytest.fixture(scope="module")
def yarn(cluster: Cluster) -> Iterator[Yarn]:
    """YARN on the cluster's hosts, beside Spark's own master and workers, which have nothing to do."""
    if not hadoop.jars():
        pytest.skip("Hadoop's jars are not here -> make yarn")
    found = Yarn(cluster)
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture
def on_yarn(yarn: Yarn, site: Callable[..., Site]) -> Iterator[Callable[..., Site]]:
    """`on_yarn(name)`: a pipeline whose runs are YARN's. They end with the test."""
    made: list[Site] = []

    def make(name: str, variables: Mapping[str, str] = {}, **fields: object) -> Site:
        one = site(name, **fields)
        (one.folder / "spark").mkdir()
        one.variables |= {**yarn.variables(one.folder / "spark"), **variables}
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()


def nodes(told: list[Told]) -> set[str]:
    """Hosts of programs that no driver has run to take a sample."""
    return {begun.host for begun in told if begun.host != "client"}


def test_the_archive_is_all_that_nodes_need(cluster: Cluster, yarn: Yarn, packed: Packed, on_yarn: Callable[..., Site]) -> None:
    """Neither kpipe nor Spark is on them: what runs in the containers is what the client has sent."""
    one = on_yarn("plain")
    del one.variables["KPIPE_SPARK_PYTHON"], one.variables["spark_yarn_jars"]
    (one.home / "environment").symlink_to(packed.path.parent)
    one.variables |= UNPACKING
    one.write(rounds=3)
    spark = cluster.network.base / "spark"
    for worker in cluster.workers:
        worker.run("mount", "-t", "tmpfs", "none", spark)
    try:
        one.run()
    finally:
        for worker in cluster.workers:
            worker.run("umount", spark)
    one.exact()
    assert nodes(one.told()) and nodes(one.told()) <= {"worker1", "worker2", "worker3"}
    assert "proven" in one.kpipe("verify", "plain")
    assert yarn.applications()[-1]["finalStatus"] == "SUCCEEDED"
    assert list(one.folder.glob("spark/.sparkStaging/*")) == []
    assert idle(cluster) == []


def test_a_changed_program_reaches_the_containers(yarn: Yarn, on_yarn: Callable[..., Site]) -> None:
    """The next run's; and each run is an application of its own, which ends with it."""
    one = on_yarn("edited")
    before = len(yarn.applications())

    def words() -> set[str]:
        lines = [line.split() for line in (one.folder / "told").read_text().splitlines()]
        return {" ".join(line[3:]) for line in lines if line[2] != "client"}

    for word in ("first", "second"):
        text = PROGRAM.format(folder=one.folder)
        (one.home / "program.sh").write_text(text.replace('$(uname -n)" >>', f'$(uname -n) {word}" >>'))
        one.forget()
        one.write()
        one.run()
        one.exact()
        assert words() == {word}
    assert [found["finalStatus"] for found in yarn.applications()[before:]] == ["SUCCEEDED"] * 2


def test_a_container_killed_in_mid_batch(cluster: Cluster, yarn: Yarn, on_yarn: Callable[..., Site]) -> None:
    """Its task is run again in one of the others, and YARN gives another container. Then that of the application's master, with
    which YARN ends all the others; it is begun anew, once, and so are they.
    """
    one = on_yarn("killed", batch={"interval_ms": 300, "max_retries": 4})
    one.write()
    one.start("--follow", "--json")
    one.exact()
    wait(lambda: yarn.executors() == 3, "three executors")
    one.forget()
    told = held(one)
    at = container(cluster, told[0])
    at.kill()
    one.release()
    again = one.at_work(PARTITIONS + 1)[PARTITIONS]
    assert (again.partition, again.attempt) == (told[0].partition, 1), one.told()
    one.exact()
    wait(lambda: yarn.executors() == 3, "a container in its place")
    one.forget()
    held(one)
    application = yarn.applications()[-1]["id"]
    assert sum(worker.kill("ExecutorLauncher", "bin/java") for worker in cluster.workers) >= 1
    one.release()
    one.exact()
    wait(lambda: yarn.executors() == 3, "three executors of the next master")
    assert yarn.applications()[-1]["id"] == application, "a new one was begun"
    one.stop()
    one.exact()
    assert "Traceback" not in one.said()
    assert idle(cluster) == []


def test_an_application_that_yarn_ends_in_mid_batch(cluster: Cluster, yarn: Yarn, on_yarn: Callable[..., Site]) -> None:
    one = on_yarn("ended", batch={"interval_ms": 300, "max_retries": 0})
    one.write()
    one.hold()
    one.start("--json")
    wait(lambda: bool(nodes(one.told())), "a batch at work")
    yarn.end(yarn.applications()[-1]["id"])
    assert one.started[-1].wait(120) != 0
    assert (
        "Traceback" not in one.said() and "the cluster has ended the application -> see the application's page" in one.said()
    ), one.said()
    assert one.batches() == []
    assert idle(cluster) == []
    one.release()
    one.run()
    one.exact()


def container(cluster: Cluster, told: Told) -> psutil.Process:
    """The executor in which that program runs, by the program's ancestors."""
    for program in cluster[told.host].processes("program.sh"):
        if program.environ().get("KPIPE_PARTITION") == str(told.partition):
            return next(one for one in program.parents() if "YarnCoarseGrainedExecutorBackend" in " ".join(one.cmdline()[:40]))
    raise AssertionError(f"{told}: {[one.cmdline() for one in cluster[told.host].processes()]}")


def test_a_run_of_dagsters(cluster: Cluster, yarn: Yarn, on_yarn: Callable[..., Site]) -> None:
    """Its Spark is started by the resource: YARN is asked before that, too."""
    one = on_yarn("shown")
    one.write()
    script = one.home / "materialize.py"
    script.write_text(MATERIALIZE)
    said = cluster["client"].run(sys.executable, script, one.name, timeout=1600, **one.environment(PYTHONPATH=str(ROOT)))
    found = json.loads(said.splitlines()[-1])
    assert found["application"] == yarn.applications()[-1]["id"]
    assert {host["host"].split("/")[0] for host in found["hosts"]} <= {"worker1", "worker2", "worker3"}
    one.exact()


# Executors go five seconds after their last task, and as many come as tasks wait for.
DYNAMIC = {
    "spark_dynamicAllocation_enabled": "true",
    "spark_dynamicAllocation_shuffleTracking_enabled": "true",
    "spark_dynamicAllocation_minExecutors": "0",
    "spark_dynamicAllocation_maxExecutors": "3",
    "spark_dynamicAllocation_executorIdleTimeout": "5s",
}


def test_executors_go_when_nothing_comes_and_come_back(cluster: Cluster, yarn: Yarn, on_yarn: Callable[..., Site]) -> None:
    """Spark says that there are two cores when there is no executor; a batch has three tasks nevertheless, as three may come."""
    one = on_yarn("paused", variables=DYNAMIC)
    del one.variables["spark_executor_instances"]
    one.write()
    one.start("--follow", "--json")
    one.exact()
    for records in (90, 75_000):
        wait(lambda: yarn.executors() == 0, "the end of idle executors")
        wait(lambda: not any(worker.processes("YarnCoarseGrained") for worker in cluster.workers), "and of their processes")
        one.forget()
        one.hold()
        with asleep(one):
            one.write(records)
        one.at_work(3)
        assert yarn.executors() == 3
        one.release()
        one.exact()
    one.stop()
    assert "Traceback" not in one.said()
    assert idle(cluster) == []


def test_staging_that_containers_do_not_see_is_refused(cluster: Cluster, on_yarn: Callable[..., Site]) -> None:
    one = on_yarn("unshared")
    one.write()
    (one.home / "private").mkdir()
    one.variables["KPIPE_STAGING"] = str(one.home / "private")
    said = one.run(status=1)
    assert "do not share the staging location" in said and "set KPIPE_STAGING to" in said and "worker worker" in said
    assert "Traceback" not in said and nodes(one.told()) == set()
    assert idle(cluster) == []


def test_a_queue_that_is_not_there(yarn: Yarn, on_yarn: Callable[..., Site]) -> None:
    one = on_yarn("queued")
    one.write()
    said = one.run(status=2, spark_yarn_queue="nope")
    assert "YARN has no queue nope -> set Spark's spark.yarn.queue" in said and "Traceback" not in said
    assert list(one.folder.glob("spark/.sparkStaging/*")) == []


@pytest.mark.parametrize("way", ["refuses", "silent"])
def test_a_resource_manager_that_does_not_answer(cluster: Cluster, yarn: Yarn, on_yarn: Callable[..., Site], way: str) -> None:
    """Said within a minute, where Hadoop's client alone would ask for a quarter of an hour."""
    one = on_yarn(way)
    one.write()
    master = cluster["master"]
    began = time.monotonic()
    if way == "silent":
        cluster["client"].cut(master)
        said = one.run(status=2)
        cluster["client"].mend(master)
    else:
        said = one.run(status=2, within=150, spark_hadoop_yarn_resourcemanager_address=f"{master.address}:1")
    print(f"{way}: {time.monotonic() - began:.0f} s")
    assert f"YARN's ResourceManager at {master.address}:" in said and "does not answer: " in said
    assert f"{yarn.configuration}/yarn-site.xml" in said and "Traceback" not in said
    assert idle(cluster) == []
