"""Runs into tables by a field, in one process: the loop, the tasks' code and real databases, killed at any step of a commit."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kpipe import failpoints
from kpipe.batch.batch import Batch
from kpipe.definition.pipeline import Pipeline
from kpipe.definition.table_template import NAME
from kpipe.errors import Fenced, NotAvailable, RecordRejected
from kpipe.ingest.loop import Ingest
from kpipe.planning.seek import set_offsets
from kpipe.run_events import Seen, ledger_only
from kpipe.tables.upsert import KeyRule
from kpipe.testing.topics import FakeTopics
from kpipe.verification.verify import Audit
from resources.destinations.sql.ledger import multi_table
from resources.home import Home
from resources.kafka.record_block import RecordBlock
from resources.spark.driver.sample_stager import LocalStager
from resources.spark.task.task_spec import JobSpec
from resources.testing.place import Place
from resources.testing.state import proof
from tests.resources.destinations.databases import database
from tests.resources.destinations.ducklake_place import DuckLakePlace
from tests.resources.destinations.place import DuckDBPlace

POINTS = ("commit.open", "commit.register", "commit.table", "commit.data", "commit.history", "commit.before", "commit.after",
          "readback", "publish.before", "plan.ledger")  # fmt: skip


class Killed(BaseException):
    """A kill: nothing catches it."""


class Stager(LocalStager):
    """Stages records in memory by the code of the tasks."""

    topics: FakeTopics

    def _job(self, batch: Batch, *more: Any) -> JobSpec:
        held = {}
        for step in batch.steps:
            records = self.topics.read(step.source, step.range)
            lines = [None if slot.value is None else slot.value["line"] for _, slot in records]
            held[step.source] = RecordBlock.of([at for at, _ in records], [0] * len(lines), lines)
        return replace(super()._job(batch, *more), held=held)


class Site:
    """A topic in memory, and the runs of a pipeline that loads it into tables of a database."""

    def __init__(self, place: Place, folder: Path, partitions: int = 1, **more: Any) -> None:
        self.place, self.topics, self.seen = place, FakeTopics(partitions), Seen()
        self.home = Home.at(folder / "home").make()
        self.define(**more)

    def define(self, **more: Any) -> None:
        lake = {"type": "ducklake"} if isinstance(self.place, DuckLakePlace) else {"type": "duckdb"}
        into = {**lake, "table": "e_{field.type}", **more.pop("into", {})}
        source = {"brokers": "b:9092", "topic": "tweets"}
        self.pipeline = Pipeline.model_validate({"name": "tweets", "source": source, "into": into, **more})

    def put(self, *values: Any, partition: int = 0) -> None:
        lines = [value if isinstance(value, bytes) or value is None else json.dumps(value).encode() for value in values]
        self.topics.produce(partition, *(None if line is None else {"line": line} for line in lines))

    def destination(self) -> Any:
        return self.place.open(table=self.pipeline.into.table, rule=KeyRule.of(self.pipeline))

    def run(self, only: Sequence[int] | None = None) -> Counter[str]:
        """Run as a new process does, and return the numbers of rows and dead letters of its batches."""
        stager = Stager(self.pipeline, self.home)
        stager.topics, stager._stage = self.topics, str(self.place.staging)
        loop = Ingest(self.pipeline, self.topics, stager, self.destination(), only=only, seen=self.seen, wait=lambda _: None)
        found: Counter[str] = Counter()
        for done in loop.run():
            found.update(rows=done.commit.totals.rows, dead=done.commit.totals.dead_letters)
        return found

    def proof(self) -> Audit:
        found = proof(self.destination(), self.pipeline.source.multi_topic)
        assert found.ok, found.problems
        assert all(rows["rows"] == rows["rows_found"] for rows in found.targets.values())
        return found

    def tables(self) -> dict[str, int]:
        return {name: rows["rows"] for name, rows in self.proof().targets.items()}


@pytest.fixture(params=["duckdb", "postgres", "mysql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield database(request, tmp_path)
    failpoints.arm(None)


@pytest.fixture
def duck(tmp_path: Path) -> Iterator[Place]:
    yield DuckDBPlace(tmp_path)
    failpoints.arm(None)


def event(kind: Any, number: int = 0, **more: Any) -> dict[str, Any]:
    return {"id": number, "type": kind, **more}


@pytest.mark.drawn(1)
def test_tables_appear_with_the_values_of_a_field(place: Place, tmp_path: Path) -> None:
    site = Site(place, tmp_path, into={"max_tables": 3})
    site.put(event("order", 1, price=1.5), event("click", 2), event("Order", 3), event("order", 4, price=2))
    site.put(event("a.b"), event(None), {"id": 1}, b"no json", None, event('x"; --'), event(True, 9), event("zoom"))
    assert site.run() == Counter(rows=4, dead=7)
    assert site.tables() == {"e_click": 1, "e_order": 2, "e_true": 1}
    assert [(row["price"], row["type"]) for row in place.rows("e_order")] == [(1.5, "order"), (2.0, "order")]
    # Another run has the same tables; a new column is that of one table.
    site.put(event("click", 5, page="/"), event("order", 6), event("new"))
    assert site.run() == Counter(rows=2, dead=1) and site.run() == Counter()
    assert site.tables() == {"e_click": 2, "e_order": 3, "e_true": 1}
    assert "page" in place.rows("e_click")[0] and "page" not in place.rows("e_order")[0]
    found = site.proof()
    assert (found.span, found.counts.rows, found.counts.dead_letters, found.counts.filtered) == (15, 6, 8, 1)
    assert [entry.counts.rows for entry in site.destination().history()] == [4, 2]
    # A row that is moved by hand to another table, and one that is missing.
    place.sql("DELETE FROM e_click WHERE id = 2")
    problems = proof(site.destination()).problems
    assert problems and all(text.startswith("table e_click: ") for text in problems)
    place.sql("INSERT INTO e_order (id, type, _kafka_partition, _kafka_offset) VALUES (2, 'click', 0, 1)")
    assert {text.partition(":")[0] for text in proof(site.destination()).problems} == {"table e_click", "table e_order"}


@pytest.mark.drawn(1)
def test_a_lost_and_a_doubled_row_are_found_beside_offsets_that_were_read_again(place: Place, tmp_path: Path) -> None:
    site = Site(place, tmp_path, columns={"id": "BIGINT"})
    site.put(*(event("a", number) for number in range(6)))
    site.run()
    (where,) = site.topics.snapshot().partitions
    for decision in set_offsets(site.destination().ledger()[1], site.topics.snapshot(), {where: 3}, True):
        commit = ledger_only("tweets", decision.kind, decision.changes, decision.note, decision.steps, "run", "1")
        site.destination().commit(commit)
    site.run()
    assert site.tables() == {"e_a": 9}
    place.sql("DELETE FROM e_a WHERE _kafka_offset = 1")
    place.sql("INSERT INTO e_a SELECT * FROM e_a WHERE _kafka_offset = 0")
    assert any("an offset has more rows" in text for text in proof(site.destination()).problems)
    place.sql("UPDATE e_a SET type = 'b' WHERE _kafka_offset = 4")
    problems = str(proof(site.destination()).problems)
    assert "an offset has more rows" in problems and "another value of type" in problems


@pytest.mark.drawn(2)
def test_the_names_of_earlier_tables_are_read_once(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query of all ranges takes longer with each batch: a run reads those of later commits."""
    site = Site(place, tmp_path)
    site.put(event("a"), event("c"))
    site.run()
    kept = site.destination()
    assert kept.tables_written() == ["e_a", "e_c"]
    site.put(event("b"), event("a"))
    site.run()
    with monkeypatch.context() as patch:
        patch.setattr(multi_table, "targets", None)
        assert kept.tables_written() == ["e_a", "e_b", "e_c"] == kept.tables_written()
    # The history of a restored backup has another commit of that number.
    last = site.destination().view("pipelines")[0]["last_batch_id"]
    for table in ("kpipe_commits", "kpipe_targets", "kpipe_batches"):
        place.sql(f"UPDATE {table} SET batch_id = 'other' WHERE batch_id = '{last}'")
    place.sql("DELETE FROM kpipe_targets WHERE target_table = 'e_b'")
    assert kept.tables_written() == ["e_a", "e_c"]


@pytest.mark.drawn(1)
def test_rows_with_a_key_in_the_tables_of_their_values(place: Place, tmp_path: Path) -> None:
    site = Site(place, tmp_path, into={"key": ["id"], "on_conflict": "replace"}, columns={"id": "BIGINT"})
    site.put(event("a", 1), event("b", 1), event("a", 2), event("a", 1, text="new"), {"type": "d"})
    assert site.run() == Counter(rows=4, dead=1), "a record without a key creates no table"
    site.put(event("b", 1, text="new"), event("a", 3), event("c"))
    site.run()
    rows = {name: sorted((row["id"], row["_kafka_offset"]) for row in place.rows(name)) for name in ("e_a", "e_b", "e_c")}
    assert rows == {"e_a": [(1, 3), (2, 2), (3, 6)], "e_b": [(1, 5)], "e_c": [(0, 7)]}
    assert site.proof().counts.rows == 7
    place.sql("DELETE FROM e_a WHERE id = 2")
    assert all(text.startswith("table e_a: ") for text in proof(site.destination()).problems)


@pytest.mark.drawn(1)
def test_rows_that_were_exchanged_between_two_tables(place: Place, tmp_path: Path) -> None:
    site = Site(place, tmp_path)
    site.put(*(event(kind, number) for number, kind in enumerate("abba")))
    site.run()
    site.proof()
    # Numbers of rows, records and sums of offsets are as before.
    for table, offsets in (("e_a", (1, 2)), ("e_b", (0, 3))):
        for was, offset in zip(sorted(row["_kafka_offset"] for row in place.rows(table)), offsets, strict=True):
            value = "ab"["ab".index(table[-1]) ^ 1]
            place.sql(f"UPDATE {table} SET id = {offset}, type = '{value}', _kafka_offset = {offset} WHERE _kafka_offset = {was}")
    assert sorted(proof(site.destination()).problems) == [
        "table e_a: 2 rows have another value of type than a", "table e_b: 2 rows have another value of type than b",
    ]  # fmt: skip


@pytest.mark.drawn(1)
def test_two_runs_that_create_tables_of_one_name(place: Place, tmp_path: Path) -> None:
    site = Site(place, tmp_path, partitions=2)
    assert site.run() == Counter(), "both partitions begin"
    site.put(event("order"), partition=0)
    site.put(event("Order"), partition=1)
    first = Site(place, tmp_path / "other", partitions=2)
    first.topics = site.topics

    def reached(point: str) -> None:
        if point == "collect.all":  # the other run commits the partition 1 while this one has staged partition 0
            failpoints.arm(None)
            assert first.run(only=[1])["rows"] == 1

    failpoints.arm(reached)
    with pytest.raises(Fenced):
        site.run(only=[0])
    assert site.run(only=[0]) == Counter(dead=1)
    assert site.tables() == {"e_Order": 1}


def test_an_edited_template_and_a_table_that_was_cleared(duck: Place, tmp_path: Path) -> None:
    site = Site(duck, tmp_path)
    site.put(event("a", 1), event("b", 2))
    site.run()
    with pytest.raises(NotAvailable, match="RESET PIPELINE tweets"):
        site.destination().clear(["e_a"], "me")
    assert not site.destination().clear(["e_{field.type}"], "me").pipelines, "the template alone is no table"
    site.define(into={"table": "f_{field.type}"})
    site.put(event("a", 3))
    site.run()
    site.define(into={"table": "plain"})
    site.put(event("a", 4))
    site.run()
    assert site.proof().counts.rows == 4 and site.tables() == {"e_a": 1, "e_b": 1, "f_a": 1}
    with pytest.raises(NotAvailable, match="by a field's value"):
        site.destination().clear(["f_a"], "me")
    with pytest.raises(NotAvailable, match="by a field's value"):
        site.destination().check_clear(["f_a"], ["tweets"])
    site.define()
    names = ["e_{field.type}", *(name for name in site.destination().tables_written() if name.startswith("e_"))]
    site.destination().check_clear(names, ["tweets"])
    site.destination().clear(names, "me")
    assert {name: site.tables().get(name) for name in ("e_a", "e_b", "f_a")} == {"e_a": 0, "e_b": 0, "f_a": 1}


@pytest.mark.parametrize(
    ("format", "lines"),
    [
        ({"type": "csv", "fields": ["id", "type"], "delimiter": ","}, [b"1,a", b"2,b\n3,b", b"4,a\n5,b", b"6", b"7,"]),
        ({"type": "json", "mapping": {"id": "n", "type": "head::kind"}}, [
            b'{"n":1,"head":{"kind":"a"}}', b'{"n":2,"head":{"kind":"b"}}', b'{"n":3,"head":{"kind":"b"}}',
            b'{"n":4}', b"[]",
        ]),
    ],
)  # fmt: skip
def test_other_formats(duck: Place, tmp_path: Path, format: Any, lines: Sequence[bytes]) -> None:
    site = Site(duck, tmp_path, format=format, columns={"id": "BIGINT", "type": "VARCHAR"})
    site.put(*lines)
    found = site.run()
    assert found["rows"] == 3 and found["dead"] >= 2, found
    assert {name: [row["id"] for row in duck.rows(name)] for name in ("e_a", "e_b")} == {"e_a": [1], "e_b": [2, 3]}
    site.proof()


def test_a_record_without_a_table_fails_the_batch_if_the_policy_says_so(duck: Place, tmp_path: Path) -> None:
    site = Site(duck, tmp_path, errors={"parse": "fail"})
    site.put(event("a"), event("b c"))
    with pytest.raises(RecordRejected, match="'b c' cannot be a part of a table's name"):
        site.run()
    assert not duck.rows("e_a")


def test_many_values_of_a_hostile_producer(duck: Place, tmp_path: Path) -> None:
    site = Site(duck, tmp_path, into={"max_tables": 5})
    site.put(*(event(f"v{number:05d}", number) for number in range(9_000, 0, -1)))
    assert site.run() == Counter(rows=5, dead=8_995)
    assert sorted(site.tables()) == [f"e_v{number:05d}" for number in range(1, 6)]


PLAIN = ["a", "b", "c", "d", "e", "f", "pipe_x"]
HOSTILE = [None, "", "a b", "A", "a.b", "B", "ä", "b" * 70, 1, True, 1.5, ["a"], {"a": 1}, "a\0", "{field.type}", "'; --"]


def _search(place: Place, folder: Path, seed: int, rounds: int) -> None:
    chance = random.Random(seed)
    most = chance.choice([2, 4, 100])
    keyed = {"key": ["id"], "on_conflict": chance.choice(["replace", "ignore"])} if chance.random() < 0.3 else {}
    limits = {"max_retries": 1, "max_offsets_per_partition": chance.choice([2, 5, 1000])}
    site = Site(place, folder, 2, into={"max_tables": most, **keyed}, batch=limits, columns={"id": "BIGINT"})
    put: dict[tuple[int, int], Any] = {}
    for _ in range(rounds):
        for number in range(2):
            for _ in range(chance.randrange(6)):
                kind = chance.choice(HOSTILE) if chance.random() < 0.4 else chance.choice(PLAIN)
                more = {f"c{chance.randrange(3)}": 1.5} if chance.random() < 0.2 else {}
                put[number, len([at for at in put if at[0] == number])] = kind
                site.put(event(kind, len(put), **more), partition=number)
        point, left = chance.choice(POINTS), [chance.randrange(1, 6)]

        def reached(name: str, point: str = point, left: list[int] = left) -> None:
            if name == point:
                left[0] -= 1
                if not left[0]:
                    raise Killed(point)

        failpoints.arm(reached)
        with suppress(Killed):
            site.run()
        failpoints.arm(None)
    site.run()
    found = site.proof()
    assert found.span == len(put), f"seed {seed}"
    tables = [name for name in found.targets if name.startswith("e_")]
    assert len(tables) <= most and len({name.lower() for name in tables}) == len(tables), f"seed {seed}"
    held: dict[tuple[int, int], str] = {}
    for name in tables:
        assert NAME.fullmatch(name)
        for row in place.rows(name):
            at = row["_kafka_partition"], row["_kafka_offset"]
            assert at not in held, f"seed {seed}: {at} is in {held[at]} and {name}"
            held[at] = name
            assert name == "e_" + (put[at] if isinstance(put[at], str) else json.dumps(put[at])), f"seed {seed}"
    if most == 100:  # no value is without a table for want of room
        wanted = {at for at, kind in put.items() if kind in PLAIN}
        other = {name[2:].lower() for name in tables if name[2:] in ("A", "B")}
        assert {at for at in wanted if put[at] not in other} <= set(held), f"seed {seed}"
    assert len(held) + place.dead_letters() == len(put), f"seed {seed}"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killed_at_random(duck: Place, tmp_path: Path, seed: int) -> None:
    _search(duck, tmp_path, seed, 4)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(100, 160))
def test_killed_at_random_for_long(place: Place, tmp_path: Path, seed: int) -> None:
    _search(place, tmp_path, seed, 20)
