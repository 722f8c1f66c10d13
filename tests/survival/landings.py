"""Where rows land, as somebody reads it who knows the formats and nothing of kpipe's code.

Each gives the tables that the oracle asks, in a database of DuckDB: kpipe_ledger, kpipe_batches, kpipe_commits,
kpipe_pipelines, kpipe_errors and the pipeline's own. What the ledger of a lake looks like in files is in docs/adr/0012.
"""

from __future__ import annotations

import gzip
import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from psycopg.rows import dict_row
from pyiceberg.catalog.sql import SqlCatalog
from pymysql.cursors import DictCursor

from kpipe.failpoints import POINTS
from resources.dev_broker.broker import LocalBroker
from tests.receiver import Receiver
from tests.resources.destinations.kafka_place import read_all
from tests.servers import mariadb
from tests.servers.postgres import PASSWORD, PostgresServer


def between(first: str, last: str) -> tuple[str, ...]:
    """Crash-points from one to another, both included."""
    return POINTS[POINTS.index(first) : POINTS.index(last) + 1]


class Landing(ABC):
    """One kind of destination.

    Attributes:
        into: fields of the definition, but for the table.
        variables: that a run needs.
        holding: points at which a run that is stopped keeps everybody else out.
        late: points at which the batch of a run that is stopped has landed, or will for certain.
    """

    into: Mapping[str, Any] = MappingProxyType({})
    variables: Mapping[str, str] = MappingProxyType({})
    holding: Collection[str] = ()
    late: Collection[str] = ("commit.after", "readback", "publish.before", "gc.unlink")

    @abstractmethod
    def reading(self, home: Path, name: str) -> Any:
        """A context with the database; None as long as no commit has landed."""

    def forget(self) -> None:  # noqa: B027
        """Start again outside of the home, as a home without a ledger does."""


class DuckDBFile(Landing):
    holding = between("commit.begin", "commit.after")

    @contextmanager
    def reading(self, home: Path, name: str) -> Iterator[duckdb.DuckDBPyConnection | None]:
        path = home / "data" / "kpipe.duckdb"
        if not path.exists():
            yield None
            return
        with duckdb.connect(str(path), read_only=True) as connection:
            known = connection.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'kpipe_ledger'").fetchall()
            yield connection if known == [(1,)] else None


class Copied(Landing):
    """What another database or lake holds, copied for a look."""

    @abstractmethod
    def tables(self, home: Path, name: str) -> Mapping[str, pa.Table]:
        """By name; none as long as no commit has landed."""

    @contextmanager
    def reading(self, home: Path, name: str) -> Iterator[duckdb.DuckDBPyConnection | None]:
        found = self.tables(home, name)
        if not found:
            yield None
            return
        with duckdb.connect(":memory:") as connection:
            for table, rows in found.items():
                connection.register("found", rows)
                connection.execute(f'CREATE TABLE "{table}" AS FROM found')
            yield connection


class Postgres(Copied):
    holding = between("commit.ledger", "commit.before")

    def __init__(self, server: PostgresServer) -> None:
        self._address = server.address(server.schema())
        credentials = {"password": "{{ env('PG_PASSWORD') }}"}
        self.into = {"type": "postgres", "database": self._address, "credentials": credentials}
        self.variables = {"PG_PASSWORD": PASSWORD}

    def tables(self, home: Path, name: str) -> Mapping[str, pa.Table]:
        found = {}
        with psycopg.connect(self._address, password=PASSWORD, row_factory=dict_row) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            for table in ("kpipe_ledger", "kpipe_batches", "kpipe_commits", "kpipe_pipelines", "kpipe_errors", name):
                if connection.execute("SELECT to_regclass(%s) AS at", [f'"{table}"']).fetchone() == {"at": None}:
                    continue
                cursor = connection.execute(f'SELECT * FROM "{table}"')
                names = [column.name for column in cursor.description or ()]
                rows = cursor.fetchall()
                found[table] = pa.table({one: _column([row[one] for row in rows]) for one in names})
        return found if "kpipe_ledger" in found else {}


class MySQL(Copied):
    holding = between("commit.ledger", "commit.before")

    def __init__(self, server: mariadb.MariaServer) -> None:
        self._server, self._database = server, server.database()
        credentials = {"password": "{{ env('MY_PASSWORD') }}"}
        self.into = {"type": "mysql", "database": server.address(self._database), "credentials": credentials}
        self.variables = {"MY_PASSWORD": mariadb.PASSWORD}

    def tables(self, home: Path, name: str) -> Mapping[str, pa.Table]:
        found = {}
        connection = self._server.admin(database=self._database, cursorclass=DictCursor)
        with connection, connection.cursor() as cursor:
            cursor.execute("SHOW TABLES")
            there = {next(iter(row.values())) for row in cursor.fetchall()}
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")  # REPEATABLE READ is MariaDB's default
            for table in ("kpipe_ledger", "kpipe_batches", "kpipe_commits", "kpipe_pipelines", "kpipe_errors", name):
                if table in there:
                    cursor.execute(f"SELECT * FROM `{table}`")
                    names, rows = [column[0] for column in cursor.description], cursor.fetchall()
                    found[table] = pa.table({one: _column([row[one] for row in rows]) for one in names})
        # Tables are made before the transaction of the first commit: they say nothing of whether it has landed.
        return found if "kpipe_ledger" in found and found["kpipe_ledger"].num_rows else {}


def _column(values: list[Any]) -> pa.Array:
    """Numbers as they are, everything else as text: the oracle compares numbers and ids only."""
    if all(value is None or isinstance(value, bool | int) for value in values) and any(value is not None for value in values):
        return pa.array(values)
    return pa.array([json.dumps(v) if isinstance(v, dict | list) else None if v is None else str(v) for v in values], pa.string())


class Lake(Copied):
    """Formats whose ledger is a file that the table's newest commit names."""

    @abstractmethod
    def opened(self, home: Path, name: str) -> tuple[pa.Table, Path, str] | None:
        """The rows, the pipeline's folder there, and the name of its record; None as long as no commit has landed."""

    def tables(self, home: Path, name: str) -> Mapping[str, pa.Table]:
        found = self.opened(home, name)
        if found is None:
            return {}
        rows, own, record = found
        said = json.loads((own / record).read_bytes())
        items = [item for segment in said["segments"] for item in json.loads(gzip.decompress((own / segment[0]).read_bytes()))]
        items += said["tail"]
        letters = [
            {"pipeline_name": name, "dead_letter": True, "partition": row["partition"], "offset": row["offset"]}
            for item in items
            for file in item["dead"]
            for row in pq.read_table(own.parent / file["name"]).to_pylist()
        ]
        return ledger_tables(name, said, items, letters, rows)


def ledger_tables(
    name: str, said: Mapping[str, Any], items: list[Any], letters: list[dict[str, Any]], rows: pa.Table | None
) -> Mapping[str, pa.Table]:
    """What a record of the ledger, its commits, dead letters and rows are as tables."""
    lanes = [{"pipeline_name": name, "partition": lane[3], "next_offset": lane[5]} for lane in said["lanes"]]
    schema = [("pipeline_name", pa.string()), ("dead_letter", pa.bool_()), ("partition", pa.int64()), ("offset", pa.int64())]
    tables = {
        "kpipe_ledger": pa.Table.from_pylist(lanes),
        "kpipe_commits": pa.Table.from_pylist([item["commit"] for item in items]),
        "kpipe_pipelines": pa.Table.from_pylist([{"pipeline_name": name, "seq": said["seq"]}]),
        "kpipe_errors": pa.Table.from_pylist(letters, pa.schema(schema)),
        **({name: rows} if rows is not None else {}),
    }
    ranges = [row for item in items for row in item["ranges"]]
    numbers = ("batch_source_partition_id", "batch_earliest_offset", "batch_latest_offset", "messages", "rows",
               "dead_letters", "filtered", "gaps", "seq")  # fmt: skip
    empty = pa.schema([("pipeline_name", pa.string()), ("batch_id", pa.string()), *((n, pa.int64()) for n in numbers)])
    return {**tables, "kpipe_batches": pa.Table.from_pylist(ranges) if ranges else empty.empty_table()}


class Delta(Lake):
    into = MappingProxyType({"type": "delta"})

    def folder(self, home: Path, name: str) -> Path:
        """Of the table."""
        return home / "data" / "delta" / name

    def opened(self, home: Path, name: str) -> tuple[pa.Table, Path, str] | None:
        folder = self.folder(home, name)
        if not DeltaTable.is_deltatable(str(folder)):
            return None
        table = DeltaTable(str(folder))
        seq, mark = (table.transaction_version(f"kpipe:{name}:{what}") for what in ("seq", "record"))
        assert seq is not None and mark is not None
        rows = table.to_pyarrow_dataset().to_table()
        return rows, folder / "_kpipe" / name.encode().hex(), f"{seq:012}-{mark:016x}.json"


class Iceberg(Lake):
    into = MappingProxyType({"type": "iceberg"})

    def opened(self, home: Path, name: str) -> tuple[pa.Table, Path, str] | None:
        folder = home / "data" / "iceberg"
        files = list(folder.glob("*.db"))
        if not files:
            return None
        catalog = SqlCatalog("kpipe", uri=f"sqlite:///{files[0]}", warehouse=f"file://{folder}")
        try:
            if not catalog.namespace_exists("default") or not catalog.table_exists(f"default.{name}"):
                return None
            table = catalog.load_table(f"default.{name}")
            snapshot = table.current_snapshot()
            if snapshot is None or snapshot.summary is None:
                return None
            seq, _, mark = snapshot.summary.additional_properties[f"kpipe.pipeline.{name}"].partition(":")
            own = folder / "_kpipe" / name.encode().hex() / name.encode().hex()
            return table.scan().to_arrow(), own, f"{int(seq):012}-{mark}.json"
        finally:
            catalog.close()


class Audited(Iceberg):
    """The same, and rows land on a branch first (`into.audit`)."""

    into = MappingProxyType({"type": "iceberg", "audit": {"known": "id >= 0 AND _kafka_offset IS NOT NULL"}})


class Topic(Copied):
    """Another topic of the same cluster, as a consumer sees it that reads committed records only."""

    def __init__(self, broker: LocalBroker, name: str) -> None:
        status = broker.status()
        assert status.brokers is not None
        self._brokers, self._topic, self._ledger = status.brokers, f"{name}-out", f"{name}-ledger"
        broker.create_topic(self._topic, 2, {})
        self.into = {"type": "kafka", "brokers": self._brokers, "topic": self._topic, "ledger": self._ledger}

    def tables(self, home: Path, name: str) -> Mapping[str, pa.Table]:
        ledger = [(message.key(), message.value()) for message in read_all(self._brokers, self._ledger)]
        states = [json.loads(gzip.decompress(value)) for key, value in ledger if key == b"state"]
        if not states:
            return {}
        said = states[-1]["record"]
        items = [json.loads(gzip.decompress(value)) for key, value in ledger if key.startswith(b"commit/")]
        rows = []
        for message in read_all(self._brokers, self._topic):
            headers = dict(message.headers())
            at = {f"_kafka_{what}": int(headers[f"kpipe.{what}"]) for what in ("partition", "offset")}
            rows.append({**at, "id": json.loads(message.value())["id"]})
        letters = []
        for message in read_all(self._brokers, f"{self._topic}.dead-letters"):
            headers = dict(message.headers())
            at = {what: int(headers[f"kpipe.{what}"]) for what in ("partition", "offset")}
            letters.append({"pipeline_name": name, "dead_letter": True, **at})
        return ledger_tables(name, said, items, letters, pa.Table.from_pylist(rows) if rows else None)


class Hook(Copied):
    """A receiver that honours keys: what it took, each key once, as far as the ledger in DuckDB has receipts of it.

    It misbehaves all the time: answers are lost, and requests refused for a while.
    """

    # Whoever sends keeps everybody else out until the commit was read back, also while it is stopped.
    holding = between("commit.verify", "readback")
    late = ("publish.before", "gc.unlink")

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        receiver.fault = lambda _: "lost" if len(receiver.got) % 7 == 6 else "500" if len(receiver.got) % 11 == 10 else ""
        body = '{"partition": ${_kafka_partition}, "offset": ${_kafka_offset}, "id": ${id}}'
        fields = {"url": receiver.url, "allow_hosts": ["127.0.0.1"], "max_records": 3, "concurrency": 1, "body": body}
        self.into = {"type": "webhook", **fields}

    def forget(self) -> None:
        self._receiver.got.clear()

    def tables(self, home: Path, name: str) -> Mapping[str, pa.Table]:
        path = home / "data" / "kpipe.duckdb"
        if not path.exists():
            return {}
        with duckdb.connect(str(path), read_only=True) as connection:
            there = {table for (table,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
            if "kpipe_ledger" not in there:
                return {}
            names = ("kpipe_ledger", "kpipe_batches", "kpipe_commits", "kpipe_pipelines", "kpipe_errors")
            found = {one: connection.sql(f"FROM {one}").to_arrow_table() for one in names}
            receipts = connection.execute(f'SELECT DISTINCT request FROM "{name}"').fetchall() if name in there else []
        taken = {one.key: one.json if isinstance(one.json, list) else [one.json] for one in self._receiver.taken}
        last: dict[int, int] = {}
        for row in (row for some in taken.values() for row in some):  # one stream for each partition: all of it is in order
            assert last.get(row["partition"], -1) < row["offset"], f"offset {row} came behind a later one, or twice"
            last[row["partition"]] = row["offset"]
        rows = [
            {"_kafka_partition": row["partition"], "_kafka_offset": row["offset"], "id": row["id"]}
            for (key,) in receipts
            for row in taken[key]  # a receipt of what was never taken fails here
        ]
        return {**found, **({name: pa.Table.from_pylist(rows)} if rows else {})}
