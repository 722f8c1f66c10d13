"""Tables as other loaders write them: each takes rows of (partition, offset), and gives the options that name the table."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.servers import postgres as pg

Row = tuple[int, int]
Options = list[str]
Writer = Callable[[Path, str, Sequence[Row], pytest.FixtureRequest], Options]


def documents(topic: str, rows: Sequence[Row]) -> list[str]:
    """RECORD_METADATA of Snowflake's connector."""
    return [json.dumps({"CreateTime": 1700000000000, "key": "k", "offset": o, "partition": p, "topic": topic}) for p, o in rows]


def columns(rows: Sequence[Row]) -> tuple[list[int], list[int]]:
    return [p for p, _ in rows], [o for _, o in rows]


def duckdb_flat(folder: Path, topic: str, rows: Sequence[Row], _: pytest.FixtureRequest) -> Options:
    partitions, offsets = columns(rows)
    block = pa.table({"_kafka_partition": pa.array(partitions, pa.int32()), "_kafka_offset": pa.array(offsets, pa.int64())})
    with duckdb.connect(str(folder / "flat.duckdb")) as connection:
        connection.register("block", block)
        connection.execute("CREATE TABLE landed AS SELECT *, 'x' AS value FROM block")
    return ["--type", "duckdb", "--database", str(folder / "flat.duckdb"), "--table", "landed"]


def duckdb_snowflake(folder: Path, topic: str, rows: Sequence[Row], _: pytest.FixtureRequest) -> Options:
    block = pa.table({"RECORD_METADATA": documents(topic, rows), "RECORD_CONTENT": ["{}"] * len(rows)})
    with duckdb.connect(str(folder / "snow.duckdb")) as connection:
        connection.register("block", block)
        connection.execute("CREATE TABLE landed AS SELECT * FROM block")
    return ["--type", "duckdb", "--database", str(folder / "snow.duckdb"), "--table", "main.landed"]


def parquet_snowflake(folder: Path, topic: str, rows: Sequence[Row], _: pytest.FixtureRequest) -> Options:
    pq.write_table(pa.table({"RECORD_METADATA": documents(topic, rows)}), folder / "unload.parquet")
    return ["--type", "parquet", "--database", str(folder / "unload.parquet")]


def parquet_clickpipes(folder: Path, topic: str, rows: Sequence[Row], _: pytest.FixtureRequest) -> Options:
    """Several files, with offsets as integers, as decimals and as text."""
    place = folder / "click"
    (place / "day=1").mkdir(parents=True)
    makes: tuple[Callable[[int], Any], ...] = (int, Decimal, str)
    for at, make in enumerate(makes):
        partitions, offsets = columns(rows[at::3])
        block = {"_partition": pa.array(partitions, pa.uint16()), "_offset": [make(item) for item in offsets]}
        pq.write_table(pa.table({**block, "_topic": [topic] * len(offsets)}), place / ("day=1" if at else ".") / f"{at}.parquet")
    return ["--type", "parquet", "--database", str(place)]


def parquet_struct(folder: Path, topic: str, rows: Sequence[Row], _: pytest.FixtureRequest) -> Options:
    inside = [{"topic": topic, "partition": p, "offset": o, "timestamp": 1} for p, o in rows]
    pq.write_table(pa.table({"_kafka_metadata": inside}), folder / "struct.parquet")
    return ["--type", "parquet", "--database", str(folder / "struct.parquet")]


def postgres_json(folder: Path, topic: str, rows: Sequence[Row], request: pytest.FixtureRequest) -> Options:
    server = request.getfixturevalue("postgres")
    schema = server.schema()
    with server.admin() as connection, connection.cursor() as cursor:
        cursor.execute(f'CREATE TABLE {schema}."Landed" (record_metadata jsonb, record_content text)')
        with cursor.copy(f'COPY {schema}."Landed" (record_metadata) FROM STDIN') as copy:
            for document in documents(topic, rows):
                copy.write_row([document])
        cursor.execute(f'GRANT SELECT ON {schema}."Landed" TO {pg.ROLE}')
    return ["--type", "postgres", "--database", server.address(schema), "--table", "Landed", *_secret("PG")]


def postgres_numeric(folder: Path, topic: str, rows: Sequence[Row], request: pytest.FixtureRequest) -> Options:
    server = request.getfixturevalue("postgres")
    schema = server.schema()
    with server.admin() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {schema}.landed (part numeric, off text, source text)")
        with cursor.copy(f"COPY {schema}.landed FROM STDIN") as copy:
            for partition, offset in rows:
                copy.write_row([partition, str(offset), topic])
        cursor.execute(f"GRANT SELECT ON {schema}.landed TO {pg.ROLE}")
    named = ["--partition-column", "part", "--offset-column", "off", "--topic-column", "source"]
    return ["--type", "postgres", "--database", server.address(schema), "--table", "landed", *named, *_secret("PG")]


def mysql_json(folder: Path, topic: str, rows: Sequence[Row], request: pytest.FixtureRequest) -> Options:
    server = request.getfixturevalue("mariadb")
    name = server.database()
    with server.admin(database=name) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE landed (record_metadata JSON)")
        cursor.executemany("INSERT INTO landed VALUES (%s)", [[item] for item in documents(topic, rows)])
    return ["--type", "mysql", "--database", server.address(name), "--table", "landed", *_secret("MY")]


def mysql_flat(folder: Path, topic: str, rows: Sequence[Row], request: pytest.FixtureRequest) -> Options:
    server = request.getfixturevalue("mariadb")
    name = server.database()
    with server.admin(database=name) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE landed (kafka_partition INT, kafka_offset BIGINT UNSIGNED)")
        cursor.executemany("INSERT INTO landed VALUES (%s, %s)", list(rows))
    return ["--type", "mysql", "--database", server.address(name), "--table", "landed", *_secret("MY")]


def delta(folder: Path, topic: str, rows: Sequence[Row], _: pytest.FixtureRequest) -> Options:
    """Columns of Structured Streaming's source, in two commits."""
    deltalake = pytest.importorskip("deltalake")
    for half in (rows[::2], rows[1::2]):
        partitions, offsets = columns(half)
        block = {"topic": [topic] * len(half), "partition": pa.array(partitions, pa.int32()), "offset": offsets}
        deltalake.write_deltalake(str(folder / "delta"), pa.table(block), mode="append", partition_by=["partition"])
    return ["--type", "delta", "--database", str(folder), "--table", "delta"]


def iceberg(folder: Path, topic: str, rows: Sequence[Row], _: pytest.FixtureRequest) -> Options:
    """The struct of Iceberg's sink, in two commits; named by its metadata file."""
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
    catalog.create_namespace("default")
    kind = pa.struct([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.int64())])
    table = catalog.create_table("default.landed", pa.schema([("_kafka_metadata", kind), ("value", pa.string())]))
    for half in (rows[::2], rows[1::2]):
        inside = [{"topic": topic, "partition": p, "offset": o, "timestamp": 1} for p, o in half]
        table.append(pa.table({"_kafka_metadata": pa.array(inside, kind), "value": ["x"] * len(half)}))
    return ["--type", "iceberg", "--database", table.metadata_location.removeprefix("file://")]


def _secret(variable: str) -> Options:
    return ["--table-credential", f"password={{{{ env('{variable}') }}}}"]


KINDS: dict[str, Writer] = {
    writer.__name__: writer
    for writer in (
        duckdb_flat,
        duckdb_snowflake,
        parquet_snowflake,
        parquet_clickpipes,
        parquet_struct,
        postgres_json,
        postgres_numeric,
        mysql_json,
        mysql_flat,
        delta,
        iceberg,
    )
}
