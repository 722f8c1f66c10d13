"""Expire snapshots of an Iceberg table, and list files that no snapshot has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
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

    def expired(self, state: IcebergState, before_ms: int) -> tuple[int, Collection[str]]:
        """Expire snapshots of main; see `Removing.expired`.

        A snapshot's age counts from the commit that superseded it: until then, readers begin with it.
        """
        meta = state.table.metadata
        named = {ref.snapshot_id for ref in meta.refs.values()}
        old, snapshot = dict[int, Snapshot](), meta.current_snapshot()
        while snapshot is not None:
            number = snapshot.parent_snapshot_id
            parent = meta.snapshot_by_id(number) if number is not None else None
            if parent is not None and snapshot.timestamp_ms < before_ms and parent.snapshot_id not in named:
                old[parent.snapshot_id] = parent
            snapshot = parent
        if not old:
            return 0, ()
        names = self._names(state, old.values())
        names -= self._names(state, [item for item in meta.snapshots if item.snapshot_id not in old])
        with sending(self._failed):
            ExpireSnapshots(OneAttempt(state.table, autocommit=True)).by_ids(list(old)).commit()
        return len(old), names

    def stored(self) -> Mapping[str, str]:
        """List data files that kpipe has written, manifests and lists of manifests; see `Removing.stored`."""
        data = (name for name in self._table.names("data") if name.startswith("kpipe-") and name.endswith(".parquet"))
        meta = (name for name in self._table.names("metadata") if name.endswith(".avro"))
        return {**{name: f"data/{name}" for name in data}, **{name: f"metadata/{name}" for name in meta}}

    def referenced(self, state: IcebergState) -> Collection[str]:
        """Return names of files of all snapshots; see `Removing.referenced`."""
        return self._names(state, state.table.metadata.snapshots)

    def _names(self, state: IcebergState, snapshots: Iterable[Snapshot]) -> set[str]:
        """Return the names of the files of snapshots, of their manifests and lists of manifests.

        Names, not locations: programs write `s3a://` for `s3://`, and a file that another one names must stay.
        """
        io, found, read = state.table.io, set[str](), set[str]()
        for snapshot in snapshots:
            found.add(_name(snapshot.manifest_list))
            for manifest in snapshot.manifests(io):
                if manifest.manifest_path not in read:
                    read.add(manifest.manifest_path)
                    found.add(_name(manifest.manifest_path))
                    entries: Any = manifest.fetch_manifest_entry(io, discard_deleted=True)
                    found |= {_name(entry.data_file.file_path) for entry in entries}
        return found


def _name(location: str) -> str:
    return location.rpartition("/")[2]
