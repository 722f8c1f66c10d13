"""Parse `into.catalog`: the database with DuckLake's metadata, which is a DuckDB file, an SQLite file or a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe.errors import InvalidPipeline

if TYPE_CHECKING:
    from resources.destinations.postgres.connection import Server

__all__ = ["FileCatalog", "PostgresCatalog", "file_catalog", "postgres_catalog"]

_FORMS = "expected duckdb:PATH, sqlite:PATH or postgresql://user@host:5432/database"


@dataclass(frozen=True)
class FileCatalog:
    """A catalog in a file.

    Attributes:
        path: of the file.
        sqlite: whether it is an SQLite database; else a DuckDB database.
    """

    path: Path
    sqlite: bool = False

    @property
    def extensions(self) -> tuple[str, ...]:
        """Names of the extensions that it needs."""
        return ("ducklake", "sqlite_scanner") if self.sqlite else ("ducklake",)

    def describe(self) -> str:
        """Return type and path."""
        return f"DuckLake {'sqlite:' if self.sqlite else ''}{self.path}"


@dataclass(frozen=True)
class PostgresCatalog:
    """A catalog in a PostgreSQL database.

    Attributes:
        server: address and secrets.
        schema: schema of DuckLake's tables.
        parameters: of libpq, without secrets and schema.
    """

    server: Server = field(compare=False)
    schema: str
    parameters: Mapping[str, Any] = field(compare=False)

    extensions: Sequence[str] = ("ducklake", "postgres_scanner")

    def describe(self) -> str:
        """Return type, server and schema."""
        return f"DuckLake postgresql {self.server.place}, schema {self.schema}"


def file_catalog(address: str) -> FileCatalog | None:
    """Parse the address of a file; None: it is not one.

    Raises:
        InvalidPipeline: the path is missing.
    """
    kind, found, path = address.partition(":")
    if not found or kind not in ("duckdb", "sqlite"):
        return None
    if not path or path == ":memory:" or "\x00" in path:
        raise InvalidPipeline(f"into.catalog: no path of a file: {_FORMS}", f"write {kind}:/path/of/a/file")
    return FileCatalog(Path(path).expanduser().resolve(), kind == "sqlite")


def postgres_catalog(address: str, server: Server) -> PostgresCatalog:
    """Return the catalog of a server. Its schema is that of `options=-csearch_path=`, or `public`.

    Raises:
        InvalidPipeline: the address has other options.
    """
    from psycopg import conninfo

    parameters = dict(server.parameters)
    options = str(conninfo.conninfo_to_dict(address).get("options") or "")
    parameters.pop("options", None)
    if not options:
        return PostgresCatalog(server, "public", parameters)
    name = options.replace(" ", "").removeprefix("-csearch_path=")
    if f"-csearch_path={name}" != options.replace(" ", "") or not name or "," in name or '"' in name:
        raise InvalidPipeline(
            "into.catalog: options: expected -csearch_path=SCHEMA, found others", "write ?options=-csearch_path%3DSCHEMA"
        )
    return PostgresCatalog(server, name, parameters)
