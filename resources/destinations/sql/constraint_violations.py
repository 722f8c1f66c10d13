"""Find the staged rows that a constraint of the table rejects. Used after a rejection, to name the records."""

# ruff: noqa: S608 - names in statements are constants or quoted; conditions are the table's own, as the database returns them
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kpipe.batch.batch import Commit
from kpipe.schema.columns import Columns
from kpipe.tables.changes import HIDDEN
from resources.destinations.sql.column_matching import by_shape, matched
from resources.destinations.sql.merge.merge_staging import Put
from resources.destinations.sql.sql_dialect import quote
from resources.destinations.sql.staged_reader import stored
from resources.destinations.staged_file_check import Proven

__all__ = ["found"]


def found(
    session: Any,
    reader: Any,
    tried: str,
    rules: Sequence[tuple[str, str]],
    required: Sequence[str],
    commit: Commit,
    staged: Sequence[Proven],
    known: Columns,
    put: Put,
) -> list[tuple[int, int | None, str]]:
    """Return partition and offset of each rejected row, and the constraint: CHECK, or NOT NULL of a column that the rows have.

    Args:
        session: inside a transaction that will be rolled back.
        reader: DuckDB's connection to the staged files.
        tried: an empty relation with the table's columns and none of its constraints, as SQL.
        rules: names and conditions of the table's CHECK constraints.
        required: columns that are NOT NULL.
        commit: the commit.
        staged: its staged files of rows.
        known: all columns of the table.
        put: copies rows of files into the relation.
    """
    names, filled = {name.lower(): name for name in known.names()}, set()
    for files in by_shape(staged):
        matches = matched(stored(reader, files[0]).without(HIDDEN), files[0], commit, known)
        into = [names[name.lower()] for name, _, _ in matches]
        filled.update(into)
        put([*map(quote, into)], (), matches, [file.path for file in files])
    conditions = [(f"NOT ({expression})", f"rejected by the table: {name} CHECK {expression}") for name, expression in rules]
    conditions += [(f"{quote(name)} IS NULL", f"{name}: NULL in a NOT NULL column") for name in required if name in filled]
    result: list[tuple[int, int | None, str]] = []
    for condition, reason in conditions:
        rows = session.execute(f"SELECT _kafka_partition, _kafka_offset FROM {tried} WHERE {condition}").fetchall()
        result += [(number, offset, reason) for number, offset in rows]
    return result
