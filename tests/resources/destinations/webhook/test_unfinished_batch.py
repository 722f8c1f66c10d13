"""A webhook's batch that may have been taken: it is finished unchanged, whatever was edited meanwhile."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kpipe.batch.batch import Commit
from kpipe.errors import DestinationBusy, DestinationError, KpipeError, LedgerMismatch, RecordRejected
from kpipe.ledger import transitions
from kpipe.ledger.ledger import Lane, Ledger, Step
from kpipe.run_events import ledger_only
from resources.destinations.webhook import Rules, WebhookDestination
from resources.destinations.webhook.dispatcher import Delivery
from resources.destinations.webhook.outbox import Outbox
from resources.destinations.webhook.receipts import ReceiptsDestination
from resources.destinations.webhook.sender import Sender
from resources.testing.place import batch, begin, source
from resources.testing.state import begun, proof
from tests.resources.destinations.webhook.batches import more, of_records, places
from tests.resources.destinations.webhook.unfinished import Crash
from tests.resources.destinations.webhook_place import WebhookPlace

#: Other values of every field that decides which rows share a request, or what a body is.
EDITED = {
    "max_records": 1,
    "max_bytes": 1024,
    "concurrency": 2,
    "body": '{"at": [1, 2], "edited": ${*}}',
    "envelope": "[${records}]",
}


def left(place: WebhookPlace, answers: list[str] | None = None, rows: dict[int, int] | None = None) -> Commit:
    """A batch of which requests have left, and no run is at work on it any more. By default its first answer is lost."""
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], rows or {0: 10})
    place.receiver.faults = answers or ["lost"]
    place.receiver.fault = lambda _: "500"
    with pytest.raises(DestinationBusy):
        place.open(retry_s=0, concurrency=1).commit(commit)
    place.receiver.fault = lambda _: ""
    return commit


def taken_twice(place: WebhookPlace) -> list[Any]:
    """Records that a receiver has although it drops the keys that it knows."""
    found = places(place.receiver.taken)
    return [at for at in set(found) if found.count(at) > 1]


@pytest.mark.parametrize("answer", ["401", "403", "404", "400", "422", more("413"), more("redirect"), more("405"), "lost"])
def test_a_refusal_in_the_next_run_does_not_plan_the_batch_again(place: WebhookPlace, answer: str) -> None:
    commit = left(place)
    for _ in range(2):
        place.receiver.faults = [answer]
        destination = place.open(retry_s=0, **EDITED)
        found = destination.unfinished()
        assert found is not None and found.id == commit.id
        with pytest.raises(KpipeError):
            destination.commit(found)
    destination = place.open(**EDITED)
    found = destination.unfinished()
    assert found is not None and found.id == commit.id, "the receiver may have taken its first request"
    destination.commit(found)
    assert not taken_twice(place) and places(place.receiver.taken) == [(0, n) for n in range(10)]
    first, *others = {one.key: one.body for one in place.receiver.got}.values()
    assert len(json.loads(first)) == 3 and len(others) == 3
    assert len({(one.key, one.body) for one in place.receiver.got}) == 4, "each key always has the same contents"
    assert place.open().unfinished() is None and proof(destination).ok
    # The batch behind it has the fields of the definition as it is now.
    destination.commit(batch(place, destination.ledger()[1], {0: 12}))
    assert [one.json for one in place.receiver.got[-2:]] == [
        [[{"at": [1, 2], "edited": {"id": n, "text": f"t{n}"}}]] for n in (10, 11)
    ]


@pytest.mark.parametrize("field", sorted(EDITED))
def test_each_field_that_decides_requests_is_fixed_with_the_batch(place: WebhookPlace, field: str) -> None:
    left(place)
    before = place.receiver.got[0]
    destination = place.open(**{field: EDITED[field]})
    found = destination.unfinished()
    assert found is not None
    destination.commit(found)
    again = place.receiver.got[1]
    assert (again.key, again.body) == (before.key, before.body) and not taken_twice(place)


def test_address_headers_and_policy_are_those_of_the_definition_now(place: WebhookPlace) -> None:
    begun(place)
    commit = of_records(place, place.open().ledger()[1], {0: [b"a"] * 5})
    place.receiver.faults = ["lost"]
    with pytest.raises(DestinationBusy):
        place.open(retry_s=0).commit(commit)
    destination = place.open(url=place.receiver.url + "&v=2", headers={"X-Team": "data"}, rules=Rules("skip"), timeout_s=5)
    found = destination.unfinished()
    assert found is not None
    place.receiver.faults = ["422"]
    done = destination.commit(found)
    assert done.commit.totals.filtered == 3 and place.receiver.got[1].headers["x-team"] == "data"
    assert place.receiver.got[1].key == place.receiver.got[0].key


def test_receipts_go_to_the_table_that_the_batch_was_begun_with(place: WebhookPlace) -> None:
    """The table's name is part of the key."""
    left(place)
    destination = place.open(table="others")
    found = destination.unfinished()
    assert found is not None
    destination.commit(found)
    assert not taken_twice(place) and len(place.rows("tweets")) == 10


def test_a_batch_that_nothing_was_taken_of_may_be_planned_again(place: WebhookPlace) -> None:
    """All requests were refused, in the run that began it."""
    destination = begun(place)
    place.receiver.fault = lambda _: "404"
    with pytest.raises(DestinationError) as caught:
        destination.commit(batch(place, destination.ledger()[1], {0: 10, 1: 10}))
    assert destination.unfinished() is None and "--on-unfinished-batch" not in caught.value.hint


def test_a_batch_that_was_stored_but_not_sent_counts_as_sent(place: WebhookPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 10})
    with monkeypatch.context() as patch:
        patch.setattr(Delivery, "send", crash)
        with pytest.raises(Crash):
            destination.commit(commit)
    place.receiver.faults = ["401"]
    found = place.open().unfinished()
    assert found is not None
    with pytest.raises(DestinationError, match="credentials") as caught:
        place.open().commit(found)
    assert "kpipe run tweets --on-unfinished-batch skip" in caught.value.hint
    assert place.open().unfinished() == found


def test_an_unexpected_error_keeps_the_batch(place: WebhookPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    destination = begun(place)
    place.receiver.fault = lambda _: "404"
    monkeypatch.setattr(Sender, "_judged", crash)
    with pytest.raises(Crash):
        destination.commit(batch(place, destination.ledger()[1], {0: 3}))
    assert destination.unfinished() is not None


def test_a_dead_letter_names_that_an_earlier_try_may_have_been_taken(place: WebhookPlace) -> None:
    begun(place)
    commit = of_records(place, place.open().ledger()[1], {0: [b"a"] * 3})
    place.receiver.faults = ["lost", "422", "422"]
    with pytest.raises(RecordRejected, match="an earlier attempt of this request may have been accepted"):
        place.open(max_records=1).commit(commit)
    destination = place.open(rules=Rules("dead_letter"))
    place.receiver.faults = ["422"]
    found = destination.unfinished()
    assert found is not None
    destination.commit(found)
    reasons = [row["error_message"] for row in destination.view("errors")]
    assert len(reasons) == 1 and reasons[0].endswith("; an earlier attempt of this request may have been accepted")
    fresh = of_records(place, destination.ledger()[1], {0: [b"a"] * 3})
    place.receiver.faults = ["422"]
    destination.commit(fresh)
    assert not destination.view("errors")[0]["error_message"].endswith("taken")


def decisions(ledger: Ledger) -> dict[str, tuple[Any, tuple[Step, ...]]]:
    changes, again = transitions.reread(ledger, source(0), 0)
    return {
        "jump": (transitions.jump(ledger, source(0), 20), ()),
        "reread": (changes, tuple(Step(Lane(source(0), x.start, x.start), x.end) for x in again)),
        "retire": (transitions.retire(ledger, source(0)), ()),
        "skip": (transitions.skip(ledger.live(source(0)), 5), ()),  # type: ignore[arg-type]
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["jump", "reread", "retire", "skip"])
def test_offsets_of_an_unfinished_batch_are_not_moved(place: WebhookPlace, kind: str) -> None:
    """Also where only one of its partitions is meant: the other's records would be planned again, with other keys."""
    destination = begun(place)
    destination.commit(batch(place, destination.ledger()[1], {0: 3}))
    place.receiver.faults = ["", "lost"]
    with pytest.raises(DestinationBusy):
        place.open(retry_s=0).commit(batch(place, destination.ledger()[1], {0: 10, 1: 10}))
    changes, steps = decisions(destination.ledger()[1])[kind]
    with pytest.raises(
        DestinationError, match=rf"{kind}: batch .* is not finished.*tweets/0 \[3, 10\), tweets/1 \[0, 10\)"
    ) as caught:
        destination.commit(ledger_only("tweets", kind, changes, "", steps, "", ""))
    assert "kpipe run tweets --on-unfinished-batch skip" in caught.value.hint
    assert destination.ledger()[1].seq == 2
    destination.commit(begin("tweets", [2]))  # a decision that leaves the batch alone
    found = destination.unfinished()
    assert found is not None
    destination.commit(found)
    assert not taken_twice(place) and len(places(place.receiver.taken)) == 20 and proof(destination).ok


def given_up(destination: WebhookDestination, found: Commit) -> Commit:
    """The decision as a run makes it (kpipe/planning/reconcile.py)."""
    steps = tuple(replace(step, closed_by="given_up") for step in found.steps)
    changes = transitions.give_up(destination.ledger()[1], found.steps)
    return ledger_only("tweets", "give_up", changes, "by mia", steps, "", "", found.id)


@pytest.mark.parametrize("killed", [False, True])
def test_a_batch_that_is_given_up_is_recorded(place: WebhookPlace, monkeypatch: pytest.MonkeyPatch, killed: bool) -> None:
    left(place, ["", "lost"], {0: 10, 1: 4})
    destination = place.open()
    found = destination.unfinished()
    assert found is not None
    if killed:
        with monkeypatch.context() as patch:
            patch.setattr(Outbox, "give_up", crash)
            with pytest.raises(Crash):
                destination.commit(given_up(destination, found))
    else:
        destination.commit(given_up(destination, found))
        (kept,) = place.path.parent.rglob(f"given-up-{found.id}")
        assert len((kept / "receipts").read_text().splitlines()) == 1
    assert place.open().unfinished() is None
    assert destination.commit(found).seq == 2, "it is settled: no request leaves any more"
    result = proof(destination)
    assert result.ok and result.span == 0 and result.skipped == ["tweets/0 [0, 10)", "tweets/1 [0, 4)"]
    assert result.given_up == [f"tweets/0 [0, 10), batch {found.id}", f"tweets/1 [0, 4), batch {found.id}"]
    sent = len(place.receiver.got)
    destination.commit(batch(place, destination.ledger()[1], {0: 13, 1: 7}))
    # Partitions are sent side by side: only the order within each is promised.
    arrived = sorted(places(place.receiver.got[sent:]), key=lambda at: at[0])
    assert arrived == [*((0, n) for n in (10, 11, 12)), *((1, n) for n in (4, 5, 6))]
    # Read all the same, on demand: verify goes on naming what may be there twice.
    ledger = destination.ledger()[1]
    changes = transitions.backfill(ledger, source(0), found.steps[0].range)
    destination.commit(ledger_only("tweets", "backfill", changes, "", (), "", ""))
    (lane,) = [lane for lane in destination.ledger()[1].of(source(0)) if not lane.finished and not lane.open]
    base = batch(place, destination.ledger()[1], {1: 8})
    rows = [{"id": n, "text": "x", "_kafka_partition": 0, "_kafka_offset": n, "_kafka_timestamp": n} for n in range(10)]
    step = Step(lane, 10)
    counts = {lane.key: replace(next(iter(base.counts.values())), messages=10, rows=10, inserted=10)}
    again = replace(base, changes=(step.change,), steps=(step,), metadata={}, ends={})
    again = again.writing(files=(place.staged(rows),)).stored(counts)
    destination.commit(again)
    result = proof(destination)
    assert result.ok and len(result.given_up) == 2 and not result.skipped[1:]


def test_a_ledger_that_was_moved_by_other_means_needs_an_operator(place: WebhookPlace) -> None:
    """The batch is neither dropped nor planned again in silence."""
    left(place)
    destination = place.open()
    ledger = destination.ledger()[1]
    receipts = ReceiptsDestination(place.path, "tweets", "tweets", {}, (place.staging,), 30)
    receipts.commit(ledger_only("tweets", "jump", transitions.jump(ledger, source(0), 4), "", (), "", ""))
    sent = len(place.receiver.got)
    for _ in range(2):
        found = destination.unfinished()
        assert found is not None
        with pytest.raises(LedgerMismatch, match=r"does not fit batch .* expected tweets/0 \[0, 10\) to be next"):
            destination.commit(found)
    assert len(place.receiver.got) == sent
    destination.commit(given_up(destination, found))
    assert destination.unfinished() is None
    assert proof(destination).given_up == [f"tweets/0 [0, 10), batch {found.id}"]
    assert proof(destination).skipped == ["tweets/0 [0, 4)"], "lanes that had moved are left as they are"


def test_batches_of_earlier_versions_are_finished_by_the_definition(place: WebhookPlace) -> None:
    """Their folder does not name the fields."""
    left(place)
    (file,) = place.path.parent.rglob("commit.json")
    text = json.loads(file.read_text())
    del text["into"]
    file.write_text(json.dumps(text))
    destination = place.open()
    found = destination.unfinished()
    assert found is not None
    destination.commit(found)
    assert not taken_twice(place) and len(place.rows()) == 10


def crash(*_: Any, **__: Any) -> Any:
    raise Crash
