"""Measure freshness across handovers: time from produce to queryable while continuous runs replace each other.

    .venv/bin/python bench/studies/handover.py [--rate 1000] [--seconds 240] [--run-s 70] [--lead-s 30] [--interval-ms 0]

Starts Kafka, and Dagster's webserver and daemon in a home of their own; turns the sensor on, and produces at a steady rate.
Then joins each row's Kafka timestamp (its produce time) with the commit time of its batch. Prints p50 and p99, the longest
time between two commits, the handovers, and Dagster events per hour.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import duckdb
from confluent_kafka import Producer

from kpipe.definition.pipeline import BatchLimits, Into, Pipeline, Source
from kpipe_assets.dagster_server.instance import open_instance
from resources.dev_broker.broker import LocalBroker
from resources.home import Home
from resources.java import find_java

QUERY = """
WITH latencies AS (
    SELECT epoch_ms(c.committed) - epoch_ms(t._kafka_timestamp) AS ms
    FROM fresh t JOIN kpipe_batches b
      ON b.batch_source_partition_id = t._kafka_partition::VARCHAR
     AND t._kafka_offset >= b.batch_earliest_offset AND t._kafka_offset < b.batch_latest_offset
    JOIN kpipe_commits c ON c.batch_id = b.batch_id
    WHERE t.id >= $1
)
SELECT count(*), quantile_cont(ms, 0.5), quantile_cont(ms, 0.99), max(ms) FROM latencies
"""


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    for name, default in (("rate", 1000), ("seconds", 240), ("run-s", 70), ("lead-s", 30), ("interval-ms", 0), ("port", 3917)):
        options.add_argument(f"--{name}", type=int, default=default)
    asked = options.parse_args()
    find_java()
    with tempfile.TemporaryDirectory() as folder:
        measure(Home.at(folder).make(), asked)


def measure(home: Home, asked: argparse.Namespace) -> None:
    """Measure once in that home."""
    broker = LocalBroker(home.broker)
    brokers = broker.start().brokers or ""
    broker.create_topic("fresh", 4)
    source = Source(brokers=brokers, topic="fresh")
    home.save(Pipeline(name="fresh", source=source, batch=BatchLimits(interval_ms=asked.interval_ms), into=Into(table="fresh")))
    dagster_home = home.dagster
    dagster_home.mkdir(exist_ok=True)
    template = Path(__file__).resolve().parents[2] / "kpipe_assets" / "dagster.yaml"
    (dagster_home / "dagster.yaml").write_text(template.read_text())
    environment = {
        **os.environ, "KPIPE_HOME": str(home.path), "DAGSTER_HOME": str(dagster_home),
        "KPIPE_BENCH_RUN_S": str(asked.run_s), "KPIPE_BENCH_LEAD_S": str(asked.lead_s),
    }  # fmt: skip
    definitions = str(Path(__file__).with_name("handover_definitions.py"))
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "dagster",
        "dev",
        "-f",
        definitions,
        "-p",
        str(asked.port),
        "-h",
        "127.0.0.1",
    ]
    with (home.logs / "dagster.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        switch_on(asked.port)
        warm = produce(brokers, asked.rate, asked.seconds, home)
        time.sleep(5)
        report(home, asked, warm)
    finally:
        os.killpg(server.pid, signal.SIGINT)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
        broker.stop()


def ask(port: int, query: str, variables: dict[str, Any] | None = None) -> dict[str, Any]:
    """Send a GraphQL request."""
    body = json.dumps({"query": query, "variables": variables or {}}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
    return found["data"]


def switch_on(port: int) -> None:
    """Wait for the server, then start the sensor."""
    selector = "{repositories: repositoriesOrError {... on RepositoryConnection {nodes {name location {name}}}}}"
    for _ in range(120):
        try:
            (node,) = ask(port, selector)["repositories"]["nodes"]
            break
        except (OSError, ValueError, KeyError, TypeError):
            time.sleep(1)
    else:
        raise SystemExit("Dagster did not start")
    where = {"repositoryName": node["name"], "repositoryLocationName": node["location"]["name"], "sensorName": "fresh_ingest"}
    mutation = "mutation($s: SensorSelector!) {startSensor(sensorSelector: $s) {__typename}}"
    answer = ask(port, mutation, {"s": where})
    if answer["startSensor"]["__typename"] != "Sensor":
        raise SystemExit(f"the sensor did not start: {answer}")


def produce(brokers: str, rate: int, seconds: int, home: Home) -> int:
    """Produce at the rate; return the first id produced after ingest had caught up for the first time."""
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 5, "acks": 1})
    number, warm, began = 0, 0, time.time()
    while time.time() - began < seconds:
        due = int((time.time() - began) * rate)
        while number < due:
            producer.produce("fresh", json.dumps({"id": number, "text": "x" * 200}), partition=number % 4)
            number += 1
        producer.poll(0)
        if not warm and number % 1000 < rate // 50 and committed(home) > max(0, number - 3 * rate):
            warm = number + 5 * rate
        time.sleep(0.01)
    producer.flush(30)
    return warm


def committed(home: Home) -> int:
    """Return the rows in the table; 0 while it cannot be read."""
    try:
        with duckdb.connect(str(home.data / "kpipe.duckdb"), read_only=True) as connection:
            return int(connection.execute("SELECT count(*) FROM fresh").fetchall()[0][0])
    except duckdb.Error:
        return 0


def report(home: Home, asked: argparse.Namespace, warm: int) -> None:
    """Return the results."""
    for _ in range(100):
        try:
            connection = duckdb.connect(str(home.data / "kpipe.duckdb"), read_only=True)
            break
        except duckdb.Error:
            time.sleep(0.1)
    rows, p50, p99, longest = connection.execute(QUERY, [warm]).fetchall()[0]
    total, distinct = connection.execute("SELECT count(*), count(DISTINCT id) FROM fresh").fetchall()[0]
    commits = connection.execute(
        "SELECT epoch_ms(committed), run_id FROM kpipe_commits WHERE kind = 'batch' ORDER BY committed"
    ).fetchall()
    gaps = [later[0] - earlier[0] for earlier, later in itertools.pairwise(commits)]
    handovers = [later[0] - earlier[0] for earlier, later in itertools.pairwise(commits) if earlier[1] != later[1]]
    spans = connection.execute(
        "SELECT run_id, min(epoch_ms(committed)), max(epoch_ms(committed)), count(*) FROM kpipe_commits"
        " WHERE kind = 'batch' GROUP BY 1 ORDER BY 2"
    ).fetchall()
    show_runs(home, spans)
    events = connection_to_events(home)
    hours = asked.seconds / 3600
    print(f"{asked.rate} msg/s for {asked.seconds} s, runs of {asked.run_s} s, interval {asked.interval_ms} ms")
    print(f"produce to queryable over {rows:,} rows: p50 {p50:.0f} ms, p99 {p99:.0f} ms, longest {longest:.0f} ms")
    print(f"rows {total:,}, distinct {distinct:,}; commits {len(commits)}; longest gap between commits {max(gaps)} ms")
    print(f"handovers {len(handovers)}, commit to commit across them: {handovers} ms")
    print(f"Dagster events {events}: {events / hours:,.0f} an hour")


def show_runs(home: Home, spans: list[tuple[str, int, int, int]]) -> None:
    """Show for each run the times of request, start, first and last commit, and end, in seconds from the first."""
    import dagster as dg

    with open_instance(home.dagster) as instance:
        records = {record.dagster_run.run_id: record for record in instance.get_run_records()}
        for run_id, record in records.items():
            if record.dagster_run.status == dg.DagsterRunStatus.FAILURE:
                failures = instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
                texts = [item.dagster_event.step_failure_data.error_display_string[:500] for item in failures]
                print(f"  FAILED {run_id[:8]}: {texts}")
    zero = min(record.create_timestamp.timestamp() for record in records.values())
    for run_id, first, last, count in spans:
        record = records[run_id]
        moments = (record.create_timestamp.timestamp(), record.start_time or 0, first / 1000, last / 1000, record.end_time or 0)
        words = ("asked for", "started", "first commit", "last commit", "ended")
        shown = ", ".join(f"{word} {at - zero:.1f}" for word, at in zip(words, moments, strict=True) if at)
        print(f"  run {run_id[:8]}: {shown} s; {count} commits")


def connection_to_events(home: Home) -> int:
    """Count rows in Dagster's event log, in all run shards and the index."""
    import sqlite3

    total = 0
    for file in (home.dagster / "history" / "runs").glob("*.db"):
        with sqlite3.connect(file) as connection:
            try:
                total += connection.execute("SELECT count(*) FROM event_logs").fetchone()[0]
            except sqlite3.Error:
                continue
    return total


if __name__ == "__main__":
    main()
