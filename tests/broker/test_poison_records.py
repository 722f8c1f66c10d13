"""Records that make a program fail, in a task without Spark: read from a real Kafka, found, set aside, and the rest staged."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from kpipe.batch.batch import Piece, RangeReport
from kpipe.definition.formats import Format
from kpipe.definition.pipeline import Source
from kpipe.errors import TransformFailed
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, TopicId
from resources.kafka.client_config import client_config
from resources.spark.task import range_task
from resources.spark.task.task_spec import JobSpec, ProgramSpec, TableSpec
from tests.patience import longer

pytestmark = pytest.mark.broker

OBEDIENT = """#!/usr/bin/env python3
import json, os, signal, struct, sys, time, uuid
framing, run, read, out = sys.argv[1], uuid.uuid4().hex, sys.stdin.buffer, sys.stdout.buffer

def records():
    if framing == "length-prefixed":
        while head := read.read(8):
            yield read.read(struct.unpack("@Q", head)[0])
    else:
        for line in read:
            yield json.loads(line)["value"] if framing == "json" else line

for record in records():
    if record is None:
        out.write(b"{}\\n")
        continue
    row = json.loads(record)
    do = row.pop("do", "")
    if do == "exit":
        sys.exit(f"boom: cannot take {row['id']}")
    if do == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if do == "drop":
        continue
    if do == "tear":
        out.write(b'{"id":')
        break
    out.write(json.dumps({**row, "run": run}).encode() + b"\\n")
    if do == "twice":
        out.write(b"{}\\n")
    while do == "flood":
        out.write(b"{}\\n" * 1000)
"""


class Bench:
    """A topic of one partition with records, and a program to stage them through."""

    def __init__(self, brokers: str, topic: str, folder: Path) -> None:
        self.brokers, self.topic, self.folder = brokers, topic, folder
        self.source = PartitionId(TopicId("cluster", "id", topic), 0)
        self.end = 0

    def write(self, count: int, orders: dict[int, str] | None = None, *, abort: bool = False) -> None:
        """Records with ids that equal their offsets, until there is a transaction that is given up (`abort`)."""
        settings = {"transactional.id": f"of-{self.topic}", "transaction.timeout.ms": 900_000} if abort else {}
        producer = Producer({"bootstrap.servers": self.brokers, **settings})
        if abort:
            producer.init_transactions(300)
            producer.begin_transaction()
        for offset in range(self.end, self.end + count):
            do = {"do": orders[offset]} if orders and offset in orders else {}
            producer.produce(self.topic, json.dumps({"id": offset, **do}), partition=0)
        assert producer.flush(300) == 0
        self.end += count
        if abort:
            producer.abort_transaction(300)
            self.end += 1

    def tombstone(self) -> None:
        producer = Producer({"bootstrap.servers": self.brokers})
        producer.produce(self.topic, None, partition=0)
        assert producer.flush(300) == 0
        self.end += 1

    def job(
        self, text: str = OBEDIENT, policy: str = "dead_letter", stdin: str = "lines", mode: str = "map", **more: Any
    ) -> JobSpec:
        file = self.folder / "program"
        file.write_text(text)
        file.chmod(0o755)
        poison_records = more.pop("poison_records", {})
        spec = ProgramSpec(str(file), None, hashlib.sha256(text.encode()).hexdigest(), (stdin,), stdin, mode, **more)
        staging = self.folder / "home" / "staging"
        staging.mkdir(parents=True, exist_ok=True)
        config = client_config(Source(brokers=self.brokers, topic=self.topic), {})
        columns = Columns.of({"id": "BIGINT", "run": "VARCHAR"})
        return JobSpec(
            "b" * 32,
            config,
            str(staging),
            Format(),
            (TableSpec(columns),),
            transform=policy,
            program=spec,
            programs=str(staging.parent / "programs"),
            poison_records=poison_records,
        )  # type: ignore[arg-type]

    def stage(self, job: JobSpec) -> RangeReport:
        report = range_task.stage(job, Piece(self.source, Range(0, self.end)))
        assert report.counts.unaccounted(self.end) == 0
        return report

    def failure(self, job: JobSpec) -> str:
        with pytest.raises(TransformFailed) as caught:
            self.stage(job)
        return str(caught.value)


@pytest.fixture
def bench(brokers: str, topic: Callable[..., str], tmp_path: Path) -> Bench:
    return Bench(brokers, topic(1), tmp_path)


def rows(report: RangeReport, *names: str) -> list[tuple[Any, ...]]:
    (file,) = report.tables[0].files
    table = pq.read_table(file.path)
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def dead(report: RangeReport) -> dict[int, str]:
    """Reasons by the records' ids."""
    assert report.dead_letters is not None
    table = pq.read_table(report.dead_letters.path)
    assert set(table.column("stage").to_pylist()) == {"transform"}
    ids = [json.loads(value)["id"] for value in table.column("value").to_pylist()]
    return dict(zip(ids, table.column("reason").to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("mode", "stdin"),
    [("map", "lines"), ("map", "json"), ("filter", "length-prefixed"), ("flatmap", "json")],
)
def test_every_mode_and_framing(bench: Bench, mode: str, stdin: str) -> None:
    orders = {0: "exit", 76: "crash"}
    bench.write(80, orders)
    if stdin != "json":
        bench.tombstone()
    report = bench.stage(bench.job(stdin=stdin, mode=mode))
    assert list(dead(report)) == list(report.poison_records) == list(orders)
    found = rows(report, "id", "run", "_kafka_offset")
    assert [row[0] for row in found] == [offset for offset in range(80) if offset not in orders]
    assert len({row[1] for row in found}) == 1  # all of one run: no row of one that failed, or of a trial
    assert mode != "map" or all(row[0] == row[2] for row in found)
    assert report.counts.filtered == (stdin != "json")
    assert (report.counts.given, report.counts.set_aside_before) == ((78, 2) if mode == "flatmap" else (0, 0))


def test_records_that_break_the_mode_are_found_among_gaps(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.write(30, {4: "twice"})
    bench.write(10, abort=True)
    bench.write(20, {50: "flood"})
    report = bench.stage(replace(bench.job(), pipeline="orders"))
    lines = [vars(line) for line in caplog.records if line.name == "kpipe.transform"]
    assert lines and {(line["pipeline"], line["batch"]) for line in lines} == {("orders", "b" * 32)}
    reasons = dead(report)
    assert "1 records in, 2 out" in reasons[4] and "1 records in" in reasons[50]
    assert len(rows(report, "id")) == 48 and report.counts.gaps == 11


@pytest.mark.parametrize(("mode", "said"), [("filter", "mode filter"), ("flatmap", "more than 1,000,000 bytes")])
def test_one_that_makes_it_write_for_ever_is_found(bench: Bench, mode: str, said: str) -> None:
    bench.write(20, {11: "flood"})
    report = bench.stage(bench.job(mode=mode, max_output_bytes=1_000_000))
    assert list(report.poison_records) == [11] and said in report.poison_records[11]
    assert len(rows(report, "id")) == 19


def test_skip_counts_them_and_keeps_nothing(bench: Bench) -> None:
    bench.write(60, {7: "exit", 50: "crash"})
    report = bench.stage(bench.job(policy="skip"))
    assert (report.counts.rows, report.counts.dead_letters, report.counts.filtered) == (58, 0, 2)
    assert report.dead_letters is None


def test_fail_names_the_first_one_and_stages_nothing_more(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.write(60, {7: "exit", 50: "crash"})
    said = bench.failure(bench.job(policy="fail"))
    assert said.startswith(f"{bench.source} offset 7: this record makes the program fail: transform program")
    assert "exited with status 1; stderr: boom: cannot take 7 (alone, 2 times; found in" in said
    assert "errors.transform: dead_letter" in said
    told = [record.message for record in caplog.records if record.name == "kpipe.transform"]
    assert "searching for the record" in told[0] and "60 s without progress" in told[0]
    assert len(told) == 2


HANGS = '#!/bin/sh\nwhile read -r line; do case $line in *hang*) sleep 3600;; esac; echo "$line"; done\n'


def test_one_that_hangs_is_found_with_the_shorter_deadline(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "kpipe.transform")
    bench.write(16, {15: "hang"})

    def found(limit_s: float) -> None:
        report = bench.stage(bench.job(HANGS, idle_timeout_s=limit_s, trial_timeout_s=limit_s / 2))
        assert list(report.poison_records) == [15]
        # A record is only blamed after all the time that it may take.
        assert f"no progress for {limit_s:g} s" in report.poison_records[15]
        assert f"each stopped after {limit_s / 2:g} s without progress" in caplog.text

    longer(found, 5, 40)  # the program must start in half of that


def test_those_that_are_known_are_not_searched_again(bench: Bench) -> None:
    bench.write(40, {7: "exit"})
    job = bench.job(poison_records={bench.source: {7: "known from before"}})
    report = bench.stage(job)
    assert report.poison_records == {} and dead(report) == {7: "known from before"}


def test_columns_are_seen_without_them(bench: Bench) -> None:
    bench.write(40, {7: "exit"})
    payloads, found = range_task.sample(bench.job(), Piece(bench.source, Range(0, 40)), 500)
    assert [json.loads(line)["id"] for line in payloads] == [offset for offset in range(40) if offset != 7]
    assert list(found) == [7]


def test_of_a_failure_that_does_not_come_back_nobody_is_blamed(bench: Bench) -> None:
    bench.write(40)
    note = bench.folder / "failed-once"
    said = bench.failure(bench.job(f"#!/bin/sh\n[ -e {note} ] && exec cat\ntouch {note}\nexit 3\n"))
    assert "exited with status 3" in said and "a second run over the same records did not fail" in said


def test_one_that_fails_again_without_them_says_so(bench: Bench) -> None:
    bench.write(40, {7: "exit"})
    text = """#!/usr/bin/env python3
import sys
lines = sys.stdin.buffer.readlines()
if any(b"exit" in line for line in lines) or len(lines) > 35:
    sys.exit("too much")
sys.stdout.buffer.writelines(lines)
"""
    said = bench.failure(bench.job(text))
    assert "stderr: too much; it also fails without the 1 poison record(s), the first at offset 7" in said


def test_a_program_that_counts_its_records_blames_none(bench: Bench) -> None:
    bench.write(40)
    said = bench.failure(bench.job("#!/bin/sh\nexec awk '{ print } NR == 30 { exit 4 }'\n"))
    assert "exited with status 4" in said and "none of them alone" in said


def test_line_ends_of_another_system_and_a_byte_order_mark(bench: Bench) -> None:
    bench.write(30)
    assert [row[0] for row in rows(bench.stage(bench.job("#!/bin/sh\nexec sed 's/$/\\r/'\n")), "id")] == list(range(30))
    report = bench.stage(bench.job("#!/bin/sh\nexec sed '1s/^/\\xef\\xbb\\xbf/'\n"))
    assert (report.counts.rows, report.counts.dead_letters) == (29, 1) and report.poison_records == {}
    assert "JSON" in report.sample_dead_letter


def test_a_row_over_two_lines_is_nobodys_answer(bench: Bench) -> None:
    bench.write(30)
    said = bench.failure(bench.job("#!/bin/sh\nexec sed 's/,/,\\n/; s/^{/{\\n/'\n"))
    assert "30 records in, 60 out" in said and "fails on everything" in said


def test_what_is_no_records_fault_is_not_searched(bench: Bench) -> None:
    bench.write(3)
    job = bench.job()
    (bench.folder / "program").write_text("#!/bin/sh\nexec cat\n")
    said = bench.failure(job)
    assert "not the checked file" in said and "tries" not in said
