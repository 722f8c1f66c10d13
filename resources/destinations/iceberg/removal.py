"""Expire snapshots of an Iceberg table, and list files that no snapshot has."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update.snapshot import ExpireSnapshots

from resources.destinations.iceberg.compaction import IcebergCompaction
from resources.destinations.iceberg.state import IcebergState
from resources.destinations.iceberg.transaction import OneAttempt, sending
from resources.destinations.lakehouse.folder import Folder

__all__ = ["IcebergRemoval"]


class IcebergRemoval(IcebergCompaction):
    """The methods of `IcebergLake` for removals; see `Removing`."""

    _table: Folder

    @property
    def files(self) -> Folder:
        """See `Removing`."""
        return self._table

    def expired(self, state: IcebergState, before_ms: int) -> bool:
        """Expire snapshots of main; see `Removing.expired`.

        A snapshot's age counts from the commit that superseded it: until then, readers begin with it.
        """
        meta = state.table.metadata
        named = {ref.snapshot_id for ref in meta.refs.values()}
        found, snapshot = list[int](), meta.current_snapshot()
        while snapshot is not None:
            parent = _parent(state, snapshot)
            if parent is not None and snapshot.timestamp_ms < before_ms and parent.snapshot_id not in named:
                found.append(parent.snapshot_id)
            snapshot = parent
        if found:
            with sending(self._failed):
                ExpireSnapshots(OneAttempt(state.table, autocommit=True)).by_ids(found).commit()
        return bool(found)

    def stored(self) -> Mapping[str, str]:
        """List data files that kpipe has written, manifests and lists of manifests; see `Removing.stored`."""
        data = (name for name in self._table.names("data") if name.startswith("kpipe-") and name.endswith(".parquet"))
        meta = (name for name in self._table.names("metadata") if name.endswith(".avro"))
        return {**{name: f"data/{name}" for name in data}, **{name: f"metadata/{name}" for name in meta}}

    def referenced(self, state: IcebergState) -> Collection[str]:
        """Return names of files of all snapshots; see `Removing.referenced`.

        Names, not locations: programs write `s3a://` for `s3://`, and a file that another one names must stay.
        """
        io, found, read = state.table.io, set[str](), set[str]()
        for snapshot in state.table.metadata.snapshots:
            found.add(_name(snapshot.manifest_list))
            for manifest in snapshot.manifests(io):
                if manifest.manifest_path not in read:
                    read.add(manifest.manifest_path)
                    entries: Any = manifest.fetch_manifest_entry(io, discard_deleted=True)
                    found |= {_name(entry.data_file.file_path) for entry in entries}
        return found | {_name(path) for path in read}


def _parent(state: IcebergState, snapshot: Snapshot) -> Snapshot | None:
    number = snapshot.parent_snapshot_id
    return state.table.metadata.snapshot_by_id(number) if number is not None else None


def _name(location: str) -> str:
    return location.rpartition("/")[2]
