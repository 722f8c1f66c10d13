"""Connect to a lake whose catalog is a file: attach late, detach early, as with a DuckDB file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import duckdb

from resources.destinations.ducklake.catalog import FileCatalog
from resources.destinations.ducklake.extension import load
from resources.duckdb_engine import file_engine
from resources.duckdb_engine.file_connection import Connection, Database, FileState
from resources.duckdb_engine.mysql_functions import register
from resources.duckdb_engine.sandbox import closed, literal, quote
from resources.durable_files import make_folder, sync

__all__ = ["SETTINGS", "FileLake", "attach"]

#: Settings of every engine. A persistent secret is a file of the user, which the second ATTACH of an engine would try to read.
#: Rows of kpipe's own tables are kept in the catalog: each change of a row in a Parquet file adds two small files.
SETTINGS = ("allow_persistent_secrets = false", "ducklake_default_data_inlining_row_limit = 1000")
_BESIDE_SQLITE = ("-journal", "-wal", "-shm")


def attach(address: str, name: str, data: Path, options: Sequence[str] = ()) -> str:
    """Return the statement that attaches a lake.

    Args:
        address: of the catalog, in DuckLake's notation.
        name: of the database.
        data: folder of data files.
        options: further ones.
    """
    parts = [f"DATA_PATH {literal(f'{data}/')}", *options]
    return f"ATTACH {literal(f'ducklake:{address}')} AS {quote(name)} ({', '.join(parts)})"


class _Engine(file_engine.Engine):
    """Access of this process to one catalog; see `file_engine.Engine`."""

    def __init__(self, catalog: FileCatalog, data: Path, roots: tuple[Path, ...]) -> None:
        self._catalog, self._data, self._spoiled = catalog, data, False
        super().__init__(catalog.path, roots)

    def _made(self, merging: bool) -> duckdb.DuckDBPyConnection:
        return _sandbox(self._catalog, self._catalog.path, [self._data, *self._roots, self._temporary], str(self._temporary))

    def _open(self, read_only: bool, row_bytes: int, functions: bool) -> None:
        address = f"sqlite:{self._path}" if self._catalog.sqlite else str(self._path)
        mode = ["READ_ONLY"] if read_only else []
        statement = attach(address, self._name, self._data, [*mode, "CREATE_IF_NOT_EXISTS false"])
        try:
            self._main.execute(statement)
        except duckdb.FatalException:  # the engine fails every statement from now on
            self._renew()
            self._main.execute(statement)
        except duckdb.Error:
            self._renew()
            raise
        if functions and self._main not in self._registered:
            register(self._main)
            self._registered.append(self._main)

    def spoil(self) -> None:
        """Replace the engine when its last user leaves: after an error, DuckLake may keep a lock of an SQLite file."""
        self._spoiled = True

    def _leave(self) -> None:
        super()._leave()
        if not self._users and self._spoiled:
            self._renew()

    def _renew(self) -> None:
        self._spoiled = False
        self._main.close()
        self._main = self._engines[True] = self._made(True)


def _sandbox(catalog: FileCatalog, path: Path, folders: Sequence[Path], temporary: str = "") -> duckdb.DuckDBPyConnection:
    ends = _BESIDE_SQLITE if catalog.sqlite else file_engine.BESIDE
    files = [f"{path}{end}" for end in ("", *ends)]
    return closed(files, [*map(str, folders)], temporary, SETTINGS, lambda connection: load(connection, catalog.extensions))


class FileLake(Database):
    """A lake whose catalog is a file.

    Args:
        catalog: the file.
        data: folder of data files, resolved; created by the first write.
        roots: folders of staged files.
        lock_timeout_s: maximum wait for another process that has a DuckDB file open.
    """

    def __init__(self, catalog: FileCatalog, data: Path, roots: Sequence[Path], lock_timeout_s: float = 30) -> None:
        super().__init__(catalog.path, roots, lock_timeout_s)
        self.catalog, self.data, self.metadata_schema = catalog, data, "main"

    @property
    def fresh(self) -> FileLake:
        """Return the lake itself: each connection attaches the file again."""
        return self

    def hurry(self, seconds: float) -> None:
        """Limit the wait; see `Engine.hurry`."""
        self.lock_timeout_s = min(self.lock_timeout_s, seconds)

    def state(self) -> FileState | None:
        """Return what changes with the file; None for SQLite, whose changes may be in a file beside it."""
        return None if self.catalog.sqlite else super().state()

    def settle(self) -> None:
        """Make a commit durable. SQLite ends it by deleting its journal, and does not sync the folder afterwards.

        A power cut could bring the journal back, and with it the state before the commit (sqlite.org, PRAGMA synchronous).

        Raises:
            OSError: fsync failed.
        """
        if self.catalog.sqlite:
            sync(self.catalog.path.parent)

    @contextmanager
    def write(self, row_bytes: int = 0, functions: bool = False) -> Iterator[Connection]:
        """Open a connection that may write; see `Database.write`."""
        make_folder(self.data / "main")
        with super().write(row_bytes, functions) as connection:
            yield connection

    @contextmanager
    def _connected(self, read_only: bool, row_bytes: int = 0, functions: bool = False) -> Iterator[Connection]:
        with super()._connected(read_only, row_bytes, functions) as connection:
            try:
                yield connection
            except duckdb.Error:
                self._engine().spoil()
                raise

    def _engine(self) -> _Engine:
        return _engine(self.catalog, self.data, self.roots, os.getpid())

    def _initialize(self, path: Path) -> None:
        made = _sandbox(self.catalog, path, [self.data])
        try:
            made.execute(attach(f"sqlite:{path}" if self.catalog.sqlite else str(path), "made", self.data))
            made.execute("DETACH made")  # DuckDB checkpoints its log
        finally:
            made.close()


@lru_cache(maxsize=128)
def _engine(catalog: FileCatalog, data: Path, roots: tuple[Path, ...], _process: int) -> _Engine:
    return _Engine(catalog, data, roots)
