"""Choose row groups by bytes, so that no group takes much memory while DuckDB writes, compresses or merges it.

DuckDB keeps the rows of a group in memory until it is complete: 122,880 rows of 20 kB are 2.4 GB. A checkpoint also reads small
neighbours, and writes them as one group of up to the size that the file was attached with. It does so in all tables of the file,
even in those that the transaction did not change (docs/adr/0040-memory-of-duckdb.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import duckdb

from resources.duckdb_engine.sandbox import quote

__all__ = ["VECTOR_ROWS", "Groups", "RowSizes", "batch_bytes", "choose", "row_group_rows"]

#: DuckDB reads, compresses and writes whole vectors.
VECTOR_ROWS = 2048
_GROUP_ROWS, _GROUP_BYTES = 122_880, 64 << 20
_BATCH_BYTES = 128 << 20  # DuckDB takes about twice the bytes of fewer rows than a vector
_FEW_ROWS = 64  # a table of fewer rows can always be merged
_SHARE = 12  # part of the engine's memory for a group of another table; two threads merge up to three groups each
_GROWTH = 1.25  # the rows of a table are measured again when there are so many times more
_FIXED = 8  # bytes of a value of fixed size
_TABLES = (
    "SELECT schema_name, table_name, estimated_size, column_count FROM duckdb_tables()"
    " WHERE database_name = $1 AND index_count = 0 AND estimated_size >= $2"  # tables with an index are never merged
)
_COLUMNS = (
    "SELECT column_name FROM duckdb_columns() WHERE database_name = $1 AND schema_name = $2 AND table_name = $3"
    " AND regexp_matches(data_type, 'VARCHAR|BLOB|JSON|BIT|\\[|MAP|STRUCT|UNION')"
)


def row_group_rows(row_bytes: int) -> int:
    """Return the number of rows of a row group whose rows have this mean size; DuckDB writes whole vectors."""
    wanted = _GROUP_BYTES // max(1, row_bytes) // VECTOR_ROWS * VECTOR_ROWS
    return min(_GROUP_ROWS, max(VECTOR_ROWS, wanted))


def batch_bytes(row_bytes: float, memory: int) -> int | None:
    """Return the most bytes of a transaction that inserts rows of this mean size; None: no bound.

    Until a transaction commits, DuckDB keeps the last row group in memory, up to a vector of rows whatever their size.

    Args:
        row_bytes: mean size of the rows.
        memory: limit of the engine.
    """
    most = max(1, min(_BATCH_BYTES, memory // 4))
    return most if row_bytes * VECTOR_ROWS > most else None


class Groups(NamedTuple):
    """Row groups of one session that writes to a file: their rows, and whether checkpoints may merge groups."""

    rows: int
    merging: bool


def choose(row_bytes: int, largest: int, memory: int) -> Groups:
    """Choose the row groups of a session.

    Without merging, each commit of fewer rows makes another group. So groups are merged as long as one fits into memory.
    Sessions that add no rows, or large ones, do not merge groups that exceed the usual size.

    Args:
        row_bytes: size of the rows that will be inserted; 0: none are.
        largest: mean size of the rows of the table whose rows are the largest.
        memory: limit of the engine.
    """
    widest = max(row_bytes, largest)
    small = 0 < row_bytes * VECTOR_ROWS <= _GROUP_BYTES
    most = max(_GROUP_BYTES, memory // _SHARE) if small else _GROUP_BYTES
    merging = widest * VECTOR_ROWS <= most
    return Groups(row_group_rows(widest if merging else row_bytes), merging)


@dataclass
class _Measured:
    rows: int
    row_bytes: int


class RowSizes:
    """Mean sizes of the rows of a file's tables, from the statistics that DuckDB keeps: no row is read."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, str], _Measured] = {}
        self.largest = 0

    def measure(self, connection: duckdb.DuckDBPyConnection, database: str) -> None:
        """Set `largest` to the mean size of the rows of the table whose rows are the largest.

        Args:
            connection: to the engine that has attached the file.
            database: name of the file's catalog.
        """
        found = {}
        for schema, table, rows, columns in connection.execute(_TABLES, [database, _FEW_ROWS]).fetchall():
            before = self._tables.get((schema, table))
            if before is None or not before.rows <= rows <= before.rows * _GROWTH:
                total = _text_bytes(connection, rows, database, schema, table)
                before = _Measured(rows, total // max(rows, VECTOR_ROWS) + _FIXED * columns)
            found[schema, table] = before
        self._tables = found
        self.largest = max((measured.row_bytes for measured in found.values()), default=0)


def _text_bytes(connection: duckdb.DuckDBPyConnection, rows: int, *table: str) -> int:
    """Return the bytes of all texts and blobs of a table, those in nested values included."""
    names = [row[0] for row in connection.execute(_COLUMNS, list(table)).fetchall()]
    if not names:
        return 0
    columns = ", ".join(f"stats({quote(name)})" for name in names)
    row = connection.execute(f"SELECT {columns} FROM {quote(*table)} LIMIT 1").fetchone()  # noqa: S608 - quoted
    return sum(_length(stats, rows) for stats in row or ())


def _length(stats: Any, rows: int) -> int:
    """Return the length of all texts in a column's statistics; 0 if they are a text, as before DuckDB 2.0.

    DuckDB loses the total of some tables whose row groups were not merged. Then the shortest and the longest text are counted.
    """
    if not isinstance(stats, dict):
        return 0
    total, longest = stats.get("total_string_length"), stats.get("max_string_length")
    if not isinstance(total, int):
        shortest = stats.get("min_string_length")
        total = (longest + (shortest if isinstance(shortest, int) else 0)) * rows // 2 if isinstance(longest, int) else 0
    return total + sum(_length(child, rows) for child in stats.values())
