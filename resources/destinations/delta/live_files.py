"""Read the files of a version from Delta's log, with their statistics and deletion vectors, which the library does not return."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kpipe.errors import DestinationError
from resources.destinations.delta.log import entry_name
from resources.destinations.lakehouse.folder import Folder

__all__ = ["KEPT", "is_inside", "live_adds"]

_LOG = "_delta_log"
_ELSEWHERE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")  # an absolute path, or a URL, such as `file:/data`
#: Members of an `add` action that are read.
KEPT = ("path", "partitionValues", "size", "modificationTime", "stats", "deletionVector")


def is_inside(path: str) -> bool:
    """Return whether a file is in the table's folder, by its path in the log."""
    return _ELSEWHERE.match(path) is None


def live_adds(folder: Folder, version: int) -> dict[str, dict[str, Any]]:
    """Return the `add` action of each file of a version, by path. Reads the last checkpoint, and the entries after it.

    Raises:
        DestinationError: the log has a checkpoint of version 2, or entries are missing.
    """
    found, start = dict[str, dict[str, Any]](), -1
    for number, parts in _checkpoints(folder, version):
        start = number
        for name in parts:
            found.update(_of_checkpoint(folder, name))
    for number in range(start + 1, version + 1):
        data = folder.read(entry_name(number))
        if data is None:
            raise DestinationError(
                f"Delta {folder.place}: the log of version {number} is missing",
                "create a checkpoint of the table: DeltaTable(...).create_checkpoint()",
            )
        for action in map(json.loads, data.splitlines()):
            if "remove" in action:
                found.pop(action["remove"]["path"], None)
        for action in map(json.loads, data.splitlines()):  # an entry may remove and add one path: its vector changes
            if "add" in action:
                found[action["add"]["path"]] = {name: action["add"].get(name) for name in KEPT}
    return found


def _second(folder: Folder) -> DestinationError:
    return DestinationError(
        f"Delta {folder.place}: keys and maintenance are not supported with checkpoints of version 2", "choose another table"
    )


def _checkpoints(folder: Folder, version: int) -> list[tuple[int, list[str]]]:
    """Return the newest whole checkpoint up to a version, with the names of its parts; none if there is none."""
    parts: dict[tuple[int, int], list[str]] = {}
    for name in folder.names(_LOG):
        pieces = name.split(".")
        if len(pieces) < 3 or pieces[1] != "checkpoint" or not pieces[0].isdigit() or int(pieces[0]) > version:
            continue
        if pieces[2:] == ["parquet"]:
            parts.setdefault((int(pieces[0]), 1), []).append(name)
        elif len(pieces) == 5 and pieces[2].isdigit() and pieces[3].isdigit():
            parts.setdefault((int(pieces[0]), int(pieces[3])), []).append(name)
        else:
            raise _second(folder)
    whole = [(number, sorted(names)) for (number, count), names in parts.items() if len(names) == count]
    return [max(whole)] if whole else []


def _of_checkpoint(folder: Folder, name: str) -> dict[str, dict[str, Any]]:
    found = dict[str, dict[str, Any]]()
    with folder.opened(f"{_LOG}/{name}") as stream, pq.ParquetFile(stream) as source:
        # A checkpoint of version 2 may have the name of one of version 1: then other files may have the actions.
        if "sidecar" in source.schema_arrow.names:
            others = source.read(columns=["sidecar"])["sidecar"]
            if others.null_count < len(others):
                raise _second(folder)
        for batch in source.iter_batches(columns=["add"]):
            for add in pa.table(batch).column("add").drop_null().to_pylist():
                kept: Mapping[str, Any] = {key: add.get(key) for key in KEPT}
                vector = {key: value for key, value in (add.get("deletionVector") or {}).items() if value is not None}
                values = dict(add["partitionValues"] or ())
                found[add["path"]] = {**kept, "partitionValues": values, "deletionVector": vector or None}
    return found
