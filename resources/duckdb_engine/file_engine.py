"""Run DuckDB engines for files in this process, one file at a time for each.

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
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import duckdb

from resources.duckdb_engine.memory_limit import engine_bytes
from resources.duckdb_engine.mysql_functions import register
from resources.duckdb_engine.row_groups import VECTOR_ROWS, RowSizes, choose
from resources.duckdb_engine.sandbox import closed, literal, quote
from resources.duckdb_engine.turns import Turn, Turns

__all__ = ["BESIDE", "Engine", "engine"]

#: Suffixes of DuckDB's additional files, in versions 1.5 and 2.0.
BESIDE = (".wal", ".wal.checkpoint", ".wal.recovery", ".checkpoint.wal", ".recovery.wal")
_RESERVED = ("memory", "system", "temp", "")
# Of an engine that does not merge row groups. Its commits checkpoint instead of writing a log, which takes three times the
# memory of the rows: they are copied, and then written to a buffer.
_LARGE_ROWS = ("max_vacuum_tasks = 0", "wal_autocheckpoint = '1KB'", "auto_checkpoint_skip_wal_threshold = 0")
_MEASURE_BYTES = 16 << 20  # written in this process, after which the rows of the tables are measured again


class Engine:
    """Access to one file. Many threads may read, or one may write, as with processes.

    Writers of large rows have an engine of their own, as its settings cannot be changed later.

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
        self._main = self._made(True)
        self._engines = {True: self._main}  # by whether it merges row groups
        self._registered: list[duckdb.DuckDBPyConnection] = []  # engines with the functions of `register`
        self._memory, self._sizes = engine_bytes(), RowSizes()
        self._measured: tuple[int, ...] = ()  # state of the file when nothing had to be measured again
        self._written = 0
        self._turns, self._taken = Turns(), dict[int, Turn]()

    def _made(self, merging: bool) -> duckdb.DuckDBPyConnection:
        files = [f"{self._path}{end}" for end in ("", *BESIDE)]
        folders = [*map(str, self._roots), str(self._temporary)]
        return closed(files, folders, str(self._temporary), () if merging else _LARGE_ROWS)

    def acquire(
        self, read_only: bool, row_bytes: int = 0, functions: bool = False, timeout_s: float = 0.0
    ) -> duckdb.DuckDBPyConnection | None:
        """Return a connection whose current database is the file; None if other threads use it until the timeout.

        Args:
            read_only: whether nothing is written.
            row_bytes: mean size of the rows that will be inserted.
            functions: whether a statement may call the functions of `register`; only for writing.
            timeout_s: maximum wait for other threads of this process, in seconds.

        Raises:
            duckdb.Error: the file cannot be attached.
        """
        turn = self._turns.enter(read_only, timeout_s)
        if turn is None:
            return None
        try:
            connection = self._connection(read_only, row_bytes, functions)
        except BaseException:
            self._turns.leave(turn)
            raise
        self._taken[id(connection)] = turn
        return connection

    def _connection(self, read_only: bool, row_bytes: int, functions: bool) -> duckdb.DuckDBPyConnection:
        with self._lock:
            if not self._users:
                self._open(read_only, row_bytes, functions)
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

    def _open(self, read_only: bool, row_bytes: int, functions: bool) -> None:
        """Attach the file, to write with row groups that fit the rows of the session and those of its tables."""
        if read_only:
            self._attach("READ_ONLY", True)
            return
        if not self._measured or self._state() != self._measured:
            self._attach("READ_ONLY", True)
            try:
                self._sizes.measure(self._main, self._name)
            finally:
                self._main.execute(f"DETACH {quote(self._name)}")
        self._written += row_bytes * VECTOR_ROWS
        groups = choose(row_bytes, self._sizes.largest, self._memory)
        self._attach(f"READ_WRITE, ROW_GROUP_SIZE {groups.rows}", groups.merging)
        if functions and self._main not in self._registered:
            register(self._main)
            self._registered.append(self._main)

    def _state(self) -> tuple[int, ...]:
        """Return what changes when a process writes to the file; empty if there is none."""
        with suppress(OSError):
            found = self._path.stat()
            return found.st_ino, found.st_mtime_ns, found.st_size
        return ()

    def _attach(self, mode: str, merging: bool) -> None:
        statement = f"ATTACH {literal(str(self._path))} AS {quote(self._name)} (TYPE duckdb, {mode})"
        if merging not in self._engines:
            self._engines[merging] = self._made(merging)
        self._main = self._engines[merging]
        try:
            self._main.execute(statement)
        except duckdb.FatalException:
            # After a fatal error, such as a disk error, an engine fails every statement: replace it.
            self._main.close()
            self._main = self._engines[merging] = self._made(merging)
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
        turn = self._taken.pop(id(connection))
        try:
            connection.close()
            with self._lock:
                self._leave()
        finally:
            self._turns.leave(turn)

    def _leave(self) -> None:
        self._users -= 1
        if not self._users:
            # DuckDB checkpoints its log now; if that fails, the log stays, and the file is detached nevertheless.
            with suppress(duckdb.Error):
                self._main.execute(f"DETACH {quote(self._name)}")
            _remove(self._temporary)
            if not self._read_only:
                self._measured = self._state() if self._written < _MEASURE_BYTES else ()
                self._written = self._written if self._measured else 0


def _remove(folder: Path) -> None:
    """Remove a folder of temporary files, unless it is a link or belongs to another user."""
    with suppress(OSError):
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
            shutil.rmtree(folder, ignore_errors=True)


def engine(path: Path, roots: tuple[Path, ...]) -> Engine:
    """Return the engine of this process for that file and these folders."""
    return _engine(path, roots, os.getpid())  # a forked engine has lost its threads


# A service may serve a hundred files. An engine takes some 5 MB, and 80 ms of CPU to make.
@lru_cache(maxsize=128)
def _engine(path: Path, roots: tuple[Path, ...], _process: int) -> Engine:
    return Engine(path, roots)
