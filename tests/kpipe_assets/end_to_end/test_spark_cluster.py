"""Spark on two hosts: a slow task gets a twin elsewhere, an executor is killed, a worker lives on after its task was given up.

The hosts are two addresses of this machine, each with a worker of a standalone cluster: Spark starts no twin where the
first attempt runs, so one host shows nothing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest

from resources.java import JavaHome, spark_environment

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.chaos]

HOSTS = ("127.0.0.2", "127.0.0.3")
# The first attempt at the second partition hangs about for a while, or until it is told; a twin goes straight through.
SLOW = """#!/bin/sh
echo "$KPIPE_PARTITION $KPIPE_ATTEMPT $$" >> {told}
if [ "$KPIPE_PARTITION" = 1 ] && [ "$KPIPE_ATTEMPT" = 0 ]; then
  for i in $(seq 600); do [ -e {go} ] && break; sleep 0.1; done
fi
exec cat
"""


@pytest.fixture(scope="module")
def master(java: JavaHome, free_port: Callable[[], int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a standalone cluster of two hosts."""
    folder, port = tmp_path_factory.mktemp("cluster"), free_port()
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, **spark_environment(java), "SPARK_HOME": str(home), "SPARK_LOCAL_DIRS": str(folder / "local")}
    url = f"spark://127.0.0.1:{port}"
    started: list[subprocess.Popen[bytes]] = []

    def launch(name: str, *arguments: str) -> Path:
        output = folder / name
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name.split('-')[0]}", *arguments]
        with output.open("wb") as log:
            started.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        return output

    def wait(output: Path, words: str, count: int = 1) -> None:
        deadline = time.monotonic() + 300
        while output.read_text().count(words) < count:
            assert time.monotonic() < deadline, output.read_text()[-2000:]
            time.sleep(0.2)

    try:
        logs = launch("master.Master", "-h", "127.0.0.1", "-p", str(port), "--webui-port", "0")
        wait(logs, "I have been elected leader")
        for host in HOSTS:
            place = ("-d", str(folder / host), "-c", "1", "-m", "1g", "--webui-port", "0")
            launch(f"worker.Worker-{host}", "-h", host, *place, url)
        wait(logs, "Registering worker", len(HOSTS))
        yield url
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(300)


@pytest.fixture
def site(kpipe: Any, topic: Any, write: Any, tmp_path: Path, master: str) -> Iterator[Any]:
    """A pipeline of two partitions whose second one is slow, run on the cluster."""
    name = topic(2)
    records = [[json.dumps({"id": 1000 * partition + n}) for n in range(200)] for partition in range(2)]
    for partition in range(2):
        write(name, records[partition][:1], partition)
    program = tmp_path / "slow.sh"
    program.write_text(SLOW.format(told=tmp_path / "told", go=tmp_path / "go"))
    program.chmod(0o755)
    kpipe.define("slow", name, transform={"program": str(program)}, batch={"max_retries": 0})
    (tmp_path / "go").touch()
    kpipe("run", "slow")  # the table is there, and no sample is needed
    (tmp_path / "go").unlink()
    (tmp_path / "told").unlink()
    for partition in range(2):
        write(name, records[partition][1:], partition)

    def start(**conf: str) -> subprocess.Popen[str]:
        words = [f"--conf {key.replace('_', '.')}={value}" for key, value in {"spark_executor_memory": "512m", **conf}.items()]
        submit = " ".join([*words, "pyspark-shell"])
        return kpipe.start("run", "slow", "--json", KPIPE_SPARK_MASTER=master, PYSPARK_SUBMIT_ARGS=submit)

    start.told, start.go, start.kpipe = tmp_path / "told", tmp_path / "go", kpipe  # type: ignore[attr-defined]
    yield start
    start.go.touch()  # type: ignore[attr-defined]


def attempts(site: Any, lines: int, within: float = 300) -> list[list[int]]:
    """Partition, attempt and process of the programs that were started, as soon as there are so many."""
    deadline = time.monotonic() + within
    while not site.told.exists() or len(site.told.read_text().splitlines()) < lines:
        assert time.monotonic() < deadline, site.told.read_text() if site.told.exists() else "nothing"
        time.sleep(0.1)
    return [[int(word) for word in line.split()] for line in site.told.read_text().splitlines()]


def exact(site: Any) -> None:
    expected = [1000 * partition + n for partition in range(2) for n in range(200)]
    assert site.kpipe.sql("SELECT count(*), count(DISTINCT id), sum(id) FROM slow") == [(400, 400, sum(expected))]
    assert site.kpipe.json("verify", "slow")[0]["ok"]
    staged = [file for file in (site.kpipe.home / "staging").rglob("*") if file.is_file()]
    assert not staged


def test_of_a_task_and_its_twin_one_result_is_taken(site: Any) -> None:
    process = site(
        spark_speculation="true", spark_speculation_interval="100ms", spark_speculation_quantile="0.1",
        spark_speculation_multiplier="1.1", spark_speculation_minTaskRuntime="5s",
    )  # fmt: skip
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err + site.told.read_text()
    started = [(partition, attempt) for partition, attempt, _ in attempts(site, 2)]
    assert (0, 0) in started and (1, 1) in started and len(set(started)) == len(started)
    summary = json.loads(out.splitlines()[-1])
    assert (summary["rows"], summary["batches"]) == (398, 1)
    exact(site)


def test_tasks_of_an_executor_that_is_killed_are_run_elsewhere(site: Any) -> None:
    process = site()
    ((_, _, program),) = [line for line in attempts(site, 2) if line[:2] == [1, 0]]
    ancestors = psutil.Process(program).parents()
    executor = next(parent for parent in ancestors if "CoarseGrainedExecutorBackend" in " ".join(parent.cmdline()))
    executor.kill()
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0 and "Traceback" not in err, err
    started = [(partition, attempt) for partition, attempt, _ in attempts(site, 3)]
    assert (1, 1) in started and len(set(started)) == len(started), started
    assert json.loads(out.splitlines()[-1])["batches"] == 1
    exact(site)


def test_a_worker_that_lives_on_after_its_batch_was_given_up_changes_nothing(site: Any) -> None:
    """Stopped in the middle of its task, its run killed and repeated by another, then awake: it finishes for nobody."""
    process = site()
    ((_, _, program),) = [line for line in attempts(site, 2) if line[:2] == [1, 0]]
    worker = next(parent for parent in psutil.Process(program).parents() if "workers.python_daemon" in " ".join(parent.cmdline()))
    worker.suspend()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    site.go.touch()
    site.kpipe("run", "slow")
    before = site.kpipe.sql("SELECT count(*), sum(id) FROM slow")
    try:
        worker.resume()
        worker.wait(60)
    except (psutil.NoSuchProcess, psutil.TimeoutExpired):
        pass
    assert site.kpipe.sql("SELECT count(*), sum(id) FROM slow") == before == [(400, sum(range(200)) + sum(range(1000, 1200)))]
    assert site.kpipe.json("verify", "slow")[0]["ok"]
