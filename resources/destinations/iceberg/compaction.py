"""Read the files of an Iceberg snapshot, and replace some of them: what a compaction needs."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import Table

from kpipe.errors import DestinationError
from resources.destinations.iceberg.data_files import data_entry, location, name_columns
from resources.destinations.iceberg.keyed import IcebergKeys
from resources.destinations.iceberg.partitions import values_of
from resources.destinations.iceberg.position_deletes import data_file
from resources.destinations.iceberg.replaced_files import Replacement
from resources.destinations.iceberg.state import KEY, IcebergState, copied
from resources.destinations.iceberg.transaction import OneAttempt, sending
from resources.destinations.iceberg.types import arrow_schema
from resources.destinations.lakehouse.data_files import Brought
from resources.destinations.lakehouse.live_files import LiveFile, Version
from resources.destinations.lakehouse.maintenance.listing import DeleteFile, Listing, Rewritten, StoredFile
from resources.destinations.lakehouse.maintenance.new_files import renamed, write_rows

__all__ = ["IcebergCompaction"]

_FORMAT = 2  # version 1 has no files of deletes, and pyiceberg does not write version 3
_MARK = "kpipe.maintenance"  # id of the commit in the snapshot's summary


class IcebergCompaction(IcebergKeys):
    """The methods of `IcebergLake` for a compaction; see `Compacting`."""

    def _failed(self, error: Exception) -> DestinationError:
        raise NotImplementedError

    def listed(self, state: IcebergState) -> Listing:
        """Return the files of the current snapshot; see `Compacting.listed`."""
        return self._listing(state, state.table)

    def _listing(self, state: IcebergState, table: Table) -> Listing:
        meta = table.metadata
        if meta.format_version != _FORMAT:
            raise DestinationError(
                f"Iceberg {self.place}: maintenance is not supported with format version {meta.format_version}: expected 2",
                "maintain the table with another program",
            )
        files, deletes = list[StoredFile](), list[DeleteFile]()
        snapshot = meta.current_snapshot()
        for manifest in snapshot.manifests(table.io) if snapshot is not None else ():
            spec = manifest.partition_spec_id
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                file, seq = entry.data_file, int(entry.sequence_number or 0)
                values = values_of(file.partition)
                is_ours = spec == meta.default_spec_id and file.file_format == FileFormat.PARQUET
                if file.content == DataFileContent.DATA:
                    live = LiveFile(file.file_path, file.record_count, seq, spec, values)
                    facts = (file.record_count, file.file_size_in_bytes, 0, (spec, values), is_ours)
                    files.append(StoredFile(*facts, live))
                elif file.content == DataFileContent.POSITION_DELETES and file.file_format == FileFormat.PARQUET:
                    read = partial(self.positions, state, file.file_path)
                    deletes.append(DeleteFile(file.file_path, read, (spec, values), seq, is_ours))
                else:
                    raise DestinationError(
                        f"Iceberg {self.place}: maintenance is not supported with"
                        f" {file.content.name.lower().replace('_', ' ')} in {file.file_format.name} files, which another program"
                        " has written",
                        "let that program apply its deletes (rewrite the data files), then run it again",
                    )
        return Listing(sorted(files, key=lambda file: (file.live.seq, file.path)), deletes)

    def stored_schema(self, state: IcebergState) -> pa.Schema:
        """Return the types of the table's files; see `Compacting.stored_schema`."""
        return arrow_schema(state.columns)

    def bring_live(self, state: IcebergState, near: LiveFile, blocks: Iterator[pa.Table], target: int) -> Sequence[Brought]:
        """Write rows of one partition; see `Compacting.bring_live`."""
        return write_rows(self._data, self.stored_schema(state), blocks, f"kpipe-{uuid.uuid4().hex}", near.values, target)

    def renewed(self, state: IcebergState, brought: Sequence[Brought]) -> Sequence[Brought]:
        """Give new files other names; see `Compacting.renewed`."""
        return renamed(self._data, brought)

    def as_live(self, near: LiveFile, brought: Sequence[Brought]) -> Sequence[LiveFile]:
        """Return new files as manifests will name them; see `Compacting.as_live`."""
        return [LiveFile(location(self._data, file.name), file.rows, 0, near.spec, near.values) for file in brought]

    def replacement(
        self,
        state: IcebergState,
        rewritten: Sequence[Rewritten],
        merged: Collection[DeleteFile],
        deletes: Sequence[Any],
        mark: str,
    ) -> _Staged:
        """Stage a snapshot; see `Compacting.replacement`. It names the pipelines' ledgers, as every snapshot of kpipe."""
        change = OneAttempt(state.table)
        name_columns(change)
        removed = [file.path for item in rewritten for file in item.sources] + [item.name for item in merged]
        summary = {**{f"{KEY}{name}": value for name, value in state.pointers.items()}, _MARK: mark}
        made = [data_file(change.table_metadata, item, location(self._data, item.name)) for item in deletes]
        with Replacement(change, removed, made, summary) as producer:
            for file in (file for item in rewritten for file in item.brought):
                with self._data.opened(file.name) as stream, pq.ParquetFile(stream) as parquet:
                    producer.append_data_file(data_entry(change, file, location(self._data, file.name), parquet))
        current = change.table_metadata.current_snapshot()
        if state.pointers and current is not None:
            change.set_properties(copied(state.pointers, current.snapshot_id))
        return _Staged(self, state, change)

    def has_replaced(self, state: IcebergState, base: Version, mark: str) -> bool:
        """Return whether main has the snapshot; see `Compacting.has_replaced`."""
        meta = state.table.metadata
        snapshot = meta.current_snapshot()
        while snapshot is not None and str(snapshot.snapshot_id) != base.snapshot:
            said = snapshot.summary.additional_properties if snapshot.summary is not None else {}
            if said.get(_MARK) == mark:
                return True
            parent = snapshot.parent_snapshot_id
            snapshot = meta.snapshot_by_id(parent) if parent is not None else None
        return False


class _Staged:
    """A snapshot that is not committed yet; see `Staged`."""

    def __init__(self, lake: IcebergCompaction, state: IcebergState, change: OneAttempt) -> None:
        self._lake, self._state, self._change = lake, state, change

    def listing(self) -> Listing:
        """Read the manifests of the snapshot; see `Staged.listing`."""
        table = self._state.table
        then = Table(table.name(), self._change.table_metadata, table.metadata_location, table.io, table.catalog)
        return self._lake._listing(self._state, then)

    def commit(self) -> None:
        """Send the transaction; see `Staged.commit`."""
        with sending(self._lake._failed):
            self._change.commit_transaction()
