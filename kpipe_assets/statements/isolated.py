"""Execute queries outside of this process, with limits of memory, time and the size of the answer.

DuckDB computes 2,048 rows at a time, whatever their size, and its memory limit does not count the values that it returns. So a
query of large rows takes gigabytes, of which this process would keep a part. The queries run in forks of a process that has
imported DuckDB; it starts with the first query, and ends when there are none for a minute.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kpipe.errors import InvalidStatement, KpipeError, by_name
from resources.environ import snapshot
from resources.home import Home

__all__ = ["IsolatedQueries"]

_BEGUN = b"+"  # see isolated_process.py, which imports more than this module
_TRIES = 3
_LONGEST_HEADER = 1 << 20
_LONGEST = 64 << 20
# Destinations may wait for locks and networks.
_ERRORS_S = 60.0
# Longer than any request: its time is limited there.
_SILENT_S = 600.0


class IsolatedQueries:
    """The process that executes queries on a home.

    Args:
        home: KPIPE_HOME.
    """

    def __init__(self, home: Home) -> None:
        self._home, self._lock = home, threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None

    def query(self, statement: str, rows: int, limit_s: float) -> bytes:
        """Execute a query or CREATE TABLE, and return its result as JSON; see `json_rows.rendered`.

        Args:
            statement: text of one statement that no pipeline statement is.
            rows: maximum number of rows.
            limit_s: time after which the query is interrupted, in seconds.

        Raises:
            InvalidStatement: the statement is invalid, takes too long, or needs too much memory.
            KpipeError: it failed.
        """
        return self._ask({"statement": statement, "rows": rows, "limit_s": limit_s})

    def errors(self, pipeline: str, rows: int, limit_s: float = _ERRORS_S) -> bytes:
        """Return dead letters and failed runs as JSON, newest first.

        Raises:
            KpipeError: the destination cannot be read.
        """
        return self._ask({"errors": pipeline, "rows": rows, "limit_s": limit_s})

    def close(self) -> None:
        """End the process. Queries at work end by themselves."""
        with self._lock:
            self._forget()

    def _ask(self, request: Mapping[str, Any]) -> bytes:
        for _ in range(_TRIES):
            connection = self._connected()
            if connection is None:
                continue
            with connection:
                with suppress(OSError):  # it is answered without having been read to its end
                    connection.sendall(json.dumps(request).encode() + b"\n")
                try:
                    return _answer(connection)
                except (EOFError, TimeoutError, MemoryError) as error:
                    raise _unanswered(request) from error
        raise KpipeError("the process for queries ends as soon as it has started", "see what kpipe serve prints")

    def _connected(self) -> socket.socket | None:
        """Return a connection to a fork; None if the process has ended: there was no request for some time, or it was killed."""
        ours, theirs = socket.socketpair()
        ours.settimeout(_SILENT_S)
        begun = False
        try:
            with theirs, self._lock:
                try:
                    self._send(theirs)
                except OSError:
                    self._forget()
                    return None
            begun = ours.recv(1) == _BEGUN
            return ours if begun else None
        finally:
            if not begun:
                ours.close()

    def _send(self, connection: socket.socket) -> None:
        if self._channel is None:
            self._channel, other = socket.socketpair()
            with other:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "kpipe_assets.statements.isolated_process", str(other.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env={**snapshot(), "KPIPE_HOME": str(self._home.path)},
                    pass_fds=[other.fileno()],
                )
        socket.send_fds(self._channel, [b"q"], [connection.fileno()])

    def _forget(self) -> None:
        if self._channel is not None and self._process is not None:
            self._channel.close()
            self._process.kill()  # its forks end by themselves
            self._process.wait()
        self._channel = self._process = None


def _answer(connection: socket.socket) -> bytes:
    """Return the body of an answer.

    Raises:
        EOFError: the fork was killed.
        MemoryError: it has reached its limit.
        KpipeError: the request failed.
    """
    with connection.makefile("rb") as stream:
        line = stream.readline(_LONGEST_HEADER)
        if not line.endswith(b"\n"):
            raise EOFError
        header = json.loads(line)
        if header.get("memory"):
            raise MemoryError
        if "error" in header:
            raise by_name(header["error"])(header["what"], header["hint"]).about(*header["field"])
        body = stream.read(min(header["size"], _LONGEST))
    if len(body) != header["size"]:
        raise EOFError
    return body


def _unanswered(request: Mapping[str, Any]) -> InvalidStatement:
    """Return the error for a fork that was killed, or whose memory did not suffice."""
    if "errors" in request:
        return InvalidStatement(
            f"the newest {request['rows']:,} errors of {request['errors']} take too much memory, or too long",
            "lower `limit`, or use kpipe errors",
        )
    return InvalidStatement(
        "the query takes too much memory, or does not end",
        "select fewer columns, fewer rows or a part of a long text; or use kpipe sql, which has no such limit",
    )
