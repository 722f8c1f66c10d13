"""MAP: declared, read from JSON, written to each destination, and read back by it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kpipe import failpoints
from kpipe.errors import InvalidPipeline
from kpipe.interfaces import Destination
from kpipe.schema.columns import BIGINT, Columns, ListOf, MapOf, Struct, parse_type
from kpipe.sql.parser import read
from kpipe.sql.renderer import write
from kpipe.sql.statements import Create
from resources.decode.block import Payloads
from resources.decode.json.decoder import JsonDecoder
from resources.destinations import open_destination
from resources.destinations.json_documents import documents
from resources.destinations.value_limits import Limits
from resources.home import Home
from resources.spark.task.value_limits import storable
from resources.testing.place import Place
from tests.resources.destinations.mysql_place import MySQLPlace
from tests.resources.destinations.place import DuckDBPlace
from tests.resources.destinations.postgres_place import PostgresPlace
from tests.resources.several import Bench

COLUMNS = {
    "id": "BIGINT",
    "m": "MAP(VARCHAR, BIGINT)",
    "at": "MAP(VARCHAR, TIMESTAMP WITH TIME ZONE)",
    "deep": "STRUCT(m MAP(VARCHAR, STRUCT(x DOUBLE, j JSON)), l MAP(VARCHAR, DECIMAL(10,2))[])",
}
RECORDS: list[dict[str, Any]] = [
    {"id": 0, "m": {"2026-11-01": 1, "": None, 'a"b': 3}, "at": {"x": "2026-11-01T00:00:00Z"},
     "deep": {"m": {"k": {"x": 1.5, "j": [1, {"a": 12345678901234567890123}]}}, "l": [{"a": 1.25}, {}]}},
    {"id": 1, "m": {}, "at": None},
    {"id": 2},
    {"id": 3, "m": {"a": 1.5}},
    {"id": 4, "m": [1]},
]  # fmt: skip


class _Bench(Bench):
    """Of destinations that lie in folders, too."""

    @property
    def destination(self) -> Destination:
        if self.pipeline.into.type in ("delta", "iceberg", "parquet"):
            return open_destination(self.pipeline, self.home)
        return super().destination


@pytest.fixture(params=["duckdb", "postgres", "mysql", "delta", "iceberg", "parquet"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    home, into = Home.at(tmp_path / "home"), {"table": "t"}
    place: Place
    if request.param in ("postgres", "mysql"):
        server = request.getfixturevalue("mariadb" if request.param == "mysql" else "postgres")
        place = (MySQLPlace if request.param == "mysql" else PostgresPlace)(tmp_path, server)
    else:
        place = DuckDBPlace(tmp_path)
        if request.param != "duckdb":
            into |= {"type": request.param, "database": str(tmp_path / "lake")}
            place.staging = home.make().staging
            place.staging.mkdir(parents=True, exist_ok=True)
    yield _Bench(place, home, select=None, also=[], columns=COLUMNS, into=into)
    failpoints.arm(None)


def test_maps_are_written_and_read_back(made: Bench) -> None:
    made.topics.produce(0, *RECORDS)
    made.run()
    made.topics.produce(0, {"id": 5, "m": {"new": 5}, "more": 1})
    made.run()
    proof = made.proof()
    assert proof.ok, proof.problems
    assert (proof.counts.rows, proof.counts.dead_letters) == (4, 2)
    found = made.destination.columns()
    assert found is not None
    assert {name: str(kind) for name, kind in found if name in COLUMNS} == COLUMNS
    rows = {row["id"]: row for row in table(made)}
    assert rows[0]["m"] == {"2026-11-01": 1, "": None, 'a"b': 3} and rows[5]["m"] == {"new": 5}
    assert rows[1]["m"] == {} and rows[2]["m"] is None
    assert list(rows[0]["deep"]["m"]) == ["k"] and float(rows[0]["deep"]["m"]["k"]["x"]) == 1.5
    assert float(rows[0]["deep"]["l"][0]["a"]) == 1.25


def table(made: Bench) -> list[dict[str, Any]]:
    kind = made.pipeline.into.type
    folder = Path(made.pipeline.into.database or "")
    if kind == "delta":
        from deltalake import DeltaTable

        (log,) = folder.rglob("_delta_log")
        return [_plain(row) for row in DeltaTable(log.parent).to_pyarrow_table().to_pylist()]
    if kind == "iceberg":
        from pyiceberg.table import StaticTable

        newest = max(folder.rglob("*.metadata.json"), key=lambda file: file.name)  # they begin with their number
        return [_plain(row) for row in StaticTable.from_metadata(str(newest)).scan().to_arrow().to_pylist()]
    if kind == "parquet":
        import pyarrow.parquet as pq

        files = [file for file in folder.rglob("*.parquet") if "id" in pq.read_schema(file).names]
        return [_plain(row) for file in files for row in pq.read_table(file).to_pylist()]
    rows = made.place.rows("t")
    return [{n: json.loads(v) if isinstance(v, str) and n in COLUMNS else _plain(v) for n, v in row.items()} for row in rows]


def _plain(value: Any) -> Any:
    """Lists of pairs, as pyarrow gives maps, as dicts."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        pairs = value and all(isinstance(item, tuple) for item in value)
        return {key: _plain(item) for key, item in value} if pairs else [_plain(item) for item in value] if value else {}
    return value


@pytest.mark.parametrize("text", ["MAP(VARCHAR, BIGINT)", "map(text,int8)", "MAP(STRING, LONG)"])
def test_types_are_read_as_they_are_written(text: str) -> None:
    assert parse_type(text) == MapOf(BIGINT)
    nested = parse_type(f"STRUCT(a {text}[])")
    assert nested == Struct((("a", ListOf(MapOf(BIGINT))),)) and parse_type(str(nested)) == nested


@pytest.mark.parametrize(
    "text", ["MAP", "MAP()", "MAP(BIGINT, BIGINT)", "MAP(VARCHAR)", "MAP(VARCHAR, BIGINT", "MAP(VARCHAR, X)"]
)
def test_keys_are_text(text: str) -> None:
    with pytest.raises(InvalidPipeline, match="invalid column type"):
        parse_type(text)


@pytest.mark.parametrize("many", [False, True])
def test_values_fit_or_the_record_is_a_reject(many: bool) -> None:
    decoder = JsonDecoder(Columns.of({"m": "MAP(VARCHAR, BIGINT)"}))
    good = [b'{"m": {"a": 1, "b": "7", "c": 2.0, "d": null}}'] * (100 if many else 1)
    bad = [b'{"m": {"a": 1.5}}', b'{"m": 1}', b'{"m": {"a": 1, "a": 2}}', b'{"m": {"a": {"x": 1}}}']
    decoded = decoder.decode(Payloads.of([*good, *bad]))
    assert decoded.table.column("m").type == pa.map_(pa.string(), pa.int64())
    assert decoded.table.column("m").to_pylist() == [[("a", 1), ("b", 7), ("c", 2), ("d", None)]] * len(good)
    assert [at - len(good) for at, _ in decoded.rejects] == [0, 1, 2, 3]
    assert "m.a: 1.5 is not a BIGINT" in dict(decoded.rejects)[len(good)]
    assert not decoded.new_columns, "keys are data"


def test_documents_have_maps_as_objects() -> None:
    block = pa.table({"m": pa.array([[("a", "2026-11-01"), ('"', None)], None, []], pa.map_(pa.string(), pa.string()))})
    found = documents(block, Columns.of({"m": "MAP(VARCHAR, DATE)"}))
    assert [json.loads(text) for text in found] == [{"m": {"a": "2026-11-01", '"': None}}, {"m": None}, {"m": {}}]


def test_a_value_inside_that_the_destination_cannot_hold() -> None:
    columns = Columns.of({"m": "MAP(VARCHAR, TIMESTAMP)"})
    decoded = JsonDecoder(columns).decode(Payloads.of([b'{"m":{"a":"infinity"}}', b'{"m":{"a":"2026-01-01"}}', b'{"m":null}']))
    found = storable(decoded, columns, Limits("a lake"))
    assert [at for at, _ in found.rejects] == [0] and found.rows == 2


def test_a_map_from_an_expression_and_in_a_table_that_was_there(tmp_path: Path) -> None:
    place = DuckDBPlace(tmp_path)
    place.sql("CREATE TABLE t (id BIGINT, m MAP(VARCHAR, DOUBLE), _kafka_partition INTEGER, _kafka_offset BIGINT,"
              " _kafka_timestamp TIMESTAMPTZ)")  # fmt: skip
    fields = {"set": {"m": "MAP {name: id}", "n": "CAST(given AS MAP(VARCHAR, BIGINT))"}, "columns": {"given": "JSON"}}
    made = Bench(place, Home.at(tmp_path / "home"), select=None, also=[], into={"table": "t"}, **fields)
    made.topics.produce(0, {"id": 1, "name": "a", "given": {"k": 5}}, {"id": 2, "name": "b"})
    made.run()
    assert place.sql("SELECT id, m, n FROM t ORDER BY id") == [(1, {"a": 1.0}, {"k": 5}), (2, {"b": 2.0}, None)]


def test_a_statement_declares_a_map_and_is_written_back() -> None:
    text = """CREATE PIPELINE p AS LOAD DATA KAFKA 'localhost/t'
        OPTIONS '{"columns": {"m": "MAP(VARCHAR, BIGINT)"}}' INTO TABLE t FORMAT JSON"""
    statement = read(text)
    assert isinstance(statement, Create) and statement.pipeline.declared == Columns.of({"m": "MAP(VARCHAR, BIGINT)"})
    assert read(write(statement)) == statement and "MAP(VARCHAR, BIGINT)" in write(statement)
