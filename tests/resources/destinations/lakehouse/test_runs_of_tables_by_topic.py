"""Runs of the ingest loop into tables by topic, killed at any step of any table's commit: each record once in its table."""

from __future__ import annotations

import hashlib
import random
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpipe import failpoints
from kpipe.batch.batch import Batch, Counts, Piece, RangeReport, StagedFile
from kpipe.batch.table_write import TableReport
from kpipe.column_growth import Closed
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import DestinationBusy, InvalidPipeline, LedgerMismatch
from kpipe.ingest.loop import Ingest
from kpipe.planning.seek import forget
from kpipe.run_events import Decisions, Seen
from kpipe.schema.columns import Columns
from kpipe.schema.inference import infer
from kpipe.tables.topic_tables import batch_tables
from kpipe.testing.stager import FakeStager
from kpipe.testing.topics import RECORD, FakeTopics
from kpipe.verification.verify import Audit
from resources.destinations import open_destination
from resources.home import Home
from resources.testing.place import COORDINATES, DEAD_LETTERS, arrow
from resources.testing.state import proof

POINTS = ("commit.open", "commit.register", "commit.data", "commit.history", "commit.before", "commit.after", "readback",
          "commit.next_table", "publish.before", "plan.ledger")  # fmt: skip


class Killed(BaseException):
    """A kill: nothing catches it."""


class Stager(FakeStager):
    """Stages Parquet files of rows and of dead letters, by table and topic."""

    def __init__(self, topics: FakeTopics, folder: Path, pipeline: Pipeline) -> None:
        super().__init__(topics, folder)
        self.pipeline = pipeline

    def columns(self, batch: Batch, table: int) -> Columns:
        tables = batch_tables(self.pipeline, batch)
        return infer(
            value for step in batch.steps if table in tables.of(step.source) for value in self._values(step.source, step.range)
        )

    def stage(self, batch: Batch, tables: Sequence[Columns], closed: Sequence[Closed] = ()) -> Sequence[RangeReport]:
        of = batch_tables(self.pipeline, batch)
        pieces = [Piece.of(step, step.range) for step in batch.steps]
        self._tails(pieces)
        return [self._staged(piece, tables[of.of(piece.source)[0]]) for piece in pieces]

    def _staged(self, piece: Piece, columns: Columns) -> RangeReport:
        records = self.topics.read(piece.source, piece.range)
        topic, number = piece.source.topic.name, piece.source.partition
        rows = [
            {**{name: (slot.value or {}).get(name) for name in columns.names()}, "_kafka_partition": number,
             "_kafka_offset": at, "_kafka_timestamp": 0, "_kafka_topic": topic}
            for at, slot in records if slot.value is not None and not slot.bad
        ]  # fmt: skip
        dead = [
            {"topic": topic, "partition": number, "offset": at, "timestamp": 0, "key": None, "value": b"x", "headers": [],
             "stage": "parse", "reason": "not JSON"}
            for at, slot in records if slot.bad
        ]  # fmt: skip
        fields = [*((name, arrow(kind)) for name, kind in columns), *COORDINATES.items(), ("_kafka_topic", pa.string())]
        counts = Counts(len(records), 0, len(dead), len(records) - len(rows) - len(dead), len(piece.range) - len(records))
        new = infer(self._values(piece.source, piece.range)).without(columns.names())
        files = self._parquet(rows, pa.schema(fields))
        table = TableReport(Counts(rows=len(rows)), files, new_columns=new)
        return RangeReport(piece.source, piece.range, counts, (table,), next(iter(self._parquet(dead, DEAD_LETTERS)), None))

    def _parquet(self, rows: Sequence[Any], schema: pa.Schema) -> tuple[StagedFile, ...]:
        if not rows:
            return ()
        path = self.folder / f"{uuid.uuid4().hex}.parquet"
        pq.write_table(pa.Table.from_pylist(list(rows), schema), path)
        data = path.read_bytes()
        return (StagedFile(str(path), len(data), len(rows), hashlib.sha256(data).hexdigest()),)


class Site:
    """Topics, and the runs of a pipeline that loads them into Parquet folders."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.topics, self.home, self.seen = FakeTopics({"a": 2, "b.x": 1}, pattern="."), Home.at(folder), Seen()
        self.home.make()
        self.pipeline = Pipeline.model_validate(
            {"name": "web", "source": {"brokers": "b:9092", "topic_pattern": "."},
             "into": {"type": "parquet", "table": "raw_{topic}"}, "batch": {"max_retries": 1}, **more}
        )  # fmt: skip
        folder = Path(self.home.roots[0])
        folder.mkdir(parents=True, exist_ok=True)
        self.stager = Stager(self.topics, folder, self.pipeline)

    def run(self, **more: Any) -> int:
        """Run as a new process does, and return the number of rows of its batches."""
        return sum(done.commit.totals.rows for done in self.loop(**more).run())

    def loop(self, **more: Any) -> Ingest:
        destination = open_destination(self.pipeline, self.home)
        return Ingest(self.pipeline, self.topics, self.stager, destination, seen=self.seen, wait=lambda _: None, **more)

    def rows(self) -> Counter[tuple[str, str, int, int]]:
        """Rows of the files that the newest manifest of each table lists; the folder shows no others."""
        destination: Any = open_destination(self.pipeline, self.home)
        found: Counter[tuple[str, str, int, int]] = Counter()
        for seen in destination.seen():
            table, lake, files = seen.place.table, seen.place.lake, {*seen.state.older, *seen.state.newer}
            assert {path.name for path in (self.home.data / "parquet" / table).glob("*.parquet")} <= files
            for name in files:
                with lake._opened(name) as stream:
                    found.update(
                        (table, row["_kafka_topic"], row["_kafka_partition"], row["_kafka_offset"])
                        for row in pq.read_table(stream).to_pylist()
                    )
        return found

    def expected(self) -> Counter[tuple[str, str, int, int]]:
        return Counter(
            (f"raw_{name.replace('.', '_')}", name, number, offset)
            for name, topic in self.topics._topics.items()
            for number, log in enumerate(topic.logs)
            for offset, slot in enumerate(log.slots)
            if slot.kind == RECORD and slot.value is not None and not slot.bad
        )

    def proof(self) -> Audit:
        found = proof(open_destination(self.pipeline, self.home), True)
        assert found.ok, found.problems
        return found


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    yield Site(tmp_path)
    failpoints.arm(None)


def killed_at(point: str, times: int) -> None:
    left = [times]

    def reached(name: str) -> None:
        if name == point:
            left[0] -= 1
            if not left[0]:
                raise Killed(point)

    failpoints.arm(reached)


def test_topics_appear_and_columns_grow(site: Site) -> None:
    site.topics.produce(0, {"id": 1}, {"id": 2}, topic="a")
    site.topics.produce(1, {"id": 3}, topic="a")
    site.topics.produce(0, {"price": 1.5}, topic="b.x")
    site.topics.produce(0, {"bad": 1}, bad=True, topic="b.x")
    assert site.run() == 4
    site.topics.create("c", 1)
    site.topics.produce(0, {"id": 1, "more": "x"}, topic="c")
    site.topics.produce(0, {"price": 2.5, "extra": 1}, topic="b.x")
    assert site.run() == 2 and site.run() == 0
    found = site.proof()
    assert found.targets == {name: {"rows": n, "rows_found": n} for name, n in (("raw_a", 3), ("raw_b_x", 2), ("raw_c", 1))}
    assert site.rows() == site.expected() and found.set_aside == 1
    destination: Any = open_destination(site.pipeline, site.home)
    names = [columns.names() for columns in destination.columns_of(["raw_b_x", "raw_c"])]
    assert names == [("price", "extra"), ("id", "more")]


@pytest.mark.parametrize("batches", [None, 1])
def test_a_table_that_was_restored_stops_the_pipeline_until_an_operator_decides(
    site: Site, tmp_path: Path, batches: int | None
) -> None:
    """Also if another table has the newest commit, and if runs ended right after their batch."""
    table, backup = site.home.data / "parquet" / "raw_a", tmp_path / "backup"
    site.topics.produce(0, {"id": 1}, topic="a")
    site.topics.produce(0, {"price": 1.5}, topic="b.x")
    site.run()
    shutil.copytree(table, backup)
    for topic in ("a", "b.x"):
        site.topics.produce(0, {"id": 2}, topic=topic)
        assert sum(done.commit.totals.rows for done in site.loop().run(max_batches=batches)) == 1
    shutil.rmtree(table)
    shutil.copytree(backup, table)
    for _ in range(2):
        with pytest.raises(LedgerMismatch, match="is too old"):
            site.run()
    assert site.run(decisions=Decisions(on_older_ledger="accept")) == 1
    assert site.rows() == site.expected() and site.run() == 0
    site.proof()


@pytest.mark.parametrize("kind", ["parquet", "duckdb"])
def test_a_topic_whose_table_has_rows_of_a_topic_that_was_dropped(tmp_path: Path, kind: str) -> None:
    site = Site(tmp_path, into={"type": kind, "table": "raw_{topic}"})
    site.topics.produce(0, {"id": 1}, topic="b.x")
    site.run()
    site.topics.delete("b.x")
    survey = site.loop().survey
    survey.forgetting = True
    for decision in forget(survey.read_ledger(), site.topics.snapshot(), None):
        survey.decide(decision.kind, decision.changes, decision.note)
    site.topics.create("b_x")
    site.topics.produce(0, {"id": 2}, topic="b_x")
    for _ in range(2):
        with pytest.raises(InvalidPipeline, match=r"topic b_x: table raw_b_x has rows of topic b\.x"):
            site.run()
    _, ledger = open_destination(site.pipeline, site.home).ledger()
    assert {source.topic.name for source in ledger.sources()} == {"a", "b.x"}, "nothing was begun"
    assert site.proof().targets["raw_b_x"] == {"rows": 1, "rows_found": 1}


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_run_killed_between_two_tables(tmp_path: Path, delivery: str) -> None:
    site = Site(tmp_path, delivery=delivery)
    site.topics.produce(0, {"id": 1}, {"id": 2}, topic="a")
    site.topics.produce(0, {"id": 3}, topic="b.x")
    killed_at("commit.next_table", 2)  # the first time both topics begin
    with pytest.raises(Killed):
        site.run()
    failpoints.arm(None)
    assert {name[0] for name in site.rows()} == {"raw_a"}
    site.run()
    once = delivery == "exactly_once"
    assert site.rows() == site.expected() if once else set(site.rows()) == set(site.expected())
    site.proof()


def test_a_table_that_is_busy_is_tried_again_alone(site: Site) -> None:
    site.topics.produce(0, {"id": 1}, {"id": 2}, topic="a")
    site.topics.produce(0, {"id": 3}, topic="b.x")
    left = [4]  # both topics begin, then the second table's rows

    def reached(name: str) -> None:
        if name == "commit.data":
            left[0] -= 1
            if not left[0]:
                raise DestinationBusy("busy", "try again")

    failpoints.arm(reached)
    assert site.run() == 1, "of the batch that is complete; the first table has its rows of the one before"
    assert site.rows() == site.expected()
    assert [str(entry.source) for entry in open_destination(site.pipeline, site.home).history()] == ["a/0", "b.x/0"]
    site.proof()


def _search(folder: Path, seed: int, rounds: int) -> None:
    chance = random.Random(seed)
    site = Site(folder, batch={"max_retries": 1, "max_offsets_per_partition": chance.choice([2, 3, 1000])})
    names = ["a", "b.x"]
    for _ in range(rounds):
        if chance.random() < 0.3 and len(names) < 5:
            names.append(f"t{len(names)}")
            site.topics.create(names[-1], 1)
        for name in names:
            for _ in range(chance.randrange(3)):
                value = {"id": chance.randrange(100), **({f"c{chance.randrange(3)}": 1.5} if chance.random() < 0.2 else {})}
                number = chance.randrange(2) if name == "a" else 0
                site.topics.produce(number, value, bad=chance.random() < 0.1, topic=name)
        killed_at(chance.choice(POINTS), chance.randrange(1, 9))
        with suppress(Killed):
            site.run()
        failpoints.arm(None)
        assert not site.rows() - site.expected(), f"seed {seed}"
    site.run()
    assert site.rows() == site.expected(), f"seed {seed}"
    site.proof()
    destination: Any = open_destination(site.pipeline, site.home)
    numbers = [item.seq for item in destination.unpublished()]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_random(tmp_path: Path, seed: int) -> None:
    _search(tmp_path, seed, 5)
    failpoints.arm(None)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(100, 140))
def test_killed_at_random_for_long(tmp_path: Path, seed: int) -> None:
    _search(tmp_path, seed, 25)
    failpoints.arm(None)
