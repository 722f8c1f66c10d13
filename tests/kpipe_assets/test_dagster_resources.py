"""Spark as a resource: one context for batches and for a session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kpipe.definition.pipeline import Into, Pipeline, Source
from kpipe.errors import NotAvailable
from kpipe_assets.dagster_resources import SparkResource
from resources.java import JavaHome

# In a process of its own: Spark's context is one for each process.
RUN = """
import sys
from pathlib import Path
from kpipe_assets.dagster_resources import SparkResource
from resources.home import Home
from resources.spark.jvm import early_start

home = Home.at(sys.argv[1]).make()
spark = SparkResource(home=str(home.path), master="local[1]", spark_config={"spark.hadoop.of.the.user": "1"})
descriptors = Path("/proc/self/fd/2").resolve()
early_start.begin(spark.context)
early_start.begin(lambda: 1 / 0)
context = spark.context()
assert Path("/proc/self/fd/2").resolve() == descriptors
assert context is spark.context()
assert context._jvm.org.apache.spark.sql.SparkSession.getDefaultSession().isEmpty(), "a session takes 2 s of CPU"
session = spark.session()
assert session.sparkContext is context
print(session.range(3).count(), context.getConf().get("spark.hadoop.of.the.user"))
"""


@pytest.mark.slow
@pytest.mark.spark
def test_an_early_start_a_context_and_a_session_are_one_spark(java: JavaHome, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path / "home")],
        env={**os.environ, "JAVA_HOME": str(java.path)}, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.stdout == "3 1\n", done.stderr
    assert done.stderr == "", "Spark's output is in its log"
    assert "log" in (tmp_path / "home" / "logs" / "spark.log").read_text()


@pytest.mark.slow
@pytest.mark.spark
def test_an_early_start_that_fails_is_reported_by_the_first_use(tmp_path: Path) -> None:
    program = """
import sys
from kpipe.errors import KpipeError
from resources.home import Home
from resources.spark.jvm import early_start, session
start = lambda: session.start(Home.at(sys.argv[1]).path, "local[1]", {"spark.driver.memory": "no size"})
early_start.begin(start)
early_start.wait()
try:
    start()
except KpipeError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "home")],
        env=dict(os.environ), capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("Spark does not start: "), done.stderr


@pytest.mark.parametrize("own", [{"master": "local[1]"}, {"spark_config": {"spark.hadoop.of.the.user": "1"}}])
def test_settings_of_its_own_do_not_go_with_the_spark_of_the_service(
    own: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KPIPE_SPARK", "service")
    pipeline = Pipeline(name="one", source=Source(brokers="127.0.0.1:1", topic="t"), into=Into(table="one"))
    with pytest.raises(NotAvailable, match="KPIPE_SPARK=service: the Spark resource has settings of its own"):
        SparkResource(str(tmp_path), **own).stager(pipeline)
    SparkResource(str(tmp_path)).warm()  # no service runs: the first batch reports it
