"""Connect to a DuckDB file: open late, restrict the connection, close early, and wait for locks of other processes.

Only one process at a time can open the file for writing, so a connection lasts no longer than a transaction.
"""

from __future__ import annotations

import os
import random
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb

from kpipe.errors import DestinationBusy, DestinationError
from resources.duckdb_engine.file_engine import Engine, engine
from resources.duckdb_engine.sandbox import literal, quote
from resources.durable_files import make_folder, sync

__all__ = ["Connection", "Database", "FileState", "literal", "quote"]

Connection = duckdb.DuckDBPyConnection
FileState = tuple[int, int, int, int, int]

_FIRST_NAP_S, _LONGEST_NAP_S = 0.01, 0.2  # a commit takes some 50 ms: retry soon, then less often
_TOO_NEW = re.compile(
    r"version number (?P<found>\d+), but we can only read (?:storage )?versions? (?:between \d+ and )?(?P<newest>\d+)"
)
_HOLDER = re.compile(r"held in (?P<program>.+?) \(PID (?P<pid>\d+)\)")


class Database:
    """A DuckDB file.

    Args:
        path: of the file; created by the first write, with its folder.
        roots: folders whose files may be read.
        lock_timeout_s: maximum wait for another process.
    """

    def __init__(self, path: Path, roots: Sequence[Path], lock_timeout_s: float = 30) -> None:
        # The resolved path: a name such as `md:x` must not select an extension, and DuckDB identifies files by name.
        self.path = path.expanduser().resolve()
        self.roots = tuple(root.expanduser().resolve() for root in roots)
        self.lock_timeout_s = lock_timeout_s

    def exists(self) -> bool:
        """Return whether the file exists."""
        return self.path.exists()

    def state(self) -> FileState | None:
        """Return what changes with the file; None: the file is missing, or its log may contain newer commits.

        `stat` only: closing a descriptor of the file would release the locks of this process's engine.
        """
        if self.path.with_name(f"{self.path.name}.wal").exists():
            return None
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a read-only connection; the file must exist. Several processes may read while none writes.

        Raises:
            DestinationBusy, DestinationError.
        """
        with self._connected(read_only=True) as connection:
            yield connection

    @contextmanager
    def write(self, row_bytes: int = 0, functions: bool = False) -> Iterator[Connection]:
        """Open a connection that may write. Closing it rolls back what was not committed.

        Args:
            row_bytes: mean size of the rows that will be inserted; 0: unknown, or small.
            functions: whether a statement may call the functions of mysql_functions.py; registering them imports NumPy.

        Raises:
            DestinationBusy, DestinationError.
        """
        try:
            make_folder(self.path.parent)
        except OSError as error:
            raise DestinationError(f"cannot create folder {self.path.parent}: {error.strerror}") from error
        if not self.exists():
            self._make()
        with self._connected(read_only=False, row_bytes=row_bytes, functions=functions) as connection:
            yield connection

    def _engine(self) -> Engine:
        """Return the engine of this process for the file."""
        return engine(self.path, self.roots)

    def _initialize(self, path: Path) -> None:
        """Write a new file."""
        duckdb.connect(str(path)).close()  # DuckDB syncs it

    def _make(self) -> None:
        """Create a new file atomically: if DuckDB is killed while it creates one, the file cannot be opened.

        Raises:
            DestinationError: the file cannot be written.
        """
        self._check_name()
        aside = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex}")
        try:
            self._initialize(aside)
            with suppress(FileExistsError):  # another run has created it
                os.link(aside, self.path)
            sync(self.path.parent)
        except (duckdb.Error, OSError) as error:
            raise DestinationError(
                f"cannot create {self.path}: {error}", "free space, or set into.database to another file"
            ) from error
        finally:
            aside.unlink(missing_ok=True)

    def _check_name(self) -> None:
        if "?" in str(self.path):
            raise DestinationError(f"{self.path}: DuckDB cannot write a log for a path with '?'", "rename it: into.database")

    @contextmanager
    def _connected(self, read_only: bool, row_bytes: int = 0, functions: bool = False) -> Iterator[Connection]:
        engine, connection = self._open(read_only, row_bytes, functions)
        try:
            yield connection
        finally:
            engine.release(connection)

    def _open(self, read_only: bool, row_bytes: int, functions: bool) -> tuple[Engine, Connection]:
        self._check_name()
        found = self._engine()
        deadline, nap = time.monotonic() + self.lock_timeout_s, _FIRST_NAP_S
        while True:
            try:
                connection = found.acquire(read_only, row_bytes, functions, max(0.0, deadline - time.monotonic()))
                if connection is not None:
                    return found, connection
                holder: str | None = "this process, in another thread"
            except duckdb.Error as error:
                holder = _holder(str(error))
                if holder is None:
                    raise self._unopened(error) from error
            if time.monotonic() >= deadline:
                raise DestinationBusy(
                    f"{self.path} is locked by {holder}; waited {self.lock_timeout_s:g} s",
                    "close that connection (DuckDB allows one process at a time), then run it again",
                )
            time.sleep(nap * random.uniform(0.5, 1))  # jitter, so that two processes do not keep colliding
            nap = min(nap * 2, _LONGEST_NAP_S)

    def _unopened(self, error: duckdb.Error) -> DestinationError:
        text = str(error)
        too_new = _TOO_NEW.search(text)
        if too_new is not None and int(too_new["found"]) > int(too_new["newest"]):
            return DestinationError(
                f"{self.path}: written by a newer DuckDB: expected storage version {too_new['newest']} or older,"
                f" found {too_new['found']}",
                "upgrade it: pip install --upgrade duckdb",
            )
        if "WAL" in text:
            return DestinationError(
                f"{self.path}: its write-ahead log cannot be replayed: {text}",
                f"keep {self.path.name}.wal: it may contain committed rows with their offsets. Copy both files"
                " away, then restore a backup of both, or open the copy with the DuckDB version that wrote it",
            )
        if "Corrupt database" in text:  # a checkpoint overwrites a block that the last one uses: a power cut may tear it
            return DestinationError(
                f"cannot open {self.path}: {text}",
                "move the file and its .wal away, and restore both from a backup: the next run continues from the ledger in it",
            )
        return DestinationError(f"cannot open {self.path}: {text}")


def _holder(text: str) -> str | None:
    """Return who has locked the file, from DuckDB's message; None for other messages."""
    if "different configuration" in text or "file handle conflict" in text:
        return "this process, through another connection"
    if "database is locked" in text:  # SQLite
        return "another process"
    if "Could not set lock" not in text:
        return None
    found = _HOLDER.search(text)
    return f"{found['program']} (PID {found['pid']})" if found else "another process"
