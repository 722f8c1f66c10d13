"""PostgreSQL as a place that the conformance suite runs in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from kpipe.keys import KeyRule
from kpipe.ports import Destination
from kpipe.schema import Columns, ListOf, Struct, Type
from resources.destinations.postgres import PostgresDestination
from resources.destinations.postgres.types import kpipe_type
from resources.testing.place import Place
from tests.resources.destinations.postgres import PASSWORD, PostgresServer


def value(found: Any, kind: Type) -> Any:
    """What the table holds, as kpipe's type means it. Inside of jsonb, JSON's null and no value are one."""
    if kind == Columns.of({"j": "JSON"}).get("j"):
        return None if found is None else json.dumps(found, separators=(",", ":"))
    if found is None:
        return None
    if isinstance(kind, ListOf):
        return [value(item, kind.item) for item in found]
    if isinstance(kind, Struct):
        return {
            name: "null" if str(item) == "JSON" and found.get(name) is None else value(found.get(name), item)
            for name, item in kind.fields
        }
    return found


class PostgresPlace(Place):
    longest_name = 63
    failure = psycopg.OperationalError
    keyed = True

    def __init__(self, folder: Path, server: PostgresServer, port: int | None = None) -> None:
        super().__init__(folder)
        self.server, self.schema, self.port = server, server.schema(), port

    def open(self, pipeline: str = "tweets", table: str = "tweets", rule: KeyRule | None = None) -> Destination:
        server = self.server.server(self.schema, self.port)
        return PostgresDestination(server, table, pipeline, {"source_type": "KAFKA"}, (self.staging,), rule)

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(self.server.address(self.schema), password=PASSWORD, autocommit=True, row_factory=dict_row)

    def sql(self, statement: str, *parameters: Any) -> list[dict[str, Any]]:
        with self.connect() as connection:
            done = connection.execute(statement, parameters)
            return done.fetchall() if done.description else []

    def rows(self, table: str = "tweets") -> list[dict[str, Any]]:
        described = self.sql(
            "SELECT attname, format_type(atttypid, atttypmod) AS type, col_description(attrelid, attnum) AS note"
            " FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            table,
        )
        if not described:
            return []
        kinds = {row["attname"]: kpipe_type(row["type"], row["note"]) for row in described}
        return [{name: value(item, kinds[name]) for name, item in row.items()} for row in self.sql(f'SELECT * FROM "{table}"')]

    def dead_letters(self, pipeline: str = "tweets") -> int:
        return self.sql("SELECT count(*) AS n FROM kpipe_errors WHERE pipeline_name = %s AND dead_letter", pipeline)[0]["n"]

    def delete_row(self, partition: int, offset: int) -> None:
        self.sql("DELETE FROM tweets WHERE _kafka_partition = %s AND _kafka_offset = %s", partition, offset)

    def double_row(self, partition: int, offset: int) -> None:
        where = "WHERE _kafka_partition = %s AND _kafka_offset = %s"
        self.sql(f"INSERT INTO tweets SELECT * FROM tweets {where}", partition, offset)

    def delete_dead_letter(self) -> None:
        self.sql("DELETE FROM kpipe_errors WHERE ctid = (SELECT min(ctid) FROM kpipe_errors WHERE dead_letter)")

    def move_lane(self, partition: int, to: int) -> None:
        self.sql("UPDATE kpipe_ledger SET next_offset = %s WHERE partition = %s AND lane_end IS NULL", to, partition)

    def erase_lane(self, partition: int) -> None:
        self.sql("DELETE FROM kpipe_ledger WHERE partition = %s", partition)

    def drop_table(self) -> None:
        self.sql("DROP TABLE tweets")
