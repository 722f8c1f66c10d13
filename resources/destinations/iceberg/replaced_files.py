"""Remove files from an Iceberg table: files that get replaced by files with the same rows, and files of which no row stays.

pyiceberg has no such snapshots. Like `Upsert` in position_deletes.py, this overrides hooks of its producers that are not public.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.typedef import EMPTY_DICT

from resources.destinations.iceberg.position_deletes import Upsert, counted

__all__ = ["Emptied", "Removal", "Replacement"]


@dataclass(frozen=True)
class Emptied:
    """A file to remove: none of its rows stays.

    Attributes:
        path: its location.
        deletes: whether it is a file of deletes.
    """

    path: str
    deletes: bool = False


class Removal(Upsert):
    """A snapshot that removes files of rows and of deletes, and adds others.

    Args:
        change: the transaction.
        removed: locations of the files to remove.
        deletes: entries of files of deletes to add.
        summary: properties of the snapshot.
        rows: whether files of rows are added.
        branch: branch of the snapshot.
    """

    def __init__(
        self,
        change: Transaction,
        removed: Collection[str],
        deletes: Sequence[DataFile],
        summary: dict[str, str],
        rows: bool = True,
        branch: str = "main",
    ) -> None:
        super().__init__(change, deletes, rows, summary, branch)
        self._removed = frozenset(removed)
        self._kept: list[ManifestFile] = []
        self._gone: list[tuple[ManifestFile, ManifestEntry]] = []
        for manifest in super()._existing_manifests():
            self._divide(manifest)
        if missing := self._removed - {entry.data_file.file_path for _, entry in self._gone}:
            raise ValueError(f"not in the snapshot: {min(missing)}")

    def _divide(self, manifest: ManifestFile) -> None:
        """Keep a manifest, or write its other entries into a new one."""
        entries = manifest.fetch_manifest_entry(self._io, discard_deleted=True)
        gone = [entry for entry in entries if entry.data_file.file_path in self._removed]
        if not gone:
            self._kept.append(manifest)
            return
        self._gone += [(manifest, entry) for entry in gone]
        left = [entry for entry in entries if entry.data_file.file_path not in self._removed]
        if left:
            with self._writer(manifest) as writer:
                for entry in left:
                    writer.existing(entry)
            self._kept.append(writer.to_manifest_file())

    def _writer(self, manifest: ManifestFile) -> Any:
        spec = self.spec(manifest.partition_spec_id)
        return self.delete_manifest(spec) if manifest.content == ManifestContent.DELETES else self.new_manifest_writer(spec)

    def _existing_manifests(self) -> list[ManifestFile]:
        return [*self._kept, *self._dropped()]

    def _dropped(self) -> Iterator[ManifestFile]:
        """Write manifests of the removed entries: readers of changes between snapshots need them."""
        for _, found in groupby(self._gone, key=lambda item: (item[0].partition_spec_id, item[0].content)):
            pairs = list(found)
            with self._writer(pairs[0][0]) as writer:
                for _, entry in pairs:
                    writer.delete(entry)
            yield writer.to_manifest_file()

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        removed = {_Unnamed(counted(entry.data_file, manifest.partition_spec_id)) for manifest, entry in self._gone}
        self._deleted_data_files = removed  # type: ignore[assignment] # only to be counted
        try:
            return super()._summary(snapshot_properties)
        finally:
            self._deleted_data_files = set()


class Replacement(Removal):
    """The same rows in other files: a snapshot with the operation `replace`."""

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        return Summary(operation=Operation.REPLACE, **super()._summary(snapshot_properties).additional_properties)


class _Unnamed:
    """The numbers of an entry; unlike entries of one path, no two are equal."""

    def __init__(self, file: DataFile) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
