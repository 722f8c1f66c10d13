"""Refuse NULL in a NOT NULL column of type TIMESTAMP: MariaDB stores the current time instead, without a warning.

So does MySQL with `explicit_defaults_for_timestamp = OFF`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from kpipe.errors import SchemaConflict
from resources.destinations.mysql.session import Session
from resources.destinations.sql.column_matching import NULL_HINT, Match
from resources.destinations.sql.staged_reader import RECORD, first_record
from resources.duckdb_engine.sql_types import READ, fitted

__all__ = ["check_files", "not_null_times"]


def not_null_times(session: Session, table: str) -> list[str]:
    """Return these columns of the table."""
    rows = session.execute(
        "SELECT column_name FROM information_schema.columns"
        " WHERE table_schema = database() AND table_name = $1 AND data_type = 'timestamp' AND is_nullable = 'NO'",
        [table],
    ).fetchall()
    return [name for (name,) in rows]


def check_files(reader: Any, table: str, names: Collection[str], matches: Sequence[Match], paths: Sequence[str]) -> None:
    """Check the rows of staged files.

    Args:
        reader: DuckDB's connection to the staged files.
        table: name of the table, for the message.
        names: of `not_null_times`.
        matches: the columns of the files.
        paths: the files.

    Raises:
        SchemaConflict: a row has NULL in such a column; the message names the column and the first record.
    """
    spelled = {name.lower(): name for name in names}
    at = [name for name, _, _ in matches if name in RECORD]
    for match in matches:
        if match[0].lower() not in spelled:
            continue
        found = first_record(reader, at, READ.format("?"), [list(paths)], f"WHERE {fitted(*match)} IS NULL ORDER BY ALL")
        if found is None:
            continue
        raise SchemaConflict(
            f"table {table}, column {spelled[match[0].lower()]!r}: {found[0]} has NULL, and the column is NOT NULL;"
            " nothing was written",
            NULL_HINT,
        )
