"""A table rebuilt beside the live one, with a real Kafka and DuckDB: a kill at any step leaves one of the two, whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from kpipe import failpoints
from kpipe.definition.pipeline import Pipeline
from kpipe.definition.yaml_codec import to_yaml
from kpipe.errors import Fenced, InvalidPipeline, InvalidStatement, KpipeError, LedgerMismatch, NeedsOperator, NotAvailable
from kpipe.failpoints import POINTS, REBUILT
from kpipe.run_events import Decisions
from kpipe_assets.rebuild import steps
from kpipe_assets.runs import dead_letter_retry
from kpipe_assets.runs.dead_letter_retry import retry
from kpipe_assets.runs.foreground import run_pipeline
from kpipe_assets.runs.proof import known_ledger, proof, prove
from kpipe_assets.runs.rebuilt import finish, load
from kpipe_assets.runs.runner import Run
from kpipe_assets.sensors import tick
from resources.destinations import open_destination
from resources.home import Home
from resources.sources.open_source import topics_of
from tests.commandline import Kpipe
from tests.survival import small

pytestmark = pytest.mark.broker

COMMIT = [f"commit.{step}" for step in ("begin", "ledger", "register", "table", "history", "before", "after")]
# Each run: the destination's own tests fail at every step inside of the transaction (sql/test_exchange.py), and reads and
# ordinary commits are killed in tests/survival/test_points.py.
ELSEWHERE = {*COMMIT[:-2], "read.first", "collect.all"}


class Killed(BaseException):
    """Stands for SIGKILL."""


class Site:
    """A live pipeline, its topic, and the definition that it is to have."""

    def __init__(self, folder: Path, brokers: str, topic: str, write: Callable[..., Any]) -> None:
        self.home, self.topic, self._write = Home.at(folder), topic, write
        self.fields: dict[str, Any] = {
            "name": "orders", "source": {"brokers": brokers, "topic": topic}, "columns": {"id": "BIGINT"},
            "into": {"table": "orders"},
        }  # fmt: skip
        self.home.save(Pipeline.model_validate(self.fields))
        self.new = Pipeline.model_validate(
            {**self.fields, "columns": {"id": "BIGINT", "twice": "BIGINT"}, "set": {"twice": "id * 2"}}
        )
        self.produced = 0

    def write(self, number: int) -> None:
        lines = [json.dumps({"id": n}) for n in range(self.produced, self.produced + number)]
        self._write(self.topic, lines, 0)
        self.produced += number

    def run(self, name: str = "orders") -> None:
        for _ in small.run(self.home.path, name):
            pass

    def catch_up(self, pipeline: Pipeline) -> None:
        self.run(pipeline.name)

    def build(self) -> None:
        self.run(steps.begin(self.home, "orders", self.new).name)

    def exchange(self, **more: Any) -> int:
        return steps.exchange(self.home, "orders", self.catch_up, **more)

    def rows(self, table: str = "orders") -> list[tuple[Any, ...]]:
        with closing(duckdb.connect(str(self.home.data / "kpipe.duckdb"), read_only=True)) as connection:
            known = connection.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = ?", [table]).fetchall()
            names = [name for name, *_ in connection.execute(f"DESCRIBE {table}").fetchall()] if known else []
            wanted = [name for name in names if not name.startswith("_kafka")]
            return connection.execute(f"SELECT {', '.join(wanted)} FROM {table} ORDER BY id").fetchall() if known else []

    def is_old(self) -> bool:
        """The live pipeline is whole, and as it was."""
        assert self.home.pipeline("orders").to_dict() == self.fields
        assert self.rows() == [(n,) for n in range(len(self.rows()))]
        return self.proven("orders")

    def is_new(self) -> bool:
        assert self.home.pipeline("orders").to_dict() == self.new.to_dict()
        assert self.rows() == [(n, 2 * n) for n in range(len(self.rows()))]
        assert self.proven("orders_replaced") and self.rows("orders_replaced")[0] == (0,)
        return self.proven("orders")

    def proven(self, name: str) -> bool:
        return prove(self.home.pipeline(name), self.home).ok


@pytest.fixture
def site(tmp_path: Path, brokers: str, topic: Callable[..., str], write: Callable[..., Any]) -> Iterator[Site]:
    made = Site(tmp_path / "home", brokers, topic(1), write)
    made.write(5)
    made.run()
    yield made
    failpoints.arm(None)


def killed(point: str, work: Callable[[], Any], number: int = 1) -> bool:
    """Do it, and be killed there; return whether that place is reached."""
    left = number

    def die(reached: str) -> None:
        nonlocal left
        left -= reached == point
        if reached == point and not left:
            failpoints.arm(None)
            raise Killed

    failpoints.arm(die)
    try:
        work()
    except Killed:
        return True
    finally:
        failpoints.arm(None)
    return False


def test_rebuilt_compared_and_exchanged_while_the_live_one_goes_on(site: Site) -> None:
    site.build()
    site.write(3)
    site.run()
    assert len(site.rows()) == 8 and len(site.rows("orders_rebuild")) == 5
    found = steps.compare(site.home, "orders", 10)
    assert found.live.ok and found.rebuilt.ok and not found.missing
    assert found.waiting == [f"{site.topic}/0 [5, 8)"]
    assert [offset for *_, offset in found.differences["orders"].live] == [5, 6, 7] and not found.differences["orders"].rebuilt
    assert site.is_old()
    site.exchange()
    assert len(site.rows()) == 8 and site.is_new() and load(site.home, "orders") is None
    assert site.home.names() == ("orders", "orders_replaced")
    site.write(2)
    site.run()
    assert len(site.rows()) == 10 and site.is_new()
    with pytest.raises(InvalidStatement, match="pipeline orders_replaced exists"):
        steps.begin(site.home, "orders", None)
    steps.drop_replaced(site.home, "orders")
    assert site.home.names() == ("orders",) and site.rows("orders_replaced") == []
    site.run()
    assert site.proven("orders")


@pytest.mark.parametrize("text", ["orders.n + excluded.n", "mysql: orders.n + VALUES(n)"])
def test_an_expression_that_names_the_table(site: Site, text: str) -> None:
    """While it is built, the table has another name; the definition is stored as it was written."""
    into = {"table": "orders", "key": ["id"], "on_conflict": "update", "update": {"n": text}}
    site.new = Pipeline.model_validate(
        {**site.fields, "columns": {"id": "BIGINT", "n": "BIGINT"}, "set": {"n": "1"}, "into": into}
    )
    site.produced = 0
    site.write(5)
    site.build()
    site.exchange()
    assert site.rows() == [(n, 2) for n in range(5)]
    site.produced = 0
    site.write(2)
    site.run()
    assert site.rows() == [(0, 3), (1, 3), (2, 2), (3, 2), (4, 2)]
    assert site.home.pipeline("orders").to_dict() == site.new.to_dict() and site.proven("orders")
    assert site.proven("orders_replaced")
    site.new = Pipeline.model_validate({**site.new.to_dict(), "set": {"n": "10"}})
    steps.drop_replaced(site.home, "orders")
    site.build()
    site.exchange()
    assert site.rows() == [(0, 30), (1, 30), (2, 20), (3, 20), (4, 20)] and site.proven("orders_replaced")


def points(*names: str) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.chaos if name in ELSEWHERE else []) for name in names]


@pytest.mark.parametrize(
    "point", points("read.first", "collect.all", "commit.before", "commit.after", "rebuild.begun", "rebuild.compared")
)
def test_killed_before_the_exchange_the_live_one_is_as_it_was(site: Site, point: str) -> None:
    def work() -> None:
        site.build()
        steps.compare(site.home, "orders")

    assert killed(point, work) and site.is_old()
    site.write(2)
    site.run()
    assert len(site.rows()) == 7 and site.is_old()
    site.build()
    site.exchange()
    assert len(site.rows()) == 7 and site.is_new()


@pytest.mark.parametrize("point", points("rebuild.exchanging", *COMMIT, "readback", "rebuild.exchanged", "rebuild.defined"))
def test_killed_in_the_exchange_one_of_the_two_is_whole(site: Site, point: str) -> None:
    """The next run completes what is left to do in the home."""
    site.build()
    done = site.home.data / "kpipe.duckdb"

    def work() -> None:  # nothing new to read: the only commit is that of the exchange
        steps.exchange(site.home, "orders", lambda _: None)

    assert killed(point, work) and done.exists()
    landed = point in ("commit.after", "readback", "rebuild.exchanged", "rebuild.defined")
    site.write(2)
    site.run()
    assert len(site.rows()) == 7
    assert site.is_new() if landed else site.is_old()
    if not landed:
        site.exchange()
        assert len(site.rows()) == 7 and site.is_new()
    assert load(site.home, "orders") is None and finish(site.home, "orders") is None


@pytest.mark.parametrize("who", ["sensor", "check", "proof"])
def test_an_interrupted_exchange_is_completed_by_who_looks_first(site: Site, who: str) -> None:
    """In Dagster no run begins while the sensor reports another ledger."""
    site.build()
    assert killed("rebuild.exchanged", lambda: steps.exchange(site.home, "orders", lambda _: None))
    old = Pipeline.model_validate(site.fields)
    destination, topics = open_destination(old, site.home), topics_of(old)
    if who == "sensor":
        assert tick._checked(old, site.home, destination, topics, destination.ledger()[1], topics.snapshot())[2] is None
    elif who == "check":
        known_ledger(old, site.home, destination)
    else:
        assert proof(old, site.home, destination).result.ok
    assert load(site.home, "orders") is None and site.is_new()


def limited(site: Site, runs: int = 3) -> None:
    """A new definition with dead letters, where the live pipeline has more commits than the rebuilt one."""
    for _ in range(runs):
        site.write(1)
        site.run()
    site.new = Pipeline.model_validate({
        **site.fields, "columns": {"id": "BIGINT", "twice": "TINYINT"}, "set": {"twice": "id * 50"},
        "errors": {"constraint": "dead_letter"},
    })  # fmt: skip
    site.build()


def test_a_retry_of_dead_letters_completes_an_interrupted_exchange_and_has_its_definition(site: Site) -> None:
    limited(site)
    assert killed("rebuild.exchanged", lambda: steps.exchange(site.home, "orders", lambda _: None))
    (done,) = retry(site.home.pipeline("orders"), site.home)
    assert (done.tried, done.failed) == (5, 5)
    assert site.rows() == [(0, 0), (1, 50), (2, 100)] and site.proven("orders")
    site.run()


@pytest.mark.parametrize("when", ["before", "validating"])
def test_a_retry_with_the_definition_of_before_the_exchange_writes_nothing(
    site: Site, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(site)
    old = site.home.pipeline("orders")

    def exchange(*_: Any, **__: Any) -> None:
        steps.exchange(site.home, "orders", lambda _: None)

    if when == "before":
        exchange()
    else:
        monkeypatch.setattr(dead_letter_retry, "validate", exchange)
    with pytest.raises(Fenced, match="orders: its table was rebuilt and exchanged"):
        list(retry(old, site.home))
    assert site.rows() == [(0, 0), (1, 50), (2, 100)] and site.proven("orders")
    site.run()


def test_every_point_is_tried() -> None:
    assert set(REBUILT) == {
        "rebuild.begun", "rebuild.built", "rebuild.compared", "rebuild.exchanging", "rebuild.exchanged", "rebuild.defined"
    }  # fmt: skip
    assert set(COMMIT) < set(POINTS)


def test_a_run_with_the_old_definition_ends(site: Site) -> None:
    """It has staged a batch when the tables are exchanged; that fails, and it writes nothing any more."""
    site.build()
    site.write(2)
    whole = Run.real(site.home.pipeline("orders"), site.home, lambda: small.Context())  # type: ignore[arg-type,return-value]
    exchanged: list[int] = []

    def reached(point: str) -> None:
        if point == "commit.verify" and not exchanged:
            exchanged.append(0)
            failpoints.arm(None)
            site.exchange()

    failpoints.arm(reached)
    with small.in_worker():
        assert list(whole.batches()) == []
    assert exchanged and len(site.rows()) == 7 and site.is_new()
    assert len(site.rows("orders_replaced")) == 5
    site.run()
    assert len(site.rows()) == 7 and site.is_new()


def test_a_run_that_begins_a_partition_with_the_old_definition_ends(site: Site, brokers: str) -> None:
    """It has read the old ledger. The lane of a new partition is not in the new one, so it equals no lane there."""
    site.build()
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_partitions([NewPartitions(site.topic, 2)])[site.topic].result(60)
    site.write(2)
    producer = Producer({"bootstrap.servers": brokers})  # that of the fixture has read the number of partitions already
    for value in ('{"id": 7}', '{"id": 8}'):
        producer.produce(site.topic, value, partition=1)
    assert producer.flush(60) == 0
    whole = Run.real(site.home.pipeline("orders"), site.home, lambda: small.Context())  # type: ignore[arg-type,return-value]

    def reached(point: str) -> None:
        if point == "plan.offsets":
            failpoints.arm(None)
            steps.exchange(site.home, "orders", lambda _: None)

    failpoints.arm(reached)
    with small.in_worker():
        assert list(whole.batches()) == []
    assert len(site.rows()) == 5 and site.is_new()
    site.run()
    assert len(site.rows()) == 9 and site.is_new()


def test_a_run_that_was_starting_during_the_exchange_ends(site: Site) -> None:
    """It has read the old definition, and reads the position of the new table."""
    site.build()
    starting = Run.real(site.home.pipeline("orders"), site.home, lambda: small.Context())  # type: ignore[arg-type,return-value]
    site.exchange()
    site.write(2)
    with small.in_worker():
        assert list(starting.batches()) == []
    assert site.is_new() and site.home.noted("orders")["state"] == "stopped"
    site.run()
    assert len(site.rows()) == 7 and site.is_new() and site.proven("orders")


@pytest.mark.parametrize("as_json", [False, True])
def test_a_run_reports_that_the_exchange_of_its_table_has_ended_it(
    site: Site, as_json: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    site.build()
    real = Run.real

    def starting(*arguments: Any, **more: Any) -> Run:
        made = real(*arguments, **more)
        steps.exchange(site.home, "orders", lambda _: None)
        return made

    monkeypatch.setattr(Run, "real", starting)
    totals = run_pipeline(site.home.pipeline("orders"), site.home, as_json=as_json)
    assert (totals.status, totals.reason, totals.batches) == ("stopped", "exchange", 0)
    told = capfd.readouterr()
    if as_json:
        summary = json.loads(told.out.splitlines()[-1])
        assert (summary["event"], summary["status"], summary["reason"]) == ("summary", "stopped", "exchange")
    else:
        assert "orders: stopped, nothing written; its table was rebuilt and exchanged: start it again" in told.out + told.err


def test_a_cancelled_rebuild_leaves_the_live_one(site: Site) -> None:
    site.build()
    with pytest.raises(InvalidStatement, match="another definition or start has begun"):
        steps.begin(site.home, "orders", Pipeline.model_validate(site.fields))
    steps.cancel(site.home, "orders")
    assert site.is_old() and site.home.names() == ("orders",) and site.rows("orders_rebuild") == []
    with pytest.raises(InvalidStatement, match="no rebuild has begun"):
        steps.cancel(site.home, "orders")
    site.build()
    site.exchange()
    assert site.is_new()


@pytest.mark.parametrize("name", ["orders", "orders_rebuild"])
def test_an_edit_meanwhile_is_not_undone_silently(site: Site, name: str) -> None:
    site.build()
    begun = site.home.pipeline(name)
    site.home.save(Pipeline.model_validate({**begun.to_dict(), "batch": {"interval_ms": 7}}))
    with pytest.raises(InvalidStatement, match=f"pipeline {name} was edited after its rebuild had begun: batch"):
        site.exchange()
    site.home.save(begun)
    site.exchange()
    assert site.is_new()


def test_a_pipeline_that_was_created_meanwhile_is_not_overwritten(site: Site) -> None:
    site.build()
    mine = Pipeline.model_validate({**site.fields, "name": "orders_replaced", "into": {"table": "archive"}})
    site.home.save(mine)
    with pytest.raises(InvalidStatement, match="pipeline orders_replaced exists"):
        steps.exchange(site.home, "orders", lambda _: None)
    assert site.home.pipeline("orders_replaced") == mine and site.is_old()
    site.home.remove("orders_replaced")
    steps.exchange(site.home, "orders", lambda _: None)
    assert site.is_new()


def test_an_edit_is_kept_that_comes_before_an_interrupted_exchange_is_complete(site: Site) -> None:
    site.build()
    assert killed("rebuild.exchanged", lambda: steps.exchange(site.home, "orders", lambda _: None))
    edited = Pipeline.model_validate({**site.fields, "batch": {"interval_ms": 7}})
    file = site.home.save(edited)
    for _ in range(2):
        with pytest.raises(NeedsOperator, match=r"orders\.yaml was edited before .* exchange .*: batch") as refused:
            site.run()
        assert "kpipe rebuild orders" in refused.value.hint
        assert site.home.pipeline("orders") == edited and load(site.home, "orders") is not None
    destination, topics = open_destination(edited, site.home), topics_of(edited)
    trouble = tick._checked(edited, site.home, destination, topics, destination.ledger()[1], topics.snapshot())[2]
    assert trouble is not None and trouble.what == refused.value.what
    file.rename(file.with_suffix(".edited"))
    assert finish(site.home, "orders") == site.new
    assert site.is_new() and load(site.home, "orders") is None
    site.run()


def test_a_table_of_somebody_else_with_that_name_is_not_loaded_or_dropped(site: Site) -> None:
    with closing(duckdb.connect(str(site.home.data / "kpipe.duckdb"))) as connection:
        connection.execute("CREATE TABLE orders_rebuild AS SELECT 7 AS id")
    with pytest.raises(InvalidStatement, match="table orders_rebuild exists"):
        site.build()
    assert site.home.names() == ("orders",) and site.rows("orders_rebuild") == [(7,)]


def test_a_backup_of_before_the_exchange_is_accepted_and_proven(site: Site) -> None:
    file = site.home.data / "kpipe.duckdb"
    before = file.read_bytes()
    site.build()
    site.exchange()
    file.write_bytes(before)
    with pytest.raises(LedgerMismatch, match="is not the ledger that this home has seen"):
        site.run()
    assert not site.proven("orders")
    with small.in_worker():
        context: Any = small.Context
        accepting = Run.real(site.home.pipeline("orders"), site.home, context, decisions=Decisions(on_older_ledger="accept"))
        assert list(accepting.batches()) == []
    assert site.proven("orders")


@pytest.mark.parametrize("start", [{"timestamp": "nonsense"}, {"0": "x"}, "middle"])
def test_a_start_that_is_no_position_is_refused_with_what_it_can_be(site: Site, start: Any) -> None:
    with pytest.raises(InvalidPipeline, match=r"source\.start: not a position"):
        steps.begin(site.home, "orders", site.new, start)


def test_from_given_offsets_the_rest_must_be_accepted(site: Site) -> None:
    site.run(steps.begin(site.home, "orders", site.new, {"0": 2}).name)
    with pytest.raises(InvalidStatement, match=r"lacks offsets that the live one has: .*/0 \[0, 2\)"):
        site.exchange()
    assert site.is_old() and (begun := load(site.home, "orders")) is not None and not begun.exchange
    site.exchange(accept_missing=True)
    assert site.rows() == [(n, 2 * n) for n in range(2, 5)] and site.proven("orders")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"into": {"table": "others"}}, InvalidPipeline, "a rebuild keeps the tables"),
        ({"source": {"end": {"0": 9}}}, NotAvailable, "a bounded pipeline cannot be rebuilt"),
        ({"delivery": "at_least_once"}, NotAvailable, "rows commit before the ledger"),
        ({"into": {"type": "parquet", "table": "orders"}}, InvalidPipeline, "into.type: a rebuild keeps it"),
    ],
)
def test_what_cannot_be_rebuilt_is_refused_first(site: Site, change: dict[str, Any], error: type[KpipeError], words: str) -> None:
    merged = {**site.fields, **change}
    if "source" in change:
        merged["source"] = {**site.fields["source"], **change["source"]}
    with pytest.raises(error, match=words):
        steps.begin(site.home, "orders", Pipeline.model_validate(merged))
    assert site.is_old() and site.home.names() == ("orders",)


def test_a_lake_is_refused_by_name(site: Site) -> None:
    site.home.save(Pipeline.model_validate({**site.fields, "name": "lake", "into": {"type": "parquet", "table": "lake"}}))
    with pytest.raises(NotAvailable, match="a rebuilt table and its ledger cannot be exchanged in one"):
        steps.begin(site.home, "lake", None)


@pytest.mark.spark
def test_the_command(kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., Any]) -> None:
    name = topic(2)
    for partition in (0, 1):
        write(name, [json.dumps({"id": n}) for n in range(4)], partition)
    kpipe.define("orders", name, columns={"id": "BIGINT"}, into={"table": "orders"})
    kpipe("run", "orders")
    definition = Home.at(kpipe.home).pipeline("orders").to_dict()
    file = kpipe.home.parent / "new.yaml"
    file.write_text(to_yaml(Pipeline.model_validate({**definition, "where": "id > 0"})))
    found = kpipe.json("rebuild", "orders", "--file", str(file), "--differences", "9")
    (compared,) = [line for line in found if line["event"] == "comparison"]
    assert (compared["live"]["rows"], compared["rebuilt"]["rows"], compared["rebuilt"]["filtered"]) == (8, 6, 2)
    assert [offset for *_, offset in compared["differences"]["orders"]["live"]] == [0, 0]
    told = kpipe("rebuild", "orders", "--exchange").stdout
    assert "exchanged by commit" in told
    assert "proven: 8 offsets = 6 rows" in kpipe("verify", "orders").stdout
    assert "proven: 8 offsets = 8 rows" in kpipe("verify", "orders_replaced").stdout
    kpipe("rebuild", "orders", "--drop-replaced")
    kpipe("rebuild", "orders", "--start", '{"0": 2}')
    assert "[0, 2)" in kpipe("rebuild", "orders", "--exchange", status=2).stderr
    kpipe("rebuild", "orders", "--exchange", "--accept-missing")
    assert "proven: 6 offsets = 5 rows" in kpipe("verify", "orders").stdout
    kpipe("rebuild", "orders", "--drop-replaced")
    kpipe("rebuild", "orders", "--file", str(file))
    assert "take no other options" in kpipe("rebuild", "orders", "--cancel", "--exchange", status=2).stderr
    kpipe("rebuild", "orders", "--cancel")
    assert "no exchange has replaced a table" in kpipe("rebuild", "orders", "--drop-replaced", status=2).stderr
