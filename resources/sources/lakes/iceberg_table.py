"""An Iceberg table as a source. Files are read by the ids of their columns, so columns may be added, dropped and renamed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from kpipe.definition.source import SourceLake
from kpipe.errors import ReadFailed
from resources.secrets import Secret
from resources.sources.lakes.data_files import DataFile, Lake
from resources.sources.lakes.opening import NoHome, as_destination, translated

__all__ = ["open_iceberg"]

_ID = b"PARQUET:field_id"


class _Iceberg:
    def __init__(self, table: Any, name: str) -> None:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        self._table, self._name, self.root = table, name, _path(table.location()).rstrip("/")
        self._fields = {_id(field): field for field in schema_to_pyarrow(table.schema())}
        defaults = [field.name for field in table.schema().fields if getattr(field, "initial_default", None) is not None]
        if defaults:
            raise ReadFailed(
                f"table {name}: column {defaults[0]} has an initial default, which is not supported", "drop the column"
            )

    def files(self) -> Iterator[DataFile]:
        """See `Lake`."""
        for task in self._table.scan().plan_files():
            file = task.file
            if task.delete_files:
                raise ReadFailed(
                    f"table {self._name}: data file {file.file_path} has deleted rows",
                    "rewrite it before the pipeline's first run: rewrite_data_files; or roll the table back",
                )
            if file.file_format.value.upper() != "PARQUET":
                raise ReadFailed(f"table {self._name}: data file {file.file_path}: expected Parquet", "rewrite the table")
            yield DataFile(_path(file.file_path), file.file_size_in_bytes, file.record_count, {})

    def removed(self) -> str:
        """See `Lake`."""
        found = self._table.current_snapshot()
        while found is not None:
            summary = found.summary
            if summary is not None and (summary.operation.value != "append" or summary.get("deleted-data-files", "0") != "0"):
                return f"snapshot {found.snapshot_id}, {summary.operation.value}"
            parent = found.parent_snapshot_id
            found = self._table.snapshot_by_id(parent) if parent is not None else None
        return ""

    def columns(self, schema: pa.Schema, name: str) -> list[tuple[int, str]]:
        """See `Lake`."""
        made: list[tuple[int, str]] = []
        for at, field in enumerate(schema):
            number = _id(field)
            if number is None:
                raise ReadFailed(f"table {self._name}: data file {name}: its columns have no ids", "rewrite it")
            known = self._fields.get(number)
            if known is None:
                continue  # dropped
            if not _alike(field.type, known.type):
                raise ReadFailed(
                    f"table {self._name}: data file {name}: column {known.name}: its fields were renamed or dropped",
                    "rewrite the file before the pipeline's first run: rewrite_data_files",
                )
            made.append((at, known.name))
        return made


def _id(field: pa.Field) -> bytes | None:
    found: bytes | None = (field.metadata or {}).get(_ID)
    return found


def _alike(stored: pa.DataType, known: pa.DataType) -> bool:
    """Return whether all names inside of a file's column are those of the table's."""
    if pa.types.is_struct(stored) and pa.types.is_struct(known):
        fields = {_id(field): field for field in known}
        pairs = [(field, fields.get(_id(field))) for field in stored]
        return all(other is not None and field.name == other.name and _alike(field.type, other.type) for field, other in pairs)
    if pa.types.is_map(stored) and pa.types.is_map(known):
        return _alike(stored.item_type, known.item_type)
    lists = (pa.types.is_list, pa.types.is_large_list)
    if any(check(stored) for check in lists) and any(check(known) for check in lists):
        return _alike(stored.value_type, known.value_type)
    return not pa.types.is_nested(stored) and not pa.types.is_nested(known)


def _path(uri: str) -> str:
    """Return a local file's path, or the URI of an object."""
    return uri.removeprefix("file://").replace("s3a://", "s3://", 1)


@contextmanager
def open_iceberg(lake: SourceLake, secrets: dict[str, Secret]) -> Iterator[Lake]:
    """Open the current snapshot of an Iceberg table.

    Raises:
        ReadFailed: the table cannot be read.
    """
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    from resources.destinations.iceberg.catalogue import FAILURES
    from resources.destinations.iceberg.durable import file_io
    from resources.destinations.lakehouse_factory import open_catalogue

    with translated(lake, secrets, NoSuchTableError, NoSuchNamespaceError, NotImplementedError, *FAILURES):
        folder, catalogue = open_catalogue(as_destination(lake, dict(secrets)), NoHome())
        if not catalogue.exists():  # opening it would create one
            raise ReadFailed(f"table {lake.name}: {lake.database} contains no catalog", "set source.lake.catalog")
        table = catalogue.opened(folder).load_table((*lake.namespace.split("."), lake.table))
        table.io = file_io(folder)
        yield _Iceberg(table, lake.name)
