"""A topic as a destination: the suite of all destinations on a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from kpipe import faults
from kpipe.batch import Commit, Counts, StagedFile, Step
from kpipe.errors import DestinationBusy, DestinationError, Fenced, LedgerMismatch, RecordRejected
from kpipe.keys import KeyRule
from kpipe.schema import Columns
from resources.testing.conformance import QUICK, Conformance, sampled
from resources.testing.place import COLUMNS, batch, begin, source
from resources.testing.state import begun, loaded, proof
from tests.broker.node import Node, eventually
from tests.resources.destinations.kafka_place import KafkaPlace, killed, read_all


@pytest.fixture
def place(tmp_path: Path, brokers: str) -> Iterator[KafkaPlace]:
    made = KafkaPlace(tmp_path, brokers)
    yield made
    made.close()


# These take seconds each, or many of them; they are among the others in `make chaos`.
SLOW = {
    "test_any_lane_that_differs_fences_all", "test_hostile_text_is_data", "test_ledger_that_was_edited_by_hand_is_no_ledger",
    "test_racing_commits_one_wins",
}  # fmt: skip


class TestKafka(sampled(Conformance, [name for name in QUICK if name not in SLOW])):
    pass


def seen(place: KafkaPlace) -> list[tuple[int, int]]:
    """Where the rows in the topic come from, as a consumer of committed records sees them."""
    found = [dict(message.headers()) for message in place.records(place.name("tweets"))]
    return sorted((int(said["kpipe.partition"]), int(said["kpipe.offset"])) for said in found)


def test_rows_of_a_source_partition_keep_their_order(place: KafkaPlace) -> None:
    """Also with pieces that were reported in another order, and with tombstones among the rows."""
    place.open()
    rule = KeyRule(("id",), deletes=True)
    destination = place.open(rule=rule, key=["id"], on_null="delete")
    destination.commit(begin("tweets", [0]))
    lane = destination.ledger()[1].live(source(0))
    assert lane is not None

    def rows(offsets: range) -> StagedFile:
        at = [
            {"id": 7, "text": f"t{n}", "_kafka_partition": 0, "_kafka_offset": n, "_kafka_timestamp": n} for n in offsets if n % 3
        ]
        return place.staged(at)

    gone = [{"id": 7, "_kafka_partition": 0, "_kafka_offset": n, "_kafka_timestamp": n} for n in range(0, 30, 3)]
    deletes = place.staged(gone, Columns.of({"id": "BIGINT"}))
    step = Step(lane, 30)
    counts = {lane.key: Counts(messages=30, rows=20, deletes=10)}
    files = (rows(range(15, 30)), rows(range(15)))
    commit = Commit("b", "tweets", (step.change,), steps=(step,), columns=COLUMNS, files=files, deletes=(deletes,), counts=counts)
    done = destination.commit(commit)
    assert (done.commit.totals.inserted, done.commit.totals.deleted) == (20, 10)
    found = place.records(place.name("tweets"))
    assert [int(dict(m.headers())["kpipe.offset"]) for m in found] == list(range(30))
    assert {m.key() for m in found} == {b"7"} and [m.value() is None for m in found] == [n % 3 == 0 for n in range(30)]
    assert proof(destination).ok


def test_dead_letters_are_kept_whole(place: KafkaPlace) -> None:
    destination = loaded(place, {0: 10}, dead=[(0, 3)])
    (letter,) = place.records(f"{place.name('tweets')}.dead-letters")
    assert (letter.key(), letter.value(), letter.headers()[0]) == (b"k", b"{broken", ("h", b"\x00"))
    (row,) = destination.view("errors")
    assert (row["load_data_line"], row["key"], row["offset"], row["error_message"]) == (b"{broken", b"k", 3, "not JSON")


def test_what_a_killed_run_left_open_is_over_when_the_next_one_writes(place: KafkaPlace) -> None:
    """Its rows are in the log, and no reader of committed records ever sees them."""
    destination = begun(place)
    ledger = destination.ledger()[1]
    killed(place, batch(place, ledger, {0: 10}), "commit.before")
    assert seen(place) == []
    successor = place.open()
    successor.commit(batch(place, ledger, {0: 4}))
    assert seen(place) == [(0, n) for n in range(4)]
    assert len(read_all(place.brokers, place.name("tweets"), "read_uncommitted")) == 14
    assert proof(successor).ok


def test_a_commit_that_was_killed_after_it_was_sent_has_landed(place: KafkaPlace) -> None:
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 10})
    killed(place, commit, "commit.after")
    assert place.open().commit(commit).seq == 2
    assert seen(place) == [(0, n) for n in range(10)]


def test_a_producer_that_was_overtaken_is_fenced(place: KafkaPlace) -> None:
    """The one that is kept for the next batch as well: another run has taken its name meanwhile."""
    first, second = begun(place), place.open()
    late = batch(place, first.ledger()[1], {0: 10})
    second.commit(batch(place, second.ledger()[1], {0: 4}))
    with pytest.raises(Fenced):
        first.commit(late)
    second.commit(batch(place, second.ledger()[1], {0: 6}))
    assert seen(place) == [(0, n) for n in range(6)]


def test_retention_takes_the_proof_and_not_the_ledger(place: KafkaPlace) -> None:
    destination = loaded(place, {0: 10})
    where = TopicPartition(place.name("tweets"), 0, 5)
    place.admin.delete_records([where])[where].result(30)
    with pytest.raises(DestinationError, match="does not keep all that was written"):
        destination.recount()
    destination.commit(batch(place, destination.ledger()[1], {0: 12}))
    assert destination.ledger()[1].positions()[source(0)] == 12


def test_a_topic_that_was_made_again_is_another(place: KafkaPlace) -> None:
    destination = loaded(place)
    place.drop_table()
    eventually(lambda: place.name("tweets") not in place.admin.list_topics(timeout=30).topics)
    place.made.clear()
    place.open()
    with pytest.raises(LedgerMismatch, match="is gone"):
        destination.commit(batch(place, destination.ledger()[1], {0: 12}))


def test_a_ledger_topic_that_is_gone_is_no_empty_one(place: KafkaPlace) -> None:
    loaded(place)
    name = f"{place.prefix}-ledger-tweets"
    place.admin.delete_topics([name])[name].result(30)
    eventually(lambda: name not in place.admin.list_topics(timeout=30).topics)
    with pytest.raises(LedgerMismatch, match="commits had landed"):
        place.open().ledger()


def test_a_ledger_topic_that_forgets_is_refused(place: KafkaPlace) -> None:
    place.topic(f"{place.prefix}-ledger-tweets", 1, **{"cleanup.policy": "delete"})
    with pytest.raises(DestinationError, match=r"cleanup.policy delete, which would remove the ledger"):
        place.open().commit(begin("tweets", [0]))


def test_a_record_that_is_too_large_names_its_offset(place: KafkaPlace) -> None:
    place.topic(place.name("tweets"), 2, **{"max.message.bytes": "2000"})
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 3}, values={"id": 1, "text": "x" * 3000})
    with pytest.raises(RecordRejected, match=r"partition 0 offset 0: the record would take \d+ bytes, topic .* takes 2000"):
        destination.commit(commit)
    assert seen(place) == []
    destination.commit(batch(place, destination.ledger()[1], {0: 3}))
    assert seen(place) == [(0, n) for n in range(3)]


def test_an_open_transaction_of_somebody_else_in_the_ledger_is_waited_for(place: KafkaPlace) -> None:
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 3})
    other = Producer({"bootstrap.servers": place.brokers, "transactional.id": f"{place.prefix}-other", "log_level": 0})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(f"{place.prefix}-ledger-tweets", key=b"x", value=b"y")
    other.flush(30)
    with pytest.raises(DestinationBusy, match="open transaction"):
        destination.commit(commit)
    other.abort_transaction(30)
    assert destination.commit(commit).seq == 2


def test_raw_values_and_headers_go_through(place: KafkaPlace) -> None:
    destination = place.open(format="raw")
    destination.commit(begin("tweets", [0]))
    columns = Columns.of({"key": "BLOB", "value": "BLOB"})
    base = batch(place, destination.ledger()[1], {0: 1}, columns, {"key": b"\x00k", "value": b"\xff\x00"})
    destination.commit(base)
    (found,) = place.records(place.name("tweets"))
    assert (found.key(), found.value()) == (b"\x00k", b"\xff\x00")


def test_a_broker_that_dies_with_the_transaction(node: Node, tmp_path: Path) -> None:
    """Killed when all was written and nothing committed. Whatever became of it, the next try ends with each row once."""
    place = KafkaPlace(tmp_path, node.address)
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 10, 1: 5})

    def die(point: str) -> None:
        if point == "commit.before" and not died:
            died.append(point)
            assert node.process is not None
            node.process.kill()
            node.process.wait()
            node.start()

    died: list[str] = []
    faults.arm(die)
    try:
        destination.commit(commit)
    except DestinationError:  # it could not be told, or did not land
        faults.arm(None)
        assert place.open().commit(commit).seq == 2
    faults.arm(None)
    assert died and seen(place) == [*((0, n) for n in range(10)), *((1, n) for n in range(5))]
    assert proof(place.open()).ok
