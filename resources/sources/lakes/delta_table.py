"""A Delta table as a source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from kpipe.definition.source import SourceLake
from kpipe.errors import ReadFailed
from resources.secrets import Secret
from resources.sources.lakes.data_files import DataFile, Lake
from resources.sources.lakes.opening import NoHome, as_destination, translated

__all__ = ["open_delta"]

_HISTORY = 50  # newest commits that are searched for a removal of files, for messages
_APPENDS = {"CREATE TABLE", "ADD COLUMNS", "SET TBLPROPERTIES", "STREAMING UPDATE", "ADD FEATURE"}


class _Delta:
    def __init__(self, table: Any, name: str, root: str) -> None:
        self._table, self._name, self.root = table, name, root

    def files(self) -> Iterator[DataFile]:
        """See `Lake`."""
        mode = self._table.metadata().configuration.get("delta.columnMapping.mode", "none")
        if mode != "none":
            raise ReadFailed(f"table {self._name}: delta.columnMapping.mode {mode} is not supported", _COPY)
        if "deletionVectors" in (self._table.protocol().reader_features or ()):
            for batch in self._table.deletion_vectors():
                if batch.num_rows:
                    first = pa.record_batch(batch).column(0)[0].as_py()
                    raise ReadFailed(
                        f"table {self._name}: data file {first} has deleted rows (a deletion vector)",
                        "rewrite it before the pipeline's first run: REORG TABLE … APPLY (PURGE); or restore the table",
                    )
        actions = pa.table(self._table.get_add_actions(flatten=True))
        parts = [name for name in actions.column_names if name.startswith("partition.")]
        needed = actions.select(["path", "size_bytes", "num_records", *parts])
        for at, row in enumerate(needed.select(["path", "size_bytes", "num_records"]).to_pylist()):
            path = unquote(row["path"])
            if "://" in row["path"] or path.startswith("/"):
                raise ReadFailed(f"table {self._name}: data file {path} is outside of its folder: a shallow clone", _COPY)
            values = {part.removeprefix("partition."): needed.column(part).slice(at, 1).combine_chunks() for part in parts}
            yield DataFile(
                f"{self.root}/{path}", row["size_bytes"], -1 if row["num_records"] is None else row["num_records"], values
            )

    def removed(self) -> str:
        """See `Lake`."""
        for entry in self._table.history(_HISTORY):
            operation, mode = str(entry.get("operation", "")), (entry.get("operationParameters") or {}).get("mode", "")
            if operation not in _APPENDS and not (operation == "WRITE" and mode in ("Append", "ErrorIfExists")):
                return f"perhaps version {entry.get('version')}, {operation or 'without a name'}"
        return ""

    def columns(self, schema: pa.Schema, name: str) -> list[tuple[int, str]]:
        """See `Lake`: columns have one name forever."""
        return list(enumerate(schema.names))


_COPY = "copy the table to one without it"


@contextmanager
def open_delta(lake: SourceLake, secrets: dict[str, Secret]) -> Iterator[Lake]:
    """Open the newest version of a Delta table.

    Raises:
        ReadFailed: the table cannot be read.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    from resources.destinations.lakehouse_factory import open_folder

    with translated(lake, secrets, DeltaError, OSError):
        folder = open_folder(as_destination(lake, dict(secrets)), NoHome()).below(lake.table)
        table = DeltaTable(folder.place, storage_options=folder.options())
        yield _Delta(table, lake.name, folder.place.rstrip("/"))
