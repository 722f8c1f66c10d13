"""A table of a DuckDB file as a source. One process writes a file, and none while another reads: each read is a snapshot."""

# ruff: noqa: S608 - names are quoted
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from kpipe.definition.source import SourceTable
from kpipe.errors import DestinationBusy, DestinationError, ReadFailed, ReadStalled
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from resources.destinations.sql.sql_dialect import quote
from resources.duckdb_engine.file_connection import Database
from resources.kafka.record_block import RecordBlock
from resources.secrets import Secret
from resources.sources.block_size import blocks
from resources.sources.exact_numbers import of_names
from resources.sources.json_rows import json_rows
from resources.sources.tables.open_table import OpenSource, TableState

__all__ = ["open_duckdb"]

_ROWS = 2048  # of a vector: DuckDB reads no fewer
_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}


class _Table:
    def __init__(self, connection: Any, table: SourceTable) -> None:
        self._connection, self._table = connection, table
        self._name, self._column = ".".join(map(quote, table.name.split("."))), quote(table.column)

    def state(self) -> TableState:
        """See `OpenSource`. A file has no other writers while it is read."""
        kinds = {name.lower(): kind for name, kind, *_ in self._connection.execute(f"DESCRIBE {self._name}").fetchall()}
        kind = kinds.get(self._table.column.lower())
        if kind not in _INTEGERS:
            raise self._failed(f"expected an integer column {self._table.column}, found {kind or 'none'}")
        query = f"SELECT min({self._column}), max({self._column}), count(*) - count({self._column}) FROM {self._name}"
        ((lowest, highest, empty),) = self._connection.execute(query).fetchall()
        if empty or (lowest is not None and lowest < 0):
            raise self._failed(f"column {self._table.column}: expected values of 0 or more, found {'NULL' if empty else lowest}")
        return TableState("", 0 if highest is None else highest + 1)

    def columns(self) -> Columns:
        """See `OpenSource`."""
        described = self._connection.execute(f"DESCRIBE SELECT * FROM {self._rows()}").fetchall()
        return of_names((name, kind) for name, kind, *_ in described)

    def records(self, span: Range) -> Iterator[RecordBlock]:
        """See `OpenSource`."""
        rows = (
            f"SELECT * FROM {self._rows()} WHERE {self._column} >= {span.start:d} AND {self._column} < {span.end:d}"
            f" ORDER BY {self._column}"
        )
        with self._connection.sql(rows).to_arrow_reader(_ROWS) as reader:
            names = [name.lower() for name in reader.schema.names]
            at = names.index(self._table.column.lower())
            for found in blocks(reader):
                yield json_rows(f"table {self._table.name}", found, found.column(at).cast(pa.int64()).combine_chunks())

    def _rows(self) -> str:
        """Return what rows are read from: the table, or a query of one statement."""
        if self._table.query is None:
            return self._name
        if len(self._connection.extract_statements(self._table.query)) != 1:
            raise self._failed("source.table.query: expected one SELECT")
        return f"({self._table.query}\n) AS q"

    def _failed(self, what: str) -> ReadFailed:
        return ReadFailed(f"table {self._table.name}: {what}", "choose another column: source.table.column")


@contextmanager
def open_duckdb(table: SourceTable, _: dict[str, Secret]) -> Iterator[OpenSource]:
    """Open a table of a DuckDB file.

    Raises:
        ReadFailed: the file or the table cannot be read.
        ReadStalled: another process writes the file.
    """
    database = Database(Path(table.database), ())
    if not database.exists():
        raise ReadFailed(f"table {table.name}: {database.path} does not exist", "change source.table.database")
    try:
        with database.read() as connection:
            yield _Table(connection, table)
    except duckdb.Error as error:
        text = str(error).strip().partition("\n")[0]
        raise ReadFailed(f"table {table.name}: DuckDB: {text}", "change source.table") from None
    except DestinationBusy as error:
        raise ReadStalled(f"table {table.name}: {error.what}", "wait until the other process closes the file") from None
    except DestinationError as error:
        raise ReadFailed(f"table {table.name}: {error.what}", "check source.table.database") from None
