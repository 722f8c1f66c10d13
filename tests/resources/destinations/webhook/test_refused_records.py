"""Records that a webhook's receiver refuses."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kpipe.batch.batch import Mark
from kpipe.errors import (
    DeadLettersExceeded,
    RecordRejected,
)
from kpipe.tables.upsert import ORIGINAL
from resources.destinations.webhook import Rules
from resources.testing.keyed import RECORD
from resources.testing.place import COLUMNS, COORDINATES, arrow, batch, source
from resources.testing.state import begun, proof
from tests.resources.destinations.webhook.batches import of_records, places
from tests.resources.destinations.webhook_place import WebhookPlace


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
    commit = of_records(place, destination.ledger()[1], {0: [b"a"] * 4})
    done = destination.commit(commit.writing(marks={commit.steps[0].lane.key: Mark(4, 6)}))
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
    with pytest.raises(RecordRejected, match="tweets/0 offset 2: the receiver rejected it: HTTP 422") as caught:
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
    with pytest.raises(DeadLettersExceeded, match=r"errors\.max_dead_letters: expected at most 1 dead letters, found"):
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
    destination.commit(commit.writing(files=(place.file(rows, schema),)))
    assert [row["offset"] for row in destination.view("errors")] == [5] and len(place.rows()) == 39
    assert len(place.receiver.got) > 2 and max(len(one.body) for one in place.receiver.got) <= 1024 and proof(destination).ok


def test_rows_that_cannot_be_traced_are_not_set_aside(place: WebhookPlace) -> None:
    destination = begun(place)
    destination = place.open(rules=Rules("dead_letter"))
    base = batch(place, destination.ledger()[1], {0: 4})
    rows = [{"id": n, "text": "x", "_kafka_partition": 0, "_kafka_offset": None, "_kafka_timestamp": None} for n in range(4)]
    place.receiver.faults = ["422"]
    with pytest.raises(RecordRejected, match="cannot be traced"):
        destination.commit(base.writing(files=(place.staged(rows),)))
