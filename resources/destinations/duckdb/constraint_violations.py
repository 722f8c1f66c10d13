"""Find the staged rows that a constraint of a DuckDB table rejects; see resources/destinations/sql/constraint_violations.py."""

# ruff: noqa: S608 - names in statements are constants or quoted; conditions are the table's own, as DuckDB returns them
from __future__ import annotations

from collections.abc import Sequence

from kpipe.batch.batch import Commit
from kpipe.schema.columns import Columns
from kpipe.tables.changes import HIDDEN, UNCHANGED
from resources.destinations.duckdb.target_table import given, projection
from resources.destinations.sql.column_matching import by_shape
from resources.destinations.sql.constraint_violations import is_missing
from resources.destinations.sql.engine import Violation
from resources.destinations.sql.merge.merge_staging import KEPT
from resources.destinations.staged_file_check import Proven
from resources.duckdb_engine.file_connection import Connection, quote
from resources.duckdb_engine.sql_types import READ

__all__ = ["Rule", "rejected", "violations"]

#: `CHECK` or `NOT NULL`, the expression of a CHECK, and the names of the columns.
Rule = tuple[str, str | None, Sequence[str]]


def violations(connection: Connection, table: str, commit: Commit, staged: Sequence[Proven], known: Columns) -> list[Violation]:
    """Return each rejected row, and the constraint: CHECK, or NOT NULL of a column that the rows have.

    Args:
        connection: inside a transaction that will be rolled back, in which the table has been widened.
        table: name of the table.
        commit: the commit.
        staged: its staged files of rows.
        known: all columns of the table.
    """
    rules: list[Rule] = connection.execute(
        "SELECT constraint_type, expression, constraint_column_names FROM duckdb_constraints()"
        " WHERE database_name = current_database() AND schema_name = 'main' AND lower(table_name) = lower($1)"
        " AND constraint_type IN ('CHECK', 'NOT NULL')",
        [table],
    ).fetchall()
    return rejected(connection, table, commit, staged, known, rules)


def rejected(
    connection: Connection, table: str, commit: Commit, staged: Sequence[Proven], known: Columns, rules: Sequence[Rule]
) -> list[Violation]:
    """Return the rows that rules reject; see `violations`."""
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE kpipe_tried AS"
        f" SELECT *, CAST(NULL AS VARCHAR) AS {KEPT} FROM {quote('main', table)} LIMIT 0"
    )
    filled: set[str] = set()
    for files in by_shape(staged):
        names, values = projection(connection, files[0], commit, known, HIDDEN)
        filled.update(names)
        if UNCHANGED in files[0].names:
            names, values = [*names, KEPT], [*values, UNCHANGED]
        connection.execute(
            f"INSERT INTO temp.kpipe_tried ({', '.join(names)}) SELECT {', '.join(values)} FROM {READ.format('?')}",
            [[file.path for file in files]],
        )
    topic = "_kafka_topic" if quote("_kafka_topic") in filled else "NULL"  # another topic may have the same number and offset
    found: list[Violation] = []
    checked = any(kind == "CHECK" for kind, _, _ in rules)
    defaults = [quote(name) for name in given(connection, table)] if checked else []
    for kind, expression, columns in rules:
        if kind == "NOT NULL" and quote(columns[0]) not in filled:
            continue  # the rows get its default
        if kind == "CHECK" and {quote(name) for name in columns} & ({*defaults} - filled):
            continue
        condition = is_missing(columns[0]) if kind == "NOT NULL" else f"NOT ({expression}) AND {KEPT} IS NULL"
        reason = (
            f"{columns[0]}: NULL in a NOT NULL column" if kind == "NOT NULL" else f"rejected by the table: CHECK {expression}"
        )
        rows = connection.execute(
            f"SELECT {topic}, _kafka_partition, _kafka_offset FROM temp.kpipe_tried WHERE {condition}"
        ).fetchall()
        found += [(of, number, offset, reason) for of, number, offset in rows]
    return found
