"""A Delta table as a source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from kpipe.definition.source import SourceLake
from kpipe.errors import ReadFailed
from resources.destinations.delta.log import entry_name
from resources.destinations.lakehouse.folder import Folder
from resources.secrets import Secret
from resources.sources.lakes.data_files import DataFile, Lake
from resources.sources.lakes.opening import NoHome, as_destination, translated

__all__ = ["open_delta"]

_HISTORY = 10  # newest commits that are searched for a removal of files, for messages
_APPENDS = {"CREATE TABLE", "ADD COLUMNS", "SET TBLPROPERTIES", "STREAMING UPDATE", "ADD FEATURE"}


class _Delta:
    def __init__(self, table: Any, name: str, folder: Folder) -> None:
        self._table, self._name, self._folder, self.root = table, name, folder, folder.place.rstrip("/")

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
        """See `Lake`. deltalake 1.6.6 does not return from `history()` of a table in S3."""
        newest = self._table.version()
        for version in range(newest, max(newest - _HISTORY, -1), -1):
            operation, mode = _operation(self._folder.read(entry_name(version)) or b"")
            if operation not in _APPENDS and not (operation == "WRITE" and mode in ("Append", "ErrorIfExists")):
                return f"perhaps version {version}, {operation or 'without a name'}"
        return ""

    def columns(self, schema: pa.Schema, name: str) -> list[tuple[int, str]]:
        """See `Lake`: columns have one name forever."""
        return list(enumerate(schema.names))


def _operation(entry: bytes) -> tuple[str, str]:
    """Return the operation that a log entry names, and its mode."""
    for line in entry.splitlines():
        said = json.loads(line).get("commitInfo")
        if said is not None:
            return str(said.get("operation", "")), str((said.get("operationParameters") or {}).get("mode", ""))
    return "", ""


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
        yield _Delta(table, lake.name, folder)
