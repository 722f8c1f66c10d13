"""A topic as a destination: the suite of all destinations on a real Kafka."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from kpipe import failpoints
from kpipe.batch.batch import Commit, Counts, StagedFile, TableWrite
from kpipe.errors import DestinationBusy, DestinationError, Fenced, LedgerMismatch, RecordRejected, SchemaConflict
from kpipe.ledger import transitions
from kpipe.ledger.ledger import Lane, Step
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from kpipe.testing.commits import commit_to
from resources.destinations.kafka_sink import KafkaDestination
from resources.destinations.kafka_sink.cluster import Cluster, Ends, Topic
from resources.kafka.record_block import RecordBlock
from resources.testing.conformance import QUICK, Conformance, sampled
from resources.testing.place import COLUMNS, DEAD_LETTERS, batch, begin, source
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
    write = TableWrite(columns=COLUMNS, files=files, deletes=(deletes,))
    commit = commit_to(write, counts, id="b", pipeline="tweets", changes=(step.change,), steps=(step,))
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


@pytest.mark.parametrize("moment", [253_402_300_800_000_000, (2**63 - 1) // 1000 * 1000, None])
def test_a_dead_letter_of_any_time_is_kept(place: KafkaPlace, moment: int | None) -> None:
    """A producer that stamps microseconds is enough: Python's dates end with the year 9999."""
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 3}, dead=[(0, 1)])
    letter = {**place.dead(source(0), 1), "timestamp": moment}
    destination.commit(replace(commit, dead_letters=(place.file([letter], DEAD_LETTERS),)))
    (kept,) = place.records(f"{place.name('tweets')}.dead-letters")
    assert dict(kept.headers())["kpipe.timestamp_us"] == (None if moment is None else str(moment).encode())
    (row,) = destination.view("errors")
    assert (row["offset"], row["error_message"]) == (1, "not JSON")
    assert proof(destination).ok


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


@pytest.mark.parametrize("moves", [True, False])
def test_commits_after_a_reread_do_not_read_the_whole_ledger(
    place: KafkaPlace, monkeypatch: pytest.MonkeyPatch, moves: bool
) -> None:
    """Each searches for its batch: without lane changes, or after a REREAD, lanes alone do not show a commit."""
    destination = begun(place)
    assert isinstance(destination, KafkaDestination)
    destination.commit(batch(place, destination.ledger()[1], {0: 3}))
    changes, done = transitions.reread(destination.ledger()[1], source(0), 0)
    steps = tuple(Step(Lane(source(0), item.start, item.start, item.end), item.end, "reread") for item in done)
    destination.commit(Commit("again", "tweets", changes, kind="reread", steps=steps, note="reread: tweets/0"))
    read, spans = Cluster.read, [0]

    def counted(cluster: Cluster, topic: str, partition: int, span: Range) -> Iterator[RecordBlock]:
        if topic == destination.journal.topic:
            spans[-1] += len(span)
        return read(cluster, topic, partition, span)

    monkeypatch.setattr(Cluster, "read", counted)
    commits: list[Commit] = []
    for number in range(12):
        spans.append(0)
        commit = batch(place, destination.ledger()[1], {1: number + 1 if moves else 1})
        commits.append(commit if moves else replace(commit, changes=()))
        destination.commit(commits[-1])
    assert spans[-1] <= spans[6], "the topic has 16 offsets then, in which the newest state is looked for"
    for commit in (commits[0], commits[-1]):
        before = destination.ledger()[1].seq
        assert destination.commit(commit).seq == commits.index(commit) + 4
        assert destination.ledger()[1].seq == before, "it was committed already"
    assert destination.journal.find(destination.journal.look(), "no batch") is None


def test_a_producer_that_was_overtaken_is_fenced(place: KafkaPlace) -> None:
    """The one that is kept for the next batch as well: another run has taken its name meanwhile."""
    first, second = begun(place), place.open()
    late = batch(place, first.ledger()[1], {0: 10})
    second.commit(batch(place, second.ledger()[1], {0: 4}))
    with pytest.raises(Fenced):
        first.commit(late)
    second.commit(batch(place, second.ledger()[1], {0: 6}))
    assert seen(place) == [(0, n) for n in range(6)]


def ended_by_brokers(destination: KafkaDestination) -> None:
    """Wait until the brokers have ended the open transaction that has written to the topic; they look every 10 s."""

    def over() -> bool:
        topic = destination.cluster.topic(destination.table)
        assert topic is not None
        return any(ends.stable == ends.high > 0 for ends in destination.cluster.ends(topic))

    eventually(over)


def taken_over(destination: KafkaDestination) -> None:
    """Take the producer's name when the time of its transaction is over: to the producer that is the same."""
    time.sleep(destination._into.transaction_timeout_s)
    successor = KafkaDestination(destination._into, "tweets", {}, destination.staging, destination._folder)
    successor._opened()


@pytest.mark.parametrize(
    ("end", "point"),
    [
        (taken_over, "commit.before"),
        pytest.param(ended_by_brokers, "commit.history", marks=pytest.mark.chaos),
        pytest.param(ended_by_brokers, "commit.before", marks=pytest.mark.chaos),
    ],
)
def test_a_batch_that_outlives_its_transaction_is_written_once(
    place: KafkaPlace, end: Callable[[KafkaDestination], None], point: str
) -> None:
    """Brokers that end a transaction answer to its producer as if another one had taken its name."""
    place.open().commit(begin("tweets", [0]))
    destination = place.open(transaction_timeout_s=1)
    commit = batch(place, destination.ledger()[1], {0: 10})
    tries: list[str] = []

    def dawdle(reached: str) -> None:
        if reached == point:
            tries.append(reached)
            end(destination)

    failpoints.arm(dawdle)
    try:
        while not tries:  # a busy machine may need more than that second to come so far
            with pytest.raises(DestinationError) as error:
                destination.commit(commit)
    finally:
        failpoints.arm(None)
    assert "expected a commit within into.transaction_timeout_s (1 s)" in str(error.value)
    assert len(tries) == 1 and "batch.max_offsets_per_partition" in error.value.hint
    destination = place.open()
    destination.commit(commit)
    assert seen(place) == [(0, n) for n in range(10)] and proof(destination).ok


def test_rows_and_dead_letters_whose_markers_come_late_are_counted(place: KafkaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers answer a commit before its markers are in every log: until then nothing of it can be read."""
    destination = loaded(place, {0: 10}, dead=[(0, 3)])
    ends, late = Cluster.ends, Counter[str]()

    def lagging(cluster: Cluster, topic: Topic) -> list[Ends]:
        late[topic.name] += 1
        return [replace(item, stable=item.start) if late[topic.name] < 4 else item for item in ends(cluster, topic)]

    monkeypatch.setattr(Cluster, "ends", lagging)
    assert proof(destination).ok and len(destination.view("errors")) == 1
    assert late[place.name("tweets")] >= 4 <= late[f"{place.name('tweets')}.dead-letters"]


def test_retention_takes_the_proof_and_not_the_ledger(place: KafkaPlace) -> None:
    destination = loaded(place, {0: 10})
    where = TopicPartition(place.name("tweets"), 0, 5)
    place.admin.delete_records([where])[where].result(300)
    with pytest.raises(DestinationError, match="does not keep all that was written"):
        destination.recount()
    destination.commit(batch(place, destination.ledger()[1], {0: 12}))
    assert destination.ledger()[1].positions()[source(0)] == 12


def test_a_topic_that_was_made_again_is_another(place: KafkaPlace) -> None:
    destination = loaded(place)
    place.drop_table()
    eventually(lambda: place.name("tweets") not in place.admin.list_topics(timeout=600).topics)
    place.made.clear()
    place.open()
    with pytest.raises(LedgerMismatch, match="is missing"):
        destination.commit(batch(place, destination.ledger()[1], {0: 12}))


def test_a_ledger_topic_that_is_gone_is_no_empty_one(place: KafkaPlace) -> None:
    loaded(place)
    name = f"{place.prefix}-ledger-tweets"
    place.admin.delete_topics([name])[name].result(300)
    eventually(lambda: name not in place.admin.list_topics(timeout=600).topics)
    with pytest.raises(LedgerMismatch, match="commits were made"):
        place.open().ledger()


def test_dead_letters_of_a_former_topic_are_counted(place: KafkaPlace) -> None:
    """The definition names another topic for them, or none, after an edit."""
    first = begun(place, dead_letters=place.name("first"))
    first.commit(batch(place, first.ledger()[1], {0: 3}, dead=[(0, 1)]))
    second = place.open(dead_letters=place.name("second"))
    second.commit(batch(place, second.ledger()[1], {0: 5}, dead=[(0, 3), (0, 4)]))
    for destination in (first, second, place.open()):
        found = proof(destination)
        assert found.ok, found.problems
        assert sorted(row["offset"] for row in destination.view("errors")) == [1, 3, 4]
        assert len({row["error_id"] for row in destination.view("errors")}) == 3


def test_a_ledger_topic_that_forgets_is_refused(place: KafkaPlace) -> None:
    place.topic(f"{place.prefix}-ledger-tweets", 1, **{"cleanup.policy": "delete"})
    with pytest.raises(DestinationError, match=r"cleanup.policy delete, which would delete the ledger"):
        place.open().commit(begin("tweets", [0]))


def test_a_record_that_is_too_large_names_its_offset(place: KafkaPlace) -> None:
    place.topic(place.name("tweets"), 2, **{"max.message.bytes": "2000"})
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 3}, values={"id": 1, "text": "x" * 3000})
    with pytest.raises(
        RecordRejected, match=r"partition 0 offset 0: record too large for topic .* at most 2000 bytes, found \d+"
    ):
        destination.commit(commit)
    assert seen(place) == []
    destination.commit(batch(place, destination.ledger()[1], {0: 3}))
    assert seen(place) == [(0, n) for n in range(3)]


FAR = 6_247_000_000_000_000  # the year 199930, in ms


def of_times(place: KafkaPlace, moments: Sequence[int | None]) -> Commit:
    """A batch of a row for each of these times, in ms."""
    destination = place.open()
    made = batch(place, destination.ledger()[1], {0: len(moments)})
    rows = [
        {"id": at, "text": "x", "_kafka_partition": 0, "_kafka_offset": at,
         "_kafka_timestamp": None if moment is None else moment * 1000}
        for at, moment in enumerate(moments)
    ]  # fmt: skip
    return made.writing(files=(place.staged(rows, COLUMNS),))


def test_records_whose_time_the_topic_does_not_take_are_named(place: KafkaPlace) -> None:
    now = time.time_ns() // 1_000_000
    limits = {"message.timestamp.after.max.ms": "3600000", "message.timestamp.before.max.ms": "86400000"}
    place.topic(place.name("tweets"), 2, **limits)
    destination = begun(place)
    with pytest.raises(SchemaConflict) as caught:
        destination.commit(of_times(place, [now, FAR, None, 1000, -5, now + 60_000]))
    error = caught.value
    assert error.what.startswith(f"{source(0)} offset 1: the record's timestamp {FAR} ms") and "1 more record:" in error.what
    assert {name: list(found) for name, found in error.refused.items()} == {source(0): [1, 3]}
    assert "message.timestamp.after.max.ms is 3600000" in error.refused[source(0)][1]
    assert "message.timestamp.before.max.ms is 86400000" in error.refused[source(0)][3]
    assert "errors.constraint: dead_letter" in error.hint
    assert seen(place) == []
    destination.commit(of_times(place, [now, now, None, now, -5, now + 60_000]))
    assert seen(place) == [(0, n) for n in range(6)]


@pytest.mark.parametrize(
    "config", [{"message.timestamp.type": "LogAppendTime"}, {"message.timestamp.after.max.ms": str(2**63 - 1)}]
)
def test_any_time_is_written_where_the_topic_takes_it(place: KafkaPlace, config: dict[str, str]) -> None:
    place.topic(place.name("tweets"), 2, **config)
    begun(place).commit(of_times(place, [FAR, 0]))
    assert seen(place) == [(0, 0), (0, 1)]


def test_an_open_transaction_of_somebody_else_in_the_ledger_is_waited_for(place: KafkaPlace) -> None:
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 3})
    settings = {"transactional.id": f"{place.prefix}-other", "transaction.timeout.ms": 900_000}  # longer than any test
    other = Producer({"bootstrap.servers": place.brokers, "log_level": 0, **settings})
    other.init_transactions(300)
    other.begin_transaction()
    other.produce(f"{place.prefix}-ledger-tweets", key=b"x", value=b"y")
    other.flush(300)
    with pytest.raises(DestinationBusy, match="open transaction"):
        destination.commit(commit)
    other.abort_transaction(300)
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
    failpoints.arm(die)
    try:
        destination.commit(commit)
    except DestinationError:  # it could not be told, or did not land
        failpoints.arm(None)
        assert place.open().commit(commit).seq == 2
    failpoints.arm(None)
    assert died and seen(place) == [*((0, n) for n in range(10)), *((1, n) for n in range(5))]
    assert proof(place.open()).ok
