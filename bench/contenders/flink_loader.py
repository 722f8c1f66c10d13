"""Measure Flink SQL: from Kafka into Parquet files, exactly once, with large fetches and a commit each second.

Flink's SQL client runs the same INSERT twice in one JVM, each on a cluster of its own within it. The first is the warm-up.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

from bench.child import clean_environment, stop, usage
from bench.meter import Meter
from bench.peers import Peers
from bench.topics import Topic
from resources.java import find_java

__all__ = ["drain"]

_DONE = "Complete execution of the SQL update statement."
_OPENED = ("lang", "lang.reflect", "net", "io", "nio", "text", "time", "util", "util.concurrent", "util.concurrent.atomic")
_SETTINGS = """
execution: {target: local, runtime-mode: streaming, checkpointing: {interval: 1s}}
parallelism: {default: 2}
table: {dml-sync: true}
taskmanager: {numberOfTaskSlots: 2, memory: {network: {min: 128mb, max: 128mb}}}
"""
_COLUMNS = """
    id BIGINT, created_at TIMESTAMP_LTZ(6), `text` STRING, lang STRING,
    `user` ROW<id BIGINT, screen_name STRING, followers BIGINT>, retweets BIGINT, score DOUBLE
"""
_SOURCE = """
CREATE TEMPORARY TABLE tweets ({columns}) WITH (
    'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{brokers}',
    'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',
    'properties.max.partition.fetch.bytes' = '16777216', 'properties.fetch.max.bytes' = '67108864',
    'properties.max.poll.records' = '10000',
    'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601'
);
"""
_SINK = """
CREATE TEMPORARY TABLE {name} ({columns}) WITH (
    'connector' = 'filesystem', 'path' = 'file://{folder}', 'format' = 'parquet', 'parquet.compression' = 'SNAPPY',
    'parquet.write.int64.timestamp' = 'true', 'parquet.timestamp.time.unit' = 'micros'
);
INSERT INTO {name} SELECT * FROM tweets;
"""


def drain(peers: Peers, out: Path, brokers: str, topic: Topic) -> dict[str, Any]:
    """Return the seconds from the end of the first INSERT until the second one has committed its last file.

    Raises:
        RuntimeError: a statement failed.
    """
    script, files = out / "drain.sql", out / "drained"
    out.mkdir(parents=True)
    (out / "config.yaml").write_text(_SETTINGS)
    tables = [_SINK.format(name=name, columns=_COLUMNS, folder=out / name) for name in ("warm_up", "drained")]
    script.write_text(_SOURCE.format(columns=_COLUMNS, topic=topic.name, brokers=brokers) + "".join(tables))
    jars = [*sorted(peers.flink.glob("*.jar")), *peers.jars("flink", "hadoop")]
    opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED]
    command = [
        f"{find_java().path}/bin/java", "-Xms2g", "-Xmx6g", "-XX:+UseParallelGC", *opened, "-cp", ":".join(map(str, jars)),
        "org.apache.flink.table.client.SqlClient", "-f", str(script),
    ]  # fmt: skip
    ends, said = list[float](), list[str]()
    with (out / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, cwd=out, start_new_session=True,
            env=clean_environment(FLINK_CONF_DIR=str(out), JAVA_HOME=str(find_java().path)),
        )  # fmt: skip
        try:
            with Meter(process.pid) as meter:
                assert process.stdout is not None
                for line in process.stdout:
                    said.append(line)
                    if _DONE in line:
                        ends.append(time.time())
        finally:
            stop(process)
    if len(ends) != 2:
        raise RuntimeError(f"flink: {''.join(said)[-1500:]}")
    spent = {**usage(meter), "cpu_s": round(meter.cpu_until(ends[1]) - meter.cpu_until(ends[0]), 2)}
    return {"seconds": ends[1] - ends[0], "files": sorted(files.glob("part-*")), **spent}
