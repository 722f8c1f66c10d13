"""Define DuckLake's SQL where it differs from DuckDB's: no keys, and no RETURNING."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from resources.destinations.sql.ledger import duckdb_dialect
from resources.destinations.sql.sql_dialect import Connection, Dialect

__all__ = ["DIALECT"]


@dataclass(frozen=True)
class _LakeDialect(Dialect):
    """DuckLake's SQL."""

    def change(self, connection: Connection, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Run an UPDATE or DELETE, and return the number of rows that it found, which is its result."""
        return int(connection.execute(statement, parameters).fetchone()[0])


_DUCKDB = {field.name: getattr(duckdb_dialect.DIALECT, field.name) for field in fields(Dialect)}
DIALECT = _LakeDialect(**{**_DUCKDB, "keys": False})
