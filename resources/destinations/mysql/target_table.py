"""Read, create and widen the target table in MariaDB or MySQL, and insert staged rows into it.

MySQL commits DDL at once, so a table is created and widened before the transaction of the commit. The transaction then checks
that the table still has the needed columns, and locks its definition until it ends.
"""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pymysql

from kpipe.batch.batch import Commit
from kpipe.errors import SchemaConflict
from kpipe.schema.columns import Columns, Scalar, Type
from resources.destinations.mysql import insert_literals
from resources.destinations.mysql.not_null_times import check_files, not_null_times
from resources.destinations.mysql.session import Session
from resources.destinations.mysql.sql_dialect import NOTES, MySQLDialect
from resources.destinations.mysql.types import defined, kpipe_type, noted, sql_type
from resources.destinations.sql.column_matching import Match, check_new, nested_growth, unsuitable, widening
from resources.destinations.sql.ledger import history_tables
from resources.destinations.sql.sql_dialect import quote
from resources.destinations.sql.staged_reader import copy_as_stored, copy_checked
from resources.destinations.staged_file_check import Proven
from resources.type_compatibility import COORDINATES, carried

__all__ = [
    "columns",
    "defaults",
    "given",
    "insert",
    "is_computed",
    "make",
    "needed_by",
    "numbered",
    "prepare",
    "primary_key",
    "required",
    "set_aside",
]

_LONGEST = 64  # characters of a name
_INDEXED = 191  # characters of a text in an index: four bytes each, 3,072 bytes for the whole key
_TEXT = re.compile(r"'(?:[^'\\]|''|\\.)*'", re.DOTALL)  # a literal in an expression as the server shows it
_LETTERS = {
    "topic": "longtext", "partition": "int", "offset": "bigint", "timestamp": "datetime(6)", "key": "longblob",
    "value": "longblob", "headers": "longtext", "stage": "longtext", "reason": "longtext",
}  # fmt: skip


def columns(session: Session, table: str) -> Columns:
    """Return all columns of an existing table that can be written, coordinates included.

    Raises:
        SchemaConflict: kpipe cannot write the type of a column.
    """
    rows = session.execute(
        "SELECT column_name, column_type, extra FROM information_schema.columns"
        " WHERE table_schema = database() AND table_name = $1 ORDER BY ordinal_position",
        [table],
    ).fetchall()
    notes = dict(session.execute(f"SELECT column_name, kind FROM {NOTES.sql} WHERE target_table = $1", [table]).fetchall())
    documents = _documents(session, table)
    result: list[tuple[str, Type]] = []
    for name, found, extra in rows:
        if is_computed(extra):
            continue
        own = COORDINATES.get(name)
        if found.lower() == "json":  # MySQL's own; MariaDB shows a text
            text = defined(quote(name), Scalar("JSON"))
            raise SchemaConflict(
                f"table {table}: column {name!r} has MySQL's type json, which changes numbers and the order of members",
                f"ALTER TABLE {quote(table)} MODIFY {text}; a generated column can have type json",
            )
        shown = "json" if name in documents else found
        kind = kpipe_type(shown, notes.get(name) or (str(own) if own is not None else ""))
        if kind is None:
            raise unsuitable(f"table {table}", name, found)
        result.append((name, kind))
    return Columns(tuple(result))


def is_computed(extra: str) -> bool:
    """Return whether the server computes a column with this EXTRA in information_schema.columns.

    MySQL 8.4 manual, "The INFORMATION_SCHEMA COLUMNS Table": DEFAULT_GENERATED is a column with an expression as its default.
    """
    return re.search(r"\b(VIRTUAL|STORED|PERSISTENT) GENERATED\b", extra, re.IGNORECASE) is not None


def _documents(session: Session, table: str) -> set[str]:
    """Return the columns that contain JSON: texts with a CHECK, as MariaDB's type JSON is one."""
    rows = session.execute(
        "SELECT check_clause FROM information_schema.check_constraints WHERE constraint_schema = database() AND table_name = $1"
        if session.maria
        else "SELECT check_clause FROM information_schema.check_constraints JOIN information_schema.table_constraints"
        " USING (constraint_schema, constraint_name) WHERE constraint_schema = database() AND table_name = $1",
        [table],
    ).fetchall()
    found = (re.fullmatch(r'\(?json_valid\((["`])(.*)\1\)\)?', clause, re.IGNORECASE | re.DOTALL) for (clause,) in rows)
    return {match[2].replace(match[1] * 2, match[1]) for match in found if match}


def required(session: Session, table: str) -> list[str]:
    """Return payload columns that are NOT NULL: an INSERT names every column of the file, so defaults do not apply."""
    rows = session.execute(
        "SELECT column_name, extra FROM information_schema.columns"
        " WHERE table_schema = database() AND table_name = $1 AND is_nullable = 'NO' ORDER BY ordinal_position",
        [table],
    ).fetchall()
    return [name for name, extra in rows if name not in COORDINATES and not _is_numbered(extra)]


def given(session: Session, table: str) -> list[str]:
    """Return the columns that have a value in rows that do not name them: a default, AUTO_INCREMENT, or a generated value."""
    rows = session.execute(
        "SELECT column_name, column_default, extra FROM information_schema.columns"
        " WHERE table_schema = database() AND table_name = $1",
        [table],
    ).fetchall()
    return [name for name, default, extra in rows if extra or default not in (None, "NULL")]  # the text is MariaDB's


def numbered(session: Session, table: str) -> list[str]:
    """Return the columns in which an INSERT of NULL stores the next number (AUTO_INCREMENT)."""
    rows = session.execute(
        "SELECT column_name, extra FROM information_schema.columns WHERE table_schema = database() AND table_name = $1", [table]
    ).fetchall()
    return [name for name, extra in rows if _is_numbered(extra)]


def _is_numbered(extra: str) -> bool:
    return "auto_increment" in extra.lower()


def defaults(session: Session, table: str) -> dict[str, str | None]:
    """Return what an UPDATE with a join assigns to each column as its default, as SQL.

    Columns that AUTO_INCREMENT or a sequence numbers are left out. None: an UPDATE cannot apply the default. MySQL would assign
    NULL for an expression (seen in 9.7). MariaDB evaluates an expression that reads a column over the old row (seen in 10.11).
    """
    rows = session.execute(
        "SELECT column_name, column_default, is_nullable, extra FROM information_schema.columns"
        " WHERE table_schema = database() AND table_name = $1",
        [table],
    ).fetchall()
    found: dict[str, str | None] = {}
    for name, default, nullable, extra in rows:
        # MariaDB quotes texts and names; MySQL does not quote texts, and marks expressions.
        expression = _TEXT.sub("", default or "") if session.maria else ""
        if is_computed(extra) or _is_numbered(extra) or expression.startswith("nextval("):
            continue
        found[name] = "DEFAULT" if default is not None or nullable == "YES" else None
        if "DEFAULT_GENERATED" in extra:
            found[name] = default if re.fullmatch(r"CURRENT_TIMESTAMP(\(\d\))?", default) else None
        elif re.search('["`]', expression):
            found[name] = None
    return found


def primary_key(session: Session, table: str) -> tuple[str, ...]:
    """Return the columns of the table's primary key; none if it has no primary key or does not exist."""
    rows = session.execute(
        "SELECT column_name FROM information_schema.statistics WHERE table_schema = database() AND table_name = $1"
        " AND index_name = 'PRIMARY' ORDER BY seq_in_index",
        [table],
    ).fetchall()
    return tuple(name for (name,) in rows)


def needed_by(commit: Commit, staged: Sequence[Proven]) -> Columns:
    """Return the columns that the table must have.

    Raises:
        SchemaConflict: a name is invalid in MySQL.
    """
    needed = carried(commit, [name for file in staged for name in file.names])
    for name in needed.names():
        if len(name) > _LONGEST or name.endswith(" ") or "\x00" in name or any(ord(char) > 0xFFFF for char in name):
            raise SchemaConflict(
                f"column {name!r} of batch {commit.id}: invalid name in MySQL: expected at most {_LONGEST} characters, no"
                " trailing space, no NUL, no character beyond U+FFFF",
                "rename it in a transform, or leave it out: declare `columns` with `schema: ignore`",
            )
    return needed


def make(session: Session, dialect: MySQLDialect, table: str, there: bool, needed: Columns, key: Sequence[str]) -> None:
    """Create the table, or add columns to it. Each step commits at once, and a run may die after any of them.

    Raises:
        SchemaConflict: the table cannot be widened for the columns.
    """
    if not there:
        if needed:
            _note(session, table, needed)
            session.execute("COMMIT")
            parts = [defined(quote(name), kind) for name, kind in needed]
            folded = {name.lower(): kind for name, kind in needed}
            wanted = [name for name in key if name.lower() in folded]
            if wanted and len(wanted) == len(key):
                parts.append(f"KEY kpipe_key ({', '.join(_indexed(name, folded[name.lower()], len(wanted)) for name in wanted)})")
            session.define(f"CREATE TABLE IF NOT EXISTS {quote(table)} ({', '.join(parts)}){dialect.ending()}")
        return
    fresh = [(path[0], kind) for path, kind in widening(columns(session, table), needed) if len(path) == 1]
    if fresh:
        names = session.execute(
            "SELECT column_name, extra FROM information_schema.columns WHERE table_schema = database() AND table_name = $1",
            [table],
        ).fetchall()
        check_new(table, [name for name, _ in fresh], [name for name, extra in names if is_computed(extra)])
        _note(session, table, fresh)
        session.execute("COMMIT")
        # A user's table may have another default.
        ending = f" CHARACTER SET utf8mb4 COLLATE {dialect.collation}"
        parts = [f"ADD COLUMN {defined(quote(name), kind, ending)}" for name, kind in fresh]
        session.define(f"ALTER TABLE {quote(table)} {', '.join(parts)}")


def _indexed(name: str, kind: Type, parts: int) -> str:
    prefix = f"({_INDEXED // parts if parts > 4 else _INDEXED})" if sql_type(kind) in ("longtext", "longblob", "json") else ""
    return quote(name) + prefix


def prepare(session: Session, table: str, exists: bool, needed: Columns) -> Columns:
    """Check that the table has the needed columns, lock its definition until the transaction ends, and return all columns.

    Raises:
        pymysql.err.OperationalError: another session has just changed the definition; the attempt is repeated.
        SchemaConflict: the table cannot be widened for the columns.
    """
    if not exists:
        if needed:
            raise pymysql.err.OperationalError(1412, f"table {table} has just been dropped")
        return needed
    session.execute(f"SELECT 1 FROM {quote(table)} LIMIT 0")  # locks its definition
    known = columns(session, table)
    steps = widening(known, needed)
    for path, _ in steps:
        if len(path) == 1:
            raise pymysql.err.OperationalError(1412, f"column {path[0]!r} of table {table} has just been dropped")
    changed = nested_growth(known, steps, {})
    _note(session, table, changed.items())
    return columns(session, table) if changed else known


def _note(session: Session, table: str, kinds: Any) -> None:
    """Record kpipe's types of the columns whose MySQL type is ambiguous."""
    for name, kind in kinds:
        if noted(kind):
            session.execute(f"REPLACE INTO {NOTES.sql} VALUES ($1, $2, $3)", [table, name, str(kind)])
        else:
            session.execute(f"DELETE FROM {NOTES.sql} WHERE target_table = $1 AND column_name = $2", [table, name])


def insert(session: Session, reader: Any, table: str, commit: Commit, staged: Sequence[Proven], known: Columns) -> None:
    """Insert the rows of all staged files, and count them.

    Args:
        session: inside a transaction.
        reader: DuckDB's connection to the staged files.
        table: name of the table.
        commit: the commit.
        staged: its staged files of rows.
        known: all columns of the table.

    Raises:
        StagingFailed: a file has other columns than the commit, or another number of rows than reported.
        SchemaConflict: the table does not accept a value.
    """
    times = not_null_times(session, table)

    def copy(into: Sequence[str], matches: Sequence[Match], paths: Sequence[str]) -> int:
        check_files(reader, table, times, matches, paths)
        return _copy(session, reader, quote(table), f"table {table}", into, matches, paths)

    copy_checked(reader, commit, staged, known, copy)


def set_aside(session: Session, dialect: MySQLDialect, reader: Any, commit: Commit, staged: Sequence[Proven], events: int) -> int:
    """Insert the staged dead letters, and return their number."""
    temporary(session, dialect, "kpipe_letters", _LETTERS)
    copy_as_stored(reader, staged, partial(_copy, session, reader, "kpipe_letters", "dead letters"))
    statement, parameters = history_tables.letters(dialect, commit, events, "kpipe_letters")
    return int(session.execute(statement, parameters).rowcount)


def _copy(
    session: Session,
    reader: Any,
    table: str,
    where: str,
    into: Sequence[str],
    matches: Sequence[Match],
    paths: Sequence[str],
) -> int:
    fields = [insert_literals.field(match) for match in matches]
    return insert_literals.insert(session, reader, table, list(map(quote, into)), fields, paths, where)


def temporary(session: Session, dialect: MySQLDialect, name: str, kinds: Mapping[str, str]) -> None:
    """Create an empty temporary table, which is dropped with the connection; this does not commit."""
    parts = ", ".join(f"{quote(column)} {kind}" for column, kind in kinds.items())
    session.execute(f"CREATE TEMPORARY TABLE {quote(name)} ({parts}){dialect.ending()}")
