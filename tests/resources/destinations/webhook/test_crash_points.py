"""A webhook's run killed at every point, with every answer and every edit: no record is lost or sent under another key."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from kpipe.errors import KpipeError
from resources.destinations.webhook import Rules, WebhookDestination
from resources.destinations.webhook.outbox import Outbox, Receipts
from resources.destinations.webhook.receipts import ReceiptsDestination
from resources.destinations.webhook.requests import Shaper
from resources.destinations.webhook.sender import Sender
from resources.testing.place import batch
from resources.testing.state import begun, proof
from tests.resources.destinations.webhook.batches import more, of_records
from tests.resources.destinations.webhook.unfinished import Crash, killed
from tests.resources.destinations.webhook_place import WebhookPlace


def test_keys_are_the_same_in_every_version(place: WebhookPlace) -> None:
    """A change of how keys are derived, or of how rows are cut into requests, would send what is on its way under other keys."""
    destination = begun(place)
    place.open(max_records=400, concurrency=1).commit(batch(place, destination.ledger()[1], {0: 2100, 1: 30}))
    sizes = [len(one.json) for one in place.receiver.got if one.json[0]["at"][0] == 0]
    assert sizes == [400, 400, 224, 400, 400, 224, 52]
    found = {one.json[0]["at"][0]: one.key[:12] for one in place.receiver.got if one.json[0]["at"][1] == 0}
    assert found == {0: "c41fc541f337", 1: "62845a37aeee"}


#: Steps of a commit, in order. A kill is tried before and after each.
POINTS: list[tuple[Any, str]] = [
    (Outbox, "pin"), (Shaper, "streams"), (Sender, "send"), (Receipts, "add"), (ReceiptsDestination, "commit"), (Outbox, "clear"),
]  # fmt: skip


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("point", range(len(POINTS)))
@pytest.mark.parametrize("seed", [1, *map(more, range(2, 21))])
def test_killed_anywhere_refused_and_edited(
    place: WebhookPlace, monkeypatch: pytest.MonkeyPatch, point: int, after: bool, seed: int
) -> None:
    """Runs that are killed, refused or edited, one after the other; at last all is well. Records are there once, by their key."""
    chance = random.Random(f"{point} {after} {seed}")
    begun(place)
    ends = {0: 0, 1: 0}

    def edited() -> dict[str, Any]:
        return {
            "max_records": chance.choice([1, 2, 3, 7]), "max_bytes": chance.choice([1024, 1 << 20]),
            "concurrency": chance.choice([1, 2]), "body": chance.choice([AT, AT_TOO]),
            "rules": Rules(chance.choice(["fail", "fail", "dead_letter"])), "retry_s": 0,
        }  # fmt: skip

    def run(destination: WebhookDestination) -> None:
        """One run: it finishes what is there, else plans a batch."""
        found = destination.unfinished()
        if found is None:
            ledger = destination.ledger()[1]
            keys = {n: [b"k"] * chance.randint(1, 6) for n in ends if chance.random() < 0.8} or {0: [b"k"]}
            found = of_records(place, ledger, keys)
        destination.commit(found)

    for turn in range(5):
        answers = ["lost", "reset", "401", "403", "404", "400", "422", "500", "429:0", ""]
        place.receiver.faults = chance.choices(answers, k=chance.randint(0, 2)) if turn else []
        with monkeypatch.context() as patch:
            if turn != 1:
                where, name = POINTS[point] if not turn else chance.choice(POINTS)
                killed(patch, where, name, after if not turn else chance.random() < 0.5, chance.choice([1, 2]))
            with suppress(Crash, KpipeError):
                run(place.open(**edited()))
    place.receiver.faults = []
    last = place.open(**{**edited(), "body": AT, "rules": Rules("dead_letter")})
    while last.unfinished() is not None:
        run(last)
    heads = {n: next_ for (s, next_) in last.ledger()[1].positions().items() for n in [s.partition]}
    sent = [tuple(row["at"]) for one in place.receiver.taken for row in (one.json if isinstance(one.json, list) else [one.json])]
    assert len(sent) == len(set(sent)), "taken twice by a receiver that drops known keys"
    refused = {(row["partition"], row["offset"]) for row in last.view("errors")}
    assert set(sent) | refused == {(n, offset) for n, end in heads.items() for offset in range(end)}
    took = [one for one in place.receiver.got if one.took]
    assert len({one.key for one in took}) == len({(one.key, one.body) for one in took}), "a key was sent with other contents"
    result = proof(last)
    assert result.ok, result.problems


AT = '{"at": [${_kafka_partition}, ${_kafka_offset}]}'
AT_TOO = '{"at": [${_kafka_partition}, ${_kafka_offset}], "row": ${*}}'
