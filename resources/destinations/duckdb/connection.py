"""Connections to one DuckDB file: opened late, hardened, closed at once, and a held lock waited for.

One process at a time can have the file (others wait), so nothing here keeps it longer than a transaction.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb

from kpipe.errors import DestinationBusy, DestinationError

__all__ = ["Connection", "Database", "literal", "quote"]

Connection = duckdb.DuckDBPyConnection

# Known before the first statement; these may differ from the settings of no other connection of this process.
_CONFIG = {
    "autoinstall_known_extensions": "false",  # DuckDB would fetch code from the network
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",  # an unknown table's name would be looked up among Python's variables
}
_FIRST_NAP_S, _LONGEST_NAP_S = 0.01, 0.2  # a commit takes some 50 ms: look again soon, then seldom
_HOLDER = re.compile(r"held in (?P<program>.+?) \(PID (?P<pid>\d+)\)")
# Settings are those of the database, shared by all connections of a process: one at a time may make them.
_GATE = threading.Lock()


def quote(*names: str) -> str:
    """Names as a qualified SQL identifier; always quoted, quotes inside doubled."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def literal(text: str) -> str:
    """A text as an SQL literal, for settings only: they take no parameters."""
    return "'" + text.replace("'", "''") + "'"


class Database:
    """A DuckDB file.

    Args:
        path: of the file; made on the first write, with its folder.
        roots: folders whose files may be read.
        lock_timeout_s: longest wait for another process.
    """

    def __init__(self, path: Path, roots: Sequence[Path], lock_timeout_s: float = 30) -> None:
        # The resolved path: a name such as `md:x` must not select an extension, and DuckDB knows files by their names.
        self.path = path.expanduser().resolve()
        self.roots = tuple(root.expanduser().resolve() for root in roots)
        self.lock_timeout_s = lock_timeout_s

    def exists(self) -> bool:
        """Whether the file is there."""
        return self.path.exists()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection that cannot write; the file must exist. Many processes may have one while none writes.

        Raises:
            DestinationBusy, DestinationError.
        """
        with self._connected(read_only=True) as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A connection that may write. Whatever was not committed when it closes is rolled back.

        Raises:
            DestinationBusy, DestinationError.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DestinationError(f"cannot make the folder {self.path.parent}: {error.strerror}") from error
        with self._connected(read_only=False) as connection:
            yield connection

    @contextmanager
    def _connected(self, read_only: bool) -> Iterator[Connection]:
        connection = self._open(read_only)
        try:
            yield connection
        finally:
            connection.close()

    def _open(self, read_only: bool) -> Connection:
        if "?" in str(self.path):
            raise DestinationError(f"{self.path}: DuckDB cannot keep a log beside a file whose path has a '?'", "move it")
        deadline, nap = time.monotonic() + self.lock_timeout_s, _FIRST_NAP_S
        while True:
            try:
                connection = duckdb.connect(str(self.path), read_only=read_only, config=dict(_CONFIG))
            except duckdb.Error as error:
                holder = _holder(str(error))
                if holder is None:
                    raise self._unopened(error) from error
            else:
                if self._harden(connection):
                    return connection
                connection.close()
                holder = "this process, with other staging folders"
            if time.monotonic() >= deadline:
                raise DestinationBusy(
                    f"{self.path} is held by {holder}; waited {self.lock_timeout_s:g} s",
                    "close that connection (DuckDB lets one process at a time have a file), then run it again",
                )
            time.sleep(nap * random.uniform(0.5, 1))  # only so that two do not keep colliding
            nap = min(nap * 2, _LONGEST_NAP_S)

    def _harden(self, connection: Connection) -> bool:
        """Close the database to everything but itself and the staging folders; False when it is closed otherwise.

        The order matters: each statement is refused after the one behind it.
        """
        wanted = [f"{root}/" for root in self.roots]
        try:
            with _GATE:
                row = connection.execute(
                    "SELECT current_setting('lock_configuration'), current_setting('allowed_directories')"
                ).fetchone()
                assert row is not None
                if row[0]:
                    return set(wanted) <= set(row[1])
                connection.execute(f"SET allowed_directories = [{', '.join(map(literal, wanted))}]")
                connection.execute("SET enable_external_access = false")
                connection.execute("SET lock_configuration = true")
        except BaseException:
            connection.close()
            raise
        return True

    def _unopened(self, error: duckdb.Error) -> DestinationError:
        text = str(error)
        if "WAL" in text:
            return DestinationError(
                f"{self.path}: its write-ahead log cannot be replayed: {text}",
                f"keep {self.path.name}.wal: it may hold committed rows together with their offsets. Copy both files"
                " away, then restore a backup of both, or open the copy with the DuckDB version that wrote it",
            )
        return DestinationError(f"cannot open {self.path}: {text}")


def _holder(text: str) -> str | None:
    """Who holds the file, from DuckDB's message; None when the message says something else."""
    if "different configuration" in text or "file handle conflict" in text:
        return "this process, through another connection"
    if "Could not set lock" not in text:
        return None
    found = _HOLDER.search(text)
    return f"{found['program']} (PID {found['pid']})" if found else "another process"
