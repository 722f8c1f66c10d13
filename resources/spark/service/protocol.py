"""Messages between a run and `kpipe serve` over a Unix socket.

A connection begins with a line of JSON from each side: the versions of the run's process, and whether the service accepts
them. Then each request is a batch with its job, and each answer its reports, pickled after their length.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe import __version__
from kpipe.batch.batch import Batch, RangeReport
from kpipe.batch.host_stats import Work
from kpipe.errors import KpipeError, NotAvailable, by_name
from resources.spark.service import data_pickle

if TYPE_CHECKING:  # imports decoders, which a service without batches does not need
    from resources.spark.task.task_spec import Failure, JobSpec

__all__ = [
    "Answer",
    "Environment",
    "Request",
    "greeted",
    "greeting",
    "has_closed",
    "receive",
    "receive_line",
    "refusal",
    "refused",
    "send",
    "send_line",
]

_LONGEST_LINE = 64 << 10
# A job contains the rows of its lookups (`lookups.NAME.max_mb`).
_LONGEST = 2 << 30
_LENGTH = struct.Struct(">Q")


@dataclass(frozen=True)
class Environment:
    """Versions and home of a process, which must be equal in the run and in the service.

    Attributes:
        kpipe, pyspark, python: versions.
        home: KPIPE_HOME, without links.
    """

    kpipe: str
    pyspark: str
    python: str
    home: str

    @classmethod
    def own(cls, home: Path) -> Environment:
        """Return that of this process."""
        return cls(__version__, _pyspark(), platform.python_version(), os.path.realpath(home))

    def differs(self, service: Environment) -> NotAvailable | None:
        """Return the error for a run with this environment; None if the service can run its batches."""
        if self.home != service.home:
            return NotAvailable(
                f"KPIPE_SPARK=service: the service's KPIPE_HOME is {service.home}, this run's is {self.home}",
                "set KPIPE_HOME to the same path for both",
            )
        other = [
            f"{name} {getattr(service, field)} and not {getattr(self, field)}"
            for field, name in (("kpipe", "kpipe"), ("pyspark", "PySpark"), ("python", "Python"))
            if getattr(service, field) != getattr(self, field)
        ]
        if not other:
            return None
        return NotAvailable(
            f"KPIPE_SPARK=service: the service runs {', '.join(other)}",
            "start `kpipe serve` from the environment that this run uses, or unset KPIPE_SPARK",
        )


@dataclass(frozen=True)
class Request:
    """A batch to run.

    Attributes:
        batch: what to read.
        job: for all tasks, as `BatchRunner.run` takes it.
    """

    batch: Batch
    job: JobSpec


@dataclass(frozen=True)
class Answer:
    """Result of a batch.

    Attributes:
        reports: of its pieces.
        work: of all batches of the connection; unspecified after a failure.
        failure: the error; None if every piece was staged.
    """

    reports: tuple[RangeReport, ...]
    work: Work
    failure: Failure | None = None


def send_line(connection: socket.socket, fields: Mapping[str, Any]) -> None:
    """Send a line of JSON."""
    connection.sendall(json.dumps(fields).encode() + b"\n")


def receive_line(connection: socket.socket) -> dict[str, Any]:
    """Receive a line of JSON.

    Raises:
        EOFError: the connection was closed.
        ValueError: what was received is not a line of JSON, or too long.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        part = connection.recv(4096)
        if not part:
            raise EOFError
        line += part
        if len(line) > _LONGEST_LINE:
            raise ValueError("the line is too long")
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ValueError("not an object")
    return fields


def greeting(environment: Environment) -> dict[str, str]:
    """Return the line of a run's process."""
    return asdict(environment)


def greeted(fields: Mapping[str, Any]) -> Environment:
    """Return the environment in the line of a run's process; a field that is missing is empty."""
    return Environment(*(str(fields.get(name, "")) for name in ("kpipe", "pyspark", "python", "home")))


def refused(error: KpipeError) -> dict[str, str]:
    """Return the service's line for a run that it does not accept."""
    return {"error": type(error).__name__, "what": error.what, "hint": error.hint}


def refusal(fields: Mapping[str, Any]) -> KpipeError | None:
    """Return the error in the service's line; None if it accepts the run."""
    if "error" not in fields:
        return None
    return by_name(str(fields["error"]))(str(fields.get("what", "")), str(fields.get("hint", "")))


def send(connection: socket.socket, message: Request | Answer) -> None:
    """Send a message.

    Raises:
        KpipeError: it is too long.
        OSError: the connection was closed.
    """
    data = data_pickle.dumps(message)
    if len(data) > _LONGEST:
        raise KpipeError(
            f"KPIPE_SPARK=service: the job of a batch is too large: expected {_LONGEST:,} bytes at most, found {len(data):,}",
            "lower lookups.NAME.max_mb, or unset KPIPE_SPARK",
        )
    connection.sendall(_LENGTH.pack(len(data)))
    connection.sendall(data)


def receive(connection: socket.socket) -> Any:
    """Receive a message.

    Raises:
        EOFError: the connection was closed.
        ValueError: the message is too long.
        pickle.UnpicklingError: it contains something else than data.
        OSError: the connection was broken.
    """
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if length > _LONGEST:
        raise ValueError(f"{length:,} bytes are too long for a message")
    return data_pickle.loads(_exactly(connection, length))


def _exactly(connection: socket.socket, length: int) -> bytearray:
    data = bytearray(length)
    left = memoryview(data)
    while left:
        read = connection.recv_into(left)
        if not read:
            raise EOFError
        left = left[read:]
    return data


def has_closed(connection: socket.socket) -> bool:
    """Return whether the other side has closed the connection, or sends something. Does not wait, and reads nothing.

    Args:
        connection: without a timeout.
    """
    try:
        connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


@cache
def _pyspark() -> str:
    """Return PySpark's version without importing it."""
    return metadata.version("pyspark")
