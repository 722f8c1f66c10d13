"""A webhook under a receiver that misbehaves: what it takes is each row once, in the order of its key, whatever it answers."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kpipe import failpoints
from kpipe.batch.batch import Commit, Counts, StagedFile
from kpipe.errors import (
    DeadLettersExceeded,
    DestinationBusy,
    DestinationError,
    Fenced,
    InvalidPipeline,
    RecordRejected,
    SchemaConflict,
)
from kpipe.ledger.ledger import Ledger, Step
from kpipe.tables.upsert import ORIGINAL
from resources.destinations.duckdb import DuckDBDestination
from resources.destinations.webhook import Rules, WebhookDestination
from resources.destinations.webhook.commit_codec import from_text, to_text
from resources.destinations.webhook.outbox import Outbox, Receipt
from resources.testing.keyed import RECORD
from resources.testing.place import COLUMNS, COORDINATES, arrow, batch, begin, source
from resources.testing.state import begun, loaded, proof
from tests.receiver import Got
from tests.resources.destinations.webhook_place import WebhookPlace

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.resources.destinations.webhook_place"])


@pytest.fixture
def place(tmp_path: Path) -> Iterator[WebhookPlace]:
    made = WebhookPlace(tmp_path)
    yield made
    made.close()


def of_records(place: WebhookPlace, ledger: Ledger, keys: Mapping[int, Sequence[bytes | None]]) -> Commit:
    """A batch of records with these Kafka keys, by partition, from where the ledger stands; whole records beside the rows."""
    steps, files, counts = [], [], {}
    for number, own in keys.items():
        lane = ledger.live(source(number))
        assert lane is not None
        steps.append(step := Step(lane, lane.next + len(own)))
        rows = [
            {
                "id": number * 1_000_000 + offset, "text": f"t{offset}", "_kafka_partition": number, "_kafka_offset": offset,
                "_kafka_timestamp": offset,
                ORIGINAL: {"key": key, "value": f"v{offset}".encode(), "headers": [{"name": "h", "value": b"\x00"}]},
            }
            for offset, key in enumerate(own, lane.next)
        ]  # fmt: skip
        fields = [(name, arrow(kind)) for name, kind in COLUMNS] + [*COORDINATES.items(), (ORIGINAL, RECORD)]
        files.append(place.file(rows, pa.schema(fields)))
        counts[step.lane.key] = Counts(len(rows), len(rows), inserted=len(rows), bytes=10 * len(rows))
    return Commit(
        id=os.urandom(16).hex(), pipeline="tweets", changes=tuple(step.change for step in steps), steps=tuple(steps),
        columns=COLUMNS, files=tuple(files), counts=counts, ends={step.source: (0, step.end) for step in steps},
        metadata={s.source: {"rows": counts[s.lane.key].rows, "dead_letters": 0, "filtered": 0} for s in steps},
        started_ms=1_700_000_000_123, seconds=0.5,
    )  # fmt: skip


def places(taken: Sequence[Got]) -> list[tuple[int, int]]:
    """Partitions and offsets in the order in which the receiver has taken them."""
    bodies = [one.json if isinstance(one.json, list) else [one.json] for one in taken]
    return [tuple(body["at"]) for some in bodies for body in some]


def in_order(taken: Sequence[Got], keys: Mapping[int, Sequence[bytes | None]]) -> bool:
    """Whether offsets of each Kafka key of each partition came in their order; those without a key count as one."""
    last: dict[tuple[int, bytes | None], int] = {}
    for partition, offset in places(taken):
        key = (partition, keys[partition][offset])
        if last.get(key, -1) >= offset:
            return False
        last[key] = offset
    return True


def more(value: str | int) -> Any:
    """One of a kind that has its turn in `make chaos`."""
    return pytest.param(value, marks=pytest.mark.chaos)


# -- answers


@pytest.mark.parametrize(
    "fault", ["500", "429:1", "hang", "reset", "lost", "cut", "huge", *map(more, ["503:1", "429", "409", "408", "slow", "201"])]
)
def test_whatever_is_answered_each_record_is_taken_once(place: WebhookPlace, fault: str) -> None:
    begun(place)
    patience = 3 if fault in ("hang", "slow") else 30  # no other answer is to be given up
    destination = place.open(timeout_s=patience, retry_s=60, max_records=1, concurrency=1)
    place.receiver.faults = ["", fault]
    destination.commit(batch(place, destination.ledger()[1], {0: 3}))
    got = place.receiver.got
    tries = 1 if fault in ("huge", "201") else 2
    order = [one.json["at"][1] for one in got]
    assert order == sorted(order) and order.count(1) >= tries
    assert patience == 3 or order == [0, *[1] * tries, 2], "what is not lost is sent once; a busy machine may lose it in 3 s"
    assert len({one.key for one in got}) == 3, "the same request has the same key"
    assert places(place.receiver.taken) == [(0, 0), (0, 1), (0, 2)]
    if ":" in fault:
        assert got[2].at - got[1].at >= 1, "it is left alone for as long as it has asked"
    assert len(place.rows()) == 3 and proof(destination).ok


def test_a_receiver_that_takes_nothing_is_tried_for_a_time_and_then_by_the_next_run(place: WebhookPlace) -> None:
    destination = begun(place)
    place.receiver.fault = lambda one: "500" if one.json[0]["at"] >= [0, 6] else ""
    commit = batch(place, destination.ledger()[1], {0: 10})
    with pytest.raises(DestinationBusy, match=r"tweets/0 offset 6 to 8: not taken in \d+ tr(y|ies): HTTP 500: no: \\x00"):
        destination.commit(commit)
    assert proof(destination).ok and destination.ledger()[1].seq == 1 and place.rows() == []
    begun_one = place.open().unfinished()
    assert begun_one is not None and begun_one.id == commit.id
    place.receiver.fault = lambda _: ""
    before = len(place.receiver.got)
    done = place.open().commit(begun_one)
    assert done.seq == 2 and place.open().unfinished() is None
    assert [one.json[0]["at"][1] for one in place.receiver.got[before:]] == [6, 9], "what was taken is not sent again"
    assert len(place.rows()) == 10 and proof(destination).ok


def test_a_long_pause_ends_the_run_instead_of_lasting(place: WebhookPlace) -> None:
    destination = begun(place)
    place.receiver.faults = ["429:3600"]
    with pytest.raises(DestinationBusy, match="HTTP 429"):
        destination.commit(batch(place, destination.ledger()[1], {0: 5, 1: 5}))
    assert destination.ledger()[1].seq == 1


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("redirect", "redirects elsewhere"), ("401", "credentials"), ("403", "credentials"), ("404", "its address"),
        ("405", "POST"), ("410", "its address"),
    ],
)  # fmt: skip
def test_a_receiver_that_is_none_ends_the_run_at_once(place: WebhookPlace, fault: str, words: str) -> None:
    """It says nothing of the record: with a wrong password a topic would become dead letters."""
    destination = begun(place, 1)
    destination = place.open(rules=Rules("dead_letter"))
    place.receiver.fault = lambda _: fault
    with pytest.raises(DestinationError, match=words) as caught:
        destination.commit(of_records(place, destination.ledger()[1], {0: [b"k"] * 9}))
    assert not caught.value.retriable and len(place.receiver.got) == 1
    assert (destination.ledger()[1].seq, place.dead_letters()) == (1, 0)
    assert destination.unfinished() is None, "nobody has anything of it"


def test_a_batch_is_held_to_from_when_something_of_it_may_have_been_taken(place: WebhookPlace) -> None:
    begun(place)
    for faults_, held in (
        (["422"], False),
        (["404"], False),
        (["500", "422"], True),
        (["lost", "401"], True),
        (["", "422"], True),
    ):
        destination = place.open(max_records=1, concurrency=1)
        place.receiver.faults = list(faults_)
        with pytest.raises((RecordRejected, DestinationError)):
            destination.commit(of_records(place, destination.ledger()[1], {0: [b"k"] * 3}))
        found = destination.unfinished()
        assert (found is not None) == held, faults_
        if found is not None:
            destination.commit(found)
    assert destination.ledger()[1].seq == 4 and proof(destination).ok


def test_a_pause_until_the_end_of_time_is_one(place: WebhookPlace) -> None:
    """Other threads wait for it, too, and are ended by the one that was asked for it."""
    destination = begun(place)
    place.receiver.pause = 0.05
    place.receiver.faults = ["429:Fri, 31 Dec 9999 23:59:59 GMT"]
    with pytest.raises(DestinationBusy, match="HTTP 429"):
        place.open(max_records=1).commit(batch(place, destination.ledger()[1], {0: 50, 1: 50}))
    assert destination.ledger()[1].seq == 1


# -- records that are refused


@pytest.mark.parametrize("status", ["400", "413", "422"])
def test_a_record_that_is_refused_is_a_dead_letter_whole(place: WebhookPlace, status: str) -> None:
    begun(place)
    destination = place.open(rules=Rules("dead_letter"), max_records=1)
    place.receiver.fault = lambda one: status if one.json["at"] in ([0, 3], [1, 0]) else ""
    commit = of_records(place, destination.ledger()[1], {0: [b"a", None] * 3, 1: [b"b"] * 2})
    done = destination.commit(commit)
    assert (done.commit.totals.rows, done.commit.totals.dead_letters, done.commit.totals.inserted) == (6, 2, 6)
    assert dict(destination.unpublished()[0].metadata) == {
        "0": {"rows": 5, "dead_letters": 1, "filtered": 0}, "1": {"rows": 1, "dead_letters": 1, "filtered": 0},
    }  # fmt: skip
    assert destination.commit(commit) == done, "also when it is asked again"
    letters = {(row["partition"], row["offset"]): row for row in destination.view("errors")}
    assert set(letters) == {(0, 3), (1, 0)}
    letter = letters[0, 3]
    assert (letter["key"], bytes(letter["load_data_line"]), letter["stage"]) == (None, b"v3", "constraint")
    assert letter["error_message"].startswith(f"HTTP {status}: no") and letter["headers"] == [{"name": "h", "value": b"\x00"}]
    assert len(place.rows()) == 6 and proof(destination).ok


def test_a_record_that_is_refused_may_be_skipped(place: WebhookPlace) -> None:
    begun(place)
    destination = place.open(rules=Rules("skip"), max_records=1)
    place.receiver.fault = lambda one: "422" if one.json["at"][1] == 1 else ""
    done = destination.commit(of_records(place, destination.ledger()[1], {0: [b"a"] * 4}))
    assert (done.commit.totals.rows, done.commit.totals.filtered, place.dead_letters()) == (3, 1, 0)
    assert proof(destination).ok


def test_a_refused_request_sets_all_its_records_aside(place: WebhookPlace) -> None:
    begun(place)
    destination = place.open(rules=Rules("dead_letter"), max_records=3)
    place.receiver.faults = ["", "422"]
    destination.commit(of_records(place, destination.ledger()[1], {0: [None] * 8}))
    assert place.dead_letters() == 3 and [offset for _, offset in places(place.receiver.taken)] == [0, 1, 2, 6, 7]
    assert proof(destination).ok


def test_a_record_that_is_refused_ends_the_run_unless_it_is_allowed(place: WebhookPlace) -> None:
    """And the policy that is set then counts for the batch that was begun, too."""
    begun(place)
    destination = place.open(max_records=1)
    place.receiver.fault = lambda one: "422" if one.json["at"][1] == 2 else ""
    commit = of_records(place, destination.ledger()[1], {0: [b"a"] * 4})
    with pytest.raises(RecordRejected, match="tweets/0 offset 2: the receiver refuses it: HTTP 422") as caught:
        destination.commit(commit)
    assert caught.value.record == (source(0), 2)
    assert destination.ledger()[1].seq == 1
    again = place.open(max_records=1, rules=Rules("dead_letter"))
    found = again.unfinished()
    assert found is not None
    again.commit(found)
    assert place.dead_letters() == 1 and [offset for _, offset in places(place.receiver.taken)] == [0, 1, 3]
    assert proof(again).ok


def test_more_dead_letters_than_allowed(place: WebhookPlace) -> None:
    begun(place)
    destination = place.open(rules=Rules("dead_letter", most=1), max_records=1)
    place.receiver.fault = lambda one: "422" if one.json["at"][1] < 2 else ""
    with pytest.raises(DeadLettersExceeded, match=r"2 dead letters, errors\.max_dead_letters is 1"):
        destination.commit(of_records(place, destination.ledger()[1], {0: [b"a"] * 4}))
    assert destination.ledger()[1].seq == 1
    found = place.open().unfinished()
    assert found is not None
    assert place.open(rules=Rules("dead_letter", most=2), max_records=1).commit(found).seq == 2


def test_a_record_that_is_too_large_is_refused_unsent(place: WebhookPlace) -> None:
    begun(place)
    destination = place.open(rules=Rules("dead_letter"), max_records=100, max_bytes=1024)
    commit = of_records(place, destination.ledger()[1], {0: [b"a"] * 40})
    rows = [{"id": 1, "text": "x" * (2000 if n == 5 else 10), "_kafka_partition": 0, "_kafka_offset": n, "_kafka_timestamp": n,
             ORIGINAL: {"key": b"k", "value": b"v", "headers": None}} for n in range(40)]  # fmt: skip
    schema = pa.schema([(name, arrow(kind)) for name, kind in COLUMNS] + [*COORDINATES.items(), (ORIGINAL, RECORD)])
    destination.commit(replace(commit, files=(place.file(rows, schema),)))
    assert [row["offset"] for row in destination.view("errors")] == [5] and len(place.rows()) == 39
    assert len(place.receiver.got) > 2 and max(len(one.body) for one in place.receiver.got) <= 1024 and proof(destination).ok


def test_rows_that_cannot_be_traced_are_not_set_aside(place: WebhookPlace) -> None:
    destination = begun(place)
    destination = place.open(rules=Rules("dead_letter"))
    base = batch(place, destination.ledger()[1], {0: 4})
    rows = [{"id": n, "text": "x", "_kafka_partition": 0, "_kafka_offset": None, "_kafka_timestamp": None} for n in range(4)]
    place.receiver.faults = ["422"]
    with pytest.raises(RecordRejected, match="cannot be traced"):
        destination.commit(replace(base, files=(place.staged(rows),)))


# -- order and concurrency


def test_records_of_a_key_stay_in_order_and_others_go_at_the_same_time(place: WebhookPlace) -> None:
    begun(place)
    chance = random.Random(7)
    keys = {n: [chance.choice([b"a", b"b", b"c", b"d", b"e", None]) for _ in range(40)] for n in (0, 1)}
    lock = random.Random(11)
    answers = [*[""] * 15, "500", "reset", "lost", "cut", "429:0"]
    place.receiver.pause = 0.01
    place.receiver.fault = lambda _: lock.choice(answers)
    destination = place.open(max_records=2, concurrency=3, retry_s=60)
    destination.commit(of_records(place, destination.ledger()[1], keys))
    taken = place.receiver.taken
    assert sorted(places(taken)) == [(n, offset) for n in (0, 1) for offset in range(40)]
    assert in_order(taken, keys)
    assert 1 < place.receiver.most <= 3
    assert len(place.rows()) == 80 and proof(destination).ok


def test_several_files_of_a_partition_in_whatever_order(place: WebhookPlace) -> None:
    """Small ranges share files: rows of a partition may stand behind those of others, and before them."""
    destination = begun(place)
    destination = place.open(max_records=1, concurrency=1)
    base = batch(place, destination.ledger()[1], {0: 4, 1: 6})

    def rows(*spans: tuple[int, int, int]) -> Any:
        return place.staged([
            {"id": o, "text": "x", "_kafka_partition": n, "_kafka_offset": o, "_kafka_timestamp": o}
            for n, start, end in spans for o in range(start, end)
        ])  # fmt: skip

    destination.commit(replace(base, files=(rows((1, 4, 6)), rows((0, 0, 2), (1, 2, 4)), rows((1, 0, 2), (0, 2, 4)))))
    found = places(place.receiver.taken)
    assert [o for n, o in found if n == 0] == [0, 1, 2, 3] and [o for n, o in found if n == 1] == [0, 1, 2, 3, 4, 5]


def test_many_rows_go_through_in_windows(place: WebhookPlace) -> None:
    begun(place)
    destination = place.open(max_records=500, concurrency=2)
    destination.commit(batch(place, destination.ledger()[1], {0: 3000, 1: 1500}))
    found = places(place.receiver.taken)
    assert [o for n, o in found if n == 0] == list(range(3000)) and [o for n, o in found if n == 1] == list(range(1500))
    assert proof(destination).ok


def test_pieces_of_a_range_that_lie_in_turns_in_two_files_go_out_in_order(place: WebhookPlace) -> None:
    """Two tasks staged two pieces of a range each, in files that a task shares among its pieces."""
    destination = begun(place)
    ledger = destination.ledger()[1]
    base = batch(place, ledger, {0: 400})

    def rows(*offsets: int) -> StagedFile:
        return place.staged(
            [{"id": n, "text": "t", "_kafka_partition": 0, "_kafka_offset": n, "_kafka_timestamp": n} for n in offsets]
        )

    pieces = (rows(*range(100), *range(200, 300)), rows(*range(100, 200), *range(300, 400)))
    destination.commit(replace(base, files=pieces))
    assert [offset for _, offset in places(place.receiver.taken)] == list(range(400))


def test_a_record_of_any_time_is_sent(place: WebhookPlace) -> None:
    """Python's dates end with the year 9999, Kafka's timestamps do not."""
    begun(place)
    destination = place.open(body='{"at": [${_kafka_partition}, ${_kafka_offset}], "time": ${_kafka_timestamp}}', max_records=1)
    row = {"id": 1, "text": "t", "_kafka_partition": 0, "_kafka_offset": 0, "_kafka_timestamp": (2**63 - 1) // 1000 * 1000}
    destination.commit(replace(batch(place, destination.ledger()[1], {0: 1}), files=(place.staged([row]),)))
    assert [request.json["time"] for request in place.receiver.taken] == ["294247-01-10T04:00:54.775000Z"]
    assert proof(destination).ok


# -- crashes


def committing(folder: Path, url: str, staging: Path, commit: Commit, fault: str, more: dict[str, Any]) -> None:
    place = object.__new__(WebhookPlace)
    place.path, place.staging, place.receiver = folder / "data" / "kpipe.duckdb", staging, _There(url)  # type: ignore[assignment]
    if fault:
        failpoints.arm(failpoints.Fault(fault))
    place.open(**more).commit(commit)


class _There:
    """A receiver in another process."""

    def __init__(self, url: str) -> None:
        self.url = url


def begin_commit(place: WebhookPlace, commit: Commit, fault: str = "", **more: Any) -> Any:
    """A process of its own that commits."""
    arguments = (place.path.parent.parent, place.receiver.url, place.staging, commit, fault, more)
    process = _processes.Process(target=committing, args=arguments)
    process.start()
    return process


@pytest.mark.parametrize("at", [1, more(2), 9])
@pytest.mark.parametrize("answer", ["lost", more("reset")])
def test_killed_in_the_middle_the_next_one_sends_the_rest_with_the_same_keys(place: WebhookPlace, at: int, answer: str) -> None:
    """The receiver kills the process that sends, when it has taken the request at hand, or before."""
    begun(place)
    keys = {0: [b"a", b"b", None, b"c"] * 5, 1: [b"a"] * 10}
    more = {"max_records": 2, "concurrency": 3, "retry_s": 60}
    commit = of_records(place, place.open().ledger()[1], keys)
    victim: list[Any] = []
    started = threading.Event()

    def fault(_: Got) -> str:
        if len(place.receiver.got) + 1 != at:
            return ""
        assert started.wait(60)
        os.kill(victim[0].pid, signal.SIGKILL)
        return answer

    place.receiver.fault = fault
    victim.append(begin_commit(place, commit, **more))
    started.set()
    victim[0].join(300)
    assert victim[0].exitcode == -signal.SIGKILL
    assert place.open().ledger()[1].seq == 1
    place.receiver.fault = lambda _: ""
    sent = {one.key for one in place.receiver.got}
    successor = place.open(**more)
    found = successor.unfinished()
    assert found is not None and found == replace(commit, files=found.files)
    for file in commit.files:
        Path(file.path).unlink()  # what was staged may be collected by now
    before = len(place.receiver.got)
    successor.commit(found)
    again = [one.key for one in place.receiver.got[before:] if one.key in sent]
    assert len(again) <= 3, "only what was on its way is sent again"
    assert sorted(places(place.receiver.taken)) == sorted((n, o) for n, own in keys.items() for o in range(len(own)))
    assert in_order(place.receiver.taken, keys)
    assert len(place.rows()) == 30 and proof(successor).ok and successor.unfinished() is None


@pytest.mark.parametrize("point", ["commit.verify", more("commit.before"), "commit.after", more("readback")])
def test_killed_around_the_commit_nothing_is_sent_again(place: WebhookPlace, point: str) -> None:
    begun(place)
    commit = batch(place, place.open().ledger()[1], {0: 10})
    process = begin_commit(place, commit, f"{point}:1:kill")
    process.join(300)
    assert process.exitcode == -signal.SIGKILL
    sent = len(place.receiver.got)
    successor = place.open()
    found = successor.unfinished()
    assert (found is None) == (point in ("commit.after", "readback")), "what has landed is not begun again"
    assert successor.commit(found or commit).seq == 2
    assert len(place.receiver.got) == sent == 4 and len(place.rows()) == 10 and proof(successor).ok


def test_while_one_sends_another_one_waits_and_is_told_who(place: WebhookPlace) -> None:
    begun(place)
    commit = batch(place, place.open().ledger()[1], {0: 10})
    other = batch(place, place.open().ledger()[1], {0: 7})
    place.receiver.fault = lambda _: "hang" if len(place.receiver.got) < 1 else ""
    process = begin_commit(place, commit, timeout_s=600)
    while not place.receiver.got:
        assert process.is_alive()
        time.sleep(0.01)
    successor = place.open()
    successor.database.lock_timeout_s = 0.2
    for act in (lambda: successor.commit(other), successor.unfinished):
        with pytest.raises(DestinationBusy, match=f"process {process.pid} is sending"):
            act()
    process.kill()
    process.join(300)
    with pytest.raises(Fenced):  # what was begun is finished first, and then the lanes are others
        successor.commit(other)
    assert len(place.rows()) == 10 and proof(successor).ok


def test_another_table_or_definition_does_not_change_what_was_begun(place: WebhookPlace) -> None:
    destination = begun(place)
    place.receiver.faults = ["", "500"]
    with pytest.raises(DestinationBusy):
        place.open(retry_s=0).commit(batch(place, destination.ledger()[1], {0: 10}))
    before = place.receiver.got[1].key
    again = place.open()
    found = again.unfinished()
    assert found is not None
    again.commit(found)
    assert place.receiver.got[2].key == before and len(place.rows()) == 10


def test_a_folder_that_was_damaged_says_so(place: WebhookPlace) -> None:
    destination = begun(place)
    place.receiver.faults = ["lost", "404"]
    with pytest.raises(DestinationError):
        destination.commit(batch(place, destination.ledger()[1], {0: 10}))
    (file,) = place.path.parent.rglob("commit.json")
    file.write_text("{")
    with pytest.raises(DestinationError, match="cannot be read"):
        place.open().unfinished()


def test_a_line_of_receipts_that_was_cut_off_is_no_receipt(tmp_path: Path) -> None:
    box = Outbox(tmp_path, "p")
    (tmp_path / "pending").mkdir()
    box.receipts().add("a", Receipt(200, 1))
    path = tmp_path / "pending" / "receipts"
    path.write_bytes(path.read_bytes() + b'["b", 200')
    box.receipts().add("c", Receipt(422, 2, "no"))
    found = box.receipts()
    assert [found.get(key) for key in "abc"] == [Receipt(200, 1), None, Receipt(422, 2, "no")]


def test_a_commit_comes_back_as_it_went(place: WebhookPlace) -> None:
    commit = batch(place, Ledger("tweets").apply(begin("tweets", [0, 1]).changes), {0: 3, 1: 2}, dead=[(0, 1)])
    assert from_text(to_text(commit)) == commit


# -- bodies, headers, ledger


def test_what_a_request_looks_like(place: WebhookPlace) -> None:
    begun(place)
    into = {"body": None, "max_records": 3, "envelope": '{"n": ${count}, "events": ${records}}', "headers": {"X-Team": "data"}}
    destination = place.open(signing=(b"k" * 32,), **into)
    destination.commit(batch(place, destination.ledger()[1], {0: 4}, values={"id": 7, "text": 'q"\\\n${*}日'}))
    first, second = place.receiver.got
    row = {"id": 7, "text": 'q"\\\n${*}日'}
    assert (first.json, second.json) == ({"n": 3, "events": [row] * 3}, {"n": 1, "events": [row]})
    sent = first.headers
    assert (sent["content-type"], sent["x-team"], sent["user-agent"]) == ("application/json", "data", "kpipe")
    assert sent["webhook-id"] == sent["idempotency-key"] == first.key and sent["webhook-signature"].startswith("v1,")
    assert len(first.key) == 64 and first.key != second.key


def test_one_record_alone_is_the_body(place: WebhookPlace) -> None:
    begun(place)
    destination = place.open(max_records=1, body=None)
    destination.commit(batch(place, destination.ledger()[1], {0: 1}))
    assert place.receiver.got[0].json == {"id": 0, "text": "t0"}


def test_keys_are_those_of_the_records_whoever_sends_them(place: WebhookPlace, tmp_path: Path) -> None:
    """Also where the ledger is lost: a receiver that remembers the keys drops what it has."""
    destination = loaded(place)
    before = {one.key for one in place.receiver.got}
    place.path.unlink()
    again = begun(place)
    again.commit(batch(place, again.ledger()[1], {0: 10, 1: 5}))
    assert {one.key for one in place.receiver.got} == before and len(place.receiver.taken) == len(before)
    other = begun(place, pipeline="other")
    other.commit(batch(place, other.ledger()[1], {0: 10}))
    assert len({one.key for one in place.receiver.got}) > len(before), "another pipeline's are others"
    assert destination.describe().startswith("webhook http://127.0.0.1:")


def test_a_column_that_is_not_there_is_said_before_anything_is_sent(place: WebhookPlace) -> None:
    begun(place)
    destination = place.open(body='{"a": ${nowhere}}')
    with pytest.raises(SchemaConflict, match="no column nowhere"):
        destination.commit(batch(place, destination.ledger()[1], {0: 3}))
    assert not place.receiver.got and destination.unfinished() is None, (
        "and the batch is planned anew, with what is declared then"
    )


def test_an_ordinary_table_of_that_name_is_not_mixed_with_receipts(place: WebhookPlace) -> None:
    plain = DuckDBDestination(place.path, "tweets", "plain", {}, (place.staging,))
    plain.commit(begin("plain", [0]))
    plain.commit(replace(batch(place, plain.ledger()[1], {0: 5}), pipeline="plain"))
    destination = place.open()
    for act in (lambda: destination.commit(begin("tweets", [0])), destination.columns):
        with pytest.raises(SchemaConflict, match="holds no receipts"):
            act()
    assert not place.receiver.got


def test_an_address_inside_is_not_asked_unless_it_is_named(place: WebhookPlace) -> None:
    begun(place)
    with pytest.raises(InvalidPipeline, match=r": 127\.0\.0\.1, which is this machine"):
        place.open(allow_hosts=[]).commit(batch(place, place.open().ledger()[1], {0: 3}))
    assert not place.receiver.got


def test_decisions_send_nothing(place: WebhookPlace) -> None:
    destination: WebhookDestination = begun(place)  # type: ignore[assignment]
    destination.commit(batch(place, destination.ledger()[1], {0: 4}, gaps=[(0, n) for n in range(4)]))
    assert not place.receiver.got and json.dumps(destination.ledger()[1].seq) == "2"


# -- keys


@pytest.mark.parametrize(
    ("edited", "same"),
    [
        ({"body": '{"id": ${id}}', "envelope": "${records}", "headers": {"X-A": "b"}}, True),
        ({"pipeline": "other"}, False),
        ({"table": "renamed"}, False),
        ({"max_records": 2}, False),
    ],
)
def test_what_a_key_depends_on(place: WebhookPlace, edited: dict[str, Any], same: bool) -> None:
    """After an edit of anything else, records that are read again carry the keys that receivers know (docs/guide/webhook.md)."""
    keys = []
    for number, fields in enumerate(({}, edited)):
        place.path, before = place.path.with_name(f"ledger-{number}.duckdb"), len(place.receiver.got)
        destination = place.open(**fields)
        name = fields.get("pipeline", "tweets")
        destination.commit(begin(name, [0]))
        destination.commit(batch(place, destination.ledger()[1], {0: 6}))
        keys.append({one.key for one in place.receiver.got[before:]})
    assert len(keys[0]) == 2 and (keys[0] == keys[1]) == same and (same or not keys[0] & keys[1])
