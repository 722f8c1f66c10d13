"""Measure what fingerprints of the last records cost (docs/adr/0054-tail-fingerprint.md), as ratios of pairs.

    .venv/bin/python -m bench.studies.tails [--pairs 60] [--brokers HOST:PORT]

Both sides of a pair read the same range of a real topic in a task (read, decode, stage), or make the same commit to a new DuckDB
file, one with fingerprints and one without, in turn. Prints medians of CPU milliseconds, and of the ratios with their quartiles.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.studies.reader import some_kafka
from kpipe.batch.batch import Batch, Commit, Piece, RangeReport
from kpipe.definition.formats import Format
from kpipe.definition.pipeline import Source
from kpipe.ledger.ledger import Lane, LaneChange, Step
from kpipe.ledger.tail import RECORDS, Tail
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, TopicId
from resources.kafka.client_config import client_config
from resources.kafka.tail_check import TailCheck
from resources.spark.task import range_task
from resources.spark.task.task_spec import JobSpec, TableSpec
from tests.resources.destinations.place import DuckDBPlace

_PARTITIONS = 4
_TEXT = "x" * 200
#: Records of a partition in a batch. The last one is one range for each task, as in a load.
SIZES = (1, 10, 100, 1_000, 10_000, 200_000)
LANES = (4, 100, 1_000)


def compared(name: str, run: Callable[[bool], None], pairs: int) -> None:
    """Run both sides in turn, and print the figures."""
    spent: dict[bool, list[float]] = {True: [], False: []}
    for pair in range(pairs + 3):
        for side in (True, False) if pair % 2 else (False, True):
            began = time.process_time()
            run(side)
            if pair > 2:
                spent[side].append((time.process_time() - began) * 1e3)
    ratios = [a / b for a, b in zip(spent[True], spent[False], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    with_, without = statistics.median(spent[True]), statistics.median(spent[False])
    print(f"| {name} | {without:.2f} | {with_:.2f} | {middle:.3f} ({low:.3f} to {high:.3f}) |", flush=True)


def filled(brokers: str, records: int) -> PartitionId:
    """Make a topic with these records in each partition, in batches as a producer with a linger writes them."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": brokers})  # a client that nobody holds ends its requests
    admin.create_topics([NewTopic(name, _PARTITIONS, 1)])[name].result(60)
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 5, "queue.buffering.max.messages": 2_000_000})
    for at in range(records):
        for partition in range(_PARTITIONS):
            producer.produce(name, json.dumps({"id": at, "text": _TEXT}).encode(), partition=partition)
        producer.poll(0)
    assert producer.flush(600) == 0
    return PartitionId(TopicId("c", "t", name), 0)


def reads(brokers: str, pairs: int) -> None:
    """Compare tasks that read the batch behind the first half of each partition."""
    source = filled(brokers, 2 * max(SIZES))
    start, columns = max(SIZES), Columns.of({"id": "BIGINT", "text": "VARCHAR"})
    sources = [replace(source, partition=number) for number in range(_PARTITIONS)]
    config = client_config(Source(brokers=brokers, topic=source.topic.name), {})
    add, tail = TailCheck.add, TailCheck.tail
    with tempfile.TemporaryDirectory() as folder:

        def stage(begin: int, size: int, after: dict[PartitionId, Tail | None]) -> list[RangeReport]:
            job = JobSpec(uuid.uuid4().hex, config, folder, Format(type="json"), (TableSpec(columns),))
            pieces = [Piece(one, Range(begin, begin + size), after.get(one)) for one in sources]
            reports = list(range_task.run(job, pieces))
            assert all(isinstance(report, RangeReport) and report.counts.rows == size for report in reports), reports
            return [report for report in reports if isinstance(report, RangeReport)]

        for size in SIZES:
            before: dict[PartitionId, Tail | None] = {
                report.source: report.tail for report in stage(start - min(size, RECORDS), min(size, RECORDS), {})
            }

            def run(side: bool, size: int = size, before: dict[PartitionId, Tail | None] = before) -> None:
                TailCheck.add = add if side else lambda *_: None  # type: ignore[method-assign]
                TailCheck.tail = tail if side else lambda _: None  # type: ignore[method-assign]
                stage(start, size, before if side else {})

            compared(f"task, {_PARTITIONS} ranges of {size:,} records", run, pairs if size < 50_000 else max(10, pairs // 4))
    TailCheck.add, TailCheck.tail = add, tail  # type: ignore[method-assign]


def commits(pairs: int) -> None:
    """Compare commits that move lanes, without rows."""
    for number in LANES:
        with tempfile.TemporaryDirectory() as folder:
            folders = {side: Path(folder) / str(side) for side in (True, False)}
            for path in folders.values():
                path.mkdir()
            places = {side: DuckDBPlace(path) for side, path in folders.items()}
            topic, destinations = TopicId("c", "t", "tweets"), {side: place.open() for side, place in places.items()}
            lanes = [Lane(PartitionId(topic, at), 0, 0) for at in range(number)]
            for destination in destinations.values():
                changes = tuple(LaneChange(None, lane) for lane in lanes)
                destination.commit(Commit(uuid.uuid4().hex, "tweets", changes, kind="begin"))
            at = dict.fromkeys(destinations, lanes)

            def run(side: bool, at: dict[bool, list[Lane]] = at, destinations=destinations) -> None:  # type: ignore[no-untyped-def]
                end = at[side][0].next + 5
                tail = Tail.of(end, [(offset, f"{offset:08x}") for offset in range(end - RECORDS, end)], 3) if side else None
                batch = Batch(uuid.uuid4().hex, "tweets", tuple(Step(lane, end, tail=tail) for lane in at[side]))
                changes = tuple(step.change for step in batch.steps)
                destinations[side].commit(Commit(batch.id, "tweets", changes, kind="jump"))
                at[side] = [change.become for change in changes if change.become is not None]

            compared(f"commit, {number:,} lanes", run, pairs)


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--brokers")
    given = parser.parse_args()
    print("| what | CPU ms without | with | ratio, quartiles |\n|---|---|---|---|")
    commits(given.pairs)
    with some_kafka(given.brokers) as brokers:
        reads(brokers, given.pairs)


if __name__ == "__main__":
    main()
