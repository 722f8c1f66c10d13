"""Read the files of a Delta version, and replace some of them: what a compaction needs."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from resources.destinations.delta import deletion_vectors as vectors
from resources.destinations.delta import log
from resources.destinations.delta.keyed import DeltaKeys
from resources.destinations.delta.live_files import KEPT, is_inside
from resources.destinations.delta.log import DeltaState, entry_name
from resources.destinations.delta.types import arrow
from resources.destinations.lakehouse.data_files import Brought
from resources.destinations.lakehouse.folder import Folder
from resources.destinations.lakehouse.live_files import LiveFile, Version
from resources.destinations.lakehouse.maintenance.listing import DeleteFile, Listing, Rewritten, StoredFile
from resources.destinations.lakehouse.maintenance.new_files import renamed, write_rows
from resources.destinations.lakehouse.table_format import Overtaken

__all__ = ["DeltaCompaction"]


class DeltaCompaction(DeltaKeys):
    """The methods of `DeltaLake` for a compaction; see `Compacting`."""

    def listed(self, state: DeltaState) -> Listing:
        """Return the files of the version; see `Compacting.listed`."""
        return self._listing(self._adds(state))

    def _listing(self, adds: Mapping[str, Mapping[str, Any]]) -> Listing:
        files, deletes = list[StoredFile](), list[DeleteFile]()
        for path, add in adds.items():
            values = tuple(sorted(add["partitionValues"].items()))
            is_ours = is_inside(path)
            rows = self._counted(path, add) if is_ours else 0
            vector = add.get("deletionVector")
            live = LiveFile(path, rows, 0, 0, values)
            files.append(StoredFile(rows, add["size"], 0, values, is_ours, live, entry=add))
            if vector and is_ours:
                name = f"{path}\n{vectors.identity(vector)}"
                deletes.append(DeleteFile(name, partial(_positions, self._folder, path, vector), values, of=path))
        return Listing(files, deletes)

    def _counted(self, path: str, add: Mapping[str, Any]) -> int:
        rows = json.loads(add["stats"]).get("numRecords") if add.get("stats") else None
        if rows is not None:
            return int(rows)
        with self._folder.opened(unquote(path)) as stream, pq.ParquetFile(stream) as source:
            return int(source.metadata.num_rows)

    def stored_schema(self, state: DeltaState) -> pa.Schema:
        """Return the types of the table's files; see `Compacting.stored_schema`."""
        return pa.schema([(field["name"], arrow(field["type"])) for field in state.about.fields])

    def bring_live(self, state: DeltaState, near: LiveFile, blocks: Iterator[pa.Table], target: int) -> Sequence[Brought]:
        """Write rows of one partition; see `Compacting.bring_live`."""
        return write_rows(self._folder, self.stored_schema(state), blocks, f"kpipe-{uuid.uuid4().hex}", (), target)

    def renewed(self, state: DeltaState, brought: Sequence[Brought]) -> Sequence[Brought]:
        """Give new files other names; see `Compacting.renewed`."""
        return renamed(self._folder, brought)

    def as_live(self, near: LiveFile, brought: Sequence[Brought]) -> Sequence[LiveFile]:
        """Return new files as the log will name them; see `Compacting.as_live`."""
        return [LiveFile(quote(file.name), file.rows, 0, 0, near.values) for file in brought]

    def replacement(
        self,
        state: DeltaState,
        rewritten: Sequence[Rewritten],
        merged: Collection[DeleteFile],
        deletes: Sequence[Any],
        mark: str,
    ) -> _Staged:
        """Stage an entry of the log; see `Compacting.replacement`. Vectors of other files stay as they are."""
        del merged, deletes
        now = int(time.time() * 1000)
        actions: list[dict[str, Any]] = [
            {
                "commitInfo": {
                    "timestamp": now,
                    "operation": "OPTIMIZE",
                    "operationParameters": {},
                    "isBlindAppend": False,
                    "engineInfo": "kpipe",
                    "kpipe": json.dumps({"maintenance": mark}),
                }
            }
        ]
        for item in rewritten:
            actions += [_removed(file.entry, now) for file in item.sources]
            actions += [_added(file, dict(item.sources[0].live.values)) for file in item.brought]
        data = b"".join(json.dumps(action, separators=(",", ":")).encode() + b"\n" for action in actions)
        return _Staged(self, state, data)

    def has_replaced(self, state: DeltaState, base: Version, mark: str) -> bool:
        """Return whether the log has the entry; see `Compacting.has_replaced`."""
        number = int(base.snapshot.partition(":")[0])  # of a table with a key, a hash follows
        data = self._folder.read(entry_name(number + 1)) or b""
        said = (json.loads(line).get("commitInfo", {}).get("kpipe") for line in data.splitlines()[:1])
        return any(json.loads(text).get("maintenance") == mark for text in said if text)


class _Staged:
    """An entry of the log that is not written yet; see `Staged`."""

    def __init__(self, lake: DeltaCompaction, state: DeltaState, data: bytes) -> None:
        self._lake, self._state, self._data = lake, state, data

    def listing(self) -> Listing:
        """Apply the entry to the files of its base; see `Staged.listing`."""
        found = dict(self._lake._adds(self._state))
        actions = [json.loads(line) for line in self._data.splitlines()]
        for path in (action["remove"]["path"] for action in actions if "remove" in action):
            del found[path]
        for add in (action["add"] for action in actions if "add" in action):
            found[add["path"]] = {name: add.get(name) for name in KEPT}
        return self._lake._listing(found)

    def commit(self) -> None:
        """Write the entry unless another one has its version; see `Staged.commit`."""
        version = self._state.version + 1
        if not self._lake._folder.claim(entry_name(version), self._data):
            raise Overtaken(f"another commit created version {version}")


def _positions(folder: Folder, path: str, vector: Mapping[str, Any]) -> Iterator[pa.Table]:
    found = vectors.positions(folder, vector)
    yield pa.table({"path": pa.array([path] * len(found), pa.string()), "position": pa.array(found)})


def _removed(add: Mapping[str, Any], now: int) -> dict[str, Any]:
    """Return the action that removes a file whose rows are in other files: `dataChange` is false."""
    vector = {"deletionVector": add["deletionVector"]} if add.get("deletionVector") else {}
    more = {"extendedFileMetadata": True, "partitionValues": add["partitionValues"], "size": add["size"]}
    return {"remove": {"path": add["path"], "deletionTimestamp": now, "dataChange": False, **more, **vector}}


def _added(file: Brought, values: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the action that adds a file of one partition, with the partition values as the log has them."""
    found = log.add(file)
    said = json.loads(found["add"]["stats"])
    for kind in ("minValues", "maxValues", "nullCount"):
        said[kind] = {name: value for name, value in said[kind].items() if name not in values}
    found["add"] |= {"partitionValues": dict(values), "dataChange": False, "stats": json.dumps(said)}
    return found
