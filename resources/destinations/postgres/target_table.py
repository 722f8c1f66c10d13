"""Read, create and widen the target table in PostgreSQL, and copy staged rows into it."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from kpipe.batch.batch import Commit
from kpipe.errors import SchemaConflict
from kpipe.schema.columns import Columns, Type
from resources.destinations.postgres import binary_copy, text_lengths
from resources.destinations.postgres.connection import Session
from resources.destinations.postgres.sql_dialect import DIALECT, THIS
from resources.destinations.postgres.types import kpipe_type, note, sql_type
from resources.destinations.sql import csv_copy
from resources.destinations.sql.column_matching import Match, check_new, nested_growth, unsuitable, widening
from resources.destinations.sql.ledger import history_tables
from resources.destinations.sql.sql_dialect import quote
from resources.destinations.sql.staged_reader import RECORD, copy_as_stored, copy_checked, first_record
from resources.destinations.staged_file_check import Proven
from resources.duckdb_engine.sql_types import READ
from resources.native import library
from resources.type_compatibility import COORDINATES, carried

__all__ = ["columns", "counters", "defaults", "explained", "given", "insert", "prepare", "primary_key", "required", "set_aside"]

_LONGEST = 63  # bytes of a name; PostgreSQL truncates longer names without an error
_LETTERS = {
    "topic": "text", "partition": "integer", "offset": "bigint", "timestamp": "timestamptz", "key": "bytea", "value": "bytea",
    "headers": "json", "stage": "text", "reason": "text",
}  # fmt: skip


def columns(session: Session, table: str) -> Columns:
    """Return all columns of an existing table that can be written, coordinates included.

    Raises:
        SchemaConflict: kpipe cannot write the type of a column.
    """
    rows = session.execute(
        "SELECT attname, format_type(atttypid, atttypmod), col_description(attrelid, attnum) FROM pg_attribute"
        f" WHERE attrelid = {THIS}"
        # PostgreSQL computes generated columns.
        " AND attnum > 0 AND NOT attisdropped AND attgenerated = '' AND attidentity <> 'a' ORDER BY attnum",
        [table],
    ).fetchall()
    result: list[tuple[str, Type]] = []
    for name, found, comment in rows:
        kind = kpipe_type(found, comment)
        if kind is None:
            raise unsuitable(f"table {table}", name, found)
        result.append((name, kind))
    return Columns(tuple(result))


def required(session: Session, table: str) -> list[str]:
    """Return payload columns that are NOT NULL: COPY names every column of the file, so defaults and numbers do not apply."""
    rows = session.execute(
        "SELECT attname FROM pg_attribute"
        f" WHERE attrelid = {THIS}"
        " AND attnum > 0 AND NOT attisdropped AND attnotnull AND attidentity <> 'a'",
        [table],
    ).fetchall()
    return [name for (name,) in rows if name not in COORDINATES]


def given(session: Session, table: str) -> list[str]:
    """Return the columns that have a value in rows that do not name them: a default, an identity, or a generated value."""
    rows = session.execute(
        f"SELECT attname FROM pg_attribute WHERE attrelid = {THIS} AND attnum > 0 AND NOT attisdropped"
        " AND (atthasdef OR attidentity <> '' OR attgenerated <> '')",
        [table],
    ).fetchall()
    return [name for (name,) in rows]


def counters(session: Session, table: str) -> list[str] | None:
    """Return the columns of which the database numbers the rows: identities, and defaults from a sequence.

    None: no foreign key of another table, or of this one, refers to its rows.
    """
    refers = f"SELECT EXISTS (SELECT FROM pg_constraint WHERE contype = 'f' AND confrelid = {THIS})"
    if not session.execute(refers, [table]).fetchone()[0]:
        return None
    rows = session.execute(
        "SELECT a.attname FROM pg_attribute AS a LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum"
        f" WHERE a.attrelid = {THIS} AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''"
        " AND (a.attidentity <> '' OR pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%')",
        [table],
    ).fetchall()
    return [name for (name,) in rows]


def defaults(session: Session, table: str) -> dict[str, str]:
    """Return the default expression of each column that has one, as SQL; generated columns are left out."""
    rows = session.execute(
        "SELECT a.attname, CASE a.attidentity WHEN 'd'"
        "  THEN format('nextval(%L)', pg_get_serial_sequence(a.attrelid::regclass::text, a.attname))"
        "  ELSE pg_get_expr(d.adbin, d.adrelid) END"
        " FROM pg_attribute AS a LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum"
        f" WHERE a.attrelid = {THIS} AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''"
        " AND (a.attidentity = 'd' OR d.adbin IS NOT NULL)",
        [table],
    ).fetchall()
    return dict(rows)


def primary_key(session: Session, table: str) -> tuple[str, ...]:
    """Return the columns of the table's primary key; none if it has no primary key or does not exist."""
    rows = session.execute(
        "SELECT a.attname FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)"
        " WHERE i.indisprimary"
        f" AND i.indrelid = {THIS}"
        " ORDER BY array_position(i.indkey::int2[], a.attnum)",
        [table],
    ).fetchall()
    return tuple(name for (name,) in rows)


def prepare(session: Session, table: str, exists: bool, commit: Commit, staged: Sequence[Proven]) -> Columns:
    """Create the table, or widen it, for the columns of the commit and the coordinates that its files carry.

    Returns:
        All columns of the table afterwards.

    Raises:
        SchemaConflict: the table cannot be widened for the columns.
    """
    needed = carried(commit, [name for file in staged for name in file.names])
    for name in needed.names():
        if len(name.encode()) > _LONGEST:
            raise SchemaConflict(
                f"column {name!r} of batch {commit.id}: name too long: expected at most {_LONGEST} bytes",
                "rename it in a transform, or leave it out: declare `columns` with `schema: ignore`",
            )
    if not exists:
        if not needed:
            return needed
        parts = ", ".join(f"{quote(name)} {sql_type(kind)}" for name, kind in needed)
        session.execute(f"CREATE TABLE {quote(table)} ({parts})")
        for name, kind in needed:
            _note(session, table, name, kind)
        return needed
    known = columns(session, table)
    steps = widening(known, needed)
    fresh = [(path[0], kind) for path, kind in steps if len(path) == 1]
    if fresh:
        names = session.execute(
            f"SELECT attname FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped AND attrelid = {THIS}"
            " AND (attgenerated <> '' OR attidentity = 'a')",
            [table],
        ).fetchall()
        check_new(table, [name for name, _ in fresh], [name for (name,) in names])
        # One statement: each takes time in proportion to the table's columns.
        more = ", ".join(f"ADD COLUMN {quote(name)} {sql_type(kind)}" for name, kind in fresh)
        session.execute(f"ALTER TABLE {quote(table)} {more}")
    for name, kind in nested_growth(known, steps, dict(fresh)).items():
        _note(session, table, name, kind)
    return columns(session, table) if steps else known


def _note(session: Session, table: str, name: str, kind: Type) -> None:
    if text := note(kind):
        session.execute(f"COMMENT ON COLUMN {quote(table, name)} IS {session.literal(text)}")


def insert(session: Session, reader: Any, table: str, commit: Commit, staged: Sequence[Proven], known: Columns) -> None:
    """Copy the rows of all staged files, and count them.

    Args:
        session: inside a transaction.
        reader: DuckDB's connection to the staged files.
        table: name of the table.
        commit: the commit.
        staged: its staged files of rows.
        known: all columns of the table.

    Raises:
        StagingFailed: a file has other columns than the commit, or another number of rows than reported.
        SchemaConflict: PostgreSQL does not accept a value.
    """
    plain, most = _plain(session, table, known), text_lengths.limits(session, table)

    def copy(into: Sequence[str], matches: Sequence[Match], paths: Sequence[str]) -> int:
        text_lengths.check_files(reader, table, most, matches, paths)
        if library() is None:
            how, rows = "csv", csv_copy.blocks(reader, csv_copy.lines(matches), [paths])
        else:
            how, rows = "binary", binary_copy.blocks(reader, matches, [name in plain for name in into], paths)
        try:
            return session.copy(f"COPY {quote(table)} ({', '.join(map(quote, into))}) FROM STDIN (FORMAT {how})", rows)
        except psycopg.DataError as error:
            raise explained(error, reader, matches, paths, table) from error

    copy_checked(reader, commit, staged, known, copy)


def _plain(session: Session, table: str, known: Columns) -> set[str]:
    """Return the columns of type `json`: its binary format differs from that of `jsonb`. Only COPY distinguishes the two."""
    if not any(sql_type(kind) == "jsonb" for _, kind in known):
        return set()
    rows = session.execute(
        "SELECT attname FROM pg_attribute WHERE atttypid = 'json'::regtype AND attnum > 0 AND NOT attisdropped"
        f" AND attrelid = {THIS}",
        [table],
    ).fetchall()
    return {name for (name,) in rows}


def explained(error: psycopg.Error, reader: Any, matches: Sequence[Match], paths: Sequence[str], table: str) -> SchemaConflict:
    """Return an error that names the record with a NUL, which texts and jsonb reject; otherwise PostgreSQL's own message."""
    at = [name for name, _, _ in matches if name in RECORD]
    for match in matches:
        sign = f"contains({csv_copy.field(match)}, chr(0)) OR contains({csv_copy.field(match)}, '\\u0000')"
        found = first_record(reader, at, READ.format("?"), [list(paths)], f"WHERE {sign} ORDER BY ALL")
        if found is not None and error.sqlstate in ("22021", "22P05"):
            return SchemaConflict(
                f"table {table}, column {match[0]!r}: {found[0]} contains the character NUL, which PostgreSQL's"
                f" {sql_type(match[2])} cannot store; nothing was written",
                "set such records aside with `errors: {constraint: dead_letter}`; or declare the column as BLOB under `columns`",
            )
    return SchemaConflict(
        f"table {table} rejects a value: {error.diag.message_primary or error}; nothing was written",
        "change the column's type, or declare another one under `columns`",
    )


def set_aside(session: Session, reader: Any, commit: Commit, staged: Sequence[Proven], events: int) -> int:
    """Insert the staged dead letters, and return their number."""
    parts = ", ".join(f"{quote(name)} {kind}" for name, kind in _LETTERS.items())
    session.execute(f"CREATE TEMP TABLE kpipe_letters ({parts}) ON COMMIT DROP")

    def copy(into: Sequence[str], matches: Sequence[Match], paths: Sequence[str]) -> int:
        select = csv_copy.lines(matches, nul="\\x00")  # reasons may quote the record
        return session.copy(
            f"COPY pg_temp.kpipe_letters ({', '.join(map(quote, into))}) FROM STDIN (FORMAT csv)",
            csv_copy.blocks(reader, select, [list(paths)]),
        )

    copy_as_stored(reader, staged, copy)
    statement, parameters = history_tables.letters(DIALECT, commit, events, "pg_temp.kpipe_letters")
    return int(session.execute(statement, parameters).rowcount)
