"""Find the indexes and constraints of a table."""

from __future__ import annotations

from collections.abc import Sequence

from resources.duckdb_engine.file_connection import Connection

__all__ = ["lost_by_exchange"]


def lost_by_exchange(connection: Connection, live: str, rebuilt: str) -> Sequence[str]:
    """Return indexes, constraints and defaults of the live table that the rebuilt one does not have, as text.

    Indexes are always among them: DuckDB renames no table that has one.
    """
    indexes = connection.execute(
        "SELECT 'index ' || index_name FROM duckdb_indexes() WHERE schema_name = 'main' AND table_name = $1"
        " AND database_name = current_database() ORDER BY 1",
        [live],
    ).fetchall()
    mine, theirs = (
        connection.execute(
            "SELECT DISTINCT constraint_text FROM duckdb_constraints() WHERE schema_name = 'main' AND table_name = $1"
            " AND database_name = current_database() AND constraint_type <> 'NOT NULL' ORDER BY 1",
            [name],
        ).fetchall()
        for name in (live, rebuilt)
    )
    made, there = (
        connection.execute(
            "SELECT 'default of column ' || column_name || ': ' || column_default FROM duckdb_columns()"
            " WHERE schema_name = 'main' AND table_name = $1 AND column_default IS NOT NULL"
            " AND database_name = current_database() ORDER BY 1",
            [name],
        ).fetchall()
        for name in (live, rebuilt)
    )
    extras = [f"constraint {text}" for (text,) in mine if (text,) not in theirs]
    return [*(name for (name,) in indexes), *extras, *(text for (text,) in made if (text,) not in there)]
