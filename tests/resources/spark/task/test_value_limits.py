"""Values that a destination's columns cannot hold are set aside by the task, with the reason; what they can hold is untouched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kpipe.batch.batch import Piece
from kpipe.definition.pipeline import Pipeline
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, TopicId
from resources.decode.block import Decoded
from resources.destinations.value_limits import limits_of
from resources.duckdb_engine.arrow_types import schema
from resources.kafka.record_block import RecordBlock
from resources.spark.task.range_task import stage
from resources.spark.task.task_spec import JobSpec, TableSpec
from resources.spark.task.value_limits import storable
from tests.cases import each_case
from tests.servers.postgres import PostgresServer

SOURCE = PartitionId(TopicId("c", "i", "t"), 0)
COLUMNS = Columns.of(
    {
        "at": "TIMESTAMP WITH TIME ZONE", "local": "TIMESTAMP", "day": "DATE", "t": "TIME", "real": "DOUBLE", "text": "VARCHAR",
        "inside": "STRUCT(at TIMESTAMP, real FLOAT)", "days": "DATE[]",
    }
)  # fmt: skip
#: Expressions of DuckDB's, and the destinations that cannot hold their value.
LAKES, SERVERS = {"delta", "iceberg", "parquet"}, {"postgres", "mysql"}
VALUES = [
    ("at", "'9999-12-31T23:59:59-05:00'", {"mysql"}), ("at", "'infinity'", {*LAKES, "mysql"}),
    ("at", "'-infinity'", {*LAKES, "mysql"}), ("at", "'0044-03-15 (BC) 00:00:00'", {"mysql"}), ("at", "'2026-11-20'", set()),
    ("at", "'5000-01-01 (BC) 00:00:00'", SERVERS), ("local", "'294247-01-10 04:00:54.775806'", {"mysql"}),
    ("local", "'-infinity'", {*LAKES, "mysql"}), ("local", "'0001-01-01'", set()),
    ("local", "'9999-12-31 23:59:59.999999'", set()),
    ("day", "'infinity'", {*LAKES, "mysql"}), ("day", "'-infinity'", {*LAKES, "mysql"}), ("day", "'5881580-07-10'", SERVERS),
    ("day", "'10000-01-01'", {"mysql"}), ("day", "'4714-11-24 (BC)'", {"mysql"}), ("day", "'4714-11-23 (BC)'", SERVERS),
    ("t", "'24:00:00'", {"iceberg", "parquet"}), ("t", "'23:59:59.999999'", set()), ("real", "'nan'", {"mysql"}),
    ("real", "'-inf'", {"mysql"}), ("real", "1e308", set()), ("inside", "{'at': 'infinity', 'real': 1}", LAKES),
    ("inside", "{'at': '9999-01-01', 'real': 'nan'}", SERVERS), ("inside", "NULL", set()), ("days", "['infinity']", LAKES),
    ("days", "[NULL, '10000-01-01']", set()), ("days", "[]", set()),
]  # fmt: skip


def rows() -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        arrays = []
        for name, kind in COLUMNS:
            cells = (
                f"({at}, CAST({value if name == column else 'NULL'} AS {kind}))" for at, (column, value, _) in enumerate(VALUES)
            )
            query = f"SELECT v FROM (VALUES {', '.join(cells)}) AS t(n, v) ORDER BY n"
            arrays.append(connection.sql(query).to_arrow_table().column("v"))
    wanted = schema(COLUMNS)
    return pa.table([array.cast(item.type) for array, item in zip(arrays, wanted, strict=True)], schema=wanted)


def pipeline(kind: str, **into: object) -> Pipeline:
    database = {"postgres": "postgresql://u@h/d", "mysql": "mysql://u@h/d"}.get(kind)
    given = {"type": kind, "table": "t", **({"database": database} if database else {}), **into}
    return Pipeline.model_validate({"name": "p", "source": {"brokers": "b", "topic": "t"}, "into": given})


@each_case("kind", ["delta", "iceberg", "parquet", "postgres", "mysql"])
def test_what_a_destination_cannot_hold_is_set_aside(kind: str) -> None:
    limits = limits_of(pipeline(kind))
    assert limits is not None
    table = rows()
    found = storable(Decoded(table, len(VALUES)), COLUMNS, limits)
    assert [at for at, _ in found.rejects] == [at for at, (*_, unable) in enumerate(VALUES) if kind in unable]
    kept = pa.array(found.kept)
    plain = [name for name in COLUMNS.names() if name not in ("real", "inside")]  # a NaN is not equal to itself
    assert found.table.select(plain).equals(table.take(kept).select(plain)) and found.rows == len(kept) and not found.refused
    for at, reason in found.rejects:
        assert reason.startswith(VALUES[at][0] + ": ") and limits.place in reason


NUMBERS = [
    "1e131071", "9.99e131071", "1e131072", "0.1e131072", "0.1e131073", "1" * 131_072, "1" * 131_073, "12e-16383", "1e-16383",
    "1e-16384", "1.5e-16383", "1.5e-16382", f"0.{'0' * 16_382}1", f"0.{'0' * 16_383}1", f"0.{'1' * 16_383}", f"1.{'0' * 16_384}",
    f"1.{'0' * 16_384}e1", f"0.{'0' * 140_000}1e140001", "0", "-0", "0e200000", "0e-16383", "0e-16384", "0.0e-16383", "1e200000",
    "-1E+200000", "1e999999999", "1e-999999999", "0e999999999", "1e1073741823", "0e1073741822", "0e1073741823", "0e-1073741823",
    "0e99999999999", "1e99999999999999999999", "1e0000000000005", "1e-0000000000005", "1e-99999999999999999999", "1.5e3",
    f"{'1' * 6400}e-9999", f"0.{'1' * 6400}e-9999", f"{'1' * 121_072}e9999", f"{'1' * 121_074}e9999",
]  # fmt: skip
DOCUMENTS = ['{{"x":{}}}', "[1, {}]", "{}", '{{"a\\\\":[{{"b":{} }}],"c":"1e999999"}}']


def test_numbers_in_json_are_set_aside_where_postgresqls_numeric_ends(postgres: PostgresServer) -> None:
    limits = limits_of(pipeline("postgres"))
    assert limits is not None
    texts = [shape.format(number) for shape in DOCUMENTS for number in NUMBERS]
    texts += ['{"x":"1e200000"}', '{"1e200000":1}', '["\\"1e200000"]', '["\\\\",1e200000]', f'"{"7" * 140_000}"']
    with postgres.admin() as connection:
        good = [_jsonb(connection, text) for text in texts]
    assert 0 < sum(good) < len(good)
    bad = [at for at, fine in enumerate(good) if not fine]
    for kind, value in [
        ("JSON", texts), ("JSON[]", [[None, text] for text in texts]), ("STRUCT(a JSON)", [{"a": text} for text in texts]),
        ("MAP(VARCHAR, JSON)", [[("1e200000", text)] for text in texts]),
    ]:  # fmt: skip
        columns = Columns.of({"j": kind})
        table = pa.table([pa.array(value, schema(columns).field(0).type)], schema=schema(columns))
        found = storable(Decoded(table, len(texts)), columns, limits)
        assert [texts[at][:60] for at, _ in found.rejects] == [texts[at][:60] for at in bad]
        assert {reason for _, reason in found.rejects} == {
            f"j: a {'number' if kind == 'JSON' else 'value'} in it is beyond what PostgreSQL can store as {kind}"
        }


def _jsonb(connection: Any, text: str) -> bool:
    try:
        connection.execute("SELECT %s::jsonb", [text])
    except psycopg.Error as error:
        assert "numeric" in str(error)
        return False
    return True


def test_duckdb_holds_all_of_it() -> None:
    assert limits_of(pipeline("duckdb")) is None


def test_values_of_expressions_are_refused_and_several_rows_of_a_payload_go_together() -> None:
    limits = limits_of(pipeline("mysql"))
    assert limits is not None
    table = rows()
    twice = Decoded(table, len(VALUES), [at // 2 for at in range(len(VALUES))], refused=[(99, "said before")])
    found = storable(twice, COLUMNS, limits, {"at"})
    assert found.refused == [
        (0, "at: 10000-01-01 04:59:59+00 is beyond what MySQL can store as TIMESTAMP WITH TIME ZONE"),
        (1, "at: -infinity is beyond what MySQL can store as TIMESTAMP WITH TIME ZONE"),
        (2, "at: 5000-01-01 (BC) 00:00:00+00 is beyond what MySQL can store as TIMESTAMP WITH TIME ZONE"),
        (99, "said before"),
    ]
    bad = {at // 2 for at, (*_, unable) in enumerate(VALUES) if "mysql" in unable}
    assert sorted({at for at, _ in found.rejects} | {0, 1, 2}) == sorted(bad) and not set(found.kept or ()) & bad


@each_case(("kind", "parts"), [("iceberg", ["day(at)", "text"]), ("iceberg", ["day"]), ("delta", ["day", "text"])])
def test_columns_that_divide_the_table_have_years_1_to_9999(kind: str, parts: list[str]) -> None:
    limits = limits_of(pipeline(kind, partition_by=parts))
    assert limits is not None
    day, at = [2_932_897, 2_932_896, None, -719_163], [253_402_300_800_000_000, 0, None, 0]
    columns = Columns.of({"at": "TIMESTAMP WITH TIME ZONE", "day": "DATE", "text": "VARCHAR"})
    table = pa.table([pa.array(at), pa.array(day, pa.int32()), pa.array(["a", "", None, "b"])], names=["at", "day", "text"])
    table = pa.table([table[n].cast(item.type) for n, item in enumerate(schema(columns))], schema=schema(columns))
    found = storable(Decoded(table, 4), columns, limits)
    wanted = {0} if kind == "iceberg" and "day(at)" in parts else {0, 3}
    assert {at for at, _ in found.rejects} == wanted | ({1} if kind == "delta" else set())
    assert pc.all(pc.is_in(pa.array(found.kept), pa.array(range(4)))).as_py()
    assert all("into.partition_by" in reason for _, reason in found.rejects)


def test_a_timestamp_that_names_no_partition_is_null(tmp_path: Path) -> None:
    """As one that the destination cannot store; a commit would fail each time."""
    columns, last = Columns.of({"a": "BIGINT"}), 253_402_300_799_999
    block = RecordBlock.of([0, 1], [last, last + 1], [b'{"a":1}', b'{"a":2}'])
    for by, expected in (([], [last, last + 1]), (["day(_kafka_timestamp)"], [last, None])):
        defined = pipeline("iceberg", **({"partition_by": by} if by else {}))
        folder = tmp_path / str(len(by))
        (folder / "batch").mkdir(parents=True)
        job = JobSpec(
            "batch", {}, str(folder), defined.format, (TableSpec(columns),), limits=limits_of(defined), held={SOURCE: block}
        )
        (file,) = stage(job, Piece(SOURCE, Range(0, 2))).tables[0].files
        found = pq.read_table(file.path).column("_kafka_timestamp").cast(pa.int64()).to_pylist()
        assert found == [None if moment is None else moment * 1000 for moment in expected]
