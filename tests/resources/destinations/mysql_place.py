"""MariaDB and MySQL as places that the conformance suite runs in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pymysql
from pymysql.cursors import DictCursor

from kpipe.interfaces import Destination
from kpipe.schema.columns import Columns, ListOf, Scalar, Struct, Type
from kpipe.tables.upsert import KeyRule
from resources.destinations.mysql import MySQLEngine
from resources.destinations.sql.destination import SqlDestination
from resources.destinations.sql.engine import TargetTable
from resources.testing.place import Place
from tests.servers.mariadb import PASSWORD, PLAIN, ROLE, MariaServer


def value(found: Any, kind: Type) -> Any:
    """What the table holds, as kpipe's type means it. MariaDB keeps JSON as the text that it was."""
    if found is None:
        return None
    if isinstance(kind, (ListOf, Struct)):
        return inner(json.loads(found), kind)
    if kind == Scalar("BOOLEAN"):
        return bool(found)
    if kind == Scalar("TIMESTAMP WITH TIME ZONE"):
        from datetime import timezone

        return found.replace(tzinfo=timezone.utc)
    return found


def inner(found: Any, kind: Type) -> Any:
    """Inside of JSON, JSON's null and no value are one."""
    if kind == Scalar("JSON"):
        return "null" if found is None else json.dumps(found, separators=(",", ":"))
    if found is None:
        return None
    if isinstance(kind, ListOf):
        return [inner(item, kind.item) for item in found]
    if isinstance(kind, Struct):
        return {name: inner(found.get(name), item) for name, item in kind.fields}
    return found


class MySQLPlace(Place):
    longest_name = 64
    keyed = True
    keeps = True
    ddl_in_transaction = False
    tables_with_defaults = (
        "CREATE TABLE tweets ({columns}, number BIGINT AUTO_INCREMENT UNIQUE, made DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6),"
        " computed BIGINT AS (n * 2) STORED)",
    )

    def __init__(self, folder: Path, server: MariaServer, port: int | None = None) -> None:
        super().__init__(folder)
        self.server, self.database, self.port = server, server.database(), port

    def failure(self, text: str) -> Exception:
        return pymysql.err.OperationalError(2013, text)

    def holds(self, name: str) -> bool:
        return len(name) <= 64 and all(ord(char) <= 0xFFFF for char in name)

    def open(self, pipeline: str = "tweets", table: str = "tweets", rule: KeyRule | None = None) -> Destination:
        server = self.server.server(self.database, self.port)
        engine = MySQLEngine(server, (self.staging,))
        return SqlDestination(engine, pipeline, [TargetTable(table, rule)], {"source_type": "KAFKA"})

    def sql(self, statement: str, *parameters: Any) -> list[dict[str, Any]]:
        connection = pymysql.connect(
            host="127.0.0.1", port=self.server.port, user=ROLE, password=PASSWORD, database=self.database, autocommit=True,
            cursorclass=DictCursor, charset="utf8mb4", **PLAIN,
        )  # fmt: skip
        with connection, connection.cursor() as cursor:
            cursor.execute(statement, parameters or None)
            return list(cursor.fetchall())

    def rows(self, table: str = "tweets") -> list[dict[str, Any]]:
        if not self.sql("SELECT 1 FROM information_schema.tables WHERE table_schema = database() AND table_name = %s", table):
            return []
        known: Columns | None = self.open(table=table).columns()
        assert known is not None
        from resources.type_compatibility import COORDINATES

        kinds = {**dict(COORDINATES.items), **dict(known.items)}
        return [
            {name: value(item, kinds.get(name, Scalar("BIGINT"))) for name, item in row.items()}
            for row in self.sql(f"SELECT * FROM `{table}`")
        ]

    def dead_letters(self, pipeline: str = "tweets") -> int:
        if not self.sql("SHOW TABLES LIKE 'kpipe_errors'"):
            return 0
        return self.sql("SELECT count(*) AS n FROM kpipe_errors WHERE pipeline_name = %s AND dead_letter", pipeline)[0]["n"]

    def delete_row(self, partition: int, offset: int) -> None:
        self.sql("DELETE FROM tweets WHERE _kafka_partition = %s AND _kafka_offset = %s", partition, offset)

    def double_row(self, partition: int, offset: int) -> None:
        where = "WHERE _kafka_partition = %s AND _kafka_offset = %s"
        self.sql(f"INSERT INTO tweets SELECT * FROM tweets {where}", partition, offset)

    def delete_dead_letter(self) -> None:
        self.sql("DELETE FROM kpipe_errors WHERE dead_letter LIMIT 1")

    def move_lane(self, partition: int, to: int) -> None:
        self.sql("UPDATE kpipe_ledger SET next_offset = %s WHERE `partition` = %s AND lane_end IS NULL", to, partition)

    def erase_lane(self, partition: int) -> None:
        self.sql("DELETE FROM kpipe_ledger WHERE `partition` = %s", partition)

    def drop_table(self) -> None:
        self.sql("DROP TABLE tweets")
