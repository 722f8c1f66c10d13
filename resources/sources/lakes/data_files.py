"""The interface of a lake's table: its data files in the newest snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

__all__ = ["DataFile", "Lake"]


@dataclass(frozen=True)
class DataFile:
    """A Parquet file of a table.

    Attributes:
        name: its path or URI.
        size: bytes.
        rows: number of its rows; -1 if the table does not record it.
        values: of columns that are not in the file, by name, as arrays with one value.
    """

    name: str
    size: int
    rows: int
    values: Mapping[str, pa.Array]


class Lake(Protocol):
    """A table in its newest snapshot."""

    @property
    def root(self) -> str:
        """Folder of the table: path or URI, without a slash at the end."""

    def files(self) -> Iterator[DataFile]:
        """Yield its data files.

        Raises:
            ReadFailed: a file has deleted rows, or cannot be read as it is.
        """

    def removed(self) -> str:
        """Return which of the newest snapshots has removed rows or files, for messages; empty if none is known."""

    def columns(self, schema: pa.Schema, name: str) -> list[tuple[int, str]]:
        """Return number and name of each column of a file that the table has.

        Raises:
            ReadFailed: the file was written with names that the table no longer has.
        """
