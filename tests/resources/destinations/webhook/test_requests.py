"""Bodies, headers, ledger and keys of a webhook's requests."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kpipe.errors import (
    InvalidPipeline,
    SchemaConflict,
)
from resources.destinations.duckdb import DuckDBEngine
from resources.destinations.sql.destination import SqlDestination
from resources.destinations.sql.engine import TargetTable
from resources.destinations.webhook import WebhookDestination
from resources.testing.place import batch, begin
from resources.testing.state import begun, loaded
from tests.resources.destinations.webhook_place import WebhookPlace


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
    plain = SqlDestination(DuckDBEngine(place.path, (place.staging,)), "plain", [TargetTable("tweets")])
    plain.commit(begin("plain", [0]))
    plain.commit(replace(batch(place, plain.ledger()[1], {0: 5}), pipeline="plain"))
    destination = place.open()
    for act in (lambda: destination.commit(begin("tweets", [0])), destination.columns):
        with pytest.raises(SchemaConflict, match="expected receipts of a webhook, found another table"):
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
    """Keep the keys of records after an edit of anything else (docs/how-to/destinations/webhook.md)."""
    keys = []
    for number, fields in enumerate(({}, edited)):
        place.path, before = place.path.with_name(f"ledger-{number}.duckdb"), len(place.receiver.got)
        destination = place.open(**fields)
        name = fields.get("pipeline", "tweets")
        destination.commit(begin(name, [0]))
        destination.commit(batch(place, destination.ledger()[1], {0: 6}))
        keys.append({one.key for one in place.receiver.got[before:]})
    assert len(keys[0]) == 2 and (keys[0] == keys[1]) == same and (same or not keys[0] & keys[1])
