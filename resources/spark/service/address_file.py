"""The file in KPIPE_HOME with the path of the service's socket.

It exists only while the service's process runs: its supervisor removes what a killed process has left behind.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from kpipe.errors import KpipeError

__all__ = ["path", "publish", "published", "remove", "withdraw"]

_FILE = "serve.spark.json"
_SHOWN = 100


def path(state: Path) -> Path:
    """Return the file's path.

    Args:
        state: the folder of state in KPIPE_HOME.
    """
    return state / _FILE


def publish(state: Path, address: Path) -> None:
    """Write the socket's path to the file, which only this user can read. An earlier one is replaced.

    Args:
        state: the folder of state in KPIPE_HOME.
        address: path of the socket.

    Raises:
        OSError: the file cannot be written.
    """
    handle, temporary = tempfile.mkstemp(dir=state, prefix=".new-")  # mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            json.dump({"socket": str(address)}, out)
        Path(temporary).replace(path(state))
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def published(state: Path) -> Path | None:
    """Return the path of the socket; None if there is no file: no service runs, or it is starting.

    Raises:
        KpipeError: the file cannot be read, or is damaged.
    """
    file = path(state)
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KpipeError(f"{file} cannot be read: {error.strerror}") from error
    try:
        return Path(_socket(json.loads(data)))
    except ValueError as error:
        raise KpipeError(f'{file} is damaged: expected {{"socket": PATH}}, found {_excerpt(data)}') from error


def withdraw(state: Path, address: Path) -> None:
    """Remove the file, unless another service has replaced it, and the socket."""
    try:
        if published(state) in (address, None):
            remove(state)
    except KpipeError:  # the supervisor removes it
        pass
    address.unlink(missing_ok=True)


def remove(state: Path) -> None:
    """Remove the file of a service that has ended.

    Raises:
        OSError: it cannot be removed.
    """
    path(state).unlink(missing_ok=True)


def _socket(fields: object) -> str:
    found = fields.get("socket") if isinstance(fields, dict) else None
    if not isinstance(found, str):
        raise ValueError
    return found


def _excerpt(data: bytes) -> str:
    text = data[:_SHOWN].decode("utf-8", "replace")
    return f"{text!r}{'…' if len(data) > _SHOWN else ''}"
