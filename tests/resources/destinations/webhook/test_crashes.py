"""A webhook's run that is killed: the next one finishes the batch."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kpipe import failpoints
from kpipe.batch.batch import Commit
from kpipe.errors import (
    DestinationBusy,
    DestinationError,
    Fenced,
)
from kpipe.ledger.ledger import Ledger
from resources.destinations.webhook.commit_codec import from_text, to_text
from resources.destinations.webhook.outbox import Outbox, Receipt
from resources.testing.place import batch, begin
from resources.testing.state import begun, proof
from tests.receiver import Got
from tests.resources.destinations.webhook.batches import _processes, in_order, more, of_records, places
from tests.resources.destinations.webhook_place import WebhookPlace


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
        assert started.wait(300)
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
    assert found is not None and found == commit.writing(files=found.only.files)
    for file in commit.only.files:
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
    commit = batch(place, Ledger("tweets").after(begin("tweets", [0, 1]).changes), {0: 3, 1: 2}, dead=[(0, 1)])
    assert from_text(to_text(commit)) == commit
