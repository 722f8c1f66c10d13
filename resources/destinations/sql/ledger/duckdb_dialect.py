"""Find and create the ledger's tables in a DuckDB file, and define DuckDB's SQL."""

# ruff: noqa: S608 - names in statements are constants
from __future__ import annotations

import re

import duckdb

from resources.destinations.sql.ledger import format_table, table_definitions
from resources.destinations.sql.ledger.table_definitions import PIPELINES
from resources.destinations.sql.sql_dialect import Dialect
from resources.duckdb_engine.file_connection import Connection, quote

__all__ = ["DIALECT", "create", "exists", "is_damage", "present", "recorded"]

# Rows are summed by cells of 128 offsets, in which two bitmaps count different offsets, and two those with an odd number of
# rows. A cell within one range needs no row of it, so rows are joined with ranges only where a range begins or ends. Sorting and
# grouping every row takes many times the memory, and so do smaller cells.
_AT = "CAST(t._kafka_offset AS BIGINT)"


def _bits(combine: str) -> str:
    """Return an aggregate: the number of bits after the bits of all offsets of a cell were combined."""
    return " + ".join(
        f"CAST(bit_count({combine}(CASE WHEN ({_AT} & 64) = {half} THEN CAST(1 AS UBIGINT) << CAST({_AT} & 63 AS UBIGINT)"
        " ELSE CAST(0 AS UBIGINT) END)) AS BIGINT)"
        for half in (0, 64)
    )


_APART, _ODD = _bits("bit_or"), _bits("bit_xor")
# Of offsets that were read k times, those with an even number of rows have at most k - 1 if k is odd, and the other way round.
# For k = 2 that finds any offset with more rows; for k > 2, another offset can hide it that lost two rows or more.
_AGAIN = (
    "CASE WHEN cover = 1 THEN n - apart"
    " ELSE greatest(0, n - cover * apart + CASE WHEN cover % 2 = 0 THEN odd ELSE apart - odd END) END"
)
_CELLS = (
    "WITH kpipe_cells AS MATERIALIZED ("
    f" SELECT {{of_row}} AS _kafka_topic, t._kafka_partition, {_AT} >> 7 AS cell,"
    "  min(t._kafka_offset) AS _kafka_offset, max(t._kafka_offset) AS high, count(*) AS n,"
    f"  {_APART} AS apart, {_ODD} AS odd, sum({_AT}) AS summed"
    " FROM {table} AS t WHERE t._kafka_offset IS NOT NULL GROUP BY ALL),"
    " kpipe_placed AS MATERIALIZED (SELECT t.*, b.id, b.cover, t.high < b.batch_latest_offset AS whole"
    "  FROM kpipe_cells AS t ASOF LEFT JOIN kpipe_ranges AS b ON t._kafka_partition = b.batch_source_partition_id"
    "  {topic} AND t._kafka_offset >= b.batch_earliest_offset),"
    " kpipe_edges AS (SELECT {of_row} AS _kafka_topic, t._kafka_partition, t._kafka_offset FROM {table} AS t"
    "  SEMI JOIN (SELECT * FROM kpipe_placed WHERE whole IS NOT TRUE) AS e ON e._kafka_partition = t._kafka_partition"
    f"  AND e._kafka_topic IS NOT DISTINCT FROM {{of_row}} AND e.cell = {_AT} >> 7)"
    f" SELECT id, n, {_AGAIN} AS again, CAST(summed AS DECIMAL(38,0)) AS summed FROM kpipe_placed WHERE whole"
)
DIALECT = Dialect(
    schema="main.",  # views stay correct if the file is attached next to others
    create_view="CREATE VIEW IF NOT EXISTS ",
    same_name="lower({0}) = lower({1})",
    # A primary key and a window ignore a column's collation; a join and GROUP BY do not (measured, DuckDB 2.0.0).
    key_text="{0} COLLATE C",
    micros="epoch_us({0})",
    # An ASOF join sorts once; a join on both bounds would compare every row with every batch.
    hits=(
        f"{_CELLS} UNION ALL SELECT id, n, {_AGAIN}, CAST(summed AS DECIMAL(38,0)) FROM ("
        f"SELECT b.id, b.cover, {_AT} >> 7 AS cell, count(*) AS n, {_APART} AS apart, {_ODD} AS odd, sum({_AT}) AS summed"
        " FROM kpipe_edges AS t ASOF JOIN kpipe_ranges AS b ON t._kafka_partition = b.batch_source_partition_id"
        " {topic} AND t._kafka_offset >= b.batch_earliest_offset"
        " WHERE t._kafka_offset < b.batch_latest_offset GROUP BY b.id, b.cover, cell) AS x"
    ),
    sums=True,
    place="(SELECT 'DuckDB ' || path FROM duckdb_databases() WHERE database_name = current_database())",
    types={"HEADERS": "STRUCT(name VARCHAR, value BLOB)[]"},
)


def present(connection: Connection) -> bool:
    """Return whether the ledger's tables exist. Not inside of a transaction.

    Raises:
        LedgerMismatch: only some of them exist.
        FormatTooNew: a newer kpipe has written them.
    """
    return recorded(connection) or format_table.present(connection, DIALECT, lambda name: exists(connection, name))


def recorded(connection: Connection) -> bool:
    """Return whether the ledger's tables exist and record a format; in one statement, as each takes half a millisecond.

    Raises:
        FormatTooNew: a newer kpipe has written them.
    """
    try:
        return format_table.version(connection, DIALECT, f", (SELECT count(*) FROM {PIPELINES.sql} WHERE false)") is not None
    except duckdb.CatalogException:
        return False


def exists(connection: Connection, name: str) -> bool:
    """Return whether schema main has a table of that name. Not inside of a transaction, which it would abort.

    DESCRIBE the table itself: the first query of duckdb_tables() takes 10 ms on every new connection.
    """
    try:
        connection.execute(f"DESCRIBE {quote('main', name)}")
    except duckdb.CatalogException:
        return False
    return True


def create(connection: Connection, dialect: Dialect = DIALECT) -> None:
    """Create missing tables and views of the ledger, inside the current transaction."""
    table_definitions.create(connection, dialect)
    format_table.upgrade(connection, dialect)


def is_damage(error: Exception) -> bool:
    """Return whether a statement over these tables failed because a table or column of them is missing."""
    if isinstance(error, duckdb.BinderException):
        return True
    found = re.search(r"\b(kpipe_\w+) does not exist", str(error))
    return (
        isinstance(error, duckdb.CatalogException)
        and found is not None
        and found[1] in {t.name for t in table_definitions.TABLES}
    )
