"""A webhook whose receiver misbehaves: every row is taken once, whatever it answers."""

from __future__ import annotations

import pytest

from kpipe.errors import (
    DestinationBusy,
    DestinationError,
    RecordRejected,
)
from resources.destinations.webhook import Rules
from resources.testing.place import batch
from resources.testing.state import begun, proof
from tests.resources.destinations.webhook.batches import more, of_records, places
from tests.resources.destinations.webhook_place import WebhookPlace


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
    with pytest.raises(DestinationBusy, match=r"tweets/0 offset 6 to 8: not accepted in \d+ attempts?: HTTP 500: no: \\x00"):
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
        ("redirect", "redirects are not followed"), ("401", "credentials"), ("403", "credentials"), ("404", "its address"),
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
