"""Define DuckLake's SQL where it differs from DuckDB's: no keys, no RETURNING, and no NUL in texts.

A text with NUL as a bound of a column cuts the statement that updates DuckLake's statistics, and queries miss rows (ADR 62).
Texts of the ledger may quote a record or a program: NUL is written as `\\x00` there. Rows with it are refused (footers.py).
"""

# ruff: noqa: S608 - the statement consists of constants
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from resources.destinations.sql.ledger import duckdb_dialect
from resources.destinations.sql.sql_dialect import Connection, Dialect

__all__ = ["DIALECT", "LETTERS"]

_PRINTABLE = "replace({}, chr(0), '\\x00')"
#: Staged dead letters, as SQL: their reasons and the names of their headers may quote a record.
LETTERS = (
    f"(SELECT * REPLACE ({_PRINTABLE.format('reason')} AS reason, list_transform(headers,"
    f" lambda h: struct_pack(name := {_PRINTABLE.format('h.name')}, value := h.value)) AS headers) FROM {{}})"
)


def _printable(value: Any) -> Any:
    if isinstance(value, list):
        return [_printable(item) for item in value]
    return value.replace("\x00", "\\x00") if isinstance(value, str) else value


@dataclass(frozen=True)
class _LakeDialect(Dialect):
    """DuckLake's SQL."""

    def change(self, connection: Connection, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Run an UPDATE or DELETE, and return the number of rows that it found, which is its result."""
        return int(connection.execute(statement, _printable(list(parameters))).fetchone()[0])

    def given(self, rows: Sequence[Sequence[Any]], width: int) -> list[Any]:
        """See `Dialect`."""
        return [_printable(column) for column in super().given(rows, width)]


_DUCKDB = {field.name: getattr(duckdb_dialect.DIALECT, field.name) for field in fields(Dialect)}
DIALECT = _LakeDialect(**{**_DUCKDB, "keys": False})
