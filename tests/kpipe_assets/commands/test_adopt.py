"""`kpipe adopt` beside a real Kafka: groups of other consumers, their tables, and what must be refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kpipe.adoption.judge import judge
from kpipe_assets.statements.seek import survey
from resources.adoption.sources import Loader, read
from resources.home import Home
from tests.commandline import Kpipe
from tests.kpipe_assets.audited_tables import Row, duckdb_flat
from website.reference.json_output import ADOPT

pytestmark = pytest.mark.broker


@pytest.fixture
def command(tmp_path: Path, brokers: str) -> Kpipe:
    return Kpipe(tmp_path / "home", brokers)


def committed(brokers: str, group: str, topic: str, offsets: Mapping[int, int]) -> str:
    """Commit offsets as a loader that has stopped."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, number, at) for number, at in offsets.items()], asynchronous=False)
    consumer.close()
    return group


@contextmanager
def member(brokers: str, group: str, topic: str) -> Iterator[Consumer]:
    """A loader that reads."""
    consumer = Consumer(
        {"bootstrap.servers": brokers, "group.id": group, "client.id": "old-loader", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.2)
    yield consumer
    consumer.close()


def adopt(command: Kpipe, name: str, *options: str, status: int = 0) -> dict[str, Any]:
    done = command(*name.split(), *options, "--json", status=None)
    assert done.returncode == status, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def positions(found: Mapping[str, Any]) -> dict[int, int]:
    return {item["partition"]: item["position"] for item in found["partitions"]}


def lanes(command: Kpipe) -> list[tuple[Any, ...]]:
    query = 'SELECT "partition", lane_start, next_offset, lane_end, kind FROM kpipe_ledger ORDER BY ALL'
    return command.sql(query)


@pytest.fixture
def loaded(command: Kpipe, topic: Callable[..., str], write: Any) -> str:
    """A topic of three partitions with ten records each, and the pipeline `orders` over it."""
    name = topic(partitions=3)
    for number in range(3):
        write(name, [b'{"id": 1}'] * 10, number)
    command.define("orders", name)
    return name


def table(folder: Path, topic: str, rows: Sequence[Row], request: pytest.FixtureRequest) -> list[str]:
    folder.mkdir(exist_ok=True)
    return duckdb_flat(folder, topic, rows, request)


def test_the_position_of_a_group_is_shown_then_written_once(command: Kpipe, loaded: str) -> None:
    group = committed(command.brokers, f"old-{loaded}", loaded, {0: 4, 1: 10})
    found = adopt(command, "adopt orders", "--from", f"group:{group}")
    assert set(found) == set(ADOPT) and not found["applied"]
    assert positions(found) == {0: 4, 1: 10, 2: 0}
    assert [(item["lag"], item["named"]) for item in found["partitions"]] == [(6, True), (0, True), (10, False)]
    assert any("it begins at the log start, 0" in note for note in found["notes"])
    assert not (command.home / "data" / "kpipe.duckdb").exists(), "nothing was written"
    found = adopt(command, "adopt orders", "--from", f"group:{group}", "--apply")
    assert (found["applied"], found["commit"]) == (True, 1)
    begun = [(0, 0, 0, 4, "adopted"), (0, 4, 4, None, "read"), (1, 0, 0, 10, "adopted"), (1, 10, 10, None, "read")]
    assert lanes(command) == [*begun, (2, 0, 0, None, "read")]
    ((kind, note),) = command.sql("SELECT kind, note FROM kpipe_commits")
    assert (kind, note.partition(" -> ")[0]) == ("adopt", f"adopt: consumer group {group}")
    again = adopt(command, "adopt orders", "--from", f"group:{group}", "--apply")
    assert (again["applied"], again["commit"]) == (True, None)
    (verified,) = command.json("verify", "orders")
    assert verified["adopted"] == [f"{loaded}/0 [0, 4)", f"{loaded}/1 [0, 10)"]
    assert verified["adopted_from"] == f"consumer group {group}"
    (traced,) = command.json("trace", "orders", f"{loaded}:0:3")
    assert (traced["state"], traced["decisions"][0]["kind"]) == ("adopted", "adopt")
    committed(command.brokers, group, loaded, {0: 5})
    done = command("adopt", "orders", "--from", f"group:{group}", "--apply", status=1)
    assert "problem: pipeline orders has begun already" in done.stderr and "nothing was written" in done.stderr


def test_the_offsets_of_a_connector_are_those_of_its_group(command: Kpipe, loaded: str, tmp_path: Path) -> None:
    committed(command.brokers, f"connect-{loaded}", loaded, {0: 4, 1: 5, 2: 6})
    assert positions(adopt(command, "adopt orders", "--from", f"connect:{loaded}")) == {0: 4, 1: 5, 2: 6}
    answer = [
        {"partition": {"kafka_topic": topic, "kafka_partition": 0}, "offset": {"kafka_offset": 7}} for topic in (loaded, "other")
    ]
    (tmp_path / "offsets.json").write_text(json.dumps({"offsets": answer}))
    found = adopt(command, "adopt orders", "--from", f"connect-offsets:{tmp_path}/offsets.json")
    assert positions(found) == {0: 7, 1: 0, 2: 0}
    assert "positions of other topics are left out: other" in found["notes"]


def test_a_group_with_members_is_refused(command: Kpipe, loaded: str) -> None:
    group = committed(command.brokers, f"old-{loaded}", loaded, {0: 4, 1: 4, 2: 4})
    with member(command.brokers, group, loaded):
        found = adopt(command, "adopt orders", "--from", f"group:{group}", "--apply", status=1)
    (problem,) = found["problems"]
    assert "is active: member old-loader on " in problem and f"{loaded}/0" in problem
    assert not found["applied"]
    assert adopt(command, "adopt orders", "--from", f"group:{group}", "--apply")["applied"]


def test_a_group_ahead_of_the_table_would_lose_and_one_behind_would_duplicate(
    command: Kpipe, loaded: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    group = committed(command.brokers, f"old-{loaded}", loaded, {0: 6, 1: 3, 2: 10})
    rows = [*((0, at) for at in range(4)), *((1, at) for at in range(5)), *((2, at) for at in range(10))]
    options = table(tmp_path / "a", loaded, rows, request)
    found = adopt(command, "adopt orders", "--from", f"group:{group}", "--check", "table", *options, "--apply", status=1)
    ahead, behind = found["problems"]
    assert ahead.startswith(f"{loaded}/0 [4, 6): not in table landed") and "would be lost: 2 committed records" in ahead
    assert behind.startswith(f"{loaded}/1 [3, 5): in table landed") and "would be duplicated: 2 committed records" in behind
    assert not found["applied"]
    place = str(tmp_path / "a" / "flat.duckdb")
    done = command("adopt", "orders", "--from", "table", "--type", "duckdb", "--database", place, "--table", "landed", "--apply")
    assert "adopted with commit 1" in done.stdout
    assert [lane[1] for lane in lanes(command) if lane[-1] == "read"] == [4, 5, 10]


def test_control_records_between_group_and_table_are_no_difference(
    command: Kpipe, topic: Callable[..., str], brokers: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": brokers, "transactional.id": f"of-{name}", "transaction.timeout.ms": 600_000})
    producer.init_transactions(120)
    for end in (producer.commit_transaction, producer.abort_transaction):  # 0 1 2, marker; aborted 4 5 6, marker
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(name, b'{"id": 1}', partition=0)
        producer.flush(120)
        end(120)
    command.define("orders", name)
    group = committed(brokers, f"old-{name}", name, {0: 8})
    options = table(tmp_path / "a", name, [(0, 0), (0, 1), (0, 2)], request)
    found = adopt(command, "adopt orders", "--from", f"group:{group}", "--check", "table", *options)
    assert any("[3, 8): without committed records" in note for note in found["notes"])
    options = table(tmp_path / "b", name, [(0, 0), (0, 1)], request)
    found = adopt(command, "adopt orders", "--from", f"group:{group}", "--check", "table", *options, status=1)
    assert "would be lost: 1 committed record" in found["problems"][0]


def test_positions_outside_of_the_log(command: Kpipe, loaded: str) -> None:
    group = committed(command.brokers, f"old-{loaded}", loaded, {0: 2, 1: 11, 2: 4})
    admin = AdminClient({"bootstrap.servers": command.brokers})
    admin.delete_records([TopicPartition(loaded, 0, 5)])[TopicPartition(loaded, 0, 5)].result(120)
    found = adopt(command, "adopt orders", "--from", f"group:{group}", "--apply", status=1)
    expired, beyond = found["problems"]
    assert "offsets [2, 5) were deleted from Kafka" in expired
    assert "position 11 is beyond the end of the log, 10" in beyond
    committed(command.brokers, group, loaded, {1: 10})
    adopt(command, "adopt orders", "--from", f"group:{group}", "--on-data-loss", "record", "--apply")
    assert [lane for lane in lanes(command) if lane[0] == 0] == [
        (0, 0, 0, 2, "adopted"), (0, 2, 2, 5, "lost"), (0, 5, 5, None, "read"),
    ]  # fmt: skip


def test_a_loader_that_moves_between_reading_and_writing_is_noticed(
    command: Kpipe, loaded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = committed(command.brokers, f"old-{loaded}", loaded, {0: 4, 1: 4, 2: 4})

    def judged(*given: Any) -> Any:
        committed(command.brokers, group, loaded, {0: 5})
        return judge(*given)

    monkeypatch.setattr("kpipe_assets.runs.adoption.judge", judged)
    done = command("adopt", "orders", "--from", f"group:{group}", "--apply", status=2)
    assert "the position has changed" in done.stderr


def test_a_run_that_begins_in_between_fences(command: Kpipe, loaded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    group = committed(command.brokers, f"old-{loaded}", loaded, {0: 4, 1: 4, 2: 4})
    rounds = iter([False, True])

    def raced(text: str, loader: Loader) -> Any:
        if next(rounds):
            home = Home(command.home)
            survey(home, loader.pipeline).look()
        return read(text, loader)

    monkeypatch.setattr("kpipe_assets.runs.adoption.read", raced)
    done = command("adopt", "orders", "--from", f"group:{group}", "--apply", status=1)
    assert "another run committed first" in done.stderr
    assert [lane[-1] for lane in lanes(command)] == ["read"] * 3


def test_several_topics(command: Kpipe, topic: Callable[..., str], write: Any, tmp_path: Path) -> None:
    names = sorted(topic() for _ in range(2))
    for name in names:
        write(name, [b'{"id": 1}'] * 10)
    command.define("both", names[0], source={"topic": None, "topics": names})
    offsets = {name: {"0": at} for name, at in zip(names, (3, 7), strict=True)}
    folder = tmp_path / "checkpoint"
    for name, text in {"offsets/0": f"v1\n{{}}\n{json.dumps(offsets)}", "commits/0": "v1\n{}"}.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)
    found = adopt(command, "adopt both", "--from", f"checkpoint:{folder}")
    assert [(item["topic"], item["position"]) for item in found["partitions"]] == list(zip(names, (3, 7), strict=True))


def interrupted(folder: Path, topic: str) -> str:
    """Write a checkpoint whose batch 0 is committed, and batch 1 only planned."""
    for number, end in ((0, 4), (1, 9)):
        (folder / "offsets").mkdir(parents=True, exist_ok=True)
        (folder / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps({topic: dict.fromkeys('012', end)})}")
    (folder / "commits").mkdir()
    (folder / "commits" / "0").write_text("v1\n{}")
    return f"checkpoint:{folder}"


@pytest.mark.parametrize(("planned", "position"), [("included", 9), ("excluded", 4)])
def test_a_planned_batch_of_a_checkpoint(command: Kpipe, loaded: str, tmp_path: Path, planned: str, position: int) -> None:
    source = interrupted(tmp_path / "checkpoint", loaded)
    (problem,) = adopt(command, "adopt orders", "--from", source, "--apply", status=1)["problems"]
    assert f"batch 1 ({loaded}/0 [4, 9)" in problem
    command("adopt", "orders", "--from", source, "--planned-batch", planned, "--apply")
    assert {lane[1] for lane in lanes(command) if lane[-1] == "read"} == {position}


def test_a_table_ahead_of_the_checkpoint_is_refused(command: Kpipe, loaded: str, tmp_path: Path) -> None:
    source = interrupted(tmp_path / "checkpoint", loaded)
    log = tmp_path / "landed" / "_spark_metadata"
    log.mkdir(parents=True)
    for number in range(3):
        (log / str(number)).write_text("v1\n")
    place = ("--type", "parquet", "--database", str(log.parent))
    for option in ((), ("--planned-batch", "included"), ("--planned-batch", "excluded")):
        found = adopt(command, "adopt orders", "--from", source, *place, *option, "--apply", status=1)
        (problem,) = found["problems"]
        assert f"table {log.parent} has batch 2 of the query, the checkpoint ends at batch 1" in problem
        assert not found["applied"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--from", "kafka:x"), "unknown source 'kafka:x'"),
        (("--from", "group:"), "unknown source 'group:'"),
        (("--from", "group:none"), "it has committed no offset of"),
        (("--from", "table"), "does not exist"),
        (("--from", "iceberg-sink:x"), "expected --type iceberg"),
        (("--from", "delta-txn:x"), "expected --type delta"),
        (("--from", "checkpoint:none"), "not a checkpoint"),
        (("--from", "checkpoint:hdfs:///x"), "this file system is not available"),
        (("--from", "connect-offsets:none.json"), "No such file"),
        (("--from", "table", "--database", "x"), "expected --type as well"),
        (("--from", "table", "--type", "duckdb"), "expected --database as well"),
        (("--from", "group:x", "--from-credential", "password=hunter2"), "expected a template"),
    ],
)
def test_wrong_options(command: Kpipe, loaded: str, options: tuple[str, ...], problem: str) -> None:
    done = command("adopt", "orders", *options, status=None)
    assert done.returncode in (1, 2)
    assert problem in done.stderr
    assert "hunter2" not in done.stdout + done.stderr


def test_a_bounded_pipeline_is_refused(command: Kpipe, loaded: str) -> None:
    command.define("bounded", loaded, source={"end": "latest"})
    done = command("adopt", "bounded", "--from", "group:x", status=2)
    assert "a bounded pipeline cannot take over a position" in done.stderr


def test_the_output_for_people(command: Kpipe, loaded: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    group = committed(command.brokers, f"old-{loaded}", loaded, {0: 4, 1: 4, 2: 4})
    done = command("adopt", "orders", "--from", f"group:{group}")
    assert f"orders: from consumer group {group}" in done.stdout
    assert "nothing was written; to begin there: add --apply" in done.stdout
    options = table(tmp_path / "a", loaded, [(number, at) for number in range(3) for at in range(3)], request)
    done = command("adopt", "orders", "--from", f"group:{group}", "--check", "table", *options, "--apply", status=1)
    assert "would be lost: 1 committed record" in done.stderr
    assert "NOT adopted: 3 problems; nothing was written" in done.stderr
    done = command("adopt", "orders", "--from", f"group:{group}", "--apply")
    assert "adopted with commit 1: kpipe run orders reads from there" in done.stdout


@pytest.mark.spark
def test_a_pipeline_goes_on_in_the_table_of_another_loader(command: Kpipe, loaded: str, write: Any) -> None:
    """A naive consumer loads a part, and is stopped; `kpipe audit` proves old and new rows together."""
    group, stops = f"old-{loaded}", {0: 4, 1: 7, 2: 10}
    file = command.home / "data" / "kpipe.duckdb"
    file.parent.mkdir(parents=True)
    consumer = Consumer({"bootstrap.servers": command.brokers, "group.id": group, "enable.auto.commit": False})
    with duckdb.connect(str(file)) as connection:
        connection.execute("CREATE TABLE orders (id BIGINT, _kafka_partition INTEGER, _kafka_offset BIGINT)")
        for number, stop in stops.items():
            consumer.assign([TopicPartition(loaded, number, 0)])
            while (message := consumer.poll(300)) is not None and int(message.offset() or 0) < stop:
                row = [json.loads(message.value() or b"")["id"], number, message.offset()]
                connection.execute("INSERT INTO orders VALUES (?, ?, ?)", row)
                if message.offset() == stop - 1:
                    break
    consumer.close()
    committed(command.brokers, group, loaded, stops)
    assert adopt(command, "adopt orders", "--from", f"group:{group}", "--check", "table", "--apply")["applied"]
    write(loaded, [b'{"id": 2}'] * 5, 0)
    command("run", "orders")
    first = command.sql("SELECT batch_source_partition_id, min(batch_earliest_offset) FROM kpipe_batches GROUP BY 1 ORDER BY 1")
    assert first == [(0, 4), (1, 7)]
    place = ("--type", "duckdb", "--database", str(file), "--table", "orders")
    (audited,) = command.json("audit", loaded, "--brokers", command.brokers, *place)
    assert (audited["verdict"], audited["outcomes"]) == ("explained", {"matched": 35})
    (verified,) = command.json("verify", "orders")
    assert (verified["ok"], verified["rows"]) == (True, 14)
    admin = AdminClient({"bootstrap.servers": command.brokers})
    (deleted,) = admin.delete_records([TopicPartition(loaded, 1, 3)]).values()
    assert deleted.result(60).low_watermark == 3
    refused = command("sql", "RESET PIPELINE orders", status=2).stderr
    assert f"{loaded}/1 [0, 3) was read by another loader and is missing in Kafka: its rows could not be" in refused
    assert "no pipeline has written 21 rows of table orders -> to lose these rows: TRUNCATE TABLE orders, then" in refused
    assert len(command.sql("SELECT 1 FROM orders")) == 35, "nothing was deleted"
    with duckdb.connect(str(file)) as connection:
        connection.execute("DELETE FROM orders WHERE _kafka_partition = 0 AND _kafka_offset = 4")
    assert not command.json("verify", "orders", status=1)[0]["ok"]
