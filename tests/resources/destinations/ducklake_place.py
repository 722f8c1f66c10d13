"""DuckLake as a place that the conformance suite runs in, with each type of catalog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from kpipe.interfaces import Destination
from kpipe.tables.upsert import KeyRule
from resources.destinations.ducklake import DuckLakeEngine
from resources.destinations.ducklake.catalog import FileCatalog, postgres_catalog
from resources.destinations.ducklake.extension import load
from resources.destinations.ducklake.file_lake import FileLake
from resources.destinations.ducklake.server_lake import ServerLake
from resources.destinations.sql.destination import SqlDestination
from resources.destinations.sql.engine import TargetTable
from tests.resources.destinations.place import DuckDBStatements
from tests.servers.postgres import PASSWORD, PostgresServer

EXTENSIONS = {
    "duckdb": ("ducklake",),
    "sqlite": ("ducklake", "sqlite_scanner"),
    "postgres": ("ducklake", "postgres_scanner"),
}


class DuckLakePlace(DuckDBStatements):
    keyed = True
    keeps = True
    failure = duckdb.IOException

    def __init__(self, folder: Path, kind: str = "duckdb", server: PostgresServer | None = None) -> None:
        super().__init__(folder)
        self.kind, self.server = kind, server
        self.data, self.path = folder / "lake data", folder / f"it's {kind}.db"
        self.schema = server.schema() if server is not None else "main"

    def lake(self) -> FileLake | ServerLake:
        if self.server is not None:
            server = self.server.server(self.schema)
            return ServerLake(postgres_catalog(self.server.address(self.schema), server), self.data, (self.staging,))
        return FileLake(FileCatalog(self.path, self.kind == "sqlite"), self.data, (self.staging,), 30)

    def open(self, pipeline: str = "tweets", table: str = "tweets", rule: KeyRule | None = None) -> Destination:
        engine = DuckLakeEngine(self.lake(), (self.staging,))
        return SqlDestination(engine, pipeline, [TargetTable(table, rule)], {"source_type": "KAFKA"})

    @contextmanager
    def opened(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """As any client opens the lake, under another name."""
        path = str(self.path).replace("'", "''")
        options, address = f"DATA_PATH '{self.data}/'", f"sqlite:{path}" if self.kind == "sqlite" else path
        with duckdb.connect() as connection:
            load(connection, EXTENSIONS[self.kind])
            if self.server is not None:
                secret = f"HOST '127.0.0.1', PORT {self.server.port}, USER 'loader', DATABASE 'postgres', PASSWORD '{PASSWORD}'"
                connection.execute(f"CREATE SECRET (TYPE postgres, {secret})")
                address, options = "postgres:", f"{options}, METADATA_SCHEMA '{self.schema}'"
            connection.execute(f"ATTACH 'ducklake:{address}' AS elsewhere ({options})")
            connection.execute("USE elsewhere.main")
            yield connection
            connection.execute("USE memory")
            connection.execute("DETACH elsewhere")

    def sql(self, statement: str, *parameters: Any) -> list[tuple]:
        with self.opened() as connection:
            return connection.execute(statement, list(parameters)).fetchall()

    def rows(self, table: str = "tweets") -> list[dict[str, Any]]:
        if self.server is None and not self.path.exists():
            return []
        with self.opened() as connection:
            known = connection.execute(
                "SELECT 1 FROM duckdb_tables() WHERE database_name = 'elsewhere' AND table_name = ?", [table]
            ).fetchall()
            return connection.sql(f'SELECT * FROM main."{table}"').to_arrow_table().to_pylist() if known else []
