"""A topic that an edit of `into.topic` has left behind is proven as the present one is, or verification says what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from kpipe.batch.batch import Counts, TableWrite
from kpipe.errors import LedgerMismatch
from kpipe.ledger.ledger import Step
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from kpipe.testing.commits import commit_to
from resources.destinations.kafka_sink import KafkaDestination
from resources.testing.place import COLUMNS, begin, live
from resources.testing.state import proof
from tests.broker.node import eventually
from tests.resources.destinations.kafka_place import KafkaPlace

KEY = Columns.of({"id": "BIGINT"})
Change = Callable[[list[Any]], list[Any]]


@pytest.fixture
def place(tmp_path: Path, brokers: str) -> Iterator[KafkaPlace]:
    made = KafkaPlace(tmp_path, brokers, partitions=1)
    yield made
    made.close()


def opened(place: KafkaPlace, table: str) -> KafkaDestination:
    """The pipeline `tweets`, with this name in `into.topic`."""
    return place.open(table=table, rule=KeyRule(("id",), deletes=True), key=["id"], on_null="delete")


def committed(place: KafkaPlace, table: str, end: int, gone: Sequence[int] = ()) -> KafkaDestination:
    """Commit the next offsets of partition 0 to a topic; `gone` are those of tombstones."""
    destination = opened(place, table)
    if not destination.ledger()[1].lanes:
        destination.commit(begin("tweets", [0]))
    step = Step(live(destination.ledger()[1], 0), end)
    at = [{"id": n % 3, "text": f"t{n}", "_kafka_partition": 0, "_kafka_offset": n, "_kafka_timestamp": n}
          for n in range(step.range.start, end)]  # fmt: skip
    rows = [row for row in at if row["_kafka_offset"] not in gone]
    dropped = [{name: value for name, value in row.items() if name != "text"} for row in at if row["_kafka_offset"] in gone]
    counts = Counts(messages=len(at), rows=len(rows), deletes=len(dropped), inserted=len(rows))
    destination.commit(
        commit_to(
            TableWrite(
                columns=COLUMNS,
                files=(place.staged(rows, COLUMNS),) if rows else (), deletes=(place.staged(dropped, KEY),) if dropped else (),
            ),
            {step.lane.key: counts},
            id=f"batch-{end}", pipeline="tweets", changes=(step.change,), steps=(step,),
        )
    )  # fmt: skip
    return destination


def removed(place: KafkaPlace, table: str) -> None:
    name = place.name(table)
    place.admin.delete_topics([name])[name].result(300)
    eventually(lambda: name not in place.admin.list_topics(timeout=600).topics)
    place.made.discard(name)


def rewritten(place: KafkaPlace, table: str, change: Change = list) -> None:
    """Delete a topic, create it again, and write its records back as `change` gives them."""
    name = place.name(table)
    records = change(place.records(name))
    removed(place, table)
    place.topic(name, place.partitions)
    producer = Producer({"bootstrap.servers": place.brokers, "log_level": 0})
    for record in records:
        producer.produce(name, key=record.key(), value=record.value(), partition=0, headers=record.headers())
    assert producer.flush(300) == 0


def settings(place: KafkaPlace, table: str, name: str, value: str) -> None:
    place.configure(place.name(table), name, value)


def problems(destination: KafkaDestination) -> str:
    return " | ".join(proof(destination).problems)


def test_a_former_topic_that_is_as_it_was_left_is_proven(place: KafkaPlace) -> None:
    """Also once it is written again, and where names differ in case only."""
    committed(place, "tweets", 6, gone=(2, 4))
    committed(place, "Tweets", 9, gone=(8,))
    destination = committed(place, "other", 10)
    report = proof(destination)
    assert report.ok, report.problems
    held = {name: found["rows_found"] for name, found in report.targets.items()}
    assert held == {place.name("tweets"): 4, place.name("Tweets"): 2}
    destination = committed(place, "tweets", 14, gone=(11,))
    assert not problems(destination)


def test_a_former_topic_in_another_order_is_not_proven(place: KafkaPlace) -> None:
    committed(place, "tweets", 6, gone=(2, 4))
    destination = committed(place, "other", 9)
    rewritten(place, "tweets", lambda found: [record for record in reversed(found) if record.value() is not None])
    said, name = problems(destination), place.name("tweets")
    assert f"table {name}: topic {name} was recreated" in said
    assert f"tweets/0: offset 3 comes behind offset 5 at {name}/0 offset 1" in said
    assert f"tweets/0: topic {name}: expected 2 tombstones, found 0" in said
    with pytest.raises(LedgerMismatch, match="the ledger records 4 rows"):
        committed(place, "tweets", 12)


@pytest.mark.parametrize("edited", [True, False])
def test_a_topic_that_was_recreated_is_not_proven_even_with_its_records(place: KafkaPlace, edited: bool) -> None:
    destination = committed(place, "tweets", 6, gone=(2, 4))
    destination = committed(place, "other", 9) if edited else destination
    rewritten(place, "tweets")
    assert f"topic {place.name('tweets')} was recreated" in problems(destination)
    assert len(proof(destination).problems) == 1


def test_an_edit_that_has_written_nothing_yet_judges_the_former_topic(place: KafkaPlace) -> None:
    committed(place, "tweets", 6)
    destination = opened(place, "other")
    assert not problems(destination)
    rewritten(place, "tweets")
    assert "was recreated" in problems(destination)


def test_a_former_topic_of_tombstones_that_is_missing_is_named(place: KafkaPlace) -> None:
    committed(place, "tweets", 3, gone=(0, 1, 2))
    destination = committed(place, "other", 4)
    assert not problems(destination)
    removed(place, "tweets")
    assert f"topic {place.name('tweets')} is missing: its 0 rows and 3 tombstones cannot be counted" in problems(destination)


def test_a_former_topic_of_which_nothing_is_in_the_ledger_may_go(place: KafkaPlace) -> None:
    opened(place, "tweets").commit(begin("tweets", [0]))
    destination = committed(place, "other", 4)
    removed(place, "tweets")
    assert not problems(destination)


def test_a_former_topic_that_does_not_keep_its_records_is_not_proven(place: KafkaPlace) -> None:
    committed(place, "tweets", 6)
    destination = committed(place, "other", 9)
    settings(place, "tweets", "cleanup.policy", "compact")
    assert "does not keep all that was written (cleanup.policy is compact)" in problems(destination)
    settings(place, "tweets", "cleanup.policy", "delete")
    where = TopicPartition(place.name("tweets"), 0, 2)
    place.admin.delete_records([where])[where].result(300)
    said = problems(destination)
    assert "does not keep all that was written (the log of partition 0 starts at 2)" in said
    assert "the remaining records are in order" in said and "expected 6 rows, found 4 in the table" in said


def test_a_ledger_of_an_earlier_version_proves_what_it_can(place: KafkaPlace) -> None:
    """It has no id of a former topic: order and numbers are checked all the same."""
    committed(place, "tweets", 6, gone=(2, 4))
    destination = committed(place, "other", 9)
    state = place.state()
    del state["former"]
    place.rewrite(state)
    assert not problems(destination)
    rewritten(place, "tweets", lambda found: found[::-1])
    assert "recreated" not in problems(destination) and "comes behind offset" in problems(destination)
