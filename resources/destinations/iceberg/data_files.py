"""Add files of rows to an Iceberg manifest: bounds from the footer, partition values as kpipe computed them.

Why not pyiceberg's `Transaction.add_files`, which converts bounds to Python values:

- It raises for years outside of 1 to 9999.
- It truncates a TIME of 24:00:00 to 0.
- It takes bounds of some row groups for those of all.
- It rejects partitions by long texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Transaction

from kpipe.errors import DestinationError, SchemaConflict
from resources.destinations.iceberg.new_names import complete_mapping
from resources.destinations.iceberg.partitions import record_of
from resources.destinations.iceberg.position_deletes import Deletes, Upsert, data_file
from resources.destinations.iceberg.replaced_files import Emptied, Removal
from resources.destinations.lakehouse.data_files import Brought
from resources.destinations.lakehouse.folder import Folder
from resources.destinations.lakehouse.table_format import Overtaken
from resources.object_store.uri import is_remote

__all__ = ["append", "data_entry", "location", "name_columns"]


def location(folder: Folder, name: str = "") -> str:
    """Return the location of a file, or of the folder, as written to metadata."""
    place = folder.place if is_remote(folder.place) else f"file://{folder.place}"
    return f"{place}/{name}" if name else place


def append(
    change: Transaction, folder: Folder, files: Sequence[Brought | Deletes | Emptied], summary: dict[str, str], branch: str
) -> None:
    """Stage a snapshot that adds files of rows, and files of the positions that it deletes, and removes files without rows.

    Args:
        change: the transaction.
        folder: the folder of the files.
        files: new ones are relative to the folder.
        summary: properties of the snapshot.
        branch: branch of the snapshot.

    Raises:
        SchemaConflict: a partition value is outside of years 1 to 9999, or a column's name is that of an earlier one.
        Overtaken: a file is missing.
    """
    name_columns(change)
    rows = [file for file in files if isinstance(file, Brought)]
    deletes = [data_file(change.table_metadata, file, location(folder, file.name)) for file in files if isinstance(file, Deletes)]
    made: Any = change._append_snapshot_producer(summary, branch=branch)
    removed = [file.path for file in files if isinstance(file, Emptied)]
    if removed:
        made = Removal(change, removed, deletes, summary, bool(rows), branch)
    elif deletes:
        made = Upsert(change, deletes, bool(rows), summary, branch)
    with made as producer:
        for file in rows:
            with _opened(folder, file.name) as stream, pq.ParquetFile(stream) as parquet:
                producer.append_data_file(data_entry(change, file, location(folder, file.name), parquet))


def _opened(folder: Folder, name: str) -> BinaryIO:
    """Open a new file of rows.

    Raises:
        Overtaken: it is missing. Maintenance removes such a file if the table has had another commit since it was written.
    """
    try:
        return folder.opened(name)
    except DestinationError:
        if folder.look(name) is not None:
            raise
        raise Overtaken(f"{folder.place}/{name} was removed after another commit") from None


def name_columns(change: Transaction) -> None:
    """Map the names of all columns to field ids: the files' columns have names but no field ids.

    Raises:
        SchemaConflict: see `complete_mapping`.
    """
    known, mapping = change.table_metadata.name_mapping(), complete_mapping(change.table_metadata, "the Iceberg table")
    if known is None or known.root != mapping.root:
        change.set_properties({"schema.name-mapping.default": mapping.model_dump_json()})


def data_entry(change: Transaction, file: Brought, place: str, parquet: pq.ParquetFile) -> DataFile:
    """Return the entry of a file of rows in a manifest.

    Args:
        change: the transaction.
        file: the file.
        place: its location.
        parquet: its content.

    Raises:
        SchemaConflict: a partition value is outside of years 1 to 9999.
    """
    table = change.table_metadata
    partition = record_of(table, table.default_spec_id, file.values)
    try:
        table.spec().partition_to_path(partition, table.schema())  # raises now as it would when the summary is written
    except (OverflowError, ValueError) as error:
        columns = [table.schema().find_column_name(field.source_id) for field in table.spec().fields]
        raise SchemaConflict(
            f"column {', '.join(map(str, columns))}: invalid partition value: expected a time in years 1 to 9999",
            f"set into.partition_by: {columns}, so that such values become dead letters, or NULL in _kafka_timestamp",
        ) from error
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=_Footer(parquet),
        stats_columns=compute_statistics_plan(table.schema(), table.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(table.schema()),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=place,
        file_format=FileFormat.PARQUET,
        partition=partition,
        file_size_in_bytes=file.size,
        sort_order_id=None,
        spec_id=table.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


class _Shown:
    """Proxy of a pyarrow object with some attributes replaced."""

    def __init__(self, original: Any, **instead: Any) -> None:
        self._original = original
        self.__dict__.update(instead)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


@dataclass(frozen=True)
class _Absent:
    """Statistics of a column that has none: neither bounds nor a number of NULLs."""

    physical_type: str
    has_null_count: bool = False
    min: None = None
    max: None = None
    min_raw: None = None
    max_raw: None = None


class _Footer(_Shown):
    """A footer that has bounds only where every row group has them; times are integers, as Iceberg stores them."""

    def __init__(self, parquet: pq.ParquetFile) -> None:
        meta = parquet.metadata
        super().__init__(meta)
        self._groups = [meta.row_group(at) for at in range(meta.num_row_groups)]
        columns = range(meta.num_columns)
        self._bounded = [all(map(_is_bounded, (group.column(at) for group in self._groups))) for at in columns]
        self._raw = [_is_time(meta.schema.column(at)) for at in columns]
        self._without = [not any(group.column(at).is_stats_set for group in self._groups) for at in columns]

    def row_group(self, number: int) -> Any:
        """Return a row group with these bounds."""
        group = self._groups[number]
        return _Shown(group, column=lambda at: self._column(group.column(at), at))

    def _column(self, column: Any, at: int) -> Any:
        if self._without[at]:  # FLOAT and DOUBLE (resources/parquet_statistics.py); pyiceberg would log a warning
            return _Shown(column, is_stats_set=True, statistics=_Absent(column.physical_type))
        found = column.statistics
        if found is None:
            return column
        low = high = None
        if self._bounded[at] and found.has_min_max:
            low, high = (found.min_raw, found.max_raw) if self._raw[at] else (found.min, found.max)
        raw = (found.min_raw, found.max_raw) if low is not None and not self._raw[at] else (None, None)
        return _Shown(column, statistics=_Shown(found, min=low, max=high, min_raw=raw[0], max_raw=raw[1]))


def _is_bounded(column: Any) -> bool:
    """Return whether a column chunk has bounds, or no values. Footers have no bounds of long texts."""
    found = column.statistics
    return found is not None and (found.has_min_max or not found.num_values)


def _is_time(column: Any) -> bool:
    return str(column.logical_type.type) in ("DATE", "TIME", "TIMESTAMP")
