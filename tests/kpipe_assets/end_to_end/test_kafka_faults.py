"""What happens to topics while kpipe looks away, and records as bad as they come: from Kafka through Spark into DuckDB."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from kpipe.batch.batch import Committed
from kpipe.definition.pipeline import Source
from kpipe.errors import ReadFailed, SourceIdentityChanged
from kpipe.run_events import Event
from kpipe_assets.runs.runner import Run
from resources.home import Home
from resources.kafka.topic_metadata import KafkaTopics
from tests.broker.node import eventually, produce

pytestmark = pytest.mark.spark


def ids(start: int, end: int) -> list[str]:
    return [json.dumps({"id": n}) for n in range(start, end)]


def when(kpipe: Any, name: str, spark: Any, kind: str, act: Callable[[], object], count: int = 1) -> list[Committed]:
    """Run the pipeline in this process; the act comes at the first so many events of that kind."""
    left = [act] * count

    def on_event(event: Event) -> None:
        if event.kind == kind and left:
            left.pop()()

    home = Home(kpipe.home)
    done = list(Run.real(home.pipeline(name), home, lambda: spark, on_event=on_event).batches())
    assert not left
    return done


def delete_records(brokers: str, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.delete_records([TopicPartition(topic, 0, before)])[TopicPartition(topic, 0, before)].result(120)


def test_batches_without_a_record_move_the_ledger(kpipe: Any, topic: Any, write: Any, brokers: str) -> None:
    name = topic(1)
    write(name, ids(0, 3))
    producer = Producer(
        {"bootstrap.servers": brokers, "transactional.id": f"of-{name}", "transaction.timeout.ms": 600_000, "log_level": 0}
    )
    producer.init_transactions(120)
    producer.begin_transaction()
    for value in ids(100, 120):
        producer.produce(name, value, partition=0)
    producer.flush(120)
    producer.abort_transaction(120)  # 3 to 22, and the marker at 23, which the broker writes a little later
    topics = KafkaTopics(Source(brokers=brokers, topic=name))
    eventually(lambda: [state.end for state in topics.snapshot().partitions.values()] == [24])
    write(name, ids(3, 5))
    kpipe.define("holes", name, batch={"max_offsets_per_partition": 4})
    lines = kpipe.json("run", "holes")
    assert [(line["ranges"]["0"], line["rows"], line["gaps"]) for line in lines[:-1]] == [
        ([0, 4], 3, 1),
        *(([start, start + 4], 0, 4) for start in range(4, 24, 4)),
        ([24, 26], 2, 0),
    ]
    assert kpipe.sql("SELECT list(id ORDER BY id) FROM holes") == [([0, 1, 2, 3, 4],)]
    proof = kpipe.json("verify", "holes")[0]
    assert proof["ok"] and (proof["span"], proof["rows"], proof["gaps"]) == (26, 5, 21)


def test_retention_between_plan_and_read(kpipe: Any, topic: Any, write: Any, spark: Any, brokers: str) -> None:
    name = topic(1)
    write(name, ids(0, 40))
    kpipe.define("late", name, columns={"id": "BIGINT"}, batch={"max_retries": 0})
    with pytest.raises(ReadFailed, match=rf"{name}/0 \[0, 40\).*out of range"):
        when(kpipe, "late", spark, "planned", lambda: delete_records(brokers, name, 10))
    assert kpipe.sql("SELECT sum(next_offset) FROM kpipe_ledger") == [(0,)]
    assert "[0, 10)" in kpipe("run", "late", status=3).stderr
    assert kpipe.json("run", "late", "--on-data-loss", "record")[-1]["rows"] == 30
    assert kpipe.json("verify", "late")[0]["ok"]


def test_a_topic_made_again_between_plan_and_read(
    kpipe: Any, topic: Any, write: Any, spark: Any, brokers: str, kafka_broker: Any
) -> None:
    """Its records are read, by its name, and not committed."""
    name = topic(1)
    write(name, ids(0, 10))
    kpipe.define("swapped", name, columns={"id": "BIGINT"}, batch={"max_retries": 0})

    def swap() -> None:
        kafka_broker.delete_topic(name)
        kafka_broker.create_topic(name, 1)
        produce(brokers, name, ids(100, 130))

    with pytest.raises((SourceIdentityChanged, ReadFailed)):
        when(kpipe, "swapped", spark, "planned", swap)
    assert kpipe.sql("SELECT sum(next_offset) FROM kpipe_ledger") == [(0,)]
    assert "was recreated" in kpipe("run", "swapped", status=3).stderr


def test_partitions_added_while_a_batch_is_planned_begin_at_their_start(
    kpipe: Any, topic: Any, write: Any, spark: Any, brokers: str
) -> None:
    name = topic(1)
    write(name, ids(0, 5))
    kpipe.define("grown", name, source={"start": "latest"}, columns={"id": "BIGINT"})
    assert kpipe.json("run", "grown")[-1]["batches"] == 0
    write(name, ids(5, 8))

    def grow() -> None:
        admin = AdminClient({"bootstrap.servers": brokers})
        admin.create_partitions([NewPartitions(name, 3)])[name].result(120)
        eventually(lambda: len(admin.list_topics(name, timeout=600).topics[name].partitions) == 3)
        produce(brokers, name, ids(100, 104), partition=2)

    done = when(kpipe, "grown", spark, "planned", grow)
    ranges = [(step.source.partition, step.range.start, step.range.end) for each in done for step in each.commit.steps]
    assert ranges == [(0, 5, 8), (2, 0, 4)]
    assert kpipe.sql("SELECT list(id ORDER BY id) FROM grown") == [([5, 6, 7, 100, 101, 102, 103],)]
    assert kpipe.json("verify", "grown")[0]["ok"]


def test_metadata_that_lacks_partitions_or_topics_is_never_a_new_topic(
    kpipe: Any, topic: Any, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stub in the client: one broker does not tell lies."""
    name = topic(3)
    for partition in range(3):
        write(name, ids(10 * partition, 10 * partition + 10), partition)
    kpipe.define("short", name, batch={"max_retries": 0})
    kpipe("run", "short")
    honest, kept = AdminClient.describe_topics, 3

    class Short:
        def __init__(self, answer: Any) -> None:
            self.answer = answer

        def result(self, timeout: float) -> Any:
            told = self.answer.result(timeout)
            return SimpleNamespace(topic_id=told.topic_id, partitions=told.partitions[:kept])

    def describe(self: AdminClient, *args: Any, **more: Any) -> Any:
        return {key: Short(answer) for key, answer in honest(self, *args, **more).items()}

    monkeypatch.setattr(AdminClient, "describe_topics", describe)
    for kept, words in ((2, f"{name}/2 is in the ledger"), (0, "incomplete list of partitions")):  # noqa: B007 - seen by Short
        error = kpipe("run", "short", status=None)
        assert error.returncode in (1, 3) and words in error.stderr
    kept = 3
    assert kpipe.json("run", "short")[-1]["batches"] == 0
    assert kpipe.sql("SELECT count(*), count(DISTINCT id) FROM short") == [(30, 30)]


def test_any_bytes_any_headers_and_any_time_come_through(kpipe: Any, topic: Any, brokers: str) -> None:
    name = topic(
        1, **{"message.timestamp.after.max.ms": str(2**62), "message.timestamp.before.max.ms": str(2**62), "retention.ms": "-1"}
    )
    many = [(f"h{at % 7}", b"%d" % at) for at in range(10_000)]
    odd = [("twice", b"1"), ("none", None), ("twice", b"2"), ("", b""), ("bytes", b"\x00\xff")]
    times = [-1, -11_644_473_600_000, 1, 253_402_300_799_999, 1_795_000_000_000_000, 1_795_000_000_000_000_000, 2**62]
    produce(
        brokers,
        name,
        [
            {"value": None, "key": b"tombstone", "timestamp": times[0]},
            {"value": b"", "key": None, "timestamp": times[1]},
            {"value": b"\x00\n\x00", "key": b"", "timestamp": times[2]},
            {"value": b"\xff\xfe{", "key": b"\xc3", "timestamp": times[3]},
            {"value": b"v", "headers": many, "timestamp": times[4]},
            {"value": b"v", "headers": odd, "timestamp": times[5]},
            {"value": b"v", "timestamp": times[6]},
        ],
    )
    kpipe.define("odd", name, format={"type": "raw"}, metadata=["partition", "offset", "timestamp", "headers"])
    assert kpipe.json("run", "odd")[-1]["rows"] == 7
    found = kpipe.sql("SELECT key, value, _kafka_headers, epoch_ms(_kafka_timestamp) FROM odd ORDER BY _kafka_offset")
    assert [row[:2] for row in found[:4]] == [(b"tombstone", None), (None, b""), (b"", b"\x00\n\x00"), (b"\xc3", b"\xff\xfe{")]
    assert [row[2] for row in found[:4]] == [None] * 4
    assert [(item["name"], item["value"]) for item in found[4][2]] == many
    assert [(item["name"], item["value"]) for item in found[5][2]] == odd
    # A time that a column cannot hold is none, as Kafka's -1 is.
    assert [row[3] for row in found] == [None, None, 1, times[3], times[4], None, None]
    assert kpipe.json("verify", "odd")[0]["ok"]

    # The same records as JSON: all of them are dead letters, but for the tombstone, and can be shown.
    kpipe.define("dead", name, columns={"id": "BIGINT"})
    summary = kpipe.json("run", "dead")[-1]
    assert (summary["rows"], summary["dead_letters"], summary["filtered"]) == (0, 6, 1)
    assert len(kpipe.json("errors", "dead")) == 6 and len(kpipe("errors", "dead").stdout.splitlines()) > 6
    assert kpipe.sql("SELECT list(load_data_line ORDER BY \"offset\") FROM kpipe_errors WHERE pipeline_name = 'dead'") == [
        ([b"", b"\x00\n\x00", b"\xff\xfe{", b"v", b"v", b"v"],)
    ]
    assert kpipe.json("verify", "dead")[0]["ok"]
