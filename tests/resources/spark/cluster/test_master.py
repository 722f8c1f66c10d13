"""Which masters kpipe runs on, and what is said of the others before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from kpipe.errors import InvalidPipeline, KpipeError, NotAvailable
from resources.spark.cluster.master import check, driver_address, is_local
from resources.spark.jvm.spark_settings import settings


@pytest.mark.parametrize(
    "master", ["local", "local[*]", "local[3]", "local[2,4]", "spark://a:7077", "spark://a:1,b:2", "k8s://https://h:6443"]
)
def test_masters_that_can_be_used(master: str) -> None:
    assert check(master, {}) == check(None, {"KPIPE_SPARK_MASTER": master}) == master
    assert is_local(master) == master.startswith("local")


def test_without_a_word_it_is_this_machine() -> None:
    assert check(None, {}) == "local[*]"


@pytest.mark.parametrize(
    ("environ", "error", "words"),
    [
        (
            {"KPIPE_SPARK_MASTER": "sc://host:15002/;token=canary"},
            NotAvailable,
            "KPIPE_SPARK_MASTER is sc://host:15002/: .*does not support RDDs",
        ),
        ({"SPARK_REMOTE": "sc://host"}, NotAvailable, "SPARK_REMOTE is set.*does not support RDDs"),
        ({"KPIPE_SPARK_MASTER": "yarn"}, InvalidPipeline, "HADOOP_CONF_DIR"),
        ({"KPIPE_SPARK_MASTER": "mesos://h:1"}, InvalidPipeline, "not a master of Spark: .*spark://HOST:PORT"),
        ({"KPIPE_SPARK_MASTER": "local[0]"}, InvalidPipeline, "not a master of Spark"),
        ({"KPIPE_SPARK_MASTER": "spark://host"}, InvalidPipeline, "not a master of Spark"),
        ({"KPIPE_SPARK": "serve"}, InvalidPipeline, "KPIPE_SPARK: expected service, found 'serve'"),
    ],
)
def test_what_cannot_work_is_said_before_a_jvm_is_started(environ: dict[str, str], error: type[KpipeError], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        check(None, environ)
    assert "canary" not in str(caught.value)


def test_yarn_is_found_by_hadoops_folder() -> None:
    assert check("yarn", {"HADOOP_CONF_DIR": "/etc/hadoop"}) == "yarn"


def test_the_drivers_address_is_the_one_on_the_way_to_the_master() -> None:
    assert driver_address("local[2]", {}) == driver_address("spark://127.0.0.1:7077", {}) == "127.0.0.1"
    assert driver_address("spark://127.0.0.1:7077", {"SPARK_LOCAL_IP": "192.0.2.7"}) == "192.0.2.7"
    assert driver_address("yarn", {}) is None


def test_only_on_other_machines_spark_repeats_tasks_and_is_sent_things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KPIPE_SPARK_MASTER", raising=False)
    here, there = settings(tmp_path), settings(tmp_path, "spark://127.0.0.1:7077")
    assert (here["spark.task.maxFailures"], there["spark.task.maxFailures"]) == ("1", "4")
    assert "spark.archives" not in here and there["spark.archives"].endswith("#kpipe-code")
    assert Path(there["spark.archives"].removesuffix("#kpipe-code")).is_file()
    monkeypatch.setenv("KPIPE_SPARK_PYTHON", "/opt/python")
    assert settings(tmp_path, "spark://127.0.0.1:7077")["spark.pyspark.python"] == "/opt/python"
