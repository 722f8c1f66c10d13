"""Check texts for columns of type `character varying(n)`, before PostgreSQL cuts trailing blanks beyond n off without an error.

PostgreSQL 17 manual, "Character Types": an explicit cast cuts any text, and an insert cuts surplus blanks, as the SQL standard
demands. Two keys would become the same one.
"""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kpipe.errors import SchemaConflict
from resources.destinations.postgres.connection import Session
from resources.destinations.postgres.sql_dialect import THIS
from resources.destinations.sql.column_matching import Match
from resources.destinations.sql.staged_reader import RECORD, first_record
from resources.duckdb_engine.sql_types import READ, fitted

__all__ = ["check", "check_files", "limits"]


def limits(session: Session, table: str) -> dict[str, int]:
    """Return the most characters of each column that has a limit."""
    rows = session.execute(
        "SELECT attname, atttypmod - 4 FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped"
        f" AND atttypid = 'varchar'::regtype AND atttypmod >= 4 AND attrelid = {THIS}",
        [table],
    ).fetchall()
    return dict(rows)


def check_files(reader: Any, table: str, most: Mapping[str, int], matches: Sequence[Match], paths: Sequence[str]) -> None:
    """Check the texts of staged files.

    Raises:
        SchemaConflict: a text is too long; the message names the column and the first record.
    """
    names = {name.lower(): name for name in most}
    found = [(names[match[0].lower()], fitted(*match)) for match in matches if match[0].lower() in names]
    at = [name for name, _, _ in matches if name in RECORD]
    check(reader, table, most, dict(found), READ.format("?"), [list(paths)], at)


def check(
    reader: Any,
    table: str,
    most: Mapping[str, int],
    values: Mapping[str, str],
    source: str,
    parameters: Sequence[Any] = (),
    at: Sequence[str] = (),
) -> None:
    """Check texts of a relation of DuckDB.

    Args:
        reader: DuckDB's connection.
        table: name of the table, for the message.
        most: of `limits`.
        values: an expression for each column with a limit.
        source: the relation, as SQL.
        parameters: of `source`.
        at: columns of the relation that name the record.

    Raises:
        SchemaConflict: see `check_files`.
    """
    for name, value in values.items():
        length = f"length({value})"
        found = first_record(reader, at, source, parameters, f"WHERE {length} > {most[name]:d} ORDER BY ALL", length)
        if found is None:
            continue
        raise SchemaConflict(
            f"table {table}, column {name!r}: {found[0]} has {found[1]} characters, character varying({most[name]}) takes"
            f" {most[name]}; nothing was written",
            "change the column's type to text; or set such records aside with `errors: {constraint: dead_letter}`",
        )
