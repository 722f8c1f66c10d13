"""Read, create and widen the target table, and insert staged rows into it."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby

from kpipe.batch.batch import Commit
from kpipe.schema.columns import Columns
from resources.destinations.sql.column_matching import by_shape, check_inserted, check_new, matched, parsed, widening
from resources.destinations.staged_file_check import Proven
from resources.duckdb_engine.file_connection import Connection, literal, quote
from resources.duckdb_engine.sql_types import READ, fitted, sql_type
from resources.type_compatibility import carried, grown

__all__ = ["columns", "defaults", "given", "insert", "prepare", "primary_key", "projection", "required"]

_READ = READ.format("?")
_COLUMNS = (
    "FROM information_schema.columns WHERE table_catalog = current_database() AND table_schema = 'main'"
    " AND lower(table_name) = lower($1)"
)


def columns(connection: Connection, table: str) -> Columns:
    """Return all columns of an existing table that can be written, coordinates included.

    Raises:
        SchemaConflict: kpipe cannot write the type of a column.
    """
    rows = connection.execute(f"PRAGMA table_info({literal(quote('main', table))})").fetchall()
    computed: set[str] = set()
    if any(row[4] is not None for row in rows):  # a default, or the expression of a generated column: the query takes 4 ms
        generated = f"SELECT column_name {_COLUMNS} AND is_generated = 'ALWAYS'"
        computed = {name for (name,) in connection.execute(generated, [table]).fetchall()}
    return parsed([row[1:3] for row in rows if row[1] not in computed], f"table {table}")


def defaults(connection: Connection, table: str) -> dict[str, str]:
    """Return the default expression of each column that has one, as SQL; generated columns are left out."""
    found = (
        f"SELECT column_name, column_default {_COLUMNS} AND is_generated IS DISTINCT FROM 'ALWAYS' AND column_default IS NOT NULL"
    )
    return dict(connection.execute(found, [table]).fetchall())


def given(connection: Connection, table: str) -> list[str]:
    """Return the columns that have a value in rows that do not name them: a default, or a generated value."""
    return [
        name
        for (name,) in connection.execute(f"SELECT column_name {_COLUMNS} AND column_default IS NOT NULL", [table]).fetchall()
    ]


def required(connection: Connection, table: str) -> list[str]:
    """Return the columns that are NOT NULL (by declaration, or in the primary key), without coordinates."""
    rows = connection.execute(f"DESCRIBE {quote('main', table)}").fetchall()
    return [row[0] for row in rows if row[2] == "NO" and not row[0].lower().startswith("_kafka_")]


def prepare(connection: Connection, table: str, exists: bool, commit: Commit, staged: Sequence[Proven]) -> Columns:
    """Create the table, or widen it, for the columns of the commit and the coordinates that its files carry.

    Args:
        connection: inside a transaction.
        table: name of the table.
        exists: whether it existed when the transaction began.
        commit: the commit.
        staged: its staged files of rows.

    Returns:
        All columns of the table afterwards.

    Raises:
        SchemaConflict: the table cannot be widened for the columns.
    """
    needed = carried(commit, [name for file in staged for name in file.names])
    if not exists:
        if not needed:
            return needed
        parts = ", ".join(f"{quote(name)} {sql_type(kind)}" for name, kind in needed)
        connection.execute(f"CREATE TABLE {quote('main', table)} ({parts})")
        return needed
    known = columns(connection, table)
    steps = widening(known, needed)
    if fresh := [path[0] for path, _ in steps if len(path) == 1]:
        names = connection.execute(f"SELECT column_name {_COLUMNS} AND is_generated = 'ALWAYS'", [table]).fetchall()
        check_new(table, fresh, [name for (name,) in names])
    alter = f"ALTER TABLE {quote('main', table)}"
    for column, group in groupby(steps, key=lambda step: step[0][0]):
        fields, have = list(group), known.get(column)
        if have is None or len(fields) == 1 or _computed(connection, table):
            for path, kind in fields:
                connection.execute(f"{alter} ADD COLUMN {quote(*path)} {sql_type(kind)}")
            continue
        # All new fields of a column in one step: each ALTER rewrites the column, and DuckDB keeps every copy until the commit.
        for path, kind in fields:
            have = grown(have, path[1:], kind)
        connection.execute(f"{alter} ALTER COLUMN {quote(column)} SET DATA TYPE {sql_type(have)}")
    return columns(connection, table) if steps else known


def _computed(connection: Connection, table: str) -> bool:
    """Return whether CHECKs or generated columns may use a column: then DuckDB can add fields, but not change the type."""
    checks = "SELECT 1 FROM duckdb_constraints() WHERE database_name = current_database() AND schema_name = 'main'"
    checks += " AND lower(table_name) = lower($1) AND constraint_type = 'CHECK'"
    generated = f"SELECT 1 {_COLUMNS} AND is_generated = 'ALWAYS'"
    return any(connection.execute(f"{query} LIMIT 1", [table]).fetchall() for query in (checks, generated))


def insert(connection: Connection, table: str, commit: Commit, staged: Sequence[Proven], known: Columns) -> None:
    """Insert the rows of all staged files, and count them.

    Columns are named, and different types are cast: INSERT alone would drop nested fields that the table does not have.

    Raises:
        StagingFailed: a file has other columns than the commit, or another number of rows than reported.
        SchemaConflict: a column's type cannot be converted to the table's.
    """
    for files in by_shape(staged):
        names, values = projection(connection, files[0], commit, known)
        row = connection.execute(
            f"INSERT INTO {quote('main', table)} ({', '.join(names)}) SELECT {', '.join(values)} FROM {_READ}",
            [[file.path for file in files]],
        ).fetchone()
        check_inserted(commit, files, row[0] if row else 0)


def primary_key(connection: Connection, table: str) -> tuple[str, ...]:
    """Return the columns of the table's primary key; none if it has no primary key or does not exist."""
    rows = connection.execute(
        "SELECT constraint_column_names FROM duckdb_constraints() WHERE database_name = current_database()"
        " AND schema_name = 'main' AND lower(table_name) = lower($1) AND constraint_type = 'PRIMARY KEY'",
        [table],
    ).fetchall()
    return tuple(name for row in rows for name in row[0])


def projection(
    connection: Connection, file: Proven, commit: Commit, known: Columns, besides: Collection[str] = ()
) -> tuple[list[str], list[str]]:
    """Return columns as the table spells them, and expressions that fill them from such a file; `besides` are left out."""
    described = connection.execute(f"DESCRIBE SELECT * FROM {_READ}", [[file.path]]).fetchall()
    stored = parsed([row[:2] for row in described], f"staged file {file.path!r}")
    spelled = {name.lower(): name for name in known.names()}
    names, values = [], []
    for name, kind, have in matched(stored.without(besides), file, commit, known):
        names.append(quote(spelled[name.lower()]))
        values.append(fitted(name, kind, have))
    return names, values
