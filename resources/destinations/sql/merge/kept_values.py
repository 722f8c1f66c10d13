"""Keep the values that a change event left out, because an update did not change them (kpipe/tables/changes.py).

Such a write has NULL in the column. Its value is that of the previous write of the key in the batch that has one, else that of
the row in the table.
"""

# ruff: noqa: S608 - names in statements are constants or quoted
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kpipe.errors import NotAvailable, SchemaConflict
from kpipe.schema.columns import Columns, Scalar
from kpipe.tables.changes import mark, marked_columns
from resources.destinations.sql.merge.conflict_expressions import NEW, OLD
from resources.destinations.sql.merge.merge_staging import KEPT
from resources.destinations.sql.sql_dialect import quote

__all__ = ["KEPT_NAME", "kept_columns", "kept_values", "marked", "refuse_unknown", "scalar"]

KEPT_NAME = KEPT[1:-1]
_FULL = "set REPLICA IDENTITY FULL for the source's table"


def kept_columns(session: Any, writes: str, known: Columns) -> list[str] | None:
    """Return the columns that a write of the batch keeps, as the table spells them; None if no write left out a value.

    No row has a value of a column that the table does not have yet, but `refuse_unknown` counts it.
    """
    found = session.execute(f"SELECT DISTINCT {KEPT} FROM {writes} WHERE {KEPT} IS NOT NULL").fetchall()
    if not found:
        return None
    names = marked_columns([row[0] for row in found])
    return [name for name in known.names() if name.lower() in names]


def refuse_unknown(session: Any, fates: str, writes: str, write: str, table: str) -> None:
    """Refuse a write that keeps a value of a row that does not exist.

    Args:
        session: inside a transaction, with the relations of writes and of fates.
        fates: the relation, as SQL.
        writes: the relation, as SQL.
        write: the column that identifies a write.
        table: name of the table.

    Raises:
        SchemaConflict: there is such a write.
    """
    row = session.execute(
        f"SELECT f.p, f.o, w.{KEPT} FROM {fates} AS f JOIN {writes} AS w ON w.{write} = f.wid"
        f" WHERE f.fate = 'inserted' AND f.behind = 0 AND w.{KEPT} IS NOT NULL ORDER BY f.p, f.o LIMIT 1"
    ).fetchone()
    if row is not None:
        names = ", ".join(sorted(marked_columns([row[2]])))
        raise SchemaConflict(
            f"partition {row[0]} offset {row[1]}: an update left out {names}, which it did not change, and table {table} has"
            " no row of its key",
            f"load the source's rows first (a snapshot of Debezium), or {_FULL}",
        )


def kept_values(carried: Sequence[str], kept: Sequence[str]) -> dict[str, str]:
    """Return the value of each column when a write follows the row `OLD`: expressions of DuckDB over `OLD` and `NEW`."""
    test = marked(f"{NEW}.{KEPT}")
    return {
        name: f"CASE WHEN {test.format(mark(name))} THEN {OLD}.{quote(name)} ELSE {NEW}.{quote(name)} END"
        if name in kept
        else f"{NEW}.{quote(name)}"
        for name in carried
    }


def marked(column: str) -> str:
    """Return the condition, for any database, that a column contains the mark `{}`."""
    return f"position('{{}}' IN {column}) > 0"


def scalar(columns: Columns) -> None:
    """Check that a database server can keep the values of these columns.

    Raises:
        NotAvailable: a column has a nested type.
    """
    for name, kind in columns:
        if not isinstance(kind, Scalar):
            raise NotAvailable(
                f"column {name} has type {kind}: this database cannot keep a nested value that an update left out",
                f"declare the column as JSON, or {_FULL}",
            )
