"""The records before a range compared with those that were read, with a real Kafka: a log that was replaced is noticed."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from kpipe.definition.pipeline import Pipeline, Source
from kpipe.errors import LogTruncated
from kpipe.ledger.tail import Tail
from kpipe.offsets import Range
from kpipe_assets.runs.proof import prove
from kpipe_assets.statements.execute import Session
from resources.home import Home
from resources.kafka import range_reader as reader_module
from resources.kafka.client_config import client_config
from resources.kafka.range_reader import RangeReader
from resources.kafka.topic_metadata import KafkaTopics
from tests.broker.node import Node
from tests.broker.test_reader import Transactions, produce
from tests.survival import small

pytestmark = pytest.mark.broker

RECORDS = [
    {"value": b"0"}, {"key": b"k", "value": b"1"}, {"key": b"k", "value": None}, {"value": b""},
    {"value": b"4", "headers": [("a", b"b"), ("c", None)]}, {"value": b"5", "timestamp": 1}, {"value": b"6" * 100_000},
]  # fmt: skip


@pytest.fixture(params=["compiled", "binding"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "binding":
        monkeypatch.setattr(reader_module, "available", lambda: False)


def read(brokers: str, topic: str, span: Range, after: Tail | None = None) -> tuple[list[int], Tail | None]:
    config = client_config(Source(brokers=brokers, topic=topic), {})
    with RangeReader(config, topic, 0, span, stall_timeout_s=300, after=after, epoch=9) as reader:
        offsets = [offset for block, _ in reader.blocks() for offset in block.offsets]
    assert reader.report is not None and reader.report.records == len(offsets)
    assert reader.report.gaps == len(span) - len(offsets)
    return offsets, reader.tail


@pytest.fixture
def written(brokers: str, topic: Callable[..., str]) -> str:
    name = topic()
    produce(brokers, name, RECORDS)
    return name


def test_every_range_continues_the_one_before(brokers: str, written: str, client: None) -> None:
    tails = {}
    for end in range(1, 8):
        offsets, tails[end] = read(brokers, written, Range(0, end))
        assert offsets == list(range(end))
    for start in range(1, 7):
        offsets, tail = read(brokers, written, Range(start, 7), tails[start])
        assert offsets == list(range(start, 7))
        assert tail == tails[7]
    assert [offset for offset, _ in tails[5].records] == [1, 2, 3, 4]
    assert [offset for offset, _ in tails[7].records] == [6]  # a record of more bytes than a fingerprint may cost


def test_both_clients_hash_the_same(brokers: str, written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [read(brokers, written, Range(0, end))[1] for end in range(1, 8)]
    monkeypatch.setattr(reader_module, "available", lambda: False)
    assert [read(brokers, written, Range(0, end))[1] for end in range(1, 8)] == found


@pytest.mark.parametrize("at", range(4))
def test_another_record_fails_the_read_before_the_first_block(brokers: str, written: str, client: None, at: int) -> None:
    _, tail = read(brokers, written, Range(0, 4))
    assert tail is not None
    records = list(tail.records)
    records[at] = (at, "00000000")
    with pytest.raises(LogTruncated, match=rf"{written}/0: the log was cut below offset 4 .* another record at offset {at}"):
        read(brokers, written, Range(4, 7), Tail.made(4, records, 8))
    with pytest.raises(LogTruncated, match="leader epoch 8 then, 9 now"):
        read(brokers, written, Range(4, 5), Tail.made(4, records, 8))


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
def test_a_missing_record_depends_on_the_cleanup_policy(
    brokers: str, topic: Callable[..., str], client: None, policy: str
) -> None:
    name = topic(**{"cleanup.policy": policy})
    produce(brokers, name, [{"key": b"k", "value": b"0"}])
    writes = Transactions(brokers, name)
    for _ in range(2):  # 1, marker at 2; 3, marker at 4
        with_key(writes)
    _, tail = read(brokers, name, Range(0, 5))
    assert tail is not None and [offset for offset, _ in tail.records] == [0, 1, 3]
    produce(brokers, name, [{"key": b"k", "value": b"5"}])
    there = Tail.made(5, (*tail.records, (4, "11111111")), 8)
    if policy == "delete":
        with pytest.raises(LogTruncated, match=r"no record at offset 4, .*leader epoch 8 then, 9 now"):
            read(brokers, name, Range(5, 6), there)
    else:
        assert read(brokers, name, Range(5, 6), there)[0] == [5]
    for removed in (Tail.made(5, there.records, 9), Tail.made(5, (*tail.records[:2], (2, "11111111"), tail.records[2]))):
        assert read(brokers, name, Range(5, 6), removed)[0] == [5], "explained without the policy"


def with_key(writes: Transactions) -> None:
    writes.producer.begin_transaction()
    writes.producer.produce(writes.topic, b"x", b"k", partition=0)
    with writes._marker():
        writes.producer.commit_transaction(300)


def test_records_that_retention_has_deleted_are_not_compared(brokers: str, written: str, client: None) -> None:
    _, tail = read(brokers, written, Range(0, 4))
    assert tail is not None
    wrong = Tail.made(4, ((0, "00000000"), *tail.records[1:]))
    admin = AdminClient({"bootstrap.servers": brokers})  # keep a reference: a collected client ends its requests
    for start in (1, 4):
        for answer in admin.delete_records([TopicPartition(written, 0, start)]).values():
            answer.result(300)
        assert read(brokers, written, Range(4, 7), wrong)[0] == [4, 5, 6]


def test_a_range_without_records_keeps_the_fingerprint(brokers: str, topic: Callable[..., str], client: None) -> None:
    name = topic()
    produce(brokers, name, [b"0", b"1"])
    Transactions(brokers, name).abort(3)  # 2 to 4, marker at 5
    _, tail = read(brokers, name, Range(0, 2))
    assert tail is not None
    offsets, after = read(brokers, name, Range(2, 6), tail)
    assert offsets == [] and after == Tail.made(6, tail.records)
    with pytest.raises(LogTruncated):
        read(brokers, name, Range(2, 6), Tail.made(2, ((1, "00000000"),)))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    yield Home.at(tmp_path / "home")


@pytest.mark.slow
def test_log_that_was_restored_from_a_backup_and_has_grown_again(node: Node, home: Home, tmp_path: Path) -> None:
    """The same topic id, an end beyond the ledger: only the records show it."""
    name = node.topic(f"t-{uuid.uuid4().hex[:8]}")
    into = {"table": "rows"}
    fields: dict[str, Any] = {
        "name": "cut",
        "source": {"brokers": node.address, "topic": name},
        "columns": {"id": "BIGINT"},
        "into": into,
    }
    pipeline = Pipeline.model_validate(fields)
    home.save(pipeline)

    def write(*ids: int) -> None:
        node.write(name, [json.dumps({"id": number}).encode() for number in ids])

    def rows() -> list[int]:
        with closing(duckdb.connect(str(home.path / "data" / "kpipe.duckdb"), read_only=True)) as connection:
            return [row[0] for row in connection.execute("SELECT id FROM rows ORDER BY _kafka_offset, id").fetchall()]

    def run() -> None:
        for _ in small.run(home.path, "cut"):
            pass

    def alter(clause: str) -> None:
        from kpipe.sql.parser import read_all

        with Session(home) as session:
            for statement in read_all(f"ALTER PIPELINE cut {clause};"):
                for result in session.execute(statement):
                    assert result

    write(*range(10))
    before = KafkaTopics(pipeline.source).snapshot()
    backup = shutil.copytree(node.log(name).parent, tmp_path / "backup")
    write(*range(10, 15))
    run()
    assert rows() == list(range(15)) and prove(pipeline, home).ok
    node.stop()
    shutil.rmtree(node.log(name).parent)
    shutil.copytree(backup, node.log(name).parent)
    (node.folder / "data" / ".kafka_cleanshutdown").unlink(missing_ok=True)  # so that the log is recovered
    node.start()
    write(*range(900, 910))
    after = KafkaTopics(pipeline.source).snapshot()
    (source,) = after.partitions
    assert after.topics() == before.topics() and after.partitions[source].end == 20
    assert 0 <= before.partitions[source].epoch < after.partitions[source].epoch
    with pytest.raises(LogTruncated, match=rf"{name}/0: the log was cut below offset 15 .* found another record at offset 11"):
        run()
    assert rows() == list(range(15))
    assert [text for text in prove(pipeline, home).problems if "the log was cut" in text]
    alter("""SET OFFSETS '{"0": 10}' REREAD""")
    run()
    assert rows() == [*range(10), *(row for at in range(5) for row in (10 + at, 900 + at)), *range(905, 910)]
    result = prove(pipeline, home)
    assert result.ok and list(result.replaced) == [f"{name}/0 [0, 10)"] and list(result.repeated) == [f"{name}/0 [10, 15)"]
