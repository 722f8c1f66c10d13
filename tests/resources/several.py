"""Orders and their lines, from topics in memory through real decoders into real databases: one topic into several tables."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from kpipe.batch.batch import Batch, Commit, Committed
from kpipe.definition.pipeline import Pipeline
from kpipe.ingest.loop import Ingest
from kpipe.interfaces import Destination
from kpipe.ledger.ledger import Lane, Step
from kpipe.ledger.transitions import reread
from kpipe.tables.multi_table import table_pipelines
from kpipe.tables.upsert import KeyRule
from kpipe.testing.topics import FakeTopics
from kpipe.verification.verify import Audit, audit
from kpipe_assets.runs import dead_letter_retry as retry
from resources.destinations.duckdb import DuckDBEngine
from resources.destinations.mysql import MySQLEngine
from resources.destinations.postgres import PostgresEngine
from resources.destinations.sql.destination import SqlDestination
from resources.destinations.sql.engine import Engine, TargetTable
from resources.home import Home
from resources.kafka.record_block import RecordBlock
from resources.spark.driver.sample_stager import LocalStager
from resources.spark.task.task_spec import JobSpec, ProgramSpec, TableSpec
from resources.testing.place import Place
from tests.resources.destinations.lake_place import DeltaPlace, IcebergPlace, ParquetPlace
from tests.resources.destinations.mysql_place import MySQLPlace
from tests.resources.destinations.place import DuckDBPlace
from tests.resources.destinations.postgres_place import PostgresPlace

__all__ = ["LINES", "ORDERS", "Bench", "define", "opened", "order"]

LINES = "STRUCT(sku VARCHAR, quantity INTEGER, discount VARCHAR)[]"
ORDERS: dict[str, Any] = {
    "name": "shop",
    "source": {"brokers": "b", "topic": "orders"},
    "columns": {"lines": LINES},
    "select": "SELECT id, customer FROM records",
    "into": {"table": "orders"},
    "also": [
        {
            "table": "order_lines",
            "select": "SELECT id, number, line.sku AS sku, CAST(line.quantity AS INTEGER) AS quantity,"
            " CAST(line.discount AS INTEGER) AS discount FROM records, UNNEST(lines) WITH ORDINALITY AS t(line, number)",
        }
    ],
}


def define(**fields: Any) -> Pipeline:
    return Pipeline.model_validate({**ORDERS, **fields})


def order(number: int, *quantities: Any, discount: str | None = None, **more: Any) -> dict[str, Any]:
    lines = [{"sku": f"s{at}", "quantity": quantity, "discount": discount} for at, quantity in enumerate(quantities)]
    return {"id": number, "customer": f"c{number}", "lines": lines, **more}


def _kind(place: Place) -> dict[str, str]:
    """What `into` says of a place: bounds are those of its type. Addresses are the place's own."""
    databases = {PostgresPlace: "postgres", MySQLPlace: "mysql"}
    kinds = {**databases, DeltaPlace: "delta", IcebergPlace: "iceberg", ParquetPlace: "parquet"}
    found = next((kind for of, kind in kinds.items() if isinstance(place, of)), None)
    address = {"postgres": "postgresql://u@h/d", "mysql": "mysql://u@h/d"}.get(found or "", str(getattr(place, "folder", "")))
    return {} if found is None else {"type": found, "database": address}


def opened(place: Place, pipeline: Pipeline) -> Destination:
    """The pipeline's tables at a place."""
    engine: Engine
    if isinstance(place, (DeltaPlace, IcebergPlace, ParquetPlace)):
        return place.open(pipeline.name, pipeline.into.table)
    if isinstance(place, DuckDBPlace):
        engine = DuckDBEngine(place.path, (place.staging,), place.lock_timeout_s)
    elif isinstance(place, MySQLPlace):
        engine = MySQLEngine(place.server.server(place.database, place.port), (place.staging,))
    else:
        assert isinstance(place, PostgresPlace)
        engine = PostgresEngine(place.server.server(place.schema, place.port), (place.staging,))
    tables = [TargetTable(part.into.table, KeyRule.of(part)) for part in table_pipelines(pipeline)]
    return SqlDestination(engine, pipeline.name, tables)


class _Stager(LocalStager):
    def __init__(self, pipeline: Pipeline, home: Home, topics: FakeTopics, place: Place) -> None:
        super().__init__(pipeline, home)
        self._topics, self._staging = topics, str(place.staging)

    def _job(self, batch: Batch, tables: Sequence[TableSpec], program: ProgramSpec | None) -> JobSpec:
        job = super()._job(batch, tables, program)
        held = {step.source: _held(self._topics.read(step.source, step.range)) for step in batch.steps}
        return type(job)(**{**{name: getattr(job, name) for name in job.__dataclass_fields__}, "held": held,
                            "staging": self._staging})  # fmt: skip


def _held(slots: Sequence[tuple[int, Any]]) -> RecordBlock:
    values = [b"{" if slot.bad else None if slot.value is None else json.dumps(slot.value).encode() for _, slot in slots]
    return RecordBlock.of([at for at, _ in slots], [1_700_000_000_000 + at for at, _ in slots], values)


class Bench:
    """A topic of two partitions, and the pipeline's tables."""

    def __init__(self, place: Place, home: Home, **fields: Any) -> None:
        self.place, self.home = place, home
        self.pipeline = define(**{**fields, "into": {**_kind(place), **fields.get("into", ORDERS["into"])}})
        self.topics = FakeTopics({"orders": 2})

    @property
    def destination(self) -> Destination:
        return opened(self.place, self.pipeline)

    def ingest(self, **more: Any) -> Ingest:
        stager = _Stager(self.pipeline, self.home, self.topics, self.place)
        return Ingest(self.pipeline, self.topics, stager, self.destination, **more)

    def run(self, max_batches: int | None = None, **more: Any) -> list[Committed]:
        return list(self.ingest(**more).run(max_batches))

    def again(self) -> None:
        """As SET OFFSETS EARLIEST ... REREAD, and a run."""
        destination = self.destination
        for source in destination.ledger()[1].sources():
            ledger = destination.ledger()[1]
            changes, done = reread(ledger, source, 0)
            steps = tuple(Step(Lane(source, x.start, x.start, x.end), x.end, "reread") for x in done)
            if changes:
                destination.commit(Commit(uuid.uuid4().hex, ledger.pipeline, changes, kind="rewind", steps=steps))
        self.run()

    def retry(self, page: int = 10_000, required: Sequence[str] = ()) -> dict[str, int]:
        """Retry every dead letter once into the tables of this place, and return the sums.

        Args:
            page: dead letters of one page.
            required: columns of which the tables are known to take no NULL.
        """
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(retry, "open_destination", lambda pipeline, _: opened(self.place, pipeline))
            patch.setattr(retry, "required_columns", lambda *_: required)
            patch.setattr(Home, "staging", self.place.staging)
            self.replayed = found = list(retry.retry(self.pipeline, self.home, page=page))
        names = ("tried", "answered", "rows", "filtered", "failed")
        return {name: sum(getattr(page, name) for page in found) for name in names} if found else {}

    def proof(self) -> Audit:
        place = self.destination
        return audit(place.ledger()[1], place.history(), place.recount())

    def table(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row[column] for column in columns) for row in self.place.rows(name))

    def sql(self, text: str) -> list[Any]:
        return self.place.sql(text)
