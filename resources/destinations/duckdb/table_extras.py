"""Find the indexes and constraints of a table."""

# ruff: noqa: S608 - names in statements are constants, values are always parameters
from __future__ import annotations

from collections.abc import Sequence

from resources.duckdb_engine.file_connection import Connection

__all__ = ["lost_by_exchange"]


_HERE = "schema_name = 'main' AND database_name = current_database() AND lower(table_name) = lower($1)"
_INDEXES = f"SELECT 'index ' || index_name FROM duckdb_indexes() WHERE {_HERE} ORDER BY 1"
_OWN = (
    f"SELECT 'constraint ' || constraint_text FROM duckdb_constraints() WHERE {_HERE} AND constraint_type <> 'NOT NULL'"
    f" UNION SELECT 'NOT NULL of column ' || column_name FROM duckdb_columns() WHERE {_HERE} AND NOT is_nullable"
    " UNION SELECT 'default of column ' || column_name || ': ' || column_default FROM duckdb_columns()"
    f" WHERE {_HERE} AND column_default IS NOT NULL ORDER BY 1"
)


def lost_by_exchange(connection: Connection, live: str, rebuilt: str) -> Sequence[str]:
    """Return indexes, constraints and defaults of the live table that the rebuilt one does not have, as text.

    Indexes are always among them: DuckDB renames no table that has one.
    """
    indexes = [text for (text,) in connection.execute(_INDEXES, [live]).fetchall()]
    mine, theirs = ([text for (text,) in connection.execute(_OWN, [name]).fetchall()] for name in (live, rebuilt))
    return [*indexes, *(text for text in mine if text not in theirs)]
