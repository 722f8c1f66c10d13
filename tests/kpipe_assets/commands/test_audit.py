"""`kpipe audit` on tables of naive loaders, which lose and duplicate on purpose: every fault is found, and nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.commandline import Kpipe
from tests.kpipe_assets.audited_tables import KINDS, Row, duckdb_flat
from tests.servers import mariadb, postgres
from website.reference.json_output import AUDIT

pytestmark = pytest.mark.broker

MISSING, TWICE, UNKNOWN = [(0, 2), (0, 21), (2, 6)], [(0, 0), (0, 20), (1, 3)], [(1, 1000)]


class Transactions:
    """A transactional producer that waits for its markers."""

    def __init__(self, brokers: str, topic: str) -> None:
        self.topic = topic
        self.producer = Producer(
            {"bootstrap.servers": brokers, "transactional.id": f"of-{topic}", "transaction.timeout.ms": 600_000}
        )
        self.producer.init_transactions(120)
        self._watch = Consumer({"bootstrap.servers": brokers, "group.id": "watch"})

    def begin(self, count: int) -> None:
        self.producer.begin_transaction()
        for at in range(count):
            self.producer.produce(self.topic, b"%d" % at, partition=0)
        assert self.producer.flush(120) == 0

    def commit(self, count: int) -> None:
        self.begin(count)
        with self._marker():
            self.producer.commit_transaction(120)

    def abort(self, count: int) -> None:
        self.begin(count)
        with self._marker():
            self.producer.abort_transaction(120)

    @contextmanager
    def _marker(self) -> Iterator[None]:
        before = self._high()
        yield
        while self._high() == before:
            time.sleep(0.01)

    def _high(self) -> int:
        return int(self._watch.get_watermark_offsets(TopicPartition(self.topic, 0), timeout=600, cached=False)[1])


@pytest.fixture
def command(tmp_path: Path, brokers: str) -> Kpipe:
    return Kpipe(tmp_path / "home", brokers)


@pytest.fixture
def mixed(brokers: str, topic: Callable[..., str], write: Callable[..., int]) -> tuple[str, list[Row]]:
    """A topic with committed, aborted and control records, and the offsets that a correct loader has loaded."""
    name = topic(partitions=3)
    transactions = Transactions(brokers, name)
    transactions.commit(3)  # 0 1 2, marker at 3
    transactions.abort(10)  # 4 to 13, marker at 14
    transactions.commit(2)  # 15 16, marker at 17
    write(name, [b"plain"] * 5)  # 18 to 22
    transactions.abort(1)  # 23, marker at 24
    write(name, [b"plain"] * 10, 1)
    write(name, [b"plain"] * 8, 2)
    good = [(0, at) for at in (0, 1, 2, 15, 16, *range(18, 23))]
    return name, good + [(1, at) for at in range(10)] + [(2, at) for at in range(8)]


def audit(command: Kpipe, topic: str, *options: str, status: int = 0) -> dict[str, Any]:
    arguments = ("audit", topic, "--brokers", command.brokers, *options, "--json")
    done = command(*arguments, status=None, PG=postgres.PASSWORD, MY=mariadb.PASSWORD)
    assert done.returncode == status, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def unexplained(found: dict[str, Any]) -> dict[str, list[Row]]:
    """The findings, offset by offset."""
    result: dict[str, list[Row]] = {}
    for item in found["findings"]:
        offsets = [(item["partition"], at) for at in range(item["start"], item["end"])]
        result.setdefault(item["outcome"], []).extend(offsets)
    return result


def checks(report: str) -> list[list[Any]]:
    """Run the SQL file of a report as an auditor does; the results of its checks, and of its two tables."""
    folder = Path(report)
    statements = (folder / "checks.sql").read_text().replace("'rows.parquet'", f"'{folder / 'rows.parquet'}'")
    with duckdb.connect(str(folder / "report.duckdb"), read_only=True) as connection:
        return [connection.execute(item).fetchall() for item in duckdb.extract_statements(statements)]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_table(
    command: Kpipe, mixed: tuple[str, list[Row]], tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    name, good = mixed
    (tmp_path / "good").mkdir()
    found = audit(command, name, *KINDS[kind](tmp_path / "good", name, good, request))
    assert found["verdict"] == "explained"
    assert found["outcomes"] == {"matched": len(good), "aborted": 11, "no_record": 4}
    assert found["problems"] == found["findings"] == []
    assert list(found) == list(AUDIT)
    (tmp_path / "bad").mkdir()
    rows = [row for row in good if row not in MISSING] + TWICE + UNKNOWN
    found = audit(command, name, *KINDS[kind](tmp_path / "bad", name, rows, request), status=1)
    assert unexplained(found) == {"missing": sorted(MISSING), "duplicate": sorted(TWICE)}
    assert found["outcomes"] == {
        "matched": len(good) - len(MISSING) - len(TWICE), "missing": 3, "duplicate": 3, "aborted": 11, "no_record": 4,
    }  # fmt: skip
    assert (found["rows"]["beyond"], found["rows"]["total"]) == (1, len(rows))
    assert found["rows"]["inside"] == len(rows) - 1
    *proofs, totals, listed = checks(found["report"])
    assert not any(proofs)
    assert {row[0]: row[1] for row in totals} == found["outcomes"]
    assert len(listed) == 6


def test_rows_of_an_aborted_transaction_and_of_a_control_record(
    command: Kpipe, mixed: tuple[str, list[Row]], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name, good = mixed
    options = duckdb_flat(tmp_path, name, [*good, *((0, at) for at in (*range(4, 14), 17, 23))], request)
    found = audit(command, name, *options, status=1)
    assert unexplained(found) == {"aborted_row": [(0, at) for at in (*range(4, 14), 23)], "row_without_record": [(0, 17)]}
    found = audit(command, name, *options, "--isolation", "read_uncommitted", status=1)
    assert unexplained(found) == {"row_without_record": [(0, 17)]}
    found = audit(command, name, *options, "--isolation", "read_uncommitted", "--compacted")
    assert found["verdict"] == "explained"


def test_a_reader_of_uncommitted_records_misses_an_aborted_one(
    command: Kpipe, mixed: tuple[str, list[Row]], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name, good = mixed
    options = duckdb_flat(tmp_path, name, [*good, *((0, at) for at in range(4, 14))], request)
    found = audit(command, name, *options, "--isolation", "read_uncommitted", status=1)
    assert unexplained(found) == {"missing_aborted": [(0, 23)]}


def test_rows_that_identify_no_record(command: Kpipe, mixed: tuple[str, list[Row]], tmp_path: Path) -> None:
    name, good = mixed
    wrong: list[tuple[Any, Any, Any]] = [
        (None, "3", name), ("0", None, name), ("-1", "3", name), ("0", "-3", name), ("0", "1.5", name), ("0", "x", name),
        ("0", "007", name), ("0", " 7", name), ("0", "1e3", name), ("0", "9" * 30, name), ("0", "0", None),
    ]  # fmt: skip
    other = [("0", "0", "another"), (None, None, "another")]
    rows = [(str(partition), str(offset), name) for partition, offset in good] + wrong + other + [("3", "0", name)]
    names = ("_kafka_partition", "_kafka_offset", "_kafka_topic")
    table = pa.table({key: pa.array([row[at] for row in rows], pa.string()) for at, key in enumerate(names)})
    pq.write_table(table, tmp_path / "t.parquet")
    found = audit(command, name, "--type", "parquet", "--database", str(tmp_path / "t.parquet"), status=1)
    assert found["outcomes"]["matched"] == len(good)
    assert (found["rows"]["invalid"], found["rows"]["other_topic"]) == (len(wrong), len(other))
    assert found["rows"]["other_partition"] == 1
    assert len(found["problems"]) == 2
    with duckdb.connect(str(Path(found["report"]) / "report.duckdb"), read_only=True) as report:
        assert len(report.execute("SELECT * FROM invalid_rows").fetchall()) == len(wrong)


def test_floats_are_offsets_only_where_they_are_exact(
    command: Kpipe, topic: Callable[..., str], write: Any, tmp_path: Path
) -> None:
    name = topic()
    write(name, [b"x"] * 3)
    table = {"_partition": [0.0] * 5, "_offset": [0.0, 1.0, 2.0, 2.5, float("nan")]}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    found = audit(command, name, "--type", "parquet", "--database", str(tmp_path / "t.parquet"), status=1)
    assert (found["outcomes"], found["rows"]["invalid"]) == ({"matched": 3}, 2)


def test_an_open_transaction_ends_the_range(
    command: Kpipe, brokers: str, topic: Callable[..., str], write: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = topic()
    write(name, [b"x"] * 4)
    transactions = Transactions(brokers, name)
    transactions.begin(3)  # 4 5 6, undecided
    write(name, [b"x"])
    (tmp_path / "a").mkdir()
    found = audit(command, name, *duckdb_flat(tmp_path / "a", name, [(0, at) for at in range(4)], request))
    assert (found["offsets"], found["partitions"]["0"]["end"]) == (4, 4)
    (tmp_path / "b").mkdir()
    options = duckdb_flat(tmp_path / "b", name, [(0, at) for at in range(5)], request)
    found = audit(command, name, *options, status=1)
    assert (found["rows"]["undecided"], found["rows"]["beyond"]) == (1, 0)
    transactions.producer.abort_transaction(120)


def test_expired_offsets(
    command: Kpipe, brokers: str, topic: Callable[..., str], write: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Neither log nor table contains them: whether there was a record cannot be determined."""
    name = topic()
    write(name, [b"x"] * 20)
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.delete_records([TopicPartition(name, 0, 10)])[TopicPartition(name, 0, 10)].result(120)
    options = duckdb_flat(tmp_path, name, [(0, at) for at in range(20) if at not in (5, 6, 15)] + [(0, 3)], request)
    found = audit(command, name, *options, status=1)
    assert unexplained(found) == {"duplicate": [(0, 3)], "expired": [(0, 5), (0, 6)], "missing": [(0, 15)]}
    assert found["outcomes"]["expired_row"] == 7
    found = audit(command, name, *options, "--from", "log-start", status=1)
    assert (unexplained(found), found["rows"]["before"]) == ({"missing": [(0, 15)]}, 9)
    found = audit(command, name, *options, "--from", "log-start", "--to", "0:15")
    assert (found["offsets"], found["rows"]["after"]) == (5, 4)


@pytest.mark.slow
def test_compaction(
    command: Kpipe, brokers: str, topic: Callable[..., str], write: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    settings = {
        "cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0",
        "max.compaction.lag.ms": "500",
    }  # fmt: skip
    name = topic(**settings)
    for key in (b"a", b"a", b"b", b"a"):
        write(name, [b"x"], key=key)
    watch = Consumer(
        {"bootstrap.servers": brokers, "group.id": "w", "auto.offset.reset": "earliest", "enable.partition.eof": True}
    )
    deadline, end = time.monotonic() + 300, 4
    while True:
        time.sleep(0.5)
        write(name, [b"tick"], key=b"tick")
        end += 1
        watch.assign([TopicPartition(name, 0, 0)])
        offsets: list[int] = []
        while (message := watch.poll(10)) is not None and message.error() is None:
            offsets.append(int(message.offset() or 0))
        if [at for at in offsets if at < 4] == [2, 3]:
            break
        assert time.monotonic() < deadline, offsets
    (tmp_path / "before").mkdir()
    found = audit(command, name, *duckdb_flat(tmp_path / "before", name, [(0, at) for at in range(end)], request))
    assert found["outcomes"]["compacted_row"] >= 2
    (tmp_path / "after").mkdir()
    rows = [(0, at) for at in range(end) if at not in (0, 1, 3)]
    found = audit(command, name, *duckdb_flat(tmp_path / "after", name, rows, request), status=1)
    assert unexplained(found) == {"missing": [(0, 3)]}
    assert found["outcomes"]["no_record"] == 2


def test_tombstones_and_declared_records(
    command: Kpipe, topic: Callable[..., str], write: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = topic()
    write(name, [b"x", None, b"x", b"x", None], key=b"k")
    options = duckdb_flat(tmp_path, name, [(0, 0), (0, 3), (0, 4)], request)
    found = audit(command, name, *options, status=1)
    assert unexplained(found) == {"missing": [(0, 2)], "missing_tombstone": [(0, 1)]}
    found = audit(command, name, *options, "--skips-tombstones", status=1)
    assert unexplained(found) == {"missing": [(0, 2)]}
    found = audit(command, name, *options, "--skips-tombstones", "--filtered", "1", status=1)
    assert found["verdict"] == "unexplained unless filtered"
    found = audit(command, name, *options, "--skips-tombstones", "--filtered", "2", status=1)
    assert found["verdict"] == "unexplained"
    pq.write_table(pa.table({"partition": [0], "offset": [2]}), tmp_path / "filtered.parquet")
    found = audit(command, name, *options, "--skips-tombstones", "--except", str(tmp_path / "filtered.parquet"))
    assert found["outcomes"] == {"matched": 3, "tombstone": 1, "declared": 1}
    pq.write_table(pa.table({"partition": [0, 0], "offset": [2, 3]}), tmp_path / "wrong.parquet")
    found = audit(command, name, *options, "--skips-tombstones", "--except", str(tmp_path / "wrong.parquet"), status=1)
    assert unexplained(found) == {"declared_row": [(0, 3)]}


def test_the_end_of_the_range(
    command: Kpipe, brokers: str, topic: Callable[..., str], write: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Records above the last row are not loaded yet, or lost; what a loader's group has committed must be there."""
    name = topic(partitions=2)
    write(name, [b"x"] * 10)
    write(name, [b"x"] * 10, 1)
    options = duckdb_flat(tmp_path, name, [*((0, at) for at in range(6)), *((1, at) for at in range(8))], request)
    found = audit(command, name, *options, status=1)
    assert {key: item["after_last_row"] for key, item in found["partitions"].items()} == {"0": 4, "1": 2}
    audit(command, name, *options, "--to", "last-row")
    group = f"connect-{name}"
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(name, 0, 6), TopicPartition(name, 1, 8)], asynchronous=False)
    audit(command, name, *options, "--to", f"group:{group}")
    consumer.commit(offsets=[TopicPartition(name, 0, 7)], asynchronous=False)
    found = audit(command, name, *options, "--to", f"group:{group}", status=1)
    assert unexplained(found) == {"missing": [(0, 6)]}
    found = audit(command, name, *options, "--partitions", "1", "--to", f"group:{group}")
    assert found["rows"]["not_audited"] == 6
    done = command("audit", name, "--brokers", brokers, *options, "--to", "group:unknown", status=2)
    assert "has committed no offset" in done.stderr


def test_nothing_to_audit_is_not_a_proof(
    command: Kpipe, topic: Callable[..., str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    found = audit(command, name := topic(), *duckdb_flat(tmp_path, name, [], request), status=1)
    assert found["problems"] == ["no offset was audited: the ranges are empty"]


def test_an_interrupted_audit_continues_and_a_changed_one_does_not(
    command: Kpipe, topic: Callable[..., str], write: Any, tmp_path: Path, request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch, kafka_broker: Any,
) -> None:  # fmt: skip
    from resources.audit import run
    from resources.audit.topic_log import TopicLog

    name = topic(partitions=2)
    for partition in range(2):
        write(name, [b"x"] * 95, partition)
    rows = [(number, at) for number in range(2) for at in range(95) if at != 50]
    options = [*duckdb_flat(tmp_path, name, rows, request), "--report", str(tmp_path / "report")]
    real, read = run.windows, []
    monkeypatch.setattr(run, "windows", lambda ranges: real(ranges, 10))
    states = TopicLog.states

    def failing(self: TopicLog, window: Any) -> Any:
        if len(read) == 7:
            raise KeyboardInterrupt
        read.append(window)
        return states(self, window)

    with monkeypatch.context() as patch:
        patch.setattr(TopicLog, "states", failing)
        command("audit", name, "--brokers", command.brokers, *options, status=130)
    # The table changes: the audit continues with the rows that it has read.
    with duckdb.connect(str(tmp_path / "flat.duckdb")) as connection:
        connection.execute("DELETE FROM landed")
    again = []
    monkeypatch.setattr(TopicLog, "states", lambda self, window: (again.append(window), states(self, window))[1])
    done = command("audit", name, "--brokers", command.brokers, *options, "--isolation", "read_uncommitted", status=2)
    assert "report of a different audit: isolation" in done.stderr
    found = audit(command, name, *options, status=1)
    assert not set(read) & set(again)
    assert len(read) + len(again) == 20
    assert unexplained(found) == {"missing": [(0, 50), (1, 50)]}
    assert not any(checks(found["report"])[:-2])
    done = command("audit", name, "--brokers", command.brokers, *options, status=2)
    assert "the report is finished" in done.stderr


def test_a_topic_that_was_recreated_needs_a_new_report(
    command: Kpipe, topic: Callable[..., str], write: Any, tmp_path: Path, request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch, kafka_broker: Any,
) -> None:  # fmt: skip
    from resources.audit.topic_log import TopicLog

    name = topic()
    write(name, [b"x"] * 5)
    options = [*duckdb_flat(tmp_path, name, [(0, at) for at in range(5)], request), "--report", str(tmp_path / "report")]
    with monkeypatch.context() as patch:
        patch.setattr(TopicLog, "states", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        command("audit", name, "--brokers", command.brokers, *options, status=130)
    kafka_broker.delete_topic(name)
    kafka_broker.create_topic(name, 1, {})
    write(name, [b"y"] * 5)
    done = command("audit", name, "--brokers", command.brokers, *options, status=2)
    assert "report of a different audit: topic id" in done.stderr


def test_retention_during_the_audit_is_not_taken_for_control_records(
    command: Kpipe, brokers: str, topic: Callable[..., str], write: Any, tmp_path: Path, request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from resources.audit.topic_log import TopicLog

    name = topic()
    write(name, [b"x"] * 50)
    admin, states = AdminClient({"bootstrap.servers": brokers}), TopicLog.states

    def removing(self: TopicLog, window: Any) -> Any:
        admin.delete_records([TopicPartition(name, 0, 30)])[TopicPartition(name, 0, 30)].result(120)
        return states(self, window)

    monkeypatch.setattr(TopicLog, "states", removing)
    rows = [(0, at) for at in range(50) if at not in (10, 11)]
    found = audit(command, name, *duckdb_flat(tmp_path, name, rows, request), status=1)
    assert unexplained(found) == {"expired": [(0, 10), (0, 11)]}
    assert found["outcomes"]["expired_row"] == 28


def test_folders_of_other_formats_are_not_read_as_plain_files(command: Kpipe, topic: Callable[..., str], tmp_path: Path) -> None:
    name = topic()
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    (tmp_path / "ice" / "metadata").mkdir(parents=True)
    (tmp_path / "ice" / "metadata" / "1.metadata.json").write_text("{}")
    for folder, hint in (("delta", "--type delta"), ("ice", "--type iceberg"), ("nothing", "contains no Parquet file")):
        place = str(tmp_path / folder)
        done = command("audit", name, "--brokers", command.brokers, "--type", "parquet", "--database", place, status=None)
        assert done.returncode in (1, 2)
        assert hint in done.stderr


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--table-credential", "password=hunter2"], "password: expected a template"),
        (["--credential", "sasl.password"], "expected KEY=VALUE"),
        (["--to", "0:x"], "expected end, last-row or PARTITION:OFFSET"),
        (["--from", "end"], "expected first-row, log-start or PARTITION:OFFSET"),
        (["--partitions", "web:1"], "expected numbers of partitions"),
        (["--partition-column", "p"], "expected both, found one"),
        (["--partitions", "7"], "the topic has no partition 7"),
        (["--to", "3:9"], "partition 3 is not audited or does not exist"),
    ],
)
def test_wrong_options(
    command: Kpipe, topic: Callable[..., str], tmp_path: Path, options: list[str], problem: str, request: pytest.FixtureRequest
) -> None:
    name = topic()
    table = duckdb_flat(tmp_path, name, [(0, 0)], request)
    done = command("audit", name, "--brokers", command.brokers, *table, *options, status=2)
    assert problem in done.stderr
    assert "hunter2" not in done.stdout + done.stderr


def test_an_audit_creates_no_catalogue(command: Kpipe, topic: Callable[..., str], tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    (tmp_path / "lake").mkdir()
    place = ["--type", "iceberg", "--database", str(tmp_path / "lake"), "--table", "t"]
    done = command("audit", topic(), "--brokers", command.brokers, *place, status=1)
    assert "contains no catalogue" in done.stderr
    assert not list((tmp_path / "lake").iterdir())


def test_files_that_a_streaming_query_did_not_commit_are_left_out(
    command: Kpipe, topic: Callable[..., str], write: Any, tmp_path: Path
) -> None:
    name, folder = topic(), tmp_path / "out"
    write(name, [b"x"] * 4)
    (folder / "_spark_metadata").mkdir(parents=True)
    for at, offsets in enumerate(([0, 1], [2, 3], [2, 3])):  # the last one is of an attempt that failed
        pq.write_table(pa.table({"partition": [0, 0], "offset": offsets}), folder / f"part-{at}.parquet")
    for at in range(2):
        entry = {"path": f"file://{folder}/part-{at}.parquet", "size": 1, "isDir": False, "action": "add"}
        (folder / "_spark_metadata" / str(at)).write_text("v1\n" + json.dumps(entry))
    found = audit(command, name, "--type", "parquet", "--database", str(folder))
    assert found["rows"]["total"] == 4


def test_the_output_for_people(
    command: Kpipe, mixed: tuple[str, list[Row]], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name, good = mixed
    options = duckdb_flat(tmp_path, name, [row for row in good if row not in MISSING], request)
    place = str(tmp_path / "flat.duckdb")
    done = command(
        "audit", name, "--brokers", command.brokers, "--type", "duckdb", "--database", place, "--table", "landed", status=1
    )
    assert options == ["--type", "duckdb", "--database", place, "--table", "landed"]
    assert "partition 0 [2, 3): a record without a row" in done.stderr
    assert "problem: 3 offsets: a record without a row" in done.stderr
    assert "NOT explained" in done.stderr
    assert "11: a record of an aborted transaction, without a row" in done.stdout
