"""Tables that are divided by values of columns: files of one division each, and readers that skip the others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpipe.batch.batch import Commit, Counts, StagedFile, TableWrite
from kpipe.definition.lakehouse_options import Part, part
from kpipe.errors import DestinationError, InvalidPipeline, SchemaConflict
from kpipe.interfaces import Destination
from kpipe.ledger.ledger import Step
from kpipe.maintenance.plan import Limits
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from kpipe.testing.commits import commit_to
from resources.destinations.delta import DeltaLake
from resources.destinations.iceberg import Audit, IcebergLake, SQLite
from resources.destinations.lakehouse.folder import LocalFolder
from resources.table_partitions import apart
from resources.testing.place import batch, begin
from resources.testing.state import begun, positions, proof
from tests.resources.destinations.lake_place import DeltaPlace, IcebergPlace, killed
from tests.resources.destinations.maintained_tables import maintained, one

COLUMNS = Columns.of(
    {"id": "BIGINT", "country": "VARCHAR", "ts": "TIMESTAMP WITH TIME ZONE", "d": "DATE", "n": "UTINYINT", "b": "BOOLEAN"}
)
REAL = Columns.of({"x": "DOUBLE", "y": "BIGINT"})
TIMES = [datetime(2026, 11, 20, 23, 59, 59, 999999, timezone.utc), datetime(2026, 11, 21, tzinfo=timezone.utc),
         datetime(1969, 12, 31, 23, tzinfo=timezone.utc), None]  # fmt: skip
COUNTRIES = ["de", None, "é/=&%, ä", "fr"]


class DividedDelta(DeltaPlace):
    by: Sequence[str] = ("country",)

    def lake(self, table: str = "tweets") -> DeltaLake:
        return DeltaLake(self.folder / table, tuple(map(part, self.by)))


class DividedIceberg(IcebergPlace):
    by: Sequence[str] = ("day(ts)", "country")
    audit: Audit | None = None

    def lake(self, table: str = "tweets") -> IcebergLake:
        parts = tuple(map(part, self.by))
        return IcebergLake(LocalFolder(self.folder), table, SQLite(self.folder), audit=self.audit, parts=parts)


PLACES = {"delta": DividedDelta, "iceberg": DividedIceberg}


@pytest.fixture(params=list(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return PLACES[request.param](tmp_path)


def mixed(place: Any, destination: Destination, count: int = 16, **values: Any) -> Commit:
    """A batch of one file with rows of many divisions."""
    lane = destination.ledger()[1].live(next(iter(destination.ledger()[1].lanes.values())).source)
    rows = [
        {
            "id": at, "country": COUNTRIES[at % 4], "ts": TIMES[at // 4 % 4], "d": date(2026, 1, 1 + at % 2), "n": at % 3,
            "b": at % 2 == 0, **values, "_kafka_partition": 0, "_kafka_offset": lane.next + at, "_kafka_timestamp": at,
        }
        for at in range(count)
    ]  # fmt: skip
    step = Step(lane, lane.next + count)
    counts = {lane.key: Counts(count, count, inserted=count)}
    files = (place.staged(rows, COLUMNS),)
    write = TableWrite(columns=COLUMNS, files=files)
    return commit_to(write, counts, id=f"{count:032x}", pipeline="tweets", changes=(step.change,), steps=(step,))


def test_rows_are_there_in_files_of_one_division(place: Any) -> None:
    destination = begun(place, 1)
    destination.commit(mixed(place, destination))
    assert proof(place.open()).ok and positions(place.open()) == {0: 16}
    found = sorted(place.rows(), key=lambda row: row["id"])
    assert [row["country"] for row in found] == COUNTRIES * 4 and [row["ts"] for row in found[::4]] == TIMES
    divisions = 16 if isinstance(place, DividedIceberg) else 4
    assert len([*place.folder.rglob("kpipe-*.parquet")]) == divisions
    other = batch(place, destination.ledger()[1], {0: 30}, COLUMNS, {"id": 1, "country": "it", "ts": TIMES[0]})
    destination.commit(other)
    assert len(place.rows()) == 30 and len([*place.folder.rglob("kpipe-*.parquet")]) == divisions + 1
    assert proof(place.open()).ok


def test_a_file_of_one_division_is_linked_and_not_written_anew(place: Any) -> None:
    destination = begun(place, 1)
    columns = Columns.of({"id": "BIGINT", "country": "VARCHAR", "ts": "TIMESTAMP WITH TIME ZONE"})
    commit = batch(place, destination.ledger()[1], {0: 4}, columns, {"id": 1, "country": "it", "ts": TIMES[0]})
    destination.commit(commit)
    brought = next(place.folder.rglob("kpipe-*.parquet"))
    assert brought.stat().st_ino == Path(commit.only.files[0].path).stat().st_ino and pq.read_metadata(brought).num_rows == 4


def test_delta_readers_skip_and_see_the_columns(tmp_path: Path) -> None:
    place = DividedDelta(tmp_path)
    place.by = ("country", "d", "n", "b")
    destination = begun(place, 1)
    destination.commit(mixed(place, destination))
    table = place.delta()
    assert table.metadata().partition_columns == ["country", "d", "n", "b"]
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert {(a["partition.country"], a["partition.d"], a["partition.n"], a["partition.b"]) for a in actions} == {
        (COUNTRIES[at % 4], date(2026, 1, 1 + at % 2), at % 3, at % 2 == 0) for at in range(16)
    }
    german = table.to_pyarrow_table(filters=[("country", "=", "de")])
    assert sorted(german["id"].to_pylist()) == [0, 4, 8, 12]
    dataset = table.to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("t", dataset)
        assert connection.sql("SELECT count(*) FROM t WHERE country IS NULL AND d = DATE '2026-01-02'").fetchall() == [(4,)]
    assert len(list(dataset.get_fragments(dataset.schema and None))) == len(actions)


def test_iceberg_readers_skip(tmp_path: Path) -> None:
    place = DividedIceberg(tmp_path)
    place.by = ("day(ts)", "country", "d", "n", "b")
    destination = begun(place, 1)
    destination.commit(mixed(place, destination))
    table = place.iceberg()
    assert [str(field.transform) for field in table.spec().fields] == ["day", *["identity"] * 4]
    scan = table.scan(row_filter="country = 'de' and ts >= '2026-11-21T00:00:00+00:00'")
    assert {task.file.record_count for task in scan.plan_files()} == {1} and scan.to_arrow()["id"].to_pylist() == [4]
    assert len(list(table.scan(row_filter="country is null").plan_files())) == 4
    days = {row["partition"]["ts_day"] for row in table.inspect.partitions().to_pylist()}
    assert days == {date(2026, 11, 20), date(2026, 11, 21), date(1969, 12, 31), None}


def test_names_with_dots_are_not_those_of_members(place: Any) -> None:
    """Parquet's paths of column `region.code` and of a STRUCT `region` begin alike."""
    place.by = ("region", "a.b")
    columns = Columns.of({"region.code": "VARCHAR", "region": "VARCHAR", "a.b": "BIGINT", "c.d": "BIGINT"})
    if isinstance(place, DividedDelta):
        columns = Columns.of({**{name: str(kind) for name, kind in columns}, "c": "STRUCT(d BIGINT)"})
    destination = begun(place, 1)
    for end, region in enumerate(("north", "south"), 1):
        values = {"region.code": "X", "region": region, "a.b": end, "c.d": 100 * end, "c": {"d": end}}
        known = {name: value for name, value in values.items() if name in columns.names()}
        destination.commit(batch(place, destination.ledger()[1], {0: end}, columns, known))
    assert [(row["region"], row["a.b"], row["c.d"]) for row in place.rows()] == [("north", 1, 100), ("south", 2, 200)]
    if isinstance(place, DividedDelta):
        log = (place.folder / "tweets" / "_delta_log").glob("0*.json")
        added = [
            action["add"] for path in sorted(log) for action in map(json.loads, path.read_text().splitlines()) if "add" in action
        ]
        stats = [json.loads(add["stats"]) for add in added]
        assert [add["partitionValues"]["region"] for add in added] == ["north", "south"]
        assert [(found["minValues"]["c.d"], found["maxValues"]["c.d"]) for found in stats] == [(100, 100), (200, 200)]
    else:
        assert place.iceberg().scan(row_filter="region = 'south'").to_arrow()["a.b"].to_pylist() == [2]


@pytest.mark.parametrize("unit", ["year", "month", "day", "hour"])
def test_units_are_those_of_iceberg(tmp_path: Path, unit: str) -> None:
    """Our numbers and the library's are the same, before 1970 as well."""
    place = DividedIceberg(tmp_path)
    place.by = (f"{unit}(ts)",)
    destination = begun(place, 1)
    destination.commit(mixed(place, destination))
    rows = pa.table({"ts": pa.array(TIMES, pa.timestamp("us", "UTC"))})
    ours = {values[0] for values, _ in apart(rows, [Part("ts", unit)])}
    tasks = place.iceberg().scan().plan_files()
    assert {task.file.partition[0] for task in tasks} == ours and len(place.rows()) == 16


def test_audited_and_divided(tmp_path: Path) -> None:
    place = DividedIceberg(tmp_path)
    place.audit = Audit({"c": "country IS NULL OR country <> 'fr'"})
    destination = begun(place, 1)
    with pytest.raises(DestinationError, match="check c: 4 of 16 rows fail"):
        destination.commit(mixed(place, destination))
    assert place.rows() == [] and positions(place.open()) == {0: 0}
    destination.commit(mixed(place, destination, 3))
    assert len(place.rows()) == 3 and len(place.iceberg().spec().fields) == 2 and proof(place.open()).ok


def test_divided_by_unsigned_integers_of_64_bits(place: Any, tmp_path: Path) -> None:
    """Both formats store them as decimals."""
    place.by = ("u",)
    columns = Columns.of({"u": "UBIGINT"})
    destination: Any = begun(place, 1)
    values = [7, 2**64 - 1, None, 7, 0]
    for at, value in enumerate(values):
        destination.commit(batch(place, destination.ledger()[1], {0: at + 1}, columns, {"u": value}))
    assert [row["u"] for row in place.rows()] == values and proof(place.open()).ok
    if isinstance(place, IcebergPlace):
        assert place.iceberg().scan(row_filter="u = 7").to_arrow()["_kafka_offset"].to_pylist() == [3, 0]
    destination.maintain(Limits(min_input_files=2), tmp_path / "scratch")
    assert [row["u"] for row in place.rows()] == values and proof(place.open()).ok


@pytest.mark.parametrize("name", ["replace", "update"])
def test_rows_in_partitions_of_unsigned_integers_are_replaced(place: Any, name: str) -> None:
    """Also where the index of keys is lost, and partition values are those of the table's metadata."""
    rule, columns = KeyRule(("u",), name), Columns.of({"u": "UBIGINT", "text": "VARCHAR"})
    place.by = ("u",)
    destination: Any = place.open(rule=rule)
    destination.commit(begin("tweets", [0]))
    for at in range(4):
        if at == 2:
            (place.staging.parent / "cache" / "tweets" / "index.duckdb").unlink()
        destination.commit(one(place, destination, at, columns, {"u": 2**64 - 1 - at // 3, "text": f"t{at}"}))
    maintained(place, Limits(min_input_files=2, delete_ratio=0.1))
    destination.commit(one(place, destination, 4, columns, {"u": 2**64 - 1, "text": "t4"}))
    assert sorted(row["text"] for row in place.rows()) == ["t3", "t4"] and proof(destination).ok


@pytest.mark.parametrize("point", ["commit.data", "commit.before", "commit.after"])
def test_killed(place: Any, point: str) -> None:
    destination = begun(place, 1)
    commit = mixed(place, destination)
    killed(place, commit, point)
    assert len(place.rows()) == (16 if point == "commit.after" else 0)
    place.open().commit(commit)
    assert len(place.rows()) == 16 and proof(place.open()).ok


def test_what_cannot_be_is_refused(place: Any, tmp_path: Path) -> None:
    """Another division than the table's, a table with rows that has none, types that have no exact text."""
    destination = begun(place, 1)
    destination.commit(mixed(place, destination))
    place.by = ("country",) if isinstance(place, DividedIceberg) else ("id",)
    with pytest.raises(DestinationError, match=r"into\.partition_by differs: the table is partitioned by"):
        place.open().commit(batch(place, destination.ledger()[1], {0: 20}, COLUMNS, {"id": 1, "country": "it"}))
    place.by = ()
    place.open().commit(batch(place, destination.ledger()[1], {0: 20}, COLUMNS, {"id": 1, "country": "it", "ts": TIMES[1]}))
    (tmp_path / "plain").mkdir()
    plain = type(place)(tmp_path / "plain")
    plain.by = ()
    destination = begun(plain, 1)
    destination.commit(mixed(plain, destination))
    plain.by = ("country",)
    with pytest.raises(DestinationError, match="the table has rows and is not partitioned"):
        plain.open().commit(batch(plain, destination.ledger()[1], {0: 20}, COLUMNS, {"id": 1, "country": "it"}))
    (tmp_path / "real").mkdir()
    real = type(place)(tmp_path / "real")
    real.by = ("x",)
    destination = begun(real, 1)
    with pytest.raises(SchemaConflict, match=r"into\.partition_by: x: the column is double"):
        destination.commit(batch(real, destination.ledger()[1], {0: 2}, REAL, {"x": 0.5, "y": 1}))


@pytest.mark.parametrize("kind", [DeltaPlace, IcebergPlace])
def test_first_rows_without_the_column_make_no_table_for_good(tmp_path: Path, kind: Any) -> None:
    """They would make it without partitions, which later batches cannot change. Offsets alone need no column."""
    place = PLACES["delta" if kind is DeltaPlace else "iceberg"](tmp_path)
    place.by = ("country",)
    destination = begun(place, partitions=1)
    few = Columns.of({"id": "BIGINT"})
    for _ in range(2):
        with pytest.raises(SchemaConflict, match="no column country: the first rows have id") as caught:
            destination.commit(batch(place, destination.ledger()[1], {0: 2}, few, {"id": 1}))
        assert "declare the column" in caught.value.hint
    destination.commit(batch(place, destination.ledger()[1], {0: 2}, COLUMNS, {"id": 1, "country": "de"}))
    destination.commit(batch(place, destination.ledger()[1], {0: 4}, few, {"id": 1}))
    assert len(place.rows()) == 4 and proof(destination).ok


def test_delta_cannot_tell_an_empty_text_from_null(tmp_path: Path) -> None:
    place = DividedDelta(tmp_path)
    destination = begun(place, 1)
    with pytest.raises(SchemaConflict, match="NULLIF"):
        destination.commit(batch(place, destination.ledger()[1], {0: 2}, COLUMNS, {"id": 1, "country": ""}))
    with pytest.raises(InvalidPipeline, match="Delta has no partition transforms"):
        DeltaLake(tmp_path / "t", (Part("ts", "day"),))


@pytest.mark.parametrize("text", ["day()", "week(ts)", "day(ts", "", "a(b(c))"])
def test_parts_are_columns_or_units_of_one(text: str) -> None:
    with pytest.raises(ValueError, match="invalid partition"):
        part(text)
    assert str(part(" day( ts ) ")) == "day(ts)" and part("ts") == Part("ts")


def test_a_row_group_with_long_texts_has_no_bounds_and_its_rows_keep_their_values(place: Any) -> None:
    """PyArrow writes no bounds of texts above 4,096 bytes: what the other row groups share is not shared by all rows."""
    place.by = ("country",)
    destination = begun(place, 1)
    countries = ["de", "de", "de", "A" * 5000, "fr", "z" * 5000]
    commit = mixed(place, destination, len(countries))
    path = Path(commit.only.files[0].path)
    rows = pq.read_table(path)
    pq.write_table(rows.set_column(rows.column_names.index("country"), "country", pa.array(countries)), path, row_group_size=3)
    data = path.read_bytes()
    file = StagedFile(str(path), len(data), len(rows), hashlib.sha256(data).hexdigest())
    destination.commit(replace(commit, tables=(replace(commit.only, files=(file,)),)))
    assert [row["country"] for row in sorted(place.rows(), key=lambda row: row["id"])] == countries
    if isinstance(place, DividedIceberg):
        assert place.iceberg().scan(row_filter="country = 'fr'").to_arrow()["id"].to_pylist() == [4]
    assert proof(place.open()).ok
