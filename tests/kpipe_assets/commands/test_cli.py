"""What the commands say to a person: help, sentences, tables, hints."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from confluent_kafka import Producer

from kpipe.batch.batch import Counts
from kpipe.definition.pipeline import Into, Pipeline, Source
from kpipe.definition.source import Files
from kpipe.errors import BrokerUnreachable, ReadStalled
from kpipe.ledger import transitions
from kpipe.ledger.ledger import LaneChange, Ledger
from kpipe.offsets import Range
from kpipe.run_events import Event
from kpipe.terminal import plain
from kpipe.topics import PartitionId, PartitionState, TopicId, TopicSnapshot
from kpipe.verification.verify import Audit, Entry, Recount, audit
from kpipe_assets.cli import kpipe as command
from kpipe_assets.commands.errors import _record
from kpipe_assets.commands.verify import _GUIDE, show
from kpipe_assets.runs.foreground import Totals, _all_filtered, _sentence
from kpipe_assets.runs.progress import Progress
from kpipe_assets.wording import count, first_sentence
from resources.destinations import open_destination
from resources.home import Home


def every(group: click.Command = command, path: str = "kpipe") -> Iterator[tuple[str, click.Command]]:
    """Every command with the words that call it."""
    yield path, group
    if isinstance(group, click.Group):
        for name in group.list_commands(click.Context(group)):
            found = group.get_command(click.Context(group), name)
            assert found is not None
            yield from every(found, f"{path} {name}")


@pytest.mark.parametrize(("path", "one"), list(every()), ids=lambda value: value if isinstance(value, str) else "")
def test_help_has_no_marks_and_an_example_on_each_line(path: str, one: click.Command) -> None:
    text = one.get_help(click.Context(one, info_name=path))
    assert "\\" not in text and "\b" not in text
    if "Examples:" not in text:
        return
    examples = text.partition("Examples:\n")[2].split("\n\n")[0].splitlines()
    assert examples and all(line.startswith("    kpipe ") and line.count("kpipe ") == 1 for line in examples), text


# -- sentences


def test_words_for_numbers_and_for_what_cannot_be_printed() -> None:
    assert [count(n, "batch", "batches") for n in (0, 1, 2000)] == ["0 batches", "1 batch", "2,000 batches"]
    assert count(1, "row") == "1 row" and count(2, "row") == "2 rows"
    assert plain("a\x1b[31mb\n\u202e東") == "a\\x1b[31mb\\n\\u202e東"
    assert first_sentence("t/0: offsets are gone; and more -> kpipe run t") == "t/0: offsets are gone"


@pytest.mark.parametrize(
    ("status", "idle", "behind", "words"),
    [
        ("caught_up", "caught_up", 0, "nothing new; every committed offset is already in the table"),
        ("caught_up", "open_transaction", 1, "nothing new; 1 offset waits behind an open transaction"),
        ("caught_up", "open_transaction", 1200, "nothing new; 1,200 offsets wait behind an open transaction"),
        ("caught_up", "finished", 0, "nothing new; it has been read to its end (source.end)"),
        ("caught_up", "no_partitions", 0, "nothing to read: no partition was chosen, or none exists"),
        ("error", "", 5, "failed, nothing written"),
        ("stopped", "caught_up", 0, "stopped, nothing written"),
    ],
)
def test_a_run_without_batches(status: str, idle: str, behind: int, words: str) -> None:
    progress = Progress("p", quiet=True)
    progress.idle, progress.behind = idle, behind
    assert _sentence("p", Totals(status=status), progress) == f"p: {words}"


def test_a_run_without_files_names_the_path() -> None:
    progress = Progress("p", quiet=True)
    progress.idle = "no_partitions"
    found = _sentence("p", Totals(status="caught_up"), progress, Files(path="/in/{a,b}.csv"))
    assert found == "p: nothing to read: no file matches /in/{a,b}.csv, or none has a record"


@pytest.mark.parametrize(
    ("has_read", "skipped", "words"),
    [
        (True, 2, "every committed offset is already in the table, 2 offsets were skipped"),
        (False, 1, "no records since the pipeline began; 1 offset was skipped"),
        (False, 0, "no records yet"),
    ],
)
def test_a_run_that_finds_nothing_says_what_was_read(has_read: bool, skipped: int, words: str) -> None:
    """A pipeline from LATEST has committed no offset: its table is not said to hold every one."""
    progress = Progress("p", quiet=True)
    source = PartitionId(TopicId("c", "i", "t"), 0)
    at = skipped + 3 if has_read else skipped
    changes = transitions.begin(source, skipped, 0)
    ledger = Ledger("p").after(changes)
    if has_read:
        live = ledger.live(source)
        assert live is not None
        ledger = ledger.after((LaneChange(live, live.advanced(at)),))
    snapshot = TopicSnapshot({source: PartitionState(0, at, at)})
    progress.on_event(Event("idle", text="caught_up", snapshot=snapshot, ledger=ledger))
    assert _sentence("p", Totals(status="caught_up"), progress) == f"p: nothing new; {words}"


def test_a_run_with_one_batch() -> None:
    progress = Progress("p", quiet=True)
    totals = Totals(batches=1, counts=Counts(messages=2, rows=1, dead_letters=1, gaps=1), seconds=2.0)
    text = "after 1 batch: 2 records, 1 row, 1 dead letter, 0 filtered, 1 gap in 2.0 s (1 records/s, start-up included)"
    progress.idle = "caught_up"
    assert _sentence("p", totals, progress) == f"p: caught up {text}"
    progress.idle = "finished"
    assert _sentence("p", totals, progress) == f"p: read to its end (source.end) {text}"
    progress.idle, progress.behind = "open_transaction", 3
    assert _sentence("p", totals, progress) == f"p: caught up {text}; 3 offsets wait behind an open transaction"


@pytest.mark.parametrize(
    ("condition", "counts", "warned"),
    [
        ({"where": "adn > 1"}, Counts(messages=3, filtered=3), "`where` has filtered every record"),
        ({"select": "SELECT id FROM records WHERE adn > 1"}, Counts(messages=3, filtered=3), "`select` has filtered"),
        ({"where": "adn > 1"}, Counts(messages=3, filtered=2, rows=1), ""),
        ({"where": "adn > 1"}, Counts(), ""),
        ({}, Counts(messages=3, filtered=3), ""),  # null values, or a program
    ],
)
def test_a_condition_that_filters_every_record_is_pointed_out(condition: dict[str, str], counts: Counts, warned: str) -> None:
    pipeline = Pipeline(name="p", source=Source(brokers="b:1", topic="t"), into=Into(table="t"), **condition)
    found = _all_filtered(pipeline, counts)
    assert warned in found
    assert bool(found) == bool(warned)


def test_an_error_that_repeats_is_printed_whole_once(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("p")
    silent = "no broker of b:9092 answered within 10 s: b:9092/boot: refused (after {}ms in state CONNECT)"
    for attempt in (1, 2):
        error = BrokerUnreachable(silent.format(attempt), "check source.brokers, and that Kafka runs")
        progress.on_event(Event("retry", text=f"{error}; again in 5 s ({attempt}/4)"))
    for attempt in (3, 4):
        progress.on_event(Event("planned"))
        error = ReadStalled("t/0 [30, 50): nothing came for 60 s", "check the brokers")
        progress.on_event(Event("retry", text=f"{error}; again in 5 s ({attempt}/4)"))
    progress.on_event(Event("idle", text="caught_up"))
    progress.on_event(Event("retry", text="t/0 [30, 50): nothing came for 60 s; again in 5 s (1/4)"))
    lines = capsys.readouterr().err.replace("\n", " ").split("p: ")[1:]
    assert [line.strip() for line in lines] == [
        f"{silent.format(1)} -> check source.brokers, and that Kafka runs; again in 5 s (1/4)",
        "still: no broker of b:9092 answered within 10 s; again in 5 s (2/4)",
        "t/0 [30, 50): nothing came for 60 s -> check the brokers; again in 5 s (3/4)",
        "still: t/0 [30, 50): nothing came for 60 s; again in 5 s (4/4)",
        "t/0 [30, 50): nothing came for 60 s; again in 5 s (1/4)",
    ]


def test_a_proof_that_fails_says_so_last_and_names_a_chapter_that_exists(capsys: pytest.CaptureFixture[str]) -> None:
    show(Audit(5, Counts(rows=5), {}, ["partition 0: expected 5 rows, found 4 in the table"]))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("problem: partition 0") and lines[1].startswith("NOT proven: 1 problem; see docs/")
    guide = (Path(__file__).parents[3] / "docs" / "how-to" / "operate" / "recover.md").read_text()
    assert f"\n## {_GUIDE}\n" in guide


def test_a_proof_adds_up_where_a_record_may_give_several_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """One range of rows, then one of records: two of them given, one set aside before, one of their rows set aside after."""
    source = PartitionId(TopicId("c", "i", "t"), 0)
    ranges = {
        Range(0, 3): Counts(rows=2, dead_letters=1),
        Range(3, 7): Counts(rows=5, given=2, dead_letters=2, set_aside_before=1, filtered=1),
    }
    entries = [Entry("b", source, span, counts) for span, counts in ranges.items()]
    assert not any(entry.counts.unaccounted(len(entry.range)) for entry in entries)
    show(replace(audit(Ledger("p"), entries, Recount()), problems=[]))
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "proven: 7 offsets = 4 records (7 rows, 1 dead letter) + 2 dead letters + 1 filtered + 0 gaps; no offset twice"


def test_what_is_lost_is_told_beside_the_proof(capsys: pytest.CaptureFixture[str]) -> None:
    show(Audit(5, Counts(rows=5), {}, [], ["t/0 [5, 9)"]))
    told = capsys.readouterr()
    assert told.out.splitlines()[-1].startswith("proven: 5 offsets")
    assert "NOT read" in told.err and "t/0 [5, 9)" in told.err


def test_no_offset_is_proven_where_rows_of_several_batches_were_only_counted(capsys: pytest.CaptureFixture[str]) -> None:
    result = Audit(20, Counts(rows=20), {}, [], repeated=["t/0 [0, 10)"], unproven=["t/0 [0, 10)"])
    show(result)
    told = capsys.readouterr()
    last = told.out.splitlines()[-1]
    assert last.startswith("counted: 20 offsets") and "twice" not in last and result.to_dict()["unproven"] == ["t/0 [0, 10)"]
    assert "NOT proven: rows of these offsets were counted only" in told.err.replace("\n", " ")


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "(null)"), (b"", "(empty)"), (b"\xff\xfe", "x'fffe'"), ("né\n".encode(), "'né\\n'"), (b"(null)", "'(null)'")],
)
def test_records_on_one_line(value: bytes | None, shown: str) -> None:
    assert _record(value) == shown


# -- with everything real


def test_what_a_person_sees_of_a_pipeline(kpipe: Any, topic: Any, write: Callable[..., int]) -> None:
    name = topic(2)
    write(name, ['{"id": 1}', "", b"\xff\xfe", "not json"])
    producer = Producer({"bootstrap.servers": kpipe.brokers, "transactional.id": name, "transaction.timeout.ms": 600_000})
    producer.init_transactions(120)
    producer.begin_transaction()
    for number in range(3):
        producer.produce(name, f'{{"id": {number}}}', partition=1)
    producer.flush(120)
    kpipe.define("seen", name)

    first = kpipe("run", "seen")
    assert "seen: commit 2: 4 offsets, 1 row, 3 dead letters in " in first.stderr and "records/s)" in first.stderr
    assert "caught up after 1 batch: 4 records" in first.stdout
    assert "; 3 offsets wait behind an open transaction" in first.stdout
    again = kpipe("run", "seen")
    assert again.stdout.strip() == "seen: nothing new; 3 offsets wait behind an open transaction"
    producer.abort_transaction(120)

    (line,) = kpipe.json("status", "seen")
    committed = str(
        kpipe.sql("SELECT strftime(committed::TIMESTAMP, '%Y-%m-%dT%H:%M:%SZ') FROM kpipe_commits WHERE seq = 2")[0][0]
    )
    assert line["last_batch"]["committed"] == committed and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", committed)
    assert committed.rstrip("Z").replace("T", " ") in kpipe("batches", "seen").stdout

    shown = kpipe("errors", "seen").stdout
    assert f"dead letter  {name}/0 offset 1 " in shown
    assert all(f"    record: {record}\n" in shown for record in ("(empty)", "x'fffe'", "'not json'"))
    assert "1 of 3 shown; --limit for more" in kpipe("errors", "seen", "--limit", "1").stdout
    assert "of 3 shown" not in kpipe("errors", "seen", "--limit", "3").stdout


def test_a_recorded_error_stays_when_the_brokers_do_not_answer(kpipe: Any, topic: Any, write: Callable[..., int]) -> None:
    name = topic(1)
    write(name, ['{"id": 1}'])
    kpipe.define("poor", name)
    kpipe("run", "poor")
    long = "batch 1: the program ended with status 1: " + "boom [red] " * 40 + "-> mend it"
    home = Home(kpipe.home)
    open_destination(home.pipeline("poor"), home).record_state("error", long, "TransformFailed")
    kpipe.define("poor", name, source={"brokers": "127.0.0.1:1", "config": {"operation.timeout.ms": 500}})
    (line,) = kpipe.json("status", "poor")
    assert line["lag"] is None and line["last_error"] == long
    lines = kpipe("status", "poor").stdout.splitlines()
    assert lines[2].startswith("poor: last error: batch 1: the program ended") and len(lines[2]) <= 140 and lines[2].endswith("…")
    assert lines[3].startswith("poor: Kafka now: no broker of 127.0.0.1:1") and lines[4].strip() == "kpipe errors poor"
    shown = kpipe("errors", "poor").stdout
    assert "run failed  TransformFailed" in shown and " ".join(shown.split()).count("boom [red]") == 40


def test_a_topic_on_the_local_broker(offline: Any) -> None:
    offline("broker", "start")
    try:
        assert "topic mine with 3 partitions on 127.0.0.1:" in offline("broker", "topic", "mine", "--partitions", "3").stdout
        assert offline.json("broker", "topic", "other")[0]["partitions"] == 1
        assert "'mine'" in offline("broker", "topic", "mine", status=1).stderr
    finally:
        stopped = offline("broker", "stop").stdout
    assert " stopped; topics and records are kept for the next start" in stopped and "not running" not in stopped
    assert "not running" in offline("broker", "stop").stdout
    assert "kpipe broker start" in offline("broker", "topic", "mine", status=1).stderr
