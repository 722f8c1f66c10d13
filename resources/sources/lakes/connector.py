"""The connector of a lake's table: each data file of its newest snapshot is a split, a position is the number of a row.

A data file never changes. A snapshot that appends adds files; to delete, update or compact removes some. A file that was
read and is missing is an error with its name. So no snapshot before has to be stored or kept: what was read is in the ledger.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from kpipe.definition.source import SourceLake
from kpipe.errors import ReadFailed
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from resources.kafka.record_block import RecordBlock
from resources.object_store.config import StoreAccess
from resources.secrets import Secret
from resources.sources.connector import Split
from resources.sources.exact_numbers import of_arrow
from resources.sources.files.content import opened
from resources.sources.files.parquet_rows import count_rows, read_rows, schema_of
from resources.sources.lakes.data_files import DataFile, Lake

__all__ = ["LakeConnector"]


@dataclass(eq=False)
class LakeConnector:
    """See `Connector`.

    Attributes:
        lake: the definition.
        credentials: secrets of store and catalog, by name.
        access: to the object store; None: files on a disk.
    """

    noun: ClassVar = "data file"
    unchanging: ClassVar = False  # a data file never changes, but the names of its columns do: rows differ then

    lake: SourceLake
    credentials: dict[str, Secret] = field(repr=False)
    access: StoreAccess | None = field(default=None, repr=False)
    _rows: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _root: str = field(default="", init=False, repr=False)
    _removed: str = field(default="", init=False, repr=False)

    def _open(self) -> AbstractContextManager[Lake]:
        if self.lake.type == "delta":
            from resources.sources.lakes.delta_table import open_delta

            return open_delta(self.lake, self.credentials)
        from resources.sources.lakes.iceberg_table import open_iceberg

        return open_iceberg(self.lake, self.credentials)

    def __getstate__(self) -> dict[str, Any]:
        """Return what tasks need."""
        return {**vars(self), "_rows": {}}

    @property
    def place(self) -> str:
        """The table's folder, or where it is."""
        return f"{self.lake.database.rstrip('/')}/{self.lake.name}"

    @property
    def pattern(self) -> str:
        """See `Connector`."""
        return f"^{re.escape(self._root)}/"

    @property
    def on_removal(self) -> str:
        """See `Connector`."""
        what = f" ({self._removed})" if self._removed else ""
        return (
            f"a snapshot has deleted or replaced rows{what}, which is not an appended row: restore the table to the snapshot"
            " before; or write the table as it is now to a new topic, with a pipeline of another name"
        )

    @property
    def secrets(self) -> Sequence[str]:
        """Credentials of the store and the catalog."""
        return list(self.credentials.values())

    def splits(self) -> Sequence[Split]:
        """See `Connector`. Files without rows are left out."""
        found: list[Split] = []
        with self._open() as table:
            self._root, self._removed = table.root, table.removed()
            for file in table.files():
                if len(found) >= self.lake.max_files:
                    raise ReadFailed(
                        f"table {self.lake.name}: expected at most {self.lake.max_files} data files"
                        " (source.lake.max_files), found more",
                        "raise source.lake.max_files; or compact the table before the pipeline's first run",
                    )
                if rows := self._counted(file):
                    found.append(Split(file.name, _identity(file.size, rows), rows))
        return sorted(found, key=lambda split: split.name)

    def _counted(self, file: DataFile) -> int:
        name = file.name
        if not name.startswith(f"{self._root}/") or "..." in name or not name.isprintable():
            raise ReadFailed(
                f"table {self.lake.name}: data file {name!a}: expected a printable name in {self._root}/, without '...'",
                "write the table's data into its own folder",
            )
        if file.rows >= 0:
            return file.rows
        if name not in self._rows:
            with opened(name, self.access) as content:
                self._rows[name] = count_rows(name, content)
        return self._rows[name]

    def header(self, name: str) -> tuple[str, ...] | None:
        """See `Connector`: rows have the names of their columns."""
        return None

    def columns(self, name: str) -> Columns:
        """See `Connector`."""
        with self._open() as table:
            file = next((file for file in table.files() if file.name == name), None)
            if file is None:
                return Columns()  # the read that follows names what has removed it
            with opened(name, self.access) as content:
                return of_arrow(_projected(table, file, schema_of(name, content).empty_table()).schema)

    def read(self, name: str, identity: str, span: Range) -> Iterator[RecordBlock]:
        """See `Connector`."""
        with self._open() as table:
            self._root = table.root
            file = next((file for file in table.files() if file.name == name), None)
            if file is None or _identity(file.size, self._counted(file)) != identity:
                raise ReadFailed(
                    f"data file {name} was removed while it was read", "run it again: the next run names what changed"
                )
            with opened(name, self.access) as content:
                if content.facts.size != file.size or (rows := count_rows(name, content)) != self._counted(file):
                    what = f"{content.facts.size} bytes" if content.facts.size != file.size else f"{rows} rows"
                    raise ReadFailed(
                        f"data file {name}: its content was replaced: expected {file.size} bytes and {self._counted(file)} rows,"
                        f" found {what}",
                        "restore the file",
                    )
                yield from read_rows(name, content, span, lambda rows: _projected(table, file, rows))


def _projected(table: Lake, file: DataFile, rows: pa.Table) -> pa.Table:
    """Return the columns of the table: those of the file, and values that are the same in all of its rows."""
    found = {name: rows.column(at) for at, name in table.columns(rows.schema, file.name)}
    for name, value in file.values.items():
        found[name] = pa.chunked_array([value.take(pa.repeat(pa.scalar(0, pa.int8()), len(rows)))])
    return pa.table(found)


def _identity(size: int, rows: int) -> str:
    return hashlib.blake2b(f"{size} {rows}".encode(), digest_size=8).hexdigest()
