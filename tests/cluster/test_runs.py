"""A pipeline on the cluster, as it is on one machine; what must be said before it runs; what workers are brought."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from resources.spark.cluster.python_environment import Packed
from tests.cluster.cluster import ROOT, UNPACKING, Cluster
from tests.cluster.site import Site, idle

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.chaos]


def test_the_archive_is_all_that_workers_need(cluster: Cluster, packed: Packed) -> None:
    """Nothing of kpipe's is on them: not the checkout, not its environment."""
    worker = cluster["worker1"]
    worker.run("sh", "-c", "! python3 -c 'import pyarrow'")
    one = Site.made(cluster, "plain", None)
    try:
        (one.home / "environment").symlink_to(packed.path.parent)
        one.variables |= UNPACKING
        one.write(rounds=3)
        one.run()
        one.exact()
        assert {told.host for told in one.told()} <= {"worker1", "worker2", "worker3", "client"}
        assert {told.host for told in one.told()} & {"worker1", "worker2", "worker3"}
        assert "proven" in one.kpipe("verify", "plain")
    finally:
        one.close()
    assert idle(cluster) == []


def test_staging_that_workers_do_not_see_is_refused_before_the_first_batch(site: Callable[..., Site]) -> None:
    one = site("unshared")
    one.write()
    one.variables["KPIPE_STAGING"] = str(one.home / "private")
    (one.home / "private").mkdir()
    said = one.run(status=1)
    assert "do not share the staging location" in said and "set KPIPE_STAGING to" in said and "worker worker" in said
    assert "Traceback" not in said
    assert [told.host for told in one.told()] in ([], ["client"] * len(one.told())), "a worker was given records"


def test_an_interpreter_that_one_worker_lacks(cluster: Cluster, site: Callable[..., Site]) -> None:
    """Named with the worker and the program; nothing was committed, and with the interpreter there the next run goes on."""
    one = site("lacking", batch={"interval_ms": 300, "max_retries": 0})
    tools, program = one.folder / "tools", one.home / "program.sh"
    tools.mkdir()
    shutil.copy2("/bin/sh", tools / "interpreter")
    program.write_text(program.read_text().replace("#!/bin/sh", f"#!{tools}/interpreter"))
    one.write()
    cluster["worker3"].run("mount", "-t", "tmpfs", "none", tools)
    try:
        said = one.run(status=1)
    finally:
        cluster["worker3"].run("umount", tools)
    assert "program.sh" in said and "(on worker3/" in said and "could not be started" in said and "Traceback" not in said, said
    one.run()
    one.exact()


def test_a_python_that_one_worker_lacks(cluster: Cluster, site: Callable[..., Site], python: Path) -> None:
    """Said before the first batch, with the worker and what to do; with the interpreter there the next run goes on."""
    one = site("pythonless")
    one.write()
    cluster["worker2"].run("mount", "-t", "tmpfs", "none", python.parent.parent)
    try:
        said = one.run(status=1)
    finally:
        cluster["worker2"].run("umount", python.parent.parent)
    assert f"worker {cluster['worker2'].address} has no Python {python}" in said and "kpipe environment" in said, said
    assert "Traceback" not in said, said
    assert {told.host for told in one.told()} <= {"client"}, "a worker was given records"
    one.run()
    one.exact()


# What a person's own project does with Dagster, in a few lines: all partitions in one run.
MATERIALIZE = """
import json, sys
import dagster as dg
from kpipe_assets.dagster_resources import real
from kpipe_assets.assets.table_asset import table_asset, table_key
from kpipe_assets.assets.topic_asset import topic_spec
from resources.home import Home
home = Home.from_env().make()
pipeline = home.pipeline(sys.argv[1])
with dg.instance_for_test() as instance:
    instance.add_dynamic_partitions(f"kafka/{pipeline.source.topic}", ["0", "1", "2"])
    tags = {"dagster/asset_partition_range_start": "0", "dagster/asset_partition_range_end": "2"}
    assets = [topic_spec(pipeline), table_asset(pipeline, home, "v1")]
    dg.materialize(assets, resources=real(home), instance=instance, tags=tags)
    key = table_key(pipeline)
    seen = [record.event_log_entry for record in instance.fetch_observations(key, limit=10).records]
    page = [event.dagster_event.event_specific_data.asset_observation.metadata for event in seen]
    last = instance.fetch_materializations(key, limit=1).records[0].asset_materialization.metadata
    print(json.dumps({
        "page": [item["kpipe/spark_page"].value for item in page],
        "application": last["kpipe/spark_application"].value,
        "hosts": [record.data for record in last["kpipe/hosts"].value.records],
    }))
"""


def test_the_run_in_dagster_links_to_spark_and_says_what_each_host_did(cluster: Cluster, site: Callable[..., Site]) -> None:
    one = site("shown")
    one.write()
    script = one.home / "materialize.py"
    script.write_text(MATERIALIZE)
    said = cluster["client"].run(sys.executable, script, one.name, timeout=1600, **one.environment(PYTHONPATH=str(ROOT)))
    found = json.loads(said.splitlines()[-1])
    assert found["application"].startswith("app-")
    (page,) = found["page"]
    assert page.startswith(f"http://{cluster['client'].address}:40")
    assert {host["host"].split("/")[0] for host in found["hosts"]} <= {"worker1", "worker2", "worker3"}
    one.exact()
    assert sum(host["records"] for host in found["hosts"]) == len(one.oracle.observer.seen)
    assert all(host["failures"] == 0 and host["seconds"] > 0 for host in found["hosts"])
