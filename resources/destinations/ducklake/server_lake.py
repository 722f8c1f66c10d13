"""Connect to a lake whose catalog is in PostgreSQL. Engines stay attached for the next call, as connections of a pool.

An engine cannot attach a server after it lost access to everything but its folders, and attaching takes a tenth of a second.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb

from kpipe.errors import DestinationBusy, DestinationError
from resources.destinations.credentials import Rotating
from resources.destinations.ducklake.catalog import PostgresCatalog
from resources.destinations.ducklake.extension import load
from resources.destinations.ducklake.file_lake import SETTINGS, attach
from resources.duckdb_engine.file_connection import Connection
from resources.duckdb_engine.mysql_functions import register
from resources.duckdb_engine.sandbox import closed, literal, quote
from resources.durable_files import make_folder
from resources.secrets import redact

__all__ = ["ServerLake"]

_NAME = "lake"
_QUERY = re.compile(r'(Failed to execute query) ".*": ERROR', re.DOTALL)
_NAP_S = 0.2
_MOST = 4  # engines that stay attached for one lake
# Errors that waiting may change.
_PASSING = (
    "Connection refused", "timeout", "timed out", "starting up", "shutting down", "too many", "recovery", "could not",
    "already exists", "duplicate key", "concurrently",  # another run creates the lake
)  # fmt: skip


class ServerLake:
    """A lake whose catalog is in PostgreSQL.

    Args:
        catalog: the server.
        data: folder of data files, resolved.
        roots: folders of staged files.
        keeps: whether engines stay attached.
    """

    def __init__(self, catalog: PostgresCatalog, data: Path, roots: Sequence[Path], keeps: bool = True) -> None:
        self.catalog, self.data = catalog, data
        self.roots = tuple(root.expanduser().resolve() for root in roots)
        self.metadata_schema = catalog.schema
        # With secrets that rotate, an attached engine would connect again with a password that was replaced.
        self._keeps = keeps and not isinstance(catalog.server.secrets, Rotating)
        self._created = False

    @property
    def fresh(self) -> ServerLake:
        """Return the lake for new connections."""
        return ServerLake(self.catalog, self.data, self.roots, keeps=False)

    def hurry(self, seconds: float) -> None:
        """Limit the wait; see `Engine.hurry`."""
        self.catalog.server.timeout.hurry(seconds)

    def exists(self) -> bool:
        """Return whether the database has the tables of a lake.

        Raises:
            DestinationBusy, DestinationError: the server does not answer, or rejects the connection.
        """
        if not self._created:
            with self.catalog.server.session("READ ONLY") as session:
                row = session.execute(
                    "SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'ducklake_metadata'", [self.catalog.schema]
                ).fetchone()
            self._created = row is not None
        return self._created

    def state(self) -> None:
        """Return None: a server's state is not remembered."""

    def settle(self) -> None:
        """Do nothing: the server has made the commit durable (`_durable`)."""

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a connection for reading; the lake must exist."""
        with self._connected() as connection:
            yield connection

    @contextmanager
    def write(self, row_bytes: int = 0, functions: bool = False) -> Iterator[Connection]:
        """Open a connection that may write. Closing it rolls back what was not committed."""
        make_folder(self.data / "main")
        with self._connected() as connection:
            if functions:
                register(connection)
            yield connection

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        idle = _idle(self._key(), os.getpid()) if self._keeps else None
        made = (idle.take() if idle is not None else None) or self._made()
        connection = made.cursor()
        try:
            connection.execute(f"USE {quote(_NAME, 'main')}")
            yield connection
        except duckdb.Error as error:
            connection.close()
            made.close()
            # The same exception, without secrets, and without the statements of a transaction, which have bounds of the rows.
            raise type(error)(_short(str(error), self._secrets().values())) from None
        except BaseException:
            connection.close()
            made.close()
            raise
        connection.close()  # rolls back
        if idle is None or not idle.put(made):
            made.close()

    def _key(self) -> tuple[Any, ...]:
        known = tuple(sorted((name, str(value)) for name, value in self.catalog.parameters.items()))
        return known, self.catalog.schema, tuple(sorted(self._secrets().items())), self.data, self.roots

    def _secrets(self) -> dict[str, str]:
        return {name: str(value) for name, value in dict(self.catalog.server.secrets).items()}

    def _made(self) -> duckdb.DuckDBPyConnection:
        deadline = time.monotonic() + self.catalog.server.timeout.seconds
        while True:
            secrets = self._secrets()
            try:
                return closed(
                    [],
                    [*map(str, (self.data, *self.roots))],
                    "",
                    (),
                    lambda made: self._attach(made, secrets),  # noqa: B023
                )
            except duckdb.Error as error:
                text = " ".join(_short(str(error), secrets.values()).split())
                if not any(word in text for word in _PASSING):
                    raise DestinationError(
                        f"{self.catalog.describe()}: cannot be attached: {text}", "check into.catalog and into.credentials"
                    ) from None
                if time.monotonic() >= deadline:
                    raise DestinationBusy(
                        f"{self.catalog.describe()}: {text}", "start the server, or check into.catalog"
                    ) from None
            time.sleep(_NAP_S)

    def _attach(self, made: duckdb.DuckDBPyConnection, secrets: dict[str, str]) -> None:
        from psycopg import conninfo

        load(made, self.catalog.extensions)
        for setting in SETTINGS:  # before the secret
            made.execute(f"SET {setting}")
        options = [f"METADATA_SCHEMA {literal(self.catalog.schema)}"]
        given = [f"{name.upper()} {literal(value)}" for name, value in secrets.items()]
        if given:
            made.execute(f"CREATE SECRET kpipe (TYPE postgres, {', '.join(given)})")
            options.append("META_SECRET 'kpipe'")
        address = conninfo.make_conninfo(**{**self.catalog.parameters, **self._durable()})
        made.execute(attach(f"postgres:{address}", _NAME, self.data, options))

    def _durable(self) -> dict[str, str]:
        """Return parameters that switch on `synchronous_commit` where the server's setting is off: other values stay.

        If off, a crash of the server would roll back commits that kpipe has reported.
        """
        with self.catalog.server.session("READ ONLY", fresh=True) as session:  # sets the value: `reset_val` is the one before
            row = session.execute("SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'").fetchone()
        return {"options": "-c synchronous_commit=on"} if row == ("off",) else {}


def _short(text: str, secrets: Iterable[str]) -> str:
    """Return a client's message without the query that failed, and with masked secrets."""
    return redact(_QUERY.sub(r"\1: ERROR", text), secrets)


class _Idle:
    """Engines of one lake that no call uses."""

    def __init__(self) -> None:
        self._lock, self._engines = threading.Lock(), list[duckdb.DuckDBPyConnection]()

    def take(self) -> duckdb.DuckDBPyConnection | None:
        """Return an engine whose connection to the server works; None: there is none."""
        while True:
            with self._lock:
                found = self._engines.pop() if self._engines else None
            if found is None:
                return None
            try:
                found.execute(f"SELECT 1 FROM {quote(f'__ducklake_metadata_{_NAME}')}.pg_catalog.pg_am LIMIT 1").fetchone()  # noqa: S608
            except duckdb.Error:
                with suppress(duckdb.Error):
                    found.close()
                continue
            return found

    def put(self, made: duckdb.DuckDBPyConnection) -> bool:
        """Keep an engine; return False if there are enough."""
        with self._lock:
            if len(self._engines) >= _MOST:
                return False
            self._engines.append(made)
            return True


@lru_cache(maxsize=64)
def _idle(key: tuple[Any, ...], _process: int) -> _Idle:
    return _Idle()
