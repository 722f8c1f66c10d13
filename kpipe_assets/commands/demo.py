"""`kpipe demo`: load a topic of sample tweets into DuckDB on this machine."""

from __future__ import annotations

import shutil
import sys
import time
from importlib.resources import files
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from kpipe.definition.pipeline import BatchLimits, Into, Pipeline, Source, Transform
from kpipe.errors import KpipeError, TopicUnknown
from kpipe.interfaces import Topics
from kpipe_assets.commands.verify import show
from kpipe_assets.console import listing, wide
from kpipe_assets.example.tweets import PARTITIONS
from kpipe_assets.runs.foreground import run_pipeline
from kpipe_assets.runs.proof import prove
from kpipe_assets.runs.signals import Stop
from kpipe_assets.terminal import echo
from resources.dev_broker.broker import BrokerStatus, LocalBroker
from resources.home import Home

__all__ = ["commands_folder", "demo"]

NAME = "tweets"
RECORDS = 200_000

_WIDTH = 139
"""Width of a terminal that fits all columns."""


@click.command()
@click.option("--records", type=click.IntRange(min=1), help="Number of tweets. Default: 200,000.")
def demo(records: int | None) -> int:
    """Load a topic of sample tweets into DuckDB on this machine.

    Starts a local Kafka, writes tweets to a topic, and ingests them with a transform program on Spark. Then it verifies
    that no record is lost or duplicated. All files are in KPIPE_HOME.

    Run it again to continue after an interruption; no row is duplicated. Ctrl-C stops all its processes.
    """
    home = Home.from_env().make()
    broker = LocalBroker(home.broker)
    ran_before = broker.status().running
    console = wide()
    stop = Stop()
    finished = False
    with stop:
        try:
            console.print("[bold]1. Kafka[/bold]")
            status = broker.start()
            console.print(f"   Apache Kafka {status.version} (KRaft, one node) on {status.brokers}, in {_short(home.broker)}")
            count = records or RECORDS
            pipeline = _pipeline(status.brokers or "", home)
            console.print("[bold]2. A topic of tweets[/bold]")
            _fill(console, broker, status, pipeline, home, count, stop)
            if not stop.requested():
                console.print(
                    "[bold]3. Ingest[/bold]: Spark reads, a program flattens, DuckDB commits rows and offsets in one transaction"
                )
                totals = run_pipeline(pipeline, home, stop=stop)
                if totals.status == "caught_up":
                    console.print("[bold]4. The table[/bold]")
                    _rows(console, home)
                    console.print("[bold]5. The proof[/bold] (kpipe verify tweets)")
                    result = prove(pipeline, home)
                    show(result)
                    finished = result.ok
                    if not finished:
                        return 1
        finally:
            if not finished and not ran_before:
                broker.stop()
    if not finished:
        echo("stopped; run `kpipe demo` again to continue", err=True)
        return 130
    _next(console, home)
    return 0


def _pipeline(brokers: str, home: Home) -> Pipeline:
    pipeline = Pipeline(
        name=NAME,
        source=Source(brokers=brokers, topic=NAME),
        # Four batches, to show progress; with the default, one batch reads all records.
        batch=BatchLimits(max_offsets_per_partition=13_000),
        transform=Transform(program=str(files("transforms") / "programs" / "flatten_tweet.py")),
        columns={"id": "BIGINT", "created_at": "TIMESTAMP WITH TIME ZONE"},
        into=Into(table=NAME),
    )
    home.save(pipeline)
    return pipeline


def _fill(
    console: Console, broker: LocalBroker, status: BrokerStatus, pipeline: Pipeline, home: Home, records: int, stop: Stop
) -> None:
    from kpipe_assets.example.topic import ABORTED, offsets_of, produce
    from resources.destinations import open_destination
    from resources.kafka.topic_metadata import KafkaTopics

    offsets = _offsets(KafkaTopics(pipeline.source))
    if offsets is not None and (offsets >= offsets_of(records) or open_destination(pipeline, home).ledger()[0]):
        console.print(f"   topic {NAME} exists already ({offsets:,} offsets): no records written")
        return
    if offsets is not None:  # an earlier demo was interrupted while it wrote, and no record was ingested
        broker.delete_topic(NAME)
        _wait_until_deleted(pipeline)
    # The tweets' timestamps are in the past: with the default retention, Kafka would delete them within minutes.
    broker.create_topic(NAME, PARTITIONS, {"retention.ms": "-1"})
    began = time.monotonic()
    with console.status(f"writing {records:,} tweets") as spinner:

        def done(written: int) -> None:
            spinner.update(f"writing tweets: {written:,} of {records:,}")

        produce(status.brokers or "", NAME, records, done, stop.requested)
    if stop.requested():
        return
    aborted = f", and {ABORTED} in a transaction that was aborted"
    console.print(f"   {records:,} records on {PARTITIONS} partitions{aborted} ({time.monotonic() - began:.1f} s)")


def _offsets(topics: Topics) -> int | None:
    """Return the sum of the high watermarks, or None if the topic does not exist."""
    try:
        return sum(state.high for state in topics.snapshot().partitions.values())
    except TopicUnknown:
        return None


def _wait_until_deleted(pipeline: Pipeline) -> None:
    from resources.kafka.topic_metadata import KafkaTopics

    topics, deadline = KafkaTopics(pipeline.source), time.monotonic() + 30
    while _offsets(topics) is not None:
        if time.monotonic() > deadline:
            raise KpipeError(f"topic {NAME}: not deleted within 30 s", "kpipe broker stop, then kpipe demo")
        time.sleep(0.2)


def _rows(console: Console, home: Home) -> None:
    import duckdb

    columns = ["id", "lang", "user_name", "hashtags", "_kafka_partition", "_kafka_offset", "text"]
    widest = 40
    if console.width < _WIDTH:
        widest = 30
        columns = [name for name in columns if name not in ("user_name", "hashtags")]
    with duckdb.connect(str(home.data / "kpipe.duckdb"), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        texts = ", ".join(f"CAST({name} AS VARCHAR)" for name in columns)
        order = "(_kafka_offset * 4 + _kafka_partition) % 9973"
        rows = connection.execute(f"SELECT {texts} FROM {NAME} ORDER BY {order} LIMIT 5").fetchall()  # noqa: S608
    table = listing(*(f"{name.removeprefix('_kafka_')}{'>' if name.startswith('_kafka_') else ''}" for name in columns))
    for row in rows:
        cells = [Text("NULL" if value is None else str(value)) for value in row]
        for cell in cells:
            cell.truncate(widest, overflow="ellipsis")  # by width on the screen: 東 is as wide as two letters
        table.add_row(*cells)
    console.print(table)


def _next(console: Console, home: Home) -> None:
    opened = f"duckdb.connect({_short(home.data / 'kpipe.duckdb')!r}, read_only=True)"
    console.print("\n[bold]Next[/bold]")
    lines = {
        "kpipe status": "show positions and lag",
        "kpipe batches tweets": "list committed batches",
        "kpipe errors tweets": "list the dead letters: records that were not JSON",
        "kpipe run tweets --follow": "ingest new records continuously",
        "kpipe ui": "open Dagster: lineage, partitions, plots, checks, continuous ingest",
        f"python -c \"import duckdb; print({opened}.sql('FROM tweets LIMIT 5'))\"": "read the table",
        "kpipe broker stop": "stop the demo's Kafka, which is still running",
    }
    folder = commands_folder()
    for command, text in lines.items():
        console.print(f"   {folder}{command}\n        [dim]{text}[/dim]", markup=True, soft_wrap=True)
    console.print("   with your own Kafka: docs/tutorial/first-pipeline.md")


def commands_folder() -> str:
    """Return what to write before the names of this environment's commands; nothing where the shell finds them."""
    folder = Path(sys.executable).parent
    found = shutil.which("kpipe")
    return "" if found is not None and Path(found).parent == folder else f"{_short(folder)}/"


def _short(path: Path) -> str:
    """Format a path relative to the current folder if it is inside it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
