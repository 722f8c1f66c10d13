"""Write position deletes of format version 2: Parquet files of paths and positions, manifests of deletes, and their snapshot.

pyiceberg reads position deletes and cannot write them. The classes here override hooks of its snapshot producers that are not
public: pyiceberg is pinned to one minor version, and contract tests cover the hooks. Equality deletes are never written: readers
would have to compare all rows with them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV2,
)
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _ManifestMergeManager, _MergeAppendFiles
from pyiceberg.typedef import EMPTY_DICT, Record
from pyiceberg.types import LongType, StringType

from resources.destinations.iceberg.partitions import record_of
from resources.destinations.lakehouse.durable_parquet import durable_writer
from resources.destinations.lakehouse.folder import Folder
from resources.destinations.lakehouse.live_files import LiveFile
from resources.table_partitions import Values

__all__ = ["Deletes", "Upsert", "counted", "data_file", "write"]

_PATH, _POSITION = 2147483546, 2147483545  # field ids that Iceberg reserves
_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={b"PARQUET:field_id": str(_PATH).encode()}),
        pa.field("pos", pa.int64(), nullable=False, metadata={b"PARQUET:field_id": str(_POSITION).encode()}),
    ]
)


@dataclass(frozen=True)
class Deletes:
    """A file of deleted positions of one partition that no commit references yet.

    Attributes:
        name: relative to the folder of data files.
        size: bytes.
        rows: number of positions.
        spec: id of the partitioning.
        values: partition values.
        low, high: least and greatest path and position.
    """

    name: str
    size: int
    rows: int
    spec: int
    values: Values
    low: tuple[str, int]
    high: tuple[str, int]


def write(folder: Folder, near: LiveFile, blocks: Iterator[pa.Table]) -> Deletes:
    """Write sorted positions of one partition as a file, durably except for its name.

    Args:
        folder: of data files.
        near: a file of the partition.
        blocks: tables of `path` and `position`.
    """
    name = f"kpipe-{uuid.uuid4().hex}-deletes.parquet"
    rows, first, last, least, most = 0, "", "", 1 << 63, -1
    with folder.aside() as aside:
        with durable_writer(aside, _SCHEMA, "zstd") as out:
            for block in blocks:
                table = pa.table([block["path"].cast(pa.string()), block["position"]], schema=_SCHEMA)
                out.write_table(table)
                first, last = first or table["file_path"][0].as_py(), table["file_path"][-1].as_py()
                places = table["pos"].to_numpy()
                least, most, rows = min(least, int(places.min())), max(most, int(places.max())), rows + len(places)
        size = aside.stat().st_size
        folder.take(str(aside), name)
    return Deletes(name, size, rows, near.spec, near.values, (first, least), (last, most))


def data_file(table: TableMetadata, deletes: Deletes, location: str) -> DataFile:
    """Return the entry of a file of deletes in a manifest. Readers skip it for data files outside of its bounds."""
    made = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=record_of(table, deletes.spec, deletes.values),
        record_count=deletes.rows,
        file_size_in_bytes=deletes.size,
        value_counts={_PATH: deletes.rows, _POSITION: deletes.rows},
        null_value_counts={_PATH: 0, _POSITION: 0},
        lower_bounds={_PATH: to_bytes(StringType(), deletes.low[0]), _POSITION: to_bytes(LongType(), deletes.low[1])},
        upper_bounds={_PATH: to_bytes(StringType(), deletes.high[0]), _POSITION: to_bytes(LongType(), deletes.high[1])},
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
    )
    made.spec_id = deletes.spec
    return made


def counted(file: DataFile, spec: int = 0) -> DataFile:
    """Return the numbers of an entry without its partition, whose partitioning may be an earlier one of the table."""
    made = DataFile.from_args(
        content=file.content,
        partition=Record(),
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
    )
    made.spec_id = spec
    return made


class _DeleteManifest(ManifestWriterV2):
    """A manifest whose entries are files of deletes."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _DeletesOf:
    """A snapshot producer that writes manifests of deletes, for pyiceberg's merging of manifests."""

    def __init__(self, producer: Upsert) -> None:
        self._producer = producer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def new_manifest_writer(self, spec: Any) -> ManifestWriter:
        return self._producer.delete_manifest(spec)


class Upsert(_MergeAppendFiles):
    """A snapshot that adds files of rows and of deletes; manifests of both kinds are merged as their number grows.

    Args:
        change: the transaction.
        deletes: entries of files of deletes.
        rows: whether files of rows are added, too.
        summary: properties of the snapshot.
        branch: branch of the snapshot.
    """

    def __init__(
        self, change: Transaction, deletes: Sequence[DataFile], rows: bool, summary: dict[str, str], branch: str
    ) -> None:
        super().__init__(
            operation=Operation.OVERWRITE if rows else Operation.DELETE,
            transaction=change,
            io=change._table.io,
            branch=branch,
            snapshot_properties=summary,
        )
        self._deletes = tuple(deletes)

    def delete_manifest(self, spec: Any) -> ManifestWriter:
        """Open a manifest of deletes."""
        return _DeleteManifest(spec, self.schema(), self.new_manifest_output(), self._snapshot_id, self._compression)

    def _manifests(self) -> list[ManifestFile]:
        found = super()._manifests()
        made = []
        for spec in sorted({file.spec_id for file in self._deletes}):
            with self.delete_manifest(self.spec(spec)) as writer:
                for file in self._deletes:
                    if file.spec_id == spec:
                        status, number = ManifestEntryStatus.ADDED, self._snapshot_id
                        writer.add(
                            ManifestEntry.from_args(status=status, snapshot_id=number, sequence_number=None, data_file=file)
                        )
            made.append(writer.to_manifest_file())
        rows = [manifest for manifest in found if manifest.content == ManifestContent.DATA]
        deletes = [manifest for manifest in found if manifest.content == ManifestContent.DELETES]
        merging: Any = _ManifestMergeManager(
            self._target_size_bytes,
            self._min_count_to_merge,
            self._merge_enabled,
            _DeletesOf(self),  # type: ignore[arg-type]
        )
        return rows + merging.merge_manifests([*made, *deletes])

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        rows = self._added_data_files
        try:
            self._added_data_files = [*rows, *map(counted, self._deletes)]  # only to be counted
            return super()._summary(snapshot_properties)
        finally:
            self._added_data_files = rows
