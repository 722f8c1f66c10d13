"""Tables of Delta Lake and Iceberg as a source: appended rows once; a snapshot that removes rows is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, ReadFailed, TopicGone
from kpipe.failpoints import POINTS
from kpipe.planning.seek import forget
from kpipe.sql.parser import read
from kpipe.sql.renderer import to_sql
from resources.sources.open_source import check_connector, connector_of
from resources.spark.service.data_pickle import dumps, loads
from tests.resources.sources.runs import Bench, kill
from tests.resources.sources.test_tables import rows

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
_REACHED = [point for point in POINTS if point.startswith(("commit.", "collect.all", "read.", "readback", "publish."))]


def _rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "city": pa.array([f"c{number}" for number in ids], pa.string())})


class DeltaPlace:
    """A Delta table that another program writes."""

    kind = "delta"

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "lake"
        self.source = {"lake": {"type": "delta", "database": str(self.folder), "name": "orders"}}

    @property
    def table(self) -> Any:
        return deltalake.DeltaTable(str(self.folder / "orders"))

    def append(self, block: pa.Table, **how: Any) -> None:
        deltalake.write_deltalake(str(self.folder / "orders"), block, mode="append", **how)

    def delete(self) -> None:
        self.table.delete("id = 1")

    def update(self) -> None:
        self.table.update(predicate="id = 1", updates={"city": "'x'"})

    def compact(self) -> None:
        self.table.optimize.compact()

    def add_column(self) -> None:
        self.append(_rows(50).append_column("more", pa.array([True])), schema_mode="merge")

    def files(self) -> list[str]:
        return sorted(str(path) for path in (self.folder / "orders").glob("*.parquet"))


class IcebergPlace:
    """An Iceberg table that another program writes, in kpipe's layout of a catalogue beside the tables."""

    kind = "iceberg"

    def __init__(self, folder: Path) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        self.folder = folder / "lake"
        self.folder.mkdir()
        self.source = {"lake": {"type": "iceberg", "database": str(self.folder), "name": "shop.orders"}}
        uri = f"sqlite:///{self.folder}/catalog.db"
        self.catalog = SqlCatalog("kpipe", uri=uri, warehouse=f"file://{self.folder}")
        self.catalog.create_namespace("shop")
        self.catalog.create_table("shop.orders", _rows().schema)

    @property
    def table(self) -> Any:
        return self.catalog.load_table("shop.orders")

    def append(self, block: pa.Table) -> None:
        self.table.append(block)

    def delete(self) -> None:
        self.table.delete("id == 1")

    def update(self) -> None:
        self.table.upsert(pa.table({"id": pa.array([1], pa.int64()), "city": ["x"]}), join_cols=["id"])

    def compact(self) -> None:
        self.table.overwrite(self.table.scan().to_arrow())

    def add_column(self) -> None:
        from pyiceberg.types import BooleanType

        with self.table.update_schema() as change:
            change.add_column("more", BooleanType())
        self.append(_rows(50).append_column("more", pa.array([True])))

    def files(self) -> list[str]:
        return sorted(str(path) for path in (self.folder / "shop" / "orders" / "data").rglob("*.parquet"))


@pytest.fixture(params=[DeltaPlace, IcebergPlace], ids=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return request.param(tmp_path)


def bench(folder: Path, lake: Any, **more: Any) -> Bench:
    return Bench(folder / "run", source={"lake": {**lake.source["lake"], **more}}, files=None)


@pytest.fixture
def run(tmp_path: Path, lake: Any) -> Callable[..., Bench]:
    (tmp_path / "run").mkdir()
    return lambda **more: bench(tmp_path, lake, **more)


def test_the_rows_of_the_first_snapshot_and_those_that_are_appended(lake: Any, run: Any) -> None:
    lake.append(_rows(1, 2, 3))
    lake.append(_rows(4))
    made = run(max_batch_rows=2)
    assert made.run() == 2
    assert rows(made, "id, city") == [(1, "c1"), (2, "c2"), (3, "c3"), (4, "c4")]
    assert made.run() == 0
    lake.add_column()
    made.run()
    assert rows(made, "id, more")[-1] == (50, True)
    assert made.audit().ok, made.audit().problems


def test_runs_that_are_killed_repeat_and_lose_no_row(lake: Any, run: Any) -> None:
    written = 0
    lake.append(_rows(-1))
    made = run()
    for point in _REACHED:
        lake.append(_rows(written, written + 1))
        written += 2
        assert made.run_until(point, kill), point
    made.run()
    assert rows(made) == list(range(-1, written))
    assert made.audit().ok, made.audit().problems


def test_two_runs_at_once_read_each_row_once(lake: Any, run: Any) -> None:
    lake.append(_rows(1, 2))
    made = run()
    with pytest.raises(Exception, match="another run committed first"):
        made.run_until("collect.all", lambda: made.run())
    lake.append(_rows(3))
    made.run()
    assert rows(made) == [1, 2, 3]
    assert made.audit().ok


@pytest.mark.parametrize("change", ["delete", "update", "compact"])
def test_a_snapshot_that_removes_or_replaces_rows_is_refused_by_name(lake: Any, run: Any, change: str) -> None:
    lake.append(_rows(1, 2))
    lake.append(_rows(3))
    made = run()
    made.run()
    before = lake.files()
    getattr(lake, change)()
    lake.append(_rows(9))
    with pytest.raises(TopicGone, match=r"data file .* no longer exists") as caught:
        made.run()
    assert any(name in caught.value.what for name in before)
    assert "a snapshot has deleted or replaced rows (" in caught.value.hint
    assert rows(made) == [1, 2, 3]


def test_an_operator_continues_after_all_files_were_replaced(lake: Any, run: Any) -> None:
    """DROP ORPHAN PARTITIONS after a compaction: the rows in new files are read again."""
    lake.append(_rows(1, 2))
    lake.append(_rows(3))
    made = run()
    made.run()
    lake.compact()
    survey = made.ingest().survey
    survey.forgetting = True
    snapshot, ledger = survey.look()
    for decision in forget(ledger, snapshot, None):
        survey.decide(decision.kind, decision.changes, decision.note, decision.steps)
    made.run()
    assert rows(made) == [1, 1, 2, 2, 3, 3]
    assert made.audit().ok, made.audit().problems


def test_what_was_removed_before_the_first_run_is_not_read(lake: Any, run: Any) -> None:
    lake.append(_rows(1, 2))
    lake.append(_rows(3))
    lake.delete()
    lake.compact()
    made = run()
    made.run()
    assert rows(made) == [2, 3]
    lake.append(_rows(4))
    made.run()
    assert rows(made) == [2, 3, 4]
    assert made.audit().ok


def test_a_file_that_was_overwritten_is_refused_by_name(lake: Any, run: Any) -> None:
    lake.append(_rows(1, 2))
    made = run()
    (file,) = lake.files()
    stored = pq.read_table(file)
    pq.write_table(stored.slice(1), file)
    with pytest.raises(ReadFailed, match=f"data file {file}: its content was replaced"):
        made.run()
    Path(file).unlink()
    with pytest.raises(ReadFailed, match="No such file"):
        made.run()


def test_too_many_files_and_a_missing_table_are_errors(lake: Any, run: Any) -> None:
    lake.append(_rows(1))
    lake.append(_rows(2))
    with pytest.raises(ReadFailed, match=r"expected at most 1 data files \(source\.lake\.max_files\)"):
        run(max_files=1).run()


def test_a_missing_table_is_named(lake: Any, run: Any) -> None:
    with pytest.raises(ReadFailed, match="table missing"):
        run(name="missing").run()


def test_columns_that_divide_a_delta_table_are_in_its_rows(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    lake = DeltaPlace(tmp_path)
    block = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int64()),
            "city": ["a b/ä=%25", None, "x"],
            "day": pa.array([date(2026, 1, 2), None, date(2026, 1, 3)]),
        }
    )
    lake.append(block, partition_by=["city", "day"])
    made = bench(tmp_path, lake)
    made.run()
    assert rows(made, "id, city, day") == [(1, "a b/ä=%25", "2026-01-02"), (2, None, None), (3, "x", "2026-01-03")]
    assert made.audit().ok


def test_columns_of_iceberg_may_be_renamed_and_dropped(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    lake = IcebergPlace(tmp_path)
    lake.append(_rows(1))
    with lake.table.update_schema() as change:
        change.rename_column("id", "number")
        change.delete_column("city")
    lake.append(pa.table({"number": pa.array([2], pa.int64())}))
    made = bench(tmp_path, lake)
    made.run()
    assert rows(made, "number") == [1, 2]
    with duckdb.connect(str(made.home.data / "kpipe.duckdb"), read_only=True) as connection:
        assert "city" not in [row[0] for row in connection.execute("DESCRIBE t").fetchall()]


def test_a_column_of_iceberg_may_be_renamed_while_its_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    lake = IcebergPlace(tmp_path)
    lake.append(_rows(*range(1, 8)))
    made = bench(tmp_path, lake, max_batch_rows=3)
    next(iter(made.ingest().run()))
    with lake.table.update_schema() as change:
        change.rename_column("city", "town")
    made.run()
    assert rows(made) == list(range(1, 8))
    assert made.audit().ok, made.audit().problems


@pytest.mark.parametrize(
    ("lake", "words"),
    [
        ({"type": "delta", "database": "in", "name": "t"}, "not an absolute path"),
        ({"type": "delta", "database": "/in", "name": "a.t"}, "delta has no catalog"),
        ({"type": "delta", "database": "/in", "name": "../t"}, "not a table's name"),
        ({"type": "iceberg", "database": "/in", "name": "t", "catalog": "ftp://x"}, "URL of a REST catalog"),
        ({"type": "iceberg", "database": "s3://bucket/in", "name": "t"}, "source.catalog is missing"),
    ],
)
def test_fields_that_do_not_fit_are_refused(lake: dict[str, Any], words: str) -> None:
    fields = {"name": "p", "source": {"lake": lake}, "into": {"type": "kafka", "brokers": "b", "topic": "t"}}
    with pytest.raises((InvalidPipeline, ValueError), match=words):
        check_connector(Pipeline.model_validate(fields))


def test_on_data_loss_cannot_hide_replaced_rows() -> None:
    source = {"lake": {"type": "delta", "database": "/in", "name": "t"}, "on_data_loss": "record"}
    with pytest.raises(ValueError, match="on_data_loss: record belongs to topics and files"):
        Pipeline.model_validate({"name": "p", "source": source, "into": {"type": "kafka", "brokers": "b", "topic": "t"}})


def test_statements_name_a_table_without_order(lake: Any) -> None:
    source = {"lake": {**lake.source["lake"], "max_files": 7}}
    into = {"type": "kafka", "brokers": "b:9092", "topic": "t"}
    pipeline = Pipeline.model_validate({"name": "p", "source": source, "into": into})
    assert f"orders` IN {lake.kind} '{lake.folder}'\n" in to_sql(pipeline)
    assert getattr(read(to_sql(pipeline)), "pipeline") == pipeline  # noqa: B009
    connector = connector_of(pipeline)
    assert connector is not None and loads(dumps(connector)).place == connector.place  # as `kpipe serve` sends it
