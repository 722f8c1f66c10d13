"""Times of any year in lakes: each value is there as it was, readers find it with filters, and the ledger's proof holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual, LessThan

from kpipe.batch.batch import Commit, Counts, StagedFile, TableWrite
from kpipe.definition.lakehouse_options import part
from kpipe.errors import SchemaConflict
from kpipe.interfaces import Destination
from kpipe.ledger.ledger import Step
from kpipe.schema.columns import Columns
from kpipe.testing.commits import commit_to
from resources.destinations.delta import DeltaLake
from resources.destinations.iceberg import IcebergLake, SQLite
from resources.destinations.iceberg.data_files import _Footer
from resources.destinations.lakehouse import LakeDestination
from resources.destinations.lakehouse.folder import LocalFolder
from resources.testing.place import COORDINATES, arrow, live
from resources.testing.state import begun, proof
from tests.resources.destinations.lake_place import DeltaPlace, IcebergPlace, ParquetPlace

COLUMNS = Columns.of(
    {
        "id": "BIGINT", "at": "TIMESTAMP WITH TIME ZONE", "local": "TIMESTAMP", "day": "DATE",
        "inside": "STRUCT(at TIMESTAMP, days DATE[])", "real": "DOUBLE", "exact": "DECIMAL(38,10)",
        "text": "VARCHAR", "raw": "BLOB",
    }
)  # fmt: skip
# The first and the last moments of DuckDB, both sides of Python's first and last, 44 BC, and a millisecond that is not full.
MOMENTS = [
    -(2**63) + 2, -(2**63) + 1_000_000, -63_517_824_000_000_000, -62_135_596_800_000_001, -62_135_596_800_000_000, -1, 0,
    1_700_000_000_123_456, 253_402_300_799_999_999, 253_402_300_800_000_000, 1_700_000_000_123_456_000, 2**63 - 2,
]  # fmt: skip
DAYS = [-(2**31) + 2, -735_160, -719_163, -719_162, 0, 20_000, 2_932_896, 2_932_897, 1_825_492_972, 2**31 - 2, None, 1]
REALS = [float("nan"), float("inf"), float("-inf"), -0.0, 1.5, None, 1e308, 5e-324, 0.0, 2.0, 3.0, 4.0]


def row(at: int, offset: int) -> dict[str, Any]:
    moment, day = MOMENTS[at % 12], DAYS[at % 12]
    return {
        "id": at, "at": moment, "local": moment, "day": day, "inside": {"at": moment, "days": [day, None]},
        "real": REALS[at % 12], "exact": None, "text": "x" * (9000 if at % 12 == 5 else at),
        "raw": b"\xff" * (9000 if at % 12 == 6 else at),
        "_kafka_partition": 0, "_kafka_offset": offset, "_kafka_timestamp": 1_700_000_000_123_456_000,
    }  # fmt: skip


def commit(place: Any, destination: Destination, chosen: Sequence[int]) -> Commit:
    """A batch with those rows, in row groups of two: the footer has no bounds for those with long texts."""
    lane = live(destination.ledger()[1], 0)
    return staged(place, destination, COLUMNS, [row(at, lane.next + n) for n, at in enumerate(chosen)])


def staged(place: Any, destination: Destination, columns: Columns, rows: Sequence[dict[str, Any]]) -> Commit:
    """A batch with these rows, in row groups of two."""
    lane = live(destination.ledger()[1], 0)
    schema = pa.schema([(name, arrow(kind)) for name, kind in columns] + list(COORDINATES.items()))
    path = place.staging / f"{lane.next}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema), path, row_group_size=2)
    data = path.read_bytes()
    file = StagedFile(str(path), len(data), len(rows), hashlib.sha256(data).hexdigest())
    step = Step(lane, lane.next + len(rows))
    counts = {lane.key: Counts(len(rows), len(rows), inserted=len(rows))}
    name = f"{lane.next + 1:032x}"
    write = TableWrite(columns=columns, files=(file,))
    return commit_to(write, counts, id=name, pipeline="tweets", changes=(step.change,), steps=(step,))


def numbers(table: pa.Table) -> dict[str, list[Any]]:
    """Values by id, times as they are stored."""
    table = table.sort_by("id")
    inside = table["inside"].combine_chunks()
    days = pc.list_element(pc.struct_field(inside, "days"), 0)
    return {
        "id": table["id"].to_pylist(),
        "at": table["at"].cast(pa.int64()).to_pylist(),
        "local": table["local"].cast(pa.int64()).to_pylist(),
        "day": table["day"].cast(pa.int32()).to_pylist(),
        "inside.at": pc.struct_field(inside, "at").cast(pa.int64()).to_pylist(),
        "inside.days": days.cast(pa.int32()).to_pylist(),
        "real": list(map(repr, table["real"].to_pylist())),
        "text": list(map(len, table["text"].to_pylist())),
        "raw": list(map(len, table["raw"].to_pylist())),
    }


EXPECTED = {
    "id": list(range(12)), "at": MOMENTS, "local": MOMENTS, "day": DAYS, "inside.at": MOMENTS, "inside.days": DAYS,
    "real": list(map(repr, REALS)),
    "text": [9000 if at == 5 else at for at in range(12)], "raw": [9000 if at == 6 else at for at in range(12)],
}  # fmt: skip


class DividedIceberg(IcebergPlace):
    by: Sequence[str] = ()

    def lake(self, table: str = "tweets") -> IcebergLake:
        parts = tuple(map(part, self.by))
        return IcebergLake(LocalFolder(self.folder), table, SQLite(self.folder), parts=parts)


class DividedDelta(DeltaPlace):
    def open(self, pipeline: str = "tweets", table: str = "tweets") -> Destination:
        lake = DeltaLake(self.folder / table, (part("day"),))
        return LakeDestination(lake, table, pipeline, {"source_type": "KAFKA"}, (self.staging,))


def loaded(place: Any) -> Any:
    """The place with all rows, in three batches of four; proven."""
    destination = begun(place, 1)
    for first in (0, 4, 8):
        destination.commit(commit(place, destination, range(first, first + 4)))
    assert proof(place.open()).ok
    return place


def test_parquet_holds_every_moment(tmp_path: Path) -> None:
    place = loaded(ParquetPlace(tmp_path))
    paths = list((place.folder / "tweets").glob("*.parquet"))
    assert numbers(pa.concat_tables([pq.read_table(path) for path in paths])) == EXPECTED
    with duckdb.connect() as connection:
        for at, moment in enumerate(MOMENTS):
            found = f"SELECT id FROM '{place.folder}/tweets/*.parquet' WHERE epoch_us(\"at\") = {moment}"
            assert connection.sql(found).fetchall() == [(at,)]


def test_delta_readers_find_every_moment(tmp_path: Path) -> None:
    table = loaded(DeltaPlace(tmp_path)).delta()
    assert numbers(table.to_pyarrow_table()) == EXPECTED
    for at, moment in enumerate(MOMENTS):
        later = f"SELECT id FROM t WHERE CAST(local AS BIGINT) >= {moment} ORDER BY id"
        found = pa.table(QueryBuilder().register("t", table).execute(later).read_all())
        assert found["id"].to_pylist() == list(range(at, 12))
        equal = polars.scan_delta(table).filter(polars.col("at").cast(polars.Int64) == moment)
        assert equal.select("id").collect().to_series().to_list() == [at]
    since = "SELECT id FROM t WHERE local >= TIMESTAMP '2020-01-01' ORDER BY id"
    assert pa.table(QueryBuilder().register("t", table).execute(since).read_all())["id"].to_pylist() == [7, 8, 9, 10, 11]
    stats = [json.loads(action["add"]["stats"]) for action in added(table)]
    assert [{"at", "local", "day"} & set(one["minValues"]) for one in stats[::2]] == [set(), set()]
    assert [set(one["nullCount"]) >= {"at", "day"} for one in stats] == [True] * 3
    assert stats[1]["maxValues"]["at"] == "2023-11-14T22:13:20.124Z" and "day" not in stats[1]["minValues"]


def added(table: DeltaTable) -> list[dict[str, Any]]:
    log = Path(table.table_uri.removeprefix("file://")) / "_delta_log"
    entries = [json.loads(line) for path in sorted(log.glob("*.json")) for line in path.read_text().splitlines()]
    return [entry for entry in entries if "add" in entry]


@pytest.mark.parametrize("by", [(), ("text",)])
def test_iceberg_readers_find_every_moment(tmp_path: Path, by: Sequence[str]) -> None:
    place = DividedIceberg(tmp_path)
    place.by = by
    table = loaded(place).iceberg()
    assert numbers(table.scan().to_arrow()) == EXPECTED
    for at, moment in enumerate(MOMENTS):
        wanted = sorted(n for n, other in enumerate(MOMENTS) if other >= moment)
        assert sorted(table.scan(GreaterThanOrEqual("at", moment)).to_arrow()["id"].to_pylist()) == wanted
        assert at not in table.scan(LessThan("local", moment)).to_arrow()["id"].to_pylist()
    assert table.scan(EqualTo("text", "x" * 9000)).to_arrow()["id"].to_pylist() == [5]
    assert table.scan(EqualTo("raw", b"\xff" * 9000)).to_arrow()["id"].to_pylist() == [6]
    assert len(table.inspect.files()) >= 3


@pytest.mark.parametrize("by", ["year(at)", "day(at)", "hour(at)", "day"])
def test_iceberg_divisions_are_named_by_years_that_readers_know(tmp_path: Path, by: str) -> None:
    """Tasks set other rows aside; what comes past them is refused by name, and nothing is written."""
    place = DividedIceberg(tmp_path)
    place.by = (by,)
    destination = begun(place, 1)
    destination.commit(commit(place, destination, [4, 5, 6, 7, 8] if by != "day" else [4, 5, 6, 11]))
    rows = place.iceberg().scan().to_arrow().num_rows
    assert rows >= 4 and proof(place.open()).ok
    if by != "year(at)":
        with pytest.raises(SchemaConflict, match="invalid partition value: expected a time in years 1 to 9999"):
            destination.commit(commit(place, destination, [9]))
        assert proof(place.open()).ok and place.iceberg().scan().to_arrow().num_rows == rows


def test_delta_divisions_are_named_by_years_that_readers_know(tmp_path: Path) -> None:
    place = DividedDelta(tmp_path)
    destination = begun(place, 1)
    destination.commit(commit(place, destination, [4, 5, 6, 10, 11]))
    assert numbers(place.delta().to_pyarrow_table())["day"] == [DAYS[at] for at in (4, 5, 6, 10, 11)] and proof(place.open()).ok
    with pytest.raises(SchemaConflict, match="column day: invalid partition value: expected a date in years 1 to 9999"):
        destination.commit(commit(place, destination, [7]))


def test_midnight_at_the_end_of_a_day_is_no_bound_of_0(tmp_path: Path) -> None:
    """Python has no 24:00:00, and takes it for 0."""
    table = pa.table({"t": pa.array([86_399_999_999, 3], pa.time64("us"))})
    pq.write_table(table, tmp_path / "t.parquet")
    with pq.ParquetFile(tmp_path / "t.parquet") as parquet:
        found = _Footer(parquet).row_group(0).column(0).statistics
    assert (found.min, found.max) == (3, 86_399_999_999)


CLOCKS = Columns.of(
    {
        "id": "BIGINT", "t": "TIME", "l": "TIME[]", "s": "STRUCT(a TIME, b VARCHAR)", "m": "MAP(VARCHAR, TIME)",
        "deep": "STRUCT(x MAP(VARCHAR, TIME[]))[]", "day": "DATE",
    }
)  # fmt: skip


@pytest.mark.parametrize("divided", [False, True])
def test_delta_holds_every_time_of_day_as_text(tmp_path: Path, divided: bool) -> None:
    """Delta has no TIME. Arrow's cast to text has no 24:00:00, which DuckDB and PostgreSQL have."""
    midnight, noon = 86_400_000_000, 43_200_000_001
    rows: list[dict[str, Any]] = [
        {"t": midnight, "l": [midnight, None, 0], "s": {"a": midnight, "b": "x"}, "m": [("k", midnight), ("", None)],
         "deep": [None, {"x": None}, {"x": [("k", [noon, midnight])]}], "day": 1},
        {"t": None, "l": None, "s": None, "m": None, "deep": None, "day": 2},
        {"t": noon, "l": [], "s": {"a": None, "b": "<value out of range: 86400000000>"}, "m": [], "deep": [], "day": 1},
        {"t": midnight - 1, "l": [noon], "s": {"a": noon, "b": None}, "m": [("k", noon)], "deep": [{"x": []}], "day": 1},
    ]  # fmt: skip
    place = DividedDelta(tmp_path) if divided else DeltaPlace(tmp_path)
    destination = begun(place, 1)
    first = live(destination.ledger()[1], 0).next
    coordinates = [{"_kafka_partition": 0, "_kafka_offset": first + at, "_kafka_timestamp": 0} for at in range(4)]
    full = [{"id": at, **row, **item} for at, (row, item) in enumerate(zip(rows, coordinates, strict=True))]
    destination.commit(staged(place, destination, CLOCKS, full))
    found = place.delta().to_pyarrow_table().sort_by("id").select(["t", "l", "s", "m", "deep"]).to_pylist()
    end, half = "24:00:00.000000", "12:00:00.000001"
    assert found == [
        {"t": end, "l": [end, None, "00:00:00.000000"], "s": {"a": end, "b": "x"}, "m": [("k", end), ("", None)],
         "deep": [None, {"x": None}, {"x": [("k", [half, end])]}]},
        {"t": None, "l": None, "s": None, "m": None, "deep": None},
        {"t": half, "l": [], "s": {"a": None, "b": "<value out of range: 86400000000>"}, "m": [], "deep": []},
        {"t": "23:59:59.999999", "l": [half], "s": {"a": half, "b": None}, "m": [("k", half)], "deep": [{"x": []}]},
    ]  # fmt: skip
    assert proof(place.open()).ok
