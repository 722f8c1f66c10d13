"""`kpipe run` starts Spark as soon as there is something to read, and leaves no JVM behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from resources.java import JavaHome
from tests.commandline import Kpipe

# Ends in a moment at which the JVM runs and has not connected to this process yet.
BEGIN = """
import os, sys, time
from pathlib import Path
import psutil
from resources.spark.jvm.session import start_early

start_early(Path(os.environ["KPIPE_HOME"]))
while not any("java" in child.name() for child in psutil.Process().children()):
    time.sleep(0.001)
exec(sys.argv[1])
"""


def records(count: int) -> list[str]:
    return [json.dumps({"id": number}) for number in range(count)]


@pytest.mark.spark
@pytest.mark.parametrize("action", ["kill", pytest.param("raise", marks=pytest.mark.chaos)])
def test_a_run_that_ends_before_its_first_task_leaves_no_jvm(
    near: Kpipe, topic: Callable[..., str], write: Callable[..., int], action: str
) -> None:
    """The batch is planned, and no task was started: the JVM is on its way."""
    name = topic(1)
    write(name, records(3))
    near.define("early", name)
    ended = -signal.SIGKILL if action == "kill" else 1
    near.outside("run", "early", status=ended, KPIPE_FAULT=f"plan.frozen:1:{action}")
    assert near.left_behind() == []
    summary = json.loads(near.outside("run", "early", "--json").stdout.splitlines()[-1])
    assert (summary["rows"], summary["status"]) == (3, "caught_up")
    assert near.left_behind() == []


@pytest.mark.spark
@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "sys.exit(1)", "raise KeyboardInterrupt"])
def test_a_jvm_that_is_starting_ends_with_its_process(offline: Kpipe, java: JavaHome, end: str) -> None:
    environ = {**os.environ, "KPIPE_HOME": str(offline.home), "JAVA_HOME": str(java.path)}
    offline.home.mkdir(mode=0o700)
    done = subprocess.run([sys.executable, "-c", BEGIN, end], env=environ, timeout=600, check=False)
    assert done.returncode in (-signal.SIGKILL, 1, -signal.SIGINT)
    assert offline.left_behind() == []


@pytest.mark.broker
def test_a_run_with_nothing_to_read_starts_no_jvm(near: Kpipe, topic: Callable[..., str], write: Callable[..., int]) -> None:
    name = topic(2)
    write(name, records(3))
    near.define("late", name, source={"start": "latest"})
    for _ in range(2):  # partitions are begun, and then they are in the ledger
        assert json.loads(near.outside("run", "late", "--json").stdout)["batches"] == 0
        assert not (near.home / "logs" / "spark.log").exists()


@pytest.mark.broker
def test_a_cluster_is_not_started_early(near: Kpipe, topic: Callable[..., str], write: Callable[..., int]) -> None:
    name = topic(1)
    write(name, records(3))
    near.define("far", name)
    master = "spark://127.0.0.1:1"
    near.outside("run", "far", status=-signal.SIGKILL, KPIPE_FAULT="plan.frozen:1:kill", KPIPE_SPARK_MASTER=master)
    assert not (near.home / "logs" / "spark.log").exists()
