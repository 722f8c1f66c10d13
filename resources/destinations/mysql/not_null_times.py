"""Refuse NULL in a NOT NULL column of type TIMESTAMP: MariaDB stores the current time instead, without a warning.

So does MySQL with `explicit_defaults_for_timestamp = OFF`.
"""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from kpipe.errors import SchemaConflict
from resources.destinations.mysql.session import Session
from resources.destinations.sql.column_matching import Match
from resources.destinations.sql.sql_dialect import quote
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
    at = [name for name, _, _ in matches if name in ("_kafka_topic", "_kafka_partition", "_kafka_offset")]
    for match in matches:
        if match[0].lower() not in spelled:
            continue
        shown = ", ".join(map(quote, at)) or "1"
        statement = f"SELECT {shown} FROM {READ.format('?')} WHERE {fitted(*match)} IS NULL ORDER BY ALL LIMIT 1"
        row = reader.execute(statement, [list(paths)]).fetchone()
        if row is None:
            continue
        record = ", ".join(f"{name.removeprefix('_kafka_')} {value}" for name, value in zip(at, row, strict=False))
        raise SchemaConflict(
            f"table {table}, column {spelled[match[0].lower()]!r}: {f'the record at {record}' if record else 'a row'} has NULL,"
            " and the column is NOT NULL; nothing was written",
            "give the column a value in a transform, or remove NOT NULL from it",
        )
