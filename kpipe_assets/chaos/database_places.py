"""Places of copies in database servers: a schema in PostgreSQL, a database in MariaDB and MySQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import DestinationError, InvalidPipeline
from resources.destinations.credentials import rotating

__all__ = ["MySQLPlace", "PostgresPlace"]

_MARK = "kpipe chaos "


class PostgresPlace:
    """A schema in the database of the real table. Its comment is the mark.

    Args:
        pipeline: definition of the pipeline that is copied.
        name: name of the copy.
    """

    def __init__(self, pipeline: Pipeline, name: str) -> None:
        from psycopg import conninfo

        from resources.destinations.postgres.connection import SECRETS, Server

        self._name, self._secrets = name, rotating(pipeline.into.credentials, SECRETS)
        address = pipeline.into.database
        if address is None:
            raise InvalidPipeline(f"pipeline {pipeline.name}: into.database is missing", "postgresql://user@host:5432/database")
        self._server = Server(address, self._secrets, "kpipe chaos")
        known: dict[str, Any] = dict(conninfo.conninfo_to_dict(address))
        options = f"{known.get('options') or ''} -csearch_path={name}".strip()
        self._address = conninfo.make_conninfo("", **{**known, "options": options})

    def describe(self) -> str:
        """See `Place`."""
        return f"schema {self._name} of PostgreSQL {self._server.place}"

    def into(self) -> Mapping[str, Any]:
        """See `Place`."""
        return {"database": self._address}

    def create(self) -> None:
        """See `Place`. Check that connections of the copy use the schema: a connection pool may ignore it."""
        from resources.destinations.postgres.connection import Server

        hint = f"GRANT CREATE ON DATABASE ... TO the user of {self._server.place}"
        with self._connected(hint) as raw, raw.transaction():
            raw.execute(f'CREATE SCHEMA "{self._name}"')
            raw.execute(f"COMMENT ON SCHEMA \"{self._name}\" IS '{_MARK}{self._name}'")
        with Server(self._address, self._secrets, "kpipe chaos").connect() as raw:
            found = raw.execute("SELECT current_schema()::text").fetchone()
        if found is None or found[0] != self._name:
            self.drop()
            raise DestinationError(
                f"PostgreSQL {self._server.place}: search_path: expected {self._name}, found {found and found[0]}",
                "connect to the server itself: a connection pool ignores `options`",
            )

    def drop(self) -> None:
        """See `Place`."""
        with self._connected("remove it by hand") as raw, raw.transaction():
            found = raw.execute(
                "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %s", [self._name]
            ).fetchone()
            if found is None:
                return
            if found[0] != f"{_MARK}{self._name}":
                raise DestinationError(f"{self.describe()}: not created by kpipe chaos", "remove it by hand")
            raw.execute(f'DROP SCHEMA "{self._name}" CASCADE')

    @contextmanager
    def _connected(self, hint: str) -> Iterator[Any]:
        import psycopg

        with self._server.connect() as raw:
            try:
                yield raw
            except psycopg.Error as error:
                text = " ".join(str(error).split())
                raise DestinationError(f"{self.describe()}: {text}", hint) from None


class MySQLPlace:
    """A database on the server of the real table. An empty table is the mark.

    Args:
        pipeline: definition of the pipeline that is copied.
        name: name of the copy.
    """

    def __init__(self, pipeline: Pipeline, name: str) -> None:
        from resources.destinations.mysql.connection import SECRETS, Server

        address = pipeline.into.database
        if address is None:
            raise InvalidPipeline(f"pipeline {pipeline.name}: into.database is missing", "mysql://user@host:3306/database")
        self._name, self._mark = name, f"{name}_mark"
        self._server = Server(address, rotating(pipeline.into.credentials, SECRETS), "kpipe chaos")
        self._address = urlunsplit(urlsplit(address)._replace(path=f"/{quote(name)}"))

    def describe(self) -> str:
        """See `Place`."""
        return f"database {self._name} of {self._server.host}:{self._server.port}"

    def into(self) -> Mapping[str, Any]:
        """See `Place`."""
        return {"database": self._address}

    def create(self) -> None:
        """See `Place`."""
        with self._executing("GRANT ALL ON `\\_\\_kpipe\\_chaos\\_%`.* TO the user") as execute:
            execute(f"CREATE DATABASE `{self._name}`")
            execute(f"CREATE TABLE `{self._name}`.`{self._mark}` (id INT)")

    def drop(self) -> None:
        """See `Place`."""
        with self._executing("remove it by hand") as execute:
            databases = execute("SELECT schema_name FROM information_schema.schemata WHERE schema_name = %s", self._name)
            if not databases:
                return
            tables = execute("SELECT table_name FROM information_schema.tables WHERE table_schema = %s", self._name)
            if tables and (self._mark,) not in tables:
                raise DestinationError(f"{self.describe()}: not created by kpipe chaos", "remove it by hand")
            execute(f"DROP DATABASE `{self._name}`")

    @contextmanager
    def _executing(self, hint: str) -> Iterator[Any]:
        import pymysql

        with self._server.session() as session, session.raw.cursor() as cursor:

            def execute(statement: str, *parameters: str) -> Any:
                cursor.execute(statement, parameters)
                return cursor.fetchall()

            try:
                yield execute
            except pymysql.err.Error as error:
                text = " ".join(str(error.args[-1] if error.args else error).split())
                raise DestinationError(f"{self.describe()}: {text}", hint) from None
