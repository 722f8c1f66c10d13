"""A real query of Structured Streaming is killed between the sink's commit and its own; a pipeline takes over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kpipe.errors import NotAvailable
from resources.dev_broker import kafka_jars
from resources.java import JavaHome
from tests.commandline import Kpipe

pytestmark = [pytest.mark.broker, pytest.mark.chaos]
LOCK = Path(__file__).parents[2] / "servers" / "requirements-spark-kafka.lock"

#: Writes batches of nine offsets at most as Parquet; ends the process in batch 2, before or after it has written.
QUERY = """
import os, signal, sys
from pyspark.sql import SparkSession
jars, brokers, topic, out, moment = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.jars", jars).config("spark.ui.enabled", "false").getOrCreate()
records = spark.readStream.format("kafka").option("kafka.bootstrap.servers", brokers).option("subscribe", topic)
records = records.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "9").load()
def land(rows, number):
    if (number, moment) == (2, "before"):
        os.kill(os.getpid(), signal.SIGKILL)
    rows.select("topic", "partition", "offset").coalesce(1).write.mode("append").parquet(out + "/table")
    if (number, moment) == (2, "after"):
        os.kill(os.getpid(), signal.SIGKILL)
query = records.writeStream.foreachBatch(land).option("checkpointLocation", out + "/checkpoint")
query.trigger(availableNow=True).start().awaitTermination()
"""


@pytest.fixture(scope="session")
def jars(request: pytest.FixtureRequest) -> str:
    cache = request.config.cache
    assert cache is not None
    try:
        folder = kafka_jars.install(LOCK, cache.mkdir("spark-kafka") / "jars")
    except NotAvailable as error:
        pytest.skip(str(error))
    return ",".join(map(str, sorted(folder.glob("*.jar"))))


@pytest.mark.parametrize("moment", ["before", "after"])
def test_no_record_is_lost_or_duplicated(
    tmp_path: Path, brokers: str, java: JavaHome, jars: str, topic: Callable[..., str], write: Any, moment: str
) -> None:
    name = topic(partitions=3)
    for number in range(3):
        write(name, [b'{"id": 1}'] * 12, number)
    environment = {**os.environ, "JAVA_HOME": str(java.path)}
    arguments = [sys.executable, "-c", QUERY, jars, brokers, name, str(tmp_path), moment]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode != 0, done.stderr
    command = Kpipe(tmp_path / "home", brokers)
    command.define("orders", name)
    checkpoint, table = f"checkpoint:{tmp_path}/checkpoint", ("--type", "parquet", "--database", str(tmp_path / "table"))
    refused = command("adopt", "orders", "--from", checkpoint, status=1)
    assert "batch 2 (" in refused.stderr and "planned, not committed" in refused.stderr
    done_json = command.json("adopt", "orders", "--from", checkpoint, "--check", "table", *table, "--apply")
    assert done_json[0]["applied"]
    assert {item["position"] for item in done_json[0]["partitions"]} == ({9} if moment == "after" else {6})
    write(name, [b'{"id": 2}'] * 5)
    command("run", "orders")
    both = tmp_path / "both.duckdb"
    with duckdb.connect(str(both)) as connection:
        connection.execute(f"ATTACH '{command.home}/data/kpipe.duckdb' AS kpipe (READ_ONLY)")
        connection.execute(
            f'CREATE TABLE audited AS SELECT partition AS _kafka_partition, "offset" AS _kafka_offset'
            f" FROM read_parquet('{tmp_path}/table/*.parquet')"
            " UNION ALL SELECT _kafka_partition, _kafka_offset FROM kpipe.orders"
        )
    place = ("--type", "duckdb", "--database", str(both), "--table", "audited")
    (audited,) = command.json("audit", name, "--brokers", brokers, *place)
    assert (audited["verdict"], audited["outcomes"]) == ("explained", {"matched": 41})
    assert json.loads(command("verify", "orders", "--json").stdout)["ok"]
