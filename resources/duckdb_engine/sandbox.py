"""DuckDB's engine of this process, closed to everything but one file and the staging folders.

An engine costs 16 ms of CPU time to make (measured on 2.0.0: it registers all of its functions), attaching a file to it and
detaching it again 1 ms. So engines are kept, and files are attached late and detached at once: while a file is not
attached, anybody else can have it. DuckDB itself refuses a file that another engine of the process has attached.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import duckdb

from resources.duckdb_engine.in_memory import register

__all__ = ["Engine", "closed", "engine", "literal", "quote"]

# Known before the first statement.
_CONFIG = {
    "autoinstall_known_extensions": "false",  # DuckDB would fetch code from the network
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",  # an unknown table's name would be looked up among Python's variables
}
# Files that DuckDB makes beside its own, in the spellings of 1.5 and 2.0.
_BESIDE = (".wal", ".wal.checkpoint", ".wal.recovery", ".checkpoint.wal", ".recovery.wal")
_RESERVED = ("memory", "system", "temp", "")


def quote(*names: str) -> str:
    """Names as a qualified SQL identifier; always quoted, quotes inside doubled."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def literal(text: str) -> str:
    """A text as an SQL literal, for settings only: they take no parameters."""
    return "'" + text.replace("'", "''") + "'"


def closed(
    files: Sequence[str], folders: Sequence[str], temporary: str = "", settings: Sequence[str] = ()
) -> duckdb.DuckDBPyConnection:
    """A new engine that reaches nothing but these files, and what lies in these folders.

    Args:
        files: paths, resolved.
        folders: paths, resolved.
        temporary: folder for what does not fit into memory; empty: nothing may be written.
        settings: others, `name = value`.
    """
    made = duckdb.connect(":memory:", config={**_CONFIG, "temp_directory": temporary})
    register(made)  # ON DUPLICATE KEY UPDATE may call these
    allowed = ", ".join(literal(f"{folder}/") for folder in folders)
    # The order matters: each statement is refused after the one behind it.
    for setting in (
        *settings,
        f"allowed_paths = [{', '.join(map(literal, files))}]",
        f"allowed_directories = [{allowed}]",
        # Rows have Kafka's coordinates; keeping the order of files costs a quarter of an insert (bench of 2 million rows).
        "preserve_insertion_order = false",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        made.execute(f"SET {setting}")
    return made


class Engine:
    """One engine for one file. Threads take turns as processes do: many may read, or one may write.

    Args:
        path: of the file, resolved.
        roots: folders whose files may be read, resolved.
    """

    def __init__(self, path: Path, roots: tuple[Path, ...]) -> None:
        self._path, self._roots, self._lock, self._users, self._read_only = path, roots, threading.Lock(), 0, True
        stem = path.name.split(".")[0]
        self._name = stem if stem.lower() not in _RESERVED else f"{stem}_"
        self._main = self._made()

    def _made(self) -> duckdb.DuckDBPyConnection:
        files = [f"{self._path}{end}" for end in ("", *_BESIDE)]
        return closed(files, [*map(str, self._roots), f"{self._path}.tmp"], f"{self._path}.tmp")

    def acquire(self, read_only: bool) -> duckdb.DuckDBPyConnection | None:
        """A connection in which the file is the current database; None while another thread is in the way.

        Raises:
            duckdb.Error: the file cannot be attached.
        """
        with self._lock:
            if self._users and not (self._read_only and read_only):
                return None
            if not self._users:
                self._attach("READ_ONLY" if read_only else "READ_WRITE")
                self._read_only = read_only
            self._users += 1
            try:
                connection = self._main.cursor()
                connection.execute(f"USE {quote(self._name, 'main')}")
            except BaseException:
                self._leave()
                raise
            return connection

    def _attach(self, mode: str) -> None:
        statement = f"ATTACH {literal(str(self._path))} AS {quote(self._name)} (TYPE duckdb, {mode})"
        try:
            self._main.execute(statement)
        except duckdb.FatalException:
            # An engine that has failed so, as when a disk does, answers everything with that failure from then on.
            self._main.close()
            self._main = self._made()
            self._main.execute(statement)

    def release(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Give it back; what it has not committed is rolled back, and the last one detaches the file."""
        connection.close()
        with self._lock:
            self._leave()

    def _leave(self) -> None:
        self._users -= 1
        if not self._users:
            # DuckDB writes its log into the file now; where it cannot, the log stays, and the file is detached nevertheless.
            with suppress(duckdb.Error):
                self._main.execute(f"DETACH {quote(self._name)}")


def engine(path: Path, roots: tuple[Path, ...]) -> Engine:
    """The engine of this process for that file and these folders."""
    return _engine(path, roots, os.getpid())  # a forked one has lost its threads


@lru_cache(maxsize=64)
def _engine(path: Path, roots: tuple[Path, ...], _process: int) -> Engine:
    return Engine(path, roots)
