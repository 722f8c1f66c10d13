"""Address of a table to audit, and the interface of an open one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from kpipe.audit.coordinates import Coordinates, Fields

__all__ = ["NoHome", "OpenTable", "TableAddress"]


@dataclass(frozen=True)
class TableAddress:
    """Address of a table.

    Attributes:
        type: `duckdb`, `parquet`, `postgres`, `mysql`, `delta` or `iceberg`.
        database: file, folder or URL, without secrets.
        table: its name; empty where `database` names it.
        snapshot: id of a snapshot of Iceberg, or a version of Delta; None: the current one.
        catalog, catalog_name, namespace: of Iceberg; see `into` of a pipeline.
        credentials: templates.
    """

    type: str
    database: str
    table: str = ""
    snapshot: int | None = None
    catalog: str | None = None
    catalog_name: str | None = None
    namespace: str = "default"
    credentials: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NoHome:
    """The folders of a destination that is only read."""

    data: Path = Path()
    cache: Path = Path()
    roots: tuple[str, ...] = ()


class OpenTable(Protocol):
    """One consistent state of a table.

    Attributes:
        name: of the table, for messages.
        snapshot: its state, for the report: a version, a list of files, or a time.
    """

    name: str
    snapshot: str

    def fields(self) -> Fields:
        """Return the table's columns."""

    def batches(self, coordinates: Coordinates) -> Iterator[list[pa.Array]]:
        """Yield the coordinates of all rows, in any order and in bounded memory: arrays of the same length.

        Raises:
            DestinationError: the table cannot be read, or changed while it was read.
        """

    def contents(self, names: Sequence[str]) -> Iterator[list[pa.Array]]:
        """Yield these columns of all rows, like `batches`. Equal values of a table's columns give equal elements.

        Elements are values, or their text, as each type of table returns it without loss.

        Raises:
            DestinationError: see `batches`.
        """

    def kinds(self) -> Mapping[str, str]:
        """Return the kind of each column, see `kpipe.audit.canonical`; empty: its values cannot be compared."""

    def values(self, columns: Sequence[str]) -> Iterator[list[pa.Array]]:
        """Yield the values of columns, as `batches` does: of their own type, or as texts."""

    def sql(self, coordinates: Coordinates) -> str:
        """Return a query of the table's own engine for `coordinates.named`, for the report; empty: it has no SQL."""

    def values_sql(self, columns: Sequence[str]) -> str:
        """Return such a query for these columns."""
