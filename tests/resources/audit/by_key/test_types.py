"""Values of each type, in tables of each kind: equal to their record as a loader stores them, and found if they are altered."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from resources.audit.by_key.run import run
from resources.audit.table_address import TableAddress
from tests.resources.audit.by_key.fake_log import Record, outcomes, parquet, serve
from tests.resources.audit.by_key.fake_log import request as audit_of
from tests.servers import mariadb as my
from tests.servers import postgres as pg

RECORD = (
    b'{"id": 9007199254740993, "whole": -7, "exact": 1234567890123456.7891, "real": 0.1, "half": 0.1, "flag": true,'
    b' "moment": "2026-11-26T09:00:00.123456+01:00", "day": "2026-11-26", "clock": "23:59:59.000001",'
    b' "text": "it\'s \xc3\xa9,\\n\\"x\\"", "empty": "", "none": null, "doc": {"b": [1, 2.5, "x"], "a": null},'
    b' "code": "6F9619FF-8B86-D011-B42D-00C04FC964FF"}'
)
MOMENT = dt.datetime(2026, 11, 26, 8, 0, 0, 123456, tzinfo=dt.timezone.utc)
TEXT = 'it\'s é,\n"x"'
#: Columns of the arrow tables. Alterations: a column, and the value that a careless loader gives it.
VALUES: Mapping[str, Any] = {
    "id": pa.array([9007199254740993]), "whole": pa.array([-7], pa.int32()),
    "exact": pa.array([Decimal("1234567890123456.7891")], pa.decimal128(20, 4)), "real": pa.array([0.1]),
    "half": pa.array([0.1], pa.float32()), "flag": pa.array([True]), "moment": pa.array([MOMENT], pa.timestamp("us", "UTC")),
    "day": pa.array([dt.date(2026, 11, 26)]), "text": pa.array([TEXT]), "empty": pa.array([""]),
    "none": pa.array([None], pa.string()), "doc": pa.array(['{"b":[1,2.5,"x"]}']),
}  # fmt: skip


def in_duckdb(folder: Path, more: Mapping[str, str], _: pytest.FixtureRequest) -> TableAddress:
    types = {
        "id": "HUGEINT", "whole": "SMALLINT", "exact": "DECIMAL(20,4)", "real": "DOUBLE", "half": "FLOAT", "flag": "BOOLEAN",
        "moment": "TIMESTAMPTZ", "day": "DATE", "clock": "TIME", "text": "VARCHAR", "empty": "VARCHAR", "none": "BIGINT",
        "doc": "JSON", "code": "UUID",
    }  # fmt: skip
    return _sql(folder / "t.duckdb", types, more)


def _literals(more: Mapping[str, str]) -> dict[str, str]:
    text = "'" + TEXT.replace("'", "''") + "'"
    return {
        "id": "9007199254740993", "whole": "-7", "exact": "1234567890123456.7891", "real": "0.1", "half": "0.1", "flag": "true",
        "moment": "'2026-11-26 08:00:00.123456+00'", "day": "'2026-11-26'", "clock": "'23:59:59.000001'", "text": text,
        "empty": "''", "none": "NULL", "doc": "'{\"b\": [1, 2.5, \"x\"], \"a\": null}'",
        "code": "'6f9619ff-8b86-d011-b42d-00c04fc964ff'", **more,
    }  # fmt: skip


def _sql(path: Path, types: Mapping[str, str], more: Mapping[str, str]) -> TableAddress:
    values = _literals(more)
    with duckdb.connect(str(path)) as connection:
        connection.execute("SET TimeZone = 'America/New_York'")
        connection.execute(f"CREATE TABLE landed ({', '.join(f'{name} {kind}' for name, kind in types.items())})")
        connection.execute(f"INSERT INTO landed VALUES ({', '.join(values[name] for name in types)})")
    return TableAddress("duckdb", str(path), "landed")


def in_postgres(folder: Path, more: Mapping[str, str], request: pytest.FixtureRequest) -> TableAddress:
    server: pg.PostgresServer = request.getfixturevalue("postgres")
    schema = server.schema()
    types = {
        "id": "bigint", "whole": "smallint", "exact": "numeric", "real": "double precision", "half": "real", "flag": "boolean",
        "moment": "timestamptz", "day": "date", "clock": "time", "text": "text", "empty": "varchar(5)", "none": "integer",
        "doc": "jsonb", "code": "uuid",
    }  # fmt: skip
    values = _literals(more)
    server.sql(f"CREATE TABLE {schema}.landed ({', '.join(f'{name} {kind}' for name, kind in types.items())})")
    server.sql(f"INSERT INTO {schema}.landed VALUES ({', '.join(values[name] for name in types)})")
    server.sql(f"GRANT SELECT ON {schema}.landed TO {pg.ROLE}")
    return TableAddress("postgres", server.address(schema), "landed", credentials={"password": "{{ env('PG') }}"})


def in_mysql(folder: Path, more: Mapping[str, str], request: pytest.FixtureRequest) -> TableAddress:
    server = request.getfixturevalue("mariadb")
    name = server.database()
    types = {
        "id": "bigint", "whole": "smallint", "exact": "decimal(20,4)", "real": "double", "half": "float", "flag": "tinyint(1)",
        "moment": "timestamp(6) NULL", "day": "date", "clock": "time(6)", "text": "text", "empty": "varchar(5)", "none": "int",
        "doc": "json",
    }  # fmt: skip
    values = {**_literals({}), "moment": "'2026-11-26 08:00:00.123456'", **more}
    with server.admin(database=name) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(f"CREATE TABLE landed ({', '.join(f'`{key}` {kind}' for key, kind in types.items())})")
        cursor.execute(f"INSERT INTO landed VALUES ({', '.join(values[key] for key in types)})".replace("%", "%%"))
    return TableAddress("mysql", server.address(name), "landed", credentials={"password": "{{ env('MY') }}"})


def _arrow(more: Mapping[str, Any]) -> pa.Table:
    def made(name: str, column: pa.Array) -> pa.Array:
        if name not in more:
            return column
        return pa.array([more[name]], column.type)

    return pa.table({name: made(name, column) for name, column in VALUES.items()})


def in_parquet(folder: Path, more: Mapping[str, Any], _: pytest.FixtureRequest) -> TableAddress:
    block = _arrow(more)
    return parquet(folder, **dict(zip(block.column_names, block.columns, strict=True)))


def in_delta(folder: Path, more: Mapping[str, Any], _: pytest.FixtureRequest) -> TableAddress:
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(str(folder / "lake"), _arrow(more))
    return TableAddress("delta", str(folder / "lake"))


def in_iceberg(folder: Path, more: Mapping[str, Any], _: pytest.FixtureRequest) -> TableAddress:
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
    catalog.create_namespace("default")
    block = _arrow(more)
    table = catalog.create_table("default.landed", block.schema)
    table.append(block)
    return TableAddress("iceberg", table.metadata_location.removeprefix("file://"))


#: Writers, and alterations that each of them can store.
SQL = {
    "whole": "7", "exact": "1234567890123456.7890", "real": "0.10000000000000002", "half": "0.10000001", "flag": "false",
    "day": "'2026-11-27'", "clock": "'23:59:59.000002'", "text": "'its'", "empty": "NULL", "none": "0",
    "doc": "'{\"b\": [1, 2.5, \"y\"]}'",
}  # fmt: skip
ARROW = {
    "whole": 7, "exact": Decimal("1234567890123456.7890"), "real": 0.10000000000000002, "half": 0.2, "flag": False,
    "moment": MOMENT.replace(microsecond=123457), "day": dt.date(2026, 11, 27), "text": "its", "empty": None, "none": "",
    "doc": '{"b":[1,2.5,"y"]}',
}  # fmt: skip
Writer = Callable[[Path, Mapping[str, Any], pytest.FixtureRequest], TableAddress]
WRITERS: dict[str, tuple[Writer, Mapping[str, Any]]] = {
    "duckdb": (in_duckdb, {**SQL, "moment": "'2026-11-26 08:00:00.123457+00'", "code": "'6f9619ff-8b86-d011-b42d-00c04fc964fe'"}),
    "postgres": (in_postgres, {**SQL, "moment": "'2026-11-26 08:00:00.123457+00'"}),
    "mysql": (in_mysql, {**SQL, "moment": "'2026-11-26 08:00:00.123457'"}),
    "parquet": (in_parquet, ARROW),
    "delta": (in_delta, ARROW),
    "iceberg": (in_iceberg, ARROW),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_each_type_of_each_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("PG", pg.PASSWORD)
    monkeypatch.setenv("MY", my.PASSWORD)
    serve(monkeypatch, [[Record(None, RECORD)]])
    writer, changes = WRITERS[kind]
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
    good, findings, facts = run(audit_of(writer(tmp_path / "good", {}, request)), tmp_path / "report")
    assert good.ok, (good.problems(), findings)
    assert set(good.compared) == {item for item, *_ in facts["contents"]} >= set(changes), "every type is compared"
    bad, findings, _ = run(audit_of(writer(tmp_path / "bad", changes, request)), tmp_path / "other")
    assert outcomes(bad) == {"differing": 1}
    assert set(findings[0]["columns"]) == set(changes)


def test_nested_columns_and_those_that_cannot_be_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, [[Record(None, {"id": 1, "doc": {"b": [1, 2.5]}, "at": 1795680000, "raw": "x", "when": {"x": 1}})]])
    table = parquet(
        tmp_path, id=[1], doc=[{"b": [1.0, 2.5], "a": None}], at=pa.array([1795680000], pa.timestamp("s")), raw=[b"x"],
        when=[{"x": MOMENT}],
    )  # fmt: skip
    summary, _, facts = run(audit_of(table, unit="s"), tmp_path / "report")
    assert (summary.ok, summary.compared, facts["excluded"]) == (True, ["doc", "at"], ["raw", "when"])
    assert outcomes(run(audit_of(table), tmp_path / "ms")[0]) == {"differing": 1}
