"""Read an Iceberg table's files row by row, and write deleted positions: what rows with a key need."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, _get_column_projection_values, _to_requested_schema, pyarrow_to_schema
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import prune_columns

from kpipe.batch.batch import Commit
from kpipe.errors import DestinationError
from resources.destinations.iceberg.data_files import location
from resources.destinations.iceberg.partitions import record_of, values_of
from resources.destinations.iceberg.position_deletes import Deletes, write
from resources.destinations.iceberg.replaced_files import Emptied
from resources.destinations.iceberg.state import IcebergState
from resources.destinations.iceberg.types import arrow_schema
from resources.destinations.lakehouse.chosen_rows import as_micros, chosen_rows
from resources.destinations.lakehouse.data_files import Brought, bring_blocks
from resources.destinations.lakehouse.folder import Folder
from resources.destinations.lakehouse.live_files import Changes, Live, LiveFile, Version

__all__ = ["IcebergKeys"]

_VERSION = 2  # version 1 has no deletes, version 3 only deletion vectors
_ROWS = 65_536  # positions in a block


class IcebergKeys:
    """The methods of `IcebergLake` for rows with a key; see `Deleting`."""

    _data: Folder

    @property
    def place(self) -> str:
        """See `Table`."""
        raise NotImplementedError

    def version(self, state: IcebergState) -> Version:
        """Return the identity of the state's content."""
        meta = state.table.metadata
        snapshot = meta.current_snapshot()
        if snapshot is None:
            return Version(str(meta.table_uuid), "")
        return Version(str(meta.table_uuid), str(snapshot.snapshot_id), str(snapshot.parent_snapshot_id or ""))

    def live(self, state: IcebergState) -> Live:
        """Return the files of the current snapshot; see `Deleting.live`."""
        meta, io = state.table.metadata, state.table.io
        if meta.format_version != _VERSION:
            raise DestinationError(
                f"Iceberg {self.place}: into.key is not supported with format version {meta.format_version}: expected 2",
                "choose another table; or remove into.key",
            )
        snapshot = meta.current_snapshot()
        files, deletes = [], dict[str, int]()
        for manifest in snapshot.manifests(io) if snapshot is not None else ():
            for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
                file, seq = entry.data_file, int(entry.sequence_number or 0)
                if file.content == DataFileContent.POSITION_DELETES and file.file_format == FileFormat.PARQUET:
                    deletes[file.file_path] = seq
                elif file.content == DataFileContent.DATA:
                    values = values_of(file.partition)
                    self._check(values)
                    files.append(LiveFile(file.file_path, file.record_count, seq, manifest.partition_spec_id, values))
                else:
                    raise DestinationError(
                        f"Iceberg {self.place}: into.key is not supported with {file.content.name.lower().replace('_', ' ')}"
                        f" in {file.file_format.name} files, which another program has written",
                        "let that program apply its deletes (rewrite the data files), then run it again",
                    )
        return Live(files, deletes)

    def _check(self, values: tuple[Any, ...]) -> None:
        for value in values:
            if value is not None and not isinstance(value, (str, int, bool)):
                raise DestinationError(
                    f"Iceberg {self.place}: into.key is not supported with a partition by {type(value).__name__}",
                    "partition by text, whole numbers, dates or times",
                )

    def blocks(self, state: IcebergState, file: LiveFile, names: Sequence[str]) -> Iterator[pa.Table]:
        """Read all rows of a file in order; see `Deleting.blocks`."""
        if not names:
            yield pa.table({"": pa.nulls(file.rows)})
            return
        yield from _mapped(state, file, names, lambda source, columns: source.iter_batches(_ROWS, columns=columns))

    def rows_at(self, state: IcebergState, file: LiveFile, names: Sequence[str], places: np.ndarray) -> Iterator[pa.Table]:
        """Read single rows of a file; see `Deleting.rows_at`."""
        yield from _mapped(state, file, names, lambda source, columns: chosen_rows(source, columns, places))

    def positions(self, state: IcebergState, path: str) -> Iterator[pa.Table]:
        """Read a file of position deletes; see `Deleting.positions`."""
        with state.table.io.new_input(path).open() as stream, pq.ParquetFile(stream) as source:
            for batch in source.iter_batches(_ROWS, columns=["file_path", "pos"]):
                yield pa.table({"path": batch.column("file_path"), "position": batch.column("pos")})

    def bring_rows(self, schema: Any, commit: Commit, blocks: Iterator[pa.Table]) -> Sequence[Brought]:
        """Write rows into the table's folder; see `Deleting.bring_rows`."""
        return bring_blocks(self._data, arrow_schema(schema.columns), blocks, f"kpipe-{uuid.uuid4().hex}", commit, schema.parts)

    def bring_deletes(
        self,
        state: IcebergState,
        schema: Any,
        deleted: Iterator[tuple[LiveFile, Iterator[pa.Table]]],
        emptied: Sequence[LiveFile] = (),
    ) -> Sequence[Deletes | Emptied]:
        """Write deleted positions into the table's folder; see `Deleting.bring_deletes`. Without rows, deletes go as well."""
        made = [write(self._data, near, blocks) for near, blocks in deleted]
        if made:
            self._data.settle()
        gone = [Emptied(file.path) for file in emptied]
        if gone and not made and len(gone) == len((live := self.live(state)).files):
            gone += [Emptied(path, deletes=True) for path in live.deletes]
        return [*made, *gone]

    def added(self, state: IcebergState, brought: Sequence[Any]) -> Changes:
        """Return what a commit has changed; see `Deleting.added`."""
        snapshot = state.table.metadata.current_snapshot()
        seq = int(snapshot.sequence_number or 0) if snapshot is not None else 0
        spec = state.table.metadata.default_spec_id
        rows = [
            LiveFile(location(self._data, file.name), file.rows, seq, spec, tuple(file.values))
            for file in brought
            if isinstance(file, Brought)
        ]
        deletes = [location(self._data, file.name) for file in brought if isinstance(file, Deletes)]
        gone = [file for file in brought if isinstance(file, Emptied)]
        ended, removed = ([file.path for file in gone if file.deletes == kind] for kind in (True, False))
        return Changes(rows, deletes, ended, removed)


def _mapped(
    state: IcebergState,
    file: LiveFile,
    names: Sequence[str],
    read: Callable[[pq.ParquetFile, list[str]], Iterator[pa.RecordBatch]],
) -> Iterator[pa.Table]:
    """Read rows of a file, and map its columns as pyiceberg's scan does, with its functions.

    The scan itself reads whole files, 131,072 rows at once, and changes times that are stored as INT96; see `as_micros`.

    Args:
        state: of the table.
        file: the file.
        names: columns of the table.
        read: reads those columns of the open file that it has.
    """
    meta, io = state.table.metadata, state.table.io
    wanted = state.table.scan(selected_fields=tuple(names)).projection()
    ids = ArrowScan(meta, io, wanted, AlwaysTrue())._projected_field_ids
    short = meta.format_version <= 2  # such tables have no nanoseconds
    with io.new_input(file.path).open() as stream, as_micros(stream) as source:
        kinds, mapping = source.schema_arrow, meta.name_mapping()
        has = pyarrow_to_schema(kinds, mapping, downcast_ns_timestamp_to_us=short, format_version=meta.format_version)
        spec = meta.specs().get(file.spec)
        constants = _get_column_projection_values(_entry(state, file), wanted, meta.schema(), spec, has.field_ids)
        pruned = prune_columns(has, ids, select_full_types=False)
        for batch in read(source, [column.name for column in pruned.columns]):
            mapped = _to_requested_schema(
                wanted,
                pruned,
                batch,
                downcast_ns_timestamp_to_us=short,
                projected_missing_fields=constants,
                allow_timestamp_tz_mismatch=True,
            )
            yield pa.Table.from_batches([mapped])


def _entry(state: IcebergState, file: LiveFile) -> DataFile:
    found = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=record_of(state.table.metadata, file.spec, file.values),
        record_count=file.rows,
    )
    found.spec_id = file.spec
    return found
