"""Execute the requests of `isolated.py`, each in a fork of this process; see there.

Usage: `python -m kpipe_assets.statements.isolated_process CHANNEL`. CHANNEL is the file descriptor of a Unix socket. Each message
on it is one byte, with the file descriptor of a connection: a line of JSON comes from there, and the answer goes there.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import duckdb

from kpipe.errors import KpipeError
from kpipe.process_isolation import deny_tracing
from kpipe.sql import statements as s
from kpipe.sql.parser import read
from kpipe_assets.sensors.sensor_state import SensorStates
from kpipe_assets.statements.json_rows import rendered, rendered_list
from kpipe_assets.statements.queries import query
from kpipe_assets.terminal import unexpected
from resources.available_memory import available_bytes
from resources.destinations import open_destination
from resources.duckdb_engine.memory_limit import LEAST_BYTES, VARIABLE, engine_bytes
from resources.home import Home

__all__ = ["BEGUN", "main"]

#: First byte of an answer: the request was received, so another process must not execute it again.
BEGUN = b"+"
# Without requests for so long, the process ends.
_IDLE_S = 60.0
# Part of the machine's or the container's memory, and its bounds. DuckDB takes a third before it writes to disk; values that it
# returns are not counted there. Two requests run at once.
_SHARE, _LEAST_BYTES, _MOST_BYTES = 4, 1 << 29, 3 << 29
# A query that does not end by itself, such as one in a function of DuckDB that takes long, is killed.
_GRACE_S = 10.0


def main() -> int:
    """Fork for each request until the other side closes the channel, or sends none for some time."""
    deny_tracing()
    sys.excepthook = unexpected
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that the system forgets forks that have ended
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the service ends this process
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        while select.select([channel], [], [], _IDLE_S)[0]:
            message, handles, _, _ = socket.recv_fds(channel, 1, 1)
            if not message:
                return 0
            with socket.socket(fileno=handles[0]) as connection, suppress(OSError):
                connection.sendall(BEGUN)
                if os.fork() == 0:
                    channel.close()
                    _answer(connection)
    return 0


def _answer(connection: socket.socket) -> NoReturn:
    """Execute the request of a connection, and end this process."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        request = json.loads(_line(connection))
        signal.setitimer(signal.ITIMER_REAL, request["limit_s"] + _GRACE_S)
        try:
            header, body = {}, _executed(request)
        except (KpipeError, MemoryError, duckdb.OutOfMemoryException) as error:
            header, body = _fields(error), b""
        connection.sendall(json.dumps({**header, "size": len(body)}).encode() + b"\n" + body)
        os._exit(0)
    except OSError:  # the other side has closed the connection
        os._exit(1)
    except BaseException as error:
        unexpected(type(error), error, error.__traceback__)
        os._exit(1)


def _executed(request: Mapping[str, Any]) -> bytes:
    most = min(max(_LEAST_BYTES, available_bytes() // _SHARE), _MOST_BYTES)
    os.environ[VARIABLE] = f"{max(LEAST_BYTES, min(engine_bytes(), most // 3)) // 1000}KB"
    with suppress(OSError, ValueError):  # the hard limit is lower
        resource.setrlimit(resource.RLIMIT_DATA, (most, resource.RLIM_INFINITY))
    with suppress(OSError):  # Linux ends this process before the service
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    home = Home.from_env()
    if "errors" in request:
        pipeline = home.pipeline(request["errors"])
        rows = open_destination(pipeline, home).view("errors", limit=request["rows"])
        return rendered_list("errors", rows)
    statement = read(request["statement"])
    assert isinstance(statement, s.Query)
    with SensorStates(home) as states:
        answers = [rendered(result, request["rows"]) for result in query(home, states, statement, limit_s=request["limit_s"])]
    return answers[-1]


def _fields(error: BaseException) -> dict[str, Any]:
    if not isinstance(error, KpipeError):
        return {"memory": True}
    if isinstance(error.__cause__, MemoryError | duckdb.OutOfMemoryException):
        return {"memory": True}
    return {"error": type(error).__name__, "what": error.what, "hint": error.hint, "field": list(error.field or ())}


def _line(connection: socket.socket) -> bytes:
    line = bytearray()
    while not line.endswith(b"\n"):
        part = connection.recv(1 << 16)
        if not part:
            raise ConnectionError
        line += part
    return bytes(line)


if __name__ == "__main__":
    sys.exit(main())
