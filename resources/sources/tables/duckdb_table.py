"""A table of a DuckDB file as a source. One process writes a file, and none while another reads: each read is a snapshot."""

# ruff: noqa: S608 - names are quoted
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from kpipe.definition.source import SourceTable
from kpipe.errors import DestinationBusy, DestinationError, ReadFailed, ReadStalled
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from resources.destinations.sql.sql_dialect import quote
from resources.duckdb_engine.file_connection import Database
from resources.kafka.record_block import RecordBlock
from resources.secrets import Secret
from resources.sources.block_size import blocks
from resources.sources.json_rows import json_rows
from resources.sources.tables.duckdb_types import Form, NoForm, form
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
        return Columns(tuple((name, item.known) for name, _, item in self._forms()))

    def records(self, span: Range) -> Iterator[RecordBlock]:
        """See `OpenSource`."""
        forms = self._forms()
        at = next((at for at, (name, *_) in enumerate(forms) if name.lower() == self._table.column.lower()), None)
        if at is None:
            what = f"table {self._table.name}: source.table.query: its result has no column {self._table.column}"
            raise ReadFailed(what, "add the column to the query")
        names = [f"q.c{number}" for number in range(len(forms))]  # a query may have a name twice, in other case
        listed = ", ".join(
            f"{value if str(kind) == str(item.selected) else f'CAST({value} AS {item.selected})'} AS {quote(name)}"
            for value, (name, kind, item) in zip(names, forms, strict=True)
        )
        rows = (
            f"SELECT {listed} FROM {self._rows()} AS q({', '.join(name[2:] for name in names)})"
            f" WHERE {names[at]} >= {span.start:d} AND {names[at]} < {span.end:d} ORDER BY {names[at]}"
        )
        columns = Columns(tuple((name, item.written) for name, _, item in forms))
        with self._connection.sql(rows).to_arrow_reader(_ROWS) as reader:
            for found in blocks(reader):
                offsets = found.column(at).cast(pa.int64()).combine_chunks()
                yield json_rows(f"table {self._table.name}", found, offsets, columns)

    def _forms(self) -> list[tuple[str, DuckDBPyType, Form]]:
        """Return name, type and form of each column."""
        rows = self._connection.sql(f"SELECT * FROM {self._rows()}")
        found: list[tuple[str, DuckDBPyType, Form]] = []
        for name, kind in zip(rows.columns, rows.types, strict=True):
            try:
                found.append((name, kind, form(kind)))
            except NoForm as error:
                what = f"table {self._table.name}: column {name!r} has type {error}, which has no form in JSON"
                raise ReadFailed(what, "leave the column out, or cast it: source.table.query") from None
        return found

    def _rows(self) -> str:
        """Return what rows are read from: the table, or a query of one statement."""
        if self._table.query is None:
            return self._name
        if len(self._connection.extract_statements(self._table.query)) != 1:
            raise self._failed("source.table.query: expected one SELECT")
        return f"({self._table.query}\n)"

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
