"""Expire snapshots of an Iceberg table, and list files that no snapshot has."""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Any

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertRefSnapshotId, SetPropertiesUpdate
from pyiceberg.table.update.snapshot import ExpireSnapshots

from kpipe.errors import DestinationError
from resources.destinations.iceberg.compaction import IcebergCompaction
from resources.destinations.iceberg.state import IcebergState
from resources.destinations.iceberg.transaction import OneAttempt, sending
from resources.destinations.lakehouse.folder import Folder
from resources.destinations.lakehouse.table_format import Overtaken

__all__ = ["IcebergRemoval", "expire"]


class IcebergRemoval(IcebergCompaction):
    """The methods of `IcebergLake` for removals; see `Removing`."""

    _table: Folder

    @property
    def files(self) -> Folder:
        """See `Removing`."""
        return self._table

    def expired(self, state: IcebergState, before_ms: int) -> tuple[int, Collection[str]]:
        """Expire snapshots of main; see `Removing.expired`.

        A snapshot's age counts from when main left it last: until then, readers begin with it. After a rollback and back, main
        has left it later than its successor was committed.
        """
        self._check_alone(state)
        meta = state.table.metadata
        named = {ref.snapshot_id for ref in meta.refs.values()}
        left = {entry.snapshot_id: later.timestamp_ms for entry, later in pairwise(meta.snapshot_log)}
        superseded, snapshot = list[tuple[Snapshot, int]](), meta.current_snapshot()
        while snapshot is not None:
            number = snapshot.parent_snapshot_id
            parent = meta.snapshot_by_id(number) if number is not None else None
            if parent is not None:
                superseded.append((parent, max(snapshot.timestamp_ms, left.get(parent.snapshot_id, 0))))
            snapshot = parent
        # Oldest first, up to the first that stays: without those behind it, it would not be an ancestor of main any more.
        expired = takewhile(lambda item: item[1] < before_ms, reversed(superseded))
        old = {item.snapshot_id: item for item, _ in expired if item.snapshot_id not in named}
        if not old:
            return 0, ()
        names = self._names(state, old.values())
        names -= self._names(state, [item for item in meta.snapshots if item.snapshot_id not in old])
        with sending(self._failed):
            expire(state, list(old))
        return len(old), names

    def stored(self) -> Mapping[str, str]:
        """List data files of kpipe, its temporary files, manifests and lists of manifests; see `Removing.stored`."""
        found = (name for name in self._table.names("data") if name.startswith("kpipe-") and name.endswith(".parquet"))
        data = (*found, *self._table.temporary("data"))
        meta = (name for name in self._table.names("metadata") if name.endswith(".avro"))
        return {**{name: f"data/{name}" for name in data}, **{name: f"metadata/{name}" for name in meta}}

    def referenced(self, state: IcebergState) -> Collection[str]:
        """Return names of files of all snapshots; see `Removing.referenced`."""
        return self._names(state, state.table.metadata.snapshots)

    def released(self, state: IcebergState, after: int) -> tuple[float, Mapping[str, float]]:
        """Return nothing: a file that no snapshot has does not come back; see `Removing.released`."""
        del state, after
        return 0, {}

    def _check_alone(self, state: IcebergState) -> None:
        """Check that no other table has files in the table's folder: the snapshots of this one do not name them.

        Raises:
            DestinationError: the folder has the metadata of another table.
        """
        meta = state.table.metadata
        ours = {_name(item.metadata_file) for item in meta.metadata_log} | {_name(state.table.metadata_location)}
        for name in self._table.names("metadata"):
            if not name.endswith(".metadata.json") or name in ours:
                continue
            other = _filled(self._table.read(f"metadata/{name}"))
            if other not in ("", str(meta.table_uuid)):
                raise DestinationError(
                    f"{self._table.place}: the folder also has the table {other} (metadata/{name}), whose files a removal could"
                    f" take for unused ones of {meta.table_uuid}: nothing was removed",
                    "if that table was dropped, delete this metadata file; else give each table a folder of its own",
                )

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


def expire(state: IcebergState, snapshots: Sequence[int]) -> None:
    """Expire snapshots in one commit, which keeps the references to the pipelines' ledgers.

    The table is loaded again: a catalogue removes a snapshot together with a branch or a tag that another program has set on it
    since the state was loaded. SQL catalogues of kpipe compare once more in the commit itself; see `_Sql`.

    Raises:
        Overtaken: a snapshot has a branch or a tag now, or is missing.
    """
    table, main = state.table, state.table.metadata.refs.get("main")
    try:
        change = OneAttempt(table.catalog.load_table(table.name()))
        ExpireSnapshots(change).by_ids(list(snapshots)).commit()
    except (NoSuchTableError, ValueError) as error:
        raise Overtaken(str(error)) from error
    if main is not None and (copied := state.copied()):
        same: Any = AssertRefSnapshotId  # untyped: its declared field names have hyphens
        change._apply((SetPropertiesUpdate(updates=copied),), (same(ref="main", snapshot_id=main.snapshot_id),))
    change.commit_transaction()


def _filled(data: bytes | None) -> str:
    """Return the id of the table of a metadata file; empty: it has no rows, or the file is missing or not finished.

    A run that is killed while it creates a table leaves such a file, with the id of a table that no catalogue has.
    """
    try:
        said = json.loads(gzip.decompress(data) if data and data.startswith(b"\x1f\x8b") else data or b"")
        totals = [item.get("summary", {}).get("total-records") for item in said.get("snapshots") or ()]
        return str(said["table-uuid"]) if said.get("metadata-log") or {*totals} - {"0"} else ""
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError):
        return ""


def _name(location: str) -> str:
    return location.rpartition("/")[2]
