"""Run one DuckDB engine per file in this process, without access to anything but the file and the staging folders.

Creating an engine takes 16 ms of CPU time (measured on 2.0.0: it registers all of its functions), attaching and detaching a
file 1 ms. So engines are reused, and files are attached late and detached early, because other processes can only open a
detached file. DuckDB rejects a file that another engine of the process has attached.
"""

from __future__ import annotations

import glob
import os
import shutil
import stat
import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import duckdb

from resources.duckdb_engine.memory_limit import engine_setting
from resources.duckdb_engine.mysql_functions import register

__all__ = ["Engine", "closed", "engine", "literal", "quote", "row_group_rows"]

# Set before the first statement.
_CONFIG = {
    "autoinstall_known_extensions": "false",  # DuckDB would download code
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",  # an unknown table would be resolved to a Python variable
}
# Suffixes of DuckDB's additional files, in versions 1.5 and 2.0.
_BESIDE = (".wal", ".wal.checkpoint", ".wal.recovery", ".checkpoint.wal", ".recovery.wal")
_RESERVED = ("memory", "system", "temp", "")
# DuckDB compresses and writes a row group when it is complete, and keeps its rows in memory until then: 122,880 rows of 20 kB
# are 2.4 GB. A row group of large rows has fewer of them (docs/adr/0040-memory-of-duckdb.md).
_GROUP_ROWS, _VECTOR_ROWS, _GROUP_BYTES = 122_880, 2048, 64 << 20


def quote(*names: str) -> str:
    """Quote names as a qualified SQL identifier; quotes inside are doubled."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def literal(text: str) -> str:
    """Quote a text as an SQL literal, for settings, which do not support parameters."""
    return "'" + text.replace("'", "''") + "'"


def closed(
    files: Sequence[str], folders: Sequence[str], temporary: str = "", settings: Sequence[str] = ()
) -> duckdb.DuckDBPyConnection:
    """Create an engine that can only access these files, and files in these folders.

    Args:
        files: paths, resolved.
        folders: paths, resolved.
        temporary: folder for data that does not fit into memory; empty: no spilling.
        settings: additional settings, `name = value`.
    """
    made = duckdb.connect(":memory:", config={**_CONFIG, "temp_directory": temporary, "memory_limit": engine_setting()})
    register(made)  # ON DUPLICATE KEY UPDATE may call these
    allowed = ", ".join(literal(f"{folder}/") for folder in folders)
    # The order matters: each setting is locked by the next one.
    for setting in (
        *settings,
        f"allowed_paths = [{', '.join(map(literal, files))}]",
        f"allowed_directories = [{allowed}]",
        # Rows have Kafka's coordinates; preserving their order takes a quarter of an insert's time (bench of 2 million rows).
        "preserve_insertion_order = false",
        # The default of 5 complete row groups for each thread takes more memory and saves no time (the same bench).
        "write_buffer_row_group_count = 1",
        # An estimate of few rows selects a loop over all pairs, 5 times the time with 4,800 ranges, and quadratic.
        "asof_loop_join_threshold = 0",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        made.execute(f"SET {setting}")
    return made


def row_group_rows(row_bytes: int) -> int:
    """Return the number of rows of a row group whose rows have this mean size; DuckDB writes whole vectors."""
    wanted = _GROUP_BYTES // max(1, row_bytes) // _VECTOR_ROWS * _VECTOR_ROWS
    return min(_GROUP_ROWS, max(_VECTOR_ROWS, wanted))


class Engine:
    """One engine for one file. Many threads may read, or one may write, as with processes.

    What does not fit into memory is written to a folder beside the file, which exists while the file is attached. Its name is
    unique, because DuckDB gives temporary files of several processes the same names.

    Args:
        path: of the file, resolved.
        roots: folders whose files may be read, resolved.
    """

    def __init__(self, path: Path, roots: tuple[Path, ...]) -> None:
        self._path, self._roots, self._lock, self._users, self._read_only = path, roots, threading.Lock(), 0, True
        stem = path.name.split(".")[0]
        self._name = stem if stem.lower() not in _RESERVED else f"{stem}_"
        self._temporary = path.with_name(f"{path.name}.tmp-{uuid.uuid4().hex}")
        self._main = self._made()

    def _made(self) -> duckdb.DuckDBPyConnection:
        files = [f"{self._path}{end}" for end in ("", *_BESIDE)]
        return closed(files, [*map(str, self._roots), str(self._temporary)], str(self._temporary))

    def acquire(self, read_only: bool, row_bytes: int = 0) -> duckdb.DuckDBPyConnection | None:
        """Return a connection whose current database is the file; None if another thread's access conflicts.

        Args:
            read_only: whether nothing is written.
            row_bytes: mean size of the rows that will be inserted.

        Raises:
            duckdb.Error: the file cannot be attached.
        """
        with self._lock:
            if self._users and not (self._read_only and read_only):
                return None
            if not self._users:
                self._attach("READ_ONLY" if read_only else f"READ_WRITE, ROW_GROUP_SIZE {row_group_rows(row_bytes)}")
                self._read_only = read_only
                self._make_temporary()
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
            # After a fatal error, such as a disk error, an engine fails every statement: replace it.
            self._main.close()
            self._main = self._made()
            self._main.execute(statement)

    def _make_temporary(self) -> None:
        """Create the folder for data that does not fit into memory, and remove those of killed processes.

        No other process has the file attached while this one may write to it, so no other folder is in use.
        """
        if not self._read_only:
            for folder in self._path.parent.glob(f"{glob.escape(self._path.name)}.tmp-" + "[0-9a-f]" * 32):
                _remove(folder)
        with suppress(OSError):  # without it queries run in memory; a file may be read where nothing can be written
            self._temporary.mkdir(mode=0o700)

    def release(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Close a connection, which rolls back its transaction; the last one detaches the file."""
        connection.close()
        with self._lock:
            self._leave()

    def _leave(self) -> None:
        self._users -= 1
        if not self._users:
            # DuckDB checkpoints its log now; if that fails, the log stays, and the file is detached nevertheless.
            with suppress(duckdb.Error):
                self._main.execute(f"DETACH {quote(self._name)}")
            _remove(self._temporary)


def _remove(folder: Path) -> None:
    """Remove a folder of temporary files, unless it is a link or belongs to another user."""
    with suppress(OSError):
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
            shutil.rmtree(folder, ignore_errors=True)


def engine(path: Path, roots: tuple[Path, ...]) -> Engine:
    """Return the engine of this process for that file and these folders."""
    return _engine(path, roots, os.getpid())  # a forked engine has lost its threads


@lru_cache(maxsize=64)
def _engine(path: Path, roots: tuple[Path, ...], _process: int) -> Engine:
    return Engine(path, roots)
