"""Read what a destination holds, without kpipe: SQL, Arrow, a plain consumer, and what a receiver of webhooks has taken."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

__all__ = ["Found", "Letter", "Row", "from_document", "of_duckdb", "of_ducklake", "of_lake"]

Place = tuple[str, int, int]  # topic, partition, offset


@dataclass(frozen=True)
class Row:
    """A row as it is in the destination.

    Attributes:
        topic: as the row names it; None where rows do not.
        partition, offset: None where they do not tell.
        timestamp: microseconds since 1970.
        values: by column; instants and days are numbers.
        text: whether the values are those of a JSON document.
        deleted: a tombstone in a topic; `key` says of what.
        key: of a record in a topic.
        target: partition of the target topic.
    """

    topic: str | None
    partition: int | None
    offset: int | None
    timestamp: int | None
    values: dict[str, Any]
    text: bool = False
    deleted: bool = False
    key: bytes | None = None
    target: int = 0


@dataclass(frozen=True)
class Letter:
    """A dead letter: its coordinates, and the record's own bytes."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    stage: str
    reason: str


@dataclass
class Found:
    """Everything that a destination holds.

    Attributes:
        rows: by table, in the destination's own order where it has one.
        letters: dead letters.
        problems: what could not be read, as findings.
        refused: places of records that a receiver has refused.
        ahead: whether records may be there that the ledger does not have yet.
    """

    rows: dict[str, list[Row]] = field(default_factory=dict)
    letters: list[Letter] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    refused: set[Place] = field(default_factory=set)
    ahead: bool = False


def _numbers(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Rows as dicts, in which times are numbers: Python's own end at the year 9999."""
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        elif pa.types.is_date32(column.type):
            column = column.cast(pa.int32())
        columns.append(column.to_pylist())
    for values in zip(*columns, strict=True):
        yield dict(zip(table.column_names, values, strict=True))


def _row(values: dict[str, Any]) -> Row:
    own = {name: value for name, value in values.items() if not name.startswith("_kafka_")}
    at = values.get("_kafka_timestamp")
    return Row(values.get("_kafka_topic"), values["_kafka_partition"], values["_kafka_offset"], at, own)


def of_duckdb(path: Path, *tables: str) -> Found:
    """Tables and dead letters of a DuckDB file."""
    if not path.exists():
        return Found()
    with duckdb.connect(str(path)) as database:
        return _of_connection(database, tables)


def of_ducklake(database: duckdb.DuckDBPyConnection, catalog: Path, *tables: str) -> Found:
    """The same of a DuckLake, by a connection that has loaded DuckDB's extension."""
    if not catalog.exists():
        return Found()
    database.execute(f"ATTACH 'ducklake:{catalog}' AS lake (READ_ONLY)")
    database.execute("USE lake")
    return _of_connection(database, tables)


def _of_connection(database: duckdb.DuckDBPyConnection, tables: Sequence[str]) -> Found:
    found = Found()
    names = database.sql("SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()").fetchall()
    there = {name for (name,) in names}
    for table in tables:
        rows = database.sql(f'FROM "{table}"').to_arrow_table() if table in there else None
        found.rows[table] = [] if rows is None else [_row(values) for values in _numbers(rows)]
    if "kpipe_errors" in there:
        letters = database.sql(
            'SELECT topic, "partition", "offset", key, load_data_line, stage, error_message FROM kpipe_errors WHERE dead_letter'
        )
        found.letters = [Letter(*letter) for letter in letters.fetchall()]
    return found


def of_lake(kind: str, folder: Path, table: str, letters: Iterator[dict[str, Any]]) -> Found:
    """A table of a lake; its dead letters have no table, so they are those that `kpipe errors` shows."""
    read = {"delta": _delta, "iceberg": _iceberg, "parquet": _parquet}[kind]
    found = Found({table: [_row(values) for part in read(folder, table) for values in _numbers(part)]})
    found.letters = [
        Letter(*(item[name] for name in ("topic", "partition", "offset", "key", "load_data_line", "stage", "error_message")))
        for item in letters
        if item["dead_letter"]
    ]
    return found


def _delta(folder: Path, table: str) -> Iterator[pa.Table]:
    if (folder / table / "_delta_log").is_dir():
        place = folder / table
        table_at = DeltaTable(str(place))
        if "deletionVectors" in (table_at.protocol().writer_features or ()):
            yield pa.table(QueryBuilder().register("t", table_at).execute("SELECT * FROM t"))
            return
        for file in table_at.file_uris():
            yield pq.read_table(file)


def _iceberg(folder: Path, table: str) -> Iterator[pa.Table]:
    if not (folder / "catalog.db").exists():
        return
    catalogue = SqlCatalog("kpipe", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=f"file://{folder}")
    try:
        for task in catalogue.load_table(f"default.{table}").scan().plan_files():
            rows = pq.read_table(task.file.file_path.removeprefix("file://"))
            gone = {at for file in task.delete_files for at in _deleted(file.file_path, task.file.file_path)}
            yield rows.filter(pa.array([at not in gone for at in range(rows.num_rows)], pa.bool_())) if gone else rows
    except NoSuchTableError:
        return
    finally:
        catalogue.engine.dispose()


def _deleted(deletes: str, data: str) -> Iterator[int]:
    """Positions in a data file that a file of position deletes marks (Iceberg's specification, version 2)."""
    marks = pq.read_table(deletes.removeprefix("file://"))
    for path, at in zip(marks["file_path"].to_pylist(), marks["pos"].to_pylist(), strict=True):
        if path == data:
            yield at


def _parquet(folder: Path, table: str) -> Iterator[pa.Table]:
    manifests = sorted((folder / table / "_manifest").glob("0*.json"))
    if not manifests:
        return
    newest = json.loads(manifests[-1].read_bytes())
    named = list(newest["files"])
    if newest["summed"] >= 0:
        named += json.loads((folder / table / "_manifest" / f"files-{newest['summed']:020}.json").read_bytes())["files"]
    for file in named:
        places = [folder / table / file, folder / table / "_files" / file]
        yield pq.read_table(next(place for place in places if place.exists()))


def from_document(text: bytes) -> dict[str, Any] | None:
    """A JSON document by the rules of RFC 8259, which has no NaN and no infinity; None where it is none."""

    def refuse(name: str) -> Any:
        raise ValueError(name)

    try:
        found = json.loads(text.decode(), parse_constant=refuse, parse_float=Decimal)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
