"""The table that rows go to: its columns, making and widening it, and the insert of staged rows."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from kpipe.batch import Commit
from kpipe.errors import InvalidPipeline, LedgerMismatch, SchemaConflict, StagingFailed
from kpipe.schema import Columns, ListOf, Struct, Type, parse_type
from resources.destinations.duckdb.connection import Connection, quote
from resources.destinations.fitting import COORDINATES, additions, carried, carries
from resources.destinations.staged import Proven

__all__ = ["columns", "insert", "missing", "prepare", "sql_type"]

# No column is guessed from a path (hive), and a file's own columns are all there is.
_READ = "read_parquet(?, hive_partitioning = false, union_by_name = false, filename = false)"


def sql_type(kind: Type) -> str:
    """A type as DuckDB takes it. Field names are always quoted: `order` is a word of SQL."""
    if isinstance(kind, ListOf):
        return f"{sql_type(kind.item)}[]"
    if isinstance(kind, Struct):
        return "STRUCT(" + ", ".join(f"{quote(name)} {sql_type(item)}" for name, item in kind.fields) + ")"
    return kind.name


def columns(connection: Connection, table: str) -> Columns:
    """All columns of a table that exists, coordinates too.

    Raises:
        SchemaConflict: a column's type is none that kpipe can write.
    """
    rows = connection.execute(f"DESCRIBE {quote('main', table)}").fetchall()
    return _parsed([row[:2] for row in rows], f"table {table}")


def missing(pipeline: str, table: str, rows: int) -> LedgerMismatch:
    """The error of a table that is gone although the ledger says that rows were written."""
    return LedgerMismatch(
        f"pipeline {pipeline}: table {table} is gone, the ledger says that {rows} rows were written to it",
        f"restore it; or create {table} empty to go on without these rows; or begin anew under another pipeline name",
    )


def prepare(connection: Connection, table: str, exists: bool, commit: Commit, staged: Sequence[Proven]) -> Columns:
    """Create the table, or widen it, for the columns of the commit and the coordinates that its files carry.

    Args:
        connection: inside a transaction.
        table: name of the table.
        exists: whether it was there when the transaction began.
        commit: what is written.
        staged: its files of rows.

    Returns:
        All columns of the table afterwards.

    Raises:
        SchemaConflict: the table cannot take them.
    """
    wanted = carried(commit, [name for file in staged for name in file.names])
    if not exists:
        if not wanted:
            return wanted
        parts = ", ".join(f"{quote(name)} {sql_type(kind)}" for name, kind in wanted)
        connection.execute(f"CREATE TABLE {quote('main', table)} ({parts})")
        return wanted
    known = columns(connection, table)
    steps: list[tuple[tuple[str, ...], Type]] = []
    for name, kind in wanted:
        have = known.get(name)
        steps += [((name,), kind)] if have is None else additions(have, kind, (name,))
    for path, kind in steps:
        connection.execute(f"ALTER TABLE {quote('main', table)} ADD COLUMN {quote(*path)} {sql_type(kind)}")
    return columns(connection, table) if steps else known


def insert(connection: Connection, table: str, commit: Commit, staged: Sequence[Proven], known: Columns) -> None:
    """Insert the rows of all staged files, and count them.

    Columns are named, and types that differ are cast: INSERT alone would drop nested fields that it does not know.

    Raises:
        StagingFailed: a file holds other columns than the commit, or other rows than were counted.
        SchemaConflict: a column's type cannot become the table's.
    """
    for _, group in groupby(sorted(staged, key=lambda file: file.shape), key=lambda file: file.shape):
        files = list(group)
        names, values = _projection(connection, files[0], commit, known)
        row = connection.execute(
            f"INSERT INTO {quote('main', table)} ({', '.join(names)}) SELECT {', '.join(values)} FROM {_READ}",
            [[file.path for file in files]],
        ).fetchone()
        inserted, expected = (row[0] if row else 0), sum(file.rows for file in files)
        if inserted != expected:
            raise StagingFailed(f"batch {commit.id}: {inserted} rows were inserted, {expected} are staged")


def _projection(connection: Connection, file: Proven, commit: Commit, known: Columns) -> tuple[list[str], list[str]]:
    """Column names, and the expressions that fill them from a file of that shape."""
    stored = _parsed(
        [row[:2] for row in connection.execute(f"DESCRIBE SELECT * FROM {_READ}", [[file.path]]).fetchall()],
        f"staged file {file.path!r}",
    )
    absent = [name for name, _ in commit.columns if name not in stored]
    if absent:
        raise StagingFailed(f"staged file {file.path!r} lacks column {absent[0]!r} of batch {commit.id}")
    names, values = [], []
    for name, kind in stored:
        meant = COORDINATES.get(name) or commit.columns.get(name)
        if meant is None:
            raise StagingFailed(f"staged file {file.path!r} holds column {name!r}, which batch {commit.id} does not name")
        have = known.get(name)
        if not carries(kind, meant) or have is None:
            raise StagingFailed(f"staged file {file.path!r} holds column {name!r} as {kind}, batch {commit.id} says {meant}")
        names.append(quote(name))
        values.append(quote(name) if kind == have else f"CAST({quote(name)} AS {sql_type(have)})")
    return names, values


def _parsed(rows: Iterable[tuple[str, str]], where: str) -> Columns:
    result: list[tuple[str, Type]] = []
    for name, text in rows:
        try:
            result.append((name, parse_type(text)))
        except InvalidPipeline as error:
            raise SchemaConflict(
                f"{where}: column {name!r} has type {text}, which kpipe cannot write",
                "give it another type, or load into another table and derive this one from it",
            ) from error
    return Columns(tuple(result))
