"""Add staged files to a table: registered without a copy of their rows, or inserted where a type or the table differs."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from kpipe.batch.batch import Commit
from kpipe.schema.columns import Columns
from resources.destinations.duckdb.target_table import projection
from resources.destinations.ducklake.footers import check_rows, check_texts, has_far_times
from resources.destinations.lakehouse.folder import LocalFolder
from resources.destinations.sql.column_matching import by_shape, check_inserted
from resources.destinations.staged_file_check import Proven
from resources.duckdb_engine.file_connection import Connection, literal, quote
from resources.duckdb_engine.sql_types import READ

__all__ = ["Lake", "insert", "required"]

#: Subfolder of the data folder for registered files.
_FOLDER = "kpipe"
_READ = READ.format("?")


class Lake(Protocol):
    """Describe the places of a lake."""

    @property
    def data(self) -> Path:
        """Folder of data files."""

    @property
    def metadata_schema(self) -> str:
        """Schema of DuckLake's own tables in the catalog."""


def required(connection: Connection, table: str) -> list[str]:
    """Return the columns of an existing table that are NOT NULL."""
    return [row[1] for row in _described(connection, table) if row[3]]


def insert(connection: Connection, lake: Lake, table: str, commit: Commit, staged: Sequence[Proven], known: Columns) -> None:
    """Add the rows of all staged files to the table.

    A file is registered if each column has the table's type, and nothing has to be computed or checked for a row. It gets a
    second name in the data folder, as DuckLake owns the files of a table, and may delete them when it compacts.

    Args:
        connection: inside a transaction that has created or widened the table.
        lake: the lake.
        table: name of the table.
        commit: the commit.
        staged: its verified files.
        known: all columns of the table.

    Raises:
        StagingFailed: a file has other columns than the commit, or another number of rows than reported.
        SchemaConflict: a column's type cannot be converted to the table's, or a text contains the character NUL.
        DestinationError: a file cannot be written.
    """
    check_texts(table, staged)
    plain = bool(staged) and _is_plain(connection, lake, table)
    folder, taken = LocalFolder(lake.data / _FOLDER), list[str]()
    stem = hashlib.sha256(f"{commit.id} {table}".encode()).hexdigest()[:32]
    for files in by_shape(staged):
        names, values = projection(connection, files[0], commit, known)
        if plain and names == values and not any(map(has_far_times, files)):
            for file in files:
                name = f"{stem}-{len(taken):05}.parquet"
                folder.take(file.path, name)
                taken.append(f"{folder.place}/{name}")
            continue
        paths = [[file.path for file in files]]
        columns = (f"{value} AS {name}" for name, value in zip(names, values, strict=True))
        rows = f"SELECT {', '.join(columns)} FROM {_READ}"
        check_rows(connection, table, rows, paths)
        row = connection.execute(f"INSERT INTO {quote('main', table)} ({', '.join(names)}) {rows}", paths).fetchone()
        check_inserted(commit, files, row[0] if row else 0)
    if taken:
        folder.settle()
        current = connection.execute("SELECT current_database()").fetchone()
        assert current is not None
        connection.execute(
            f"CALL ducklake_add_data_files({literal(current[0])}, {literal(table)}, [{', '.join(map(literal, taken))}],"
            " schema => 'main', allow_missing => true, hive_partitioning => false)"
        )


def _described(connection: Connection, table: str) -> list[tuple[int, str, str, bool, str | None, bool]]:
    return connection.execute(f"PRAGMA table_info({literal(quote('main', table))})").fetchall()


def _is_plain(connection: Connection, lake: Lake, table: str) -> bool:
    """Return whether a registered file means what inserted rows would: no default, NOT NULL, partition or encryption."""
    if any(row[3] or row[4] not in (None, "NULL") for row in _described(connection, table)):
        return False
    current = connection.execute("SELECT current_database()").fetchone()
    assert current is not None
    metadata = quote(f"__ducklake_metadata_{current[0]}", lake.metadata_schema)
    row = connection.execute(
        f"SELECT (SELECT count(*) FROM {metadata}.ducklake_partition_info AS p JOIN {metadata}.ducklake_table AS t"
        " ON t.table_id = p.table_id WHERE lower(t.table_name) = lower($1) AND t.end_snapshot IS NULL"
        f" AND p.end_snapshot IS NULL) + (SELECT count(*) FROM {metadata}.ducklake_metadata"
        " WHERE key = 'encrypted' AND value = 'true')",
        [table],
    ).fetchone()
    assert row is not None
    return not row[0]
