"""Measure `kpipe audit`: time and memory by number of rows, and the rate at which it reads a topic.

    .venv/bin/python -m bench.studies.audit [MILLIONS_OF_ROWS] [MILLIONS_OF_RECORDS]

Writes results/audit.csv. Tables are generated: 8 partitions in the order in which a loader writes them, with an aborted
transaction in each thousand offsets, a lost row and a duplicate row in each million. Their log is computed, so that the table
side is measured alone; the topic side is measured with a real broker and records of 100 bytes. Memory is the peak of the process.
"""

from __future__ import annotations

import csv
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from confluent_kafka import Producer

from kpipe.audit.outcomes import Outcome, State
from kpipe.audit.windows import LogBounds, Window, windows
from kpipe.definition.pipeline import Source
from resources.audit import run as audit
from resources.audit.table_address import TableAddress
from resources.audit.topic_admin import Identity
from resources.audit.topic_log import TopicLog
from resources.dev_broker.broker import LocalBroker

RESULTS = Path(__file__).parents[1] / "results"
PARTITIONS = 8
FILES = 20
ABORTED, LOST, TWICE = 1000, 1_000_003, 1_000_033
"""Of each so many offsets, one: aborted, without a row, with two rows."""


class _Admin:
    """Bounds of the computed log."""

    end = 0

    def __init__(self, _: Source) -> None: ...

    def state(self) -> tuple[Identity, dict[int, LogBounds]]:
        """See `TopicAdmin`."""
        return Identity("c", "t", "t"), {number: LogBounds(0, self.end, self.end) for number in range(PARTITIONS)}

    def cleanup_policy(self) -> str:
        """See `TopicAdmin`."""
        return "delete"


class _Log(TopicLog):
    """The computed log."""

    def states(self, window: Window) -> Any:
        """See `TopicLog`."""
        made = np.full(len(window), State.VALUE, np.uint8)
        made[-(window.start - 1) % ABORTED :: ABORTED] = State.ABORTED
        made[-(window.start - 2) % ABORTED :: ABORTED] = State.NONE
        return made


def generate(folder: Path, millions: int, document: bool) -> None:
    """Write the table as Parquet files."""
    each = millions * 1_000_000 // PARTITIONS
    part = -(-each // FILES)
    row = (
        '\'{"CreateTime":1700000000000,"offset":\' || o || \',"partition":\' || p || \',"topic":"t"}\' AS RECORD_METADATA'
        if document
        else "p::INTEGER AS _kafka_partition, o AS _kafka_offset"
    )
    with duckdb.connect(config={"threads": 2, "memory_limit": "1GB"}) as connection:
        connection.execute("SET enable_progress_bar = false")
        for at in range(FILES):
            first, end = at * part, min(each, (at + 1) * part)
            connection.execute(
                f"COPY (SELECT {row} FROM range({first}, {end}) AS r(o), range({PARTITIONS}) AS s(p),"
                f" range(CASE WHEN o % {TWICE} = 7 THEN 2 ELSE 1 END) AS twice(n)"
                f" WHERE o % {ABORTED} NOT IN (1, 2) AND o % {LOST} <> 9)"
                f" TO '{folder}/part-{at:03}.parquet' (ROW_GROUP_SIZE 500000)"
            )


def child(folder: str, millions: int) -> None:
    """Audit the generated table, and print seconds until it is read, seconds in all, CPU seconds, peak and report in MB."""
    _Admin.end = millions * 1_000_000 // PARTITIONS
    vars(audit).update(TopicAdmin=_Admin, TopicLog=_Log)
    request = audit.Request(Source(brokers="localhost", topic="t"), TableAddress("parquet", folder))
    began, read = time.monotonic(), [0.0]

    def progress(text: str) -> None:
        if text.startswith("compared") and not read[0]:
            read[0] = time.monotonic() - began

    with tempfile.TemporaryDirectory(dir=Path(folder).parent) as report:
        summary, _, _ = audit.run(request, Path(report), progress)
        size = sum(path.stat().st_size for path in Path(report).iterdir())
    seconds, cpu, peak = time.monotonic() - began, _cpu(), _peak()  # the check below takes memory as well
    totals = summary.totals
    numbers = np.arange(_Admin.end)
    kept = (numbers % ABORTED != 1) & (numbers % ABORTED != 2)
    assert totals[Outcome.MISSING] == PARTITIONS * int((kept & (numbers % LOST == 9)).sum())
    assert totals[Outcome.DUPLICATE] == PARTITIONS * int((kept & (numbers % TWICE == 7)).sum())
    sys.stdout.write(f"{read[0]:.1f} {seconds:.1f} {cpu} {peak} {size >> 20}\n")


def topic_side(millions: int, folder: Path) -> list[str]:
    """Return seconds, CPU seconds and peak in MB to read the states of a real topic."""
    broker = LocalBroker(folder / "broker")
    brokers = broker.start().brokers
    try:
        broker.create_topic("t", 1, {})
        producer = Producer({"bootstrap.servers": brokers, "linger.ms": 50, "queue.buffering.max.messages": 200_000})
        value = b"x" * 100
        for _ in range(millions * 1_000_000):
            while True:
                try:
                    producer.produce("t", value, partition=0)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush(600)
        return _measured("topic", str(brokers), str(millions))
    finally:
        broker.stop()


def topic_child(brokers: str, millions: int) -> None:
    """Read the states of the topic, and print seconds, CPU seconds and the peak in MB."""
    began = time.monotonic()
    with TopicLog(Source(brokers=brokers, topic="t")) as log:
        for window in windows({0: (0, millions * 1_000_000)}):
            assert (log.states(window) == State.VALUE).all()
    sys.stdout.write(f"{time.monotonic() - began:.1f} {_cpu()} {_peak()}\n")


def _cpu() -> str:
    """Return the CPU seconds of this process."""
    return f"{sum(resource.getrusage(resource.RUSAGE_SELF)[:2]):.1f}"


def _peak() -> int:
    """Return the peak of this process in MB; `ru_maxrss` would contain the parent's."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


def _measured(*arguments: str) -> list[str]:
    command = [sys.executable, "-m", "bench.studies.audit", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def main(arguments: Sequence[str]) -> None:
    """Measure, and write the results."""
    millions = int(arguments[0]) if arguments else 100
    records = int(arguments[1]) if len(arguments) > 1 else 5
    lines: list[list[object]] = []
    with tempfile.TemporaryDirectory(prefix="kpipe-audit-") as name:
        for document, size in ((False, millions // 10), (False, millions), (True, millions // 10)):
            folder = Path(name) / f"table-{document}-{size}"
            folder.mkdir()
            generate(folder, size, document)
            found = _measured("table", str(folder), str(size))
            lines.append(["RECORD_METADATA" if document else "two columns", size, *found])
            sys.stdout.write(f"{lines[-1]}\n")
        lines.append(["topic, 100 bytes a record", records, "", *topic_side(records, Path(name)), ""])
        sys.stdout.write(f"{lines[-1]}\n")
    with (RESULTS / "audit.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ["what", "million offsets", "seconds until the table is read", "seconds", "CPU seconds", "peak MB", "report MB"]
        )
        writer.writerows(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["table"]:
        child(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["topic"]:
        topic_child(sys.argv[2], int(sys.argv[3]))
    else:
        main(sys.argv[1:])
