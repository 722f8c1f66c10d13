"""Read staged files with DuckDB, for databases that receive rows as texts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb

from kpipe.batch.batch import Commit
from kpipe.schema.columns import Columns
from resources.destinations.sql.column_matching import Match, by_shape, check_inserted, matched, parsed
from resources.destinations.sql.sql_dialect import quote
from resources.destinations.staged_file_check import Proven
from resources.duckdb_engine.mysql_functions import register
from resources.duckdb_engine.sandbox import closed
from resources.duckdb_engine.sql_types import READ

__all__ = ["RECORD", "Copy", "copy_as_stored", "copy_checked", "first_record", "reader", "stored"]

#: Columns that name a row's record.
RECORD = ("_kafka_topic", "_kafka_partition", "_kafka_offset")
#: Copies rows of files with the same columns into a table, and returns their number. Arguments: names of the table's columns;
#: how columns of the files match them; the files.
Copy = Callable[[Sequence[str], Sequence[Match], Sequence[str]], int]


def reader(staging: Sequence[Path]) -> duckdb.DuckDBPyConnection:
    """Return a connection that can read files in these folders, and nothing else."""
    return _engine(tuple(os.path.realpath(root) for root in staging), os.getpid()).cursor()


@lru_cache(maxsize=16)
def _engine(roots: tuple[str, ...], _process: int) -> duckdb.DuckDBPyConnection:
    """Return the engine of this process: after a fork, an engine has lost its threads."""
    engine = closed((), roots, settings=("arrow_large_buffer_size = true",))
    register(engine)  # ON DUPLICATE KEY UPDATE may call these
    return engine


def stored(reader: Any, file: Proven) -> Columns:
    """Return the columns of a staged file."""
    described = reader.execute(f"DESCRIBE SELECT * FROM {READ.format('?')}", [[file.path]]).fetchall()  # noqa: S608 - a constant
    return parsed([row[:2] for row in described], f"staged file {file.path!r}")


def first_record(
    reader: Any, at: Sequence[str], source: str, parameters: Sequence[Any], rest: str, value: str = "NULL"
) -> tuple[str, Any] | None:
    """Return the record of the first of some rows, as text, and the value of an expression; None without rows.

    Args:
        reader: DuckDB's connection.
        at: those of `RECORD` that the rows have.
        source: the relation of the rows, as SQL.
        parameters: of the relation.
        rest: the condition and the order, as SQL.
        value: the expression.
    """
    columns = ", ".join([*map(quote, at), value])
    row = reader.execute(f"SELECT {columns} FROM {source} {rest} LIMIT 1", list(parameters)).fetchone()  # noqa: S608 - quoted
    if row is None:
        return None
    record = ", ".join(f"{name.removeprefix('_kafka_')} {found}" for name, found in zip(at, row, strict=False))
    return f"the record at {record}" if record else "a row", row[-1]


def copy_checked(reader: Any, commit: Commit, staged: Sequence[Proven], known: Columns, copy: Copy) -> None:
    """Copy all staged rows, and check their number.

    Args:
        reader: DuckDB's connection to the staged files.
        commit: the commit.
        staged: its staged files of rows.
        known: all columns of the table.
        copy: copies rows into the table.

    Raises:
        StagingFailed: a file has other columns than the commit, or another number of rows than reported.
    """
    names = {name.lower(): name for name, _ in known}
    for files in by_shape(staged):
        matches = matched(stored(reader, files[0]), files[0], commit, known)
        into = [names[name.lower()] for name, _, _ in matches]
        check_inserted(commit, files, copy(into, matches, [file.path for file in files]))


def copy_as_stored(reader: Any, staged: Sequence[Proven], copy: Copy) -> None:
    """Copy all staged rows into a table with the columns of the files, in lower case."""
    for files in by_shape(staged):
        found = stored(reader, files[0])
        copy([name.lower() for name, _ in found], [(name, kind, kind) for name, kind in found], [file.path for file in files])
