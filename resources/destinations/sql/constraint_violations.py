"""Find the staged rows that a constraint of the table rejects. Used after a rejection, to name the records.

A staged row is not yet the row of the table: columns that no record fills get their default, and an update of a change event
keeps values that it left out (kpipe/tables/changes.py). What depends on these is not judged here: without a record, the error of
the commit stops the pipeline.
"""

# ruff: noqa: S608 - names in statements are constants or quoted; conditions are the table's own, as the database returns them
from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from kpipe.batch.batch import Commit
from kpipe.schema.columns import VARCHAR, Columns, Type
from kpipe.tables.changes import HIDDEN, UNCHANGED, mark
from resources.destinations.sql.column_matching import by_shape, matched
from resources.destinations.sql.engine import Violation
from resources.destinations.sql.merge.merge_staging import KEPT, Put
from resources.destinations.sql.sql_dialect import quote
from resources.destinations.sql.staged_reader import stored
from resources.destinations.staged_file_check import Proven

__all__ = ["Check", "found", "is_missing"]

#: Name and condition of a CHECK, and the columns that it reads.
Check = tuple[str, str, Collection[str]]


def is_missing(name: str) -> str:
    """Return the condition that a row has NULL in a column, and does not keep the value of the table's row."""
    return f"{quote(name)} IS NULL AND ({KEPT} IS NULL OR {KEPT} NOT LIKE '%{mark(name)}%')"


def found(
    session: Any,
    reader: Any,
    tried: str,
    rules: Sequence[Check],
    required: Sequence[str],
    defaults: Collection[str],
    commit: Commit,
    staged: Sequence[Proven],
    known: Columns,
    put: Put,
) -> list[Violation]:
    """Return each rejected row, and the constraint: CHECK, or NOT NULL of a column that the rows have.

    Args:
        session: inside a transaction that will be rolled back.
        reader: DuckDB's connection to the staged files.
        tried: an empty relation with the table's columns, `KEPT` and none of the table's constraints, as SQL.
        rules: the table's CHECK constraints.
        required: columns that are NOT NULL.
        defaults: columns that have a default, or that the database computes.
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
        kept = UNCHANGED in files[0].names
        first: list[tuple[str, Type]] = [(UNCHANGED, VARCHAR)] if kept else []
        put([*([KEPT] if kept else []), *map(quote, into)], first, matches, [file.path for file in files])
    unknown = {*defaults} - filled
    conditions = [
        (f"NOT ({rule}) AND {KEPT} IS NULL", f"rejected by the table: {name} CHECK {rule}")
        for name, rule, columns in rules
        if unknown.isdisjoint(columns)
    ]
    conditions += [(is_missing(name), f"{name}: NULL in a NOT NULL column") for name in required if name in filled]
    topic = "_kafka_topic" if "_kafka_topic" in filled else "NULL"  # another topic may have the same number and offset
    result: list[Violation] = []
    for condition, reason in conditions:
        rows = session.execute(f"SELECT {topic}, _kafka_partition, _kafka_offset FROM {tried} WHERE {condition}").fetchall()
        result += [(of, number, offset, reason) for of, number, offset in rows]
    return result
