"""Read a table of a DuckDB file, or Parquet files, through a DuckDB of its own with little memory."""

# ruff: noqa: S608 - names are quoted
from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from kpipe.audit.coordinates import Column, Coordinates, Fields
from kpipe.errors import DestinationBusy, DestinationError, InvalidPipeline, NotAvailable
from resources.audit.column_kinds import arrow_kind, duckdb_kind
from resources.audit.parquet_files import FileState, exact, file_state, parquet_files
from resources.audit.table_address import TableAddress
from resources.duckdb_engine.memory_limit import VARIABLE, engine_setting
from resources.duckdb_engine.sandbox import literal, quote

__all__ = ["column_sql", "open_duckdb", "open_parquet"]

_BATCH, _VALUES = 100_000, 10_000
_MEMORY = "256MB"
# A thread reads one row group, whole columns at a time: two would need twice the memory.
_CONFIG = {
    "threads": "1",
    "enable_external_file_cache": "false",  # each byte is read once
    "temp_directory": "",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
}
_LISTED = 5  # paths in a message
_SHOWN = 20  # paths in the SQL of the report


def column_sql(column: Column) -> str:
    """Return DuckDB's expression for a column, a field of a struct, or a member of a JSON document."""
    root = quote(column.root)
    if column.field is None:
        return root
    if column.struct:
        return f"{root}.{quote(column.field)}"
    path = literal("$." + json.dumps(column.field, ensure_ascii=False))
    return f"CASE WHEN json_valid({root}::VARCHAR) THEN json_extract_string({root}::VARCHAR, {path}) END"


def _list(texts: Iterable[str]) -> str:
    return "[" + ", ".join(map(literal, texts)) + "]"


def _config() -> dict[str, Any]:
    return {**_CONFIG, "memory_limit": engine_setting() if os.environ.get(VARIABLE) else _MEMORY}


class _Table:
    """A relation of a DuckDB connection, in one transaction."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str, relation: str, snapshot: str) -> None:
        self._connection, self.name, self._from, self.snapshot = connection, name, relation, snapshot
        self.shown = relation
        with _errors(name):
            self._types = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()

    def fields(self) -> Fields:
        """See `OpenTable`."""
        found: dict[str, Sequence[str] | None] = {}
        for name, kind, *_ in self._types:
            found[name] = None
            if str(kind).startswith("STRUCT(") and not str(kind).endswith("[]"):
                with _errors(self.name):
                    relation = self._connection.sql(f"SELECT {quote(name)} AS s FROM {self._from} LIMIT 0")
                    found[name] = [child for child, _ in relation.types[0].children]
        return found

    def batches(self, coordinates: Coordinates) -> Iterator[list[pa.Array]]:
        """See `OpenTable`."""
        return self._read([column_sql(item) for item in coordinates.all], _BATCH)

    def contents(self, names: Sequence[str]) -> Iterator[list[pa.Array]]:
        """See `OpenTable`."""
        return self._read([quote(name) for name in names], _BATCH)

    def kinds(self) -> Mapping[str, str]:
        """See `OpenTable`."""
        with _errors(self.name):
            schema = self._connection.sql(f"SELECT * FROM {self._from} LIMIT 0").to_arrow_table().schema
        return {
            name: duckdb_kind(str(kind)) or arrow_kind(field.type)
            for (name, kind, *_), field in zip(self._types, schema, strict=True)
        }

    def values(self, columns: Sequence[str]) -> Iterator[list[pa.Array]]:
        """See `OpenTable`. Numbers that Arrow's types cannot have are texts."""
        texts = {name for name, kind, *_ in self._types if duckdb_kind(str(kind))}
        return self._read([quote(name) + ("::VARCHAR" if name in texts else "") for name in columns], _VALUES)

    def _read(self, expressions: Sequence[str], size: int) -> Iterator[list[pa.Array]]:
        columns = ", ".join(f"{text} AS c{at}" for at, text in enumerate(expressions))
        with _errors(self.name):
            reader = self._connection.sql(f"SELECT {columns} FROM {self._from}").to_arrow_reader(size)
            with reader:
                for batch in reader:
                    yield batch.columns

    def sql(self, coordinates: Coordinates) -> str:
        """See `OpenTable`."""
        columns = ", ".join(f"{column_sql(column)} AS {quote(name)}" for name, column in coordinates.named.items())
        return f"SELECT {columns} FROM {self.shown}"

    def values_sql(self, columns: Sequence[str]) -> str:
        """See `OpenTable`."""
        return f"SELECT {', '.join(map(quote, columns))} FROM {self.shown}"


class _Files(_Table):
    """Parquet files. They are immutable: the audit fails if one of them changes."""

    files: Sequence[FileState] = ()

    def _read(self, expressions: Sequence[str], size: int) -> Iterator[list[pa.Array]]:
        yield from super()._read(expressions, size)
        changed = [path for path, *state in self.files if file_state(Path(path))[1:] != tuple(state)]
        if changed:
            raise DestinationError(
                f"{self.name}: files changed while they were read: {', '.join(changed[:_LISTED])}",
                "run it again, on a copy or while no program writes",
            )


@contextmanager
def open_duckdb(address: TableAddress) -> Iterator[_Table]:
    """Open a table of a DuckDB file. Other processes can read the file meanwhile, not write."""
    path = Path(address.database).expanduser().resolve()
    if not address.table:
        raise InvalidPipeline("--table is missing", "name the table: --table TABLE or --table SCHEMA.TABLE")
    if not path.is_file():
        raise DestinationError(f"--database {path}: the file does not exist", "name a DuckDB file")
    try:
        connection = duckdb.connect(str(path), read_only=True, config=_config())
    except duckdb.Error as error:
        busy = "lock" in str(error)
        raise (DestinationBusy if busy else DestinationError)(
            f"cannot open {path}: {str(error).splitlines()[0]}",
            "close the program that writes to it, or audit a copy" if busy else "",
        ) from None
    with connection:
        connection.execute("SET enable_progress_bar = false")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        connection.execute("BEGIN TRANSACTION")
        state = path.stat()
        yield _Table(connection, address.table, quote(*address.table.split(".")), f"{path}, modified {state.st_mtime_ns}")


@contextmanager
def open_parquet(address: TableAddress) -> Iterator[_Table]:
    """Open the Parquet files of a folder and its subfolders, or one file, as they are now."""
    if "://" in address.database:
        raise NotAvailable("--type parquet reads local files", "copy the files, or audit the Delta or Iceberg table")
    place = Path(address.database).expanduser().resolve()
    place = place / address.table if address.table else place
    states = [file_state(path) for path in parquet_files(place)]
    if not states:
        raise DestinationError(f"{place}: contains no Parquet file", "name a file, or a folder with *.parquet")
    patterns = [exact(path) for path, *_ in states]
    listed = _list(patterns)
    with duckdb.connect(":memory:", config=_config()) as connection:
        # DuckDB checks a pattern, and what it has found.
        connection.execute(f"SET allowed_paths = {_list(dict.fromkeys([*patterns, *(path for path, *_ in states)]))}")
        connection.execute("SET enable_progress_bar = false")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        relation = f"read_parquet({listed}, union_by_name = true)"
        table = _Files(connection, str(place), relation, f"{len(states)} files, {sum(size for _, size, _ in states):,} bytes")
        table.files = states
        if len(states) > _SHOWN:
            table.shown = f"read_parquet({literal(exact(str(place)) + '/**/*.parquet')}, union_by_name = true)"
        yield table


@contextmanager
def _errors(name: str) -> Iterator[None]:
    try:
        yield
    except duckdb.OutOfMemoryException:
        limit = os.environ.get(VARIABLE) or _MEMORY
        problem = f"{name} cannot be read with {limit} of memory: its row groups are larger"
        raise DestinationError(problem, f"set {VARIABLE}=1GB") from None
    except duckdb.Error as error:
        why = str(error).splitlines()[0][:300]
        raise DestinationError(f"{name} cannot be read: {why}", "check --table and the columns") from None
