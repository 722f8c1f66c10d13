"""Change events: rows of a source's table with a key, whose updates may leave out values that did not change.

PostgreSQL does not log a large value that an update did not change (TOAST), and Debezium writes a placeholder for it. The staged
row has NULL in such a column and names the column in `UNCHANGED`; the commit takes the value from the row that it replaces.
"""

from __future__ import annotations

from collections.abc import Iterable

from kpipe.definition.pipeline import Pipeline
from kpipe.tables.upsert import ORIGINAL

__all__ = ["EMPTIES", "HIDDEN", "KEEPING", "UNCHANGED", "is_changes", "mark", "marked_columns", "marks"]

#: Column of a staged file: the columns of each row that keep their value; NULL if the row has all of its values.
UNCHANGED = "_kafka_unchanged"

#: Column of a staged file of deletes: whether the record deletes all rows (TRUNCATE); it has no key then.
EMPTIES = "_kafka_empties"

#: Columns of a staged file that are not columns of the table.
HIDDEN = (ORIGINAL, UNCHANGED, EMPTIES)

#: Destinations whose commits keep values.
KEEPING = ("duckdb", "postgres", "mysql", "delta", "iceberg", "ducklake")


def is_changes(pipeline: Pipeline) -> bool:
    """Return whether the pipeline's records are change events."""
    return pipeline.format.type == "debezium"


def mark(name: str) -> str:
    """Return the text that names a column in `UNCHANGED`: SQL compares it in any collation, whatever the name."""
    return f",{name.lower().encode().hex()},"


def marks(names: Iterable[str]) -> str | None:
    """Return the value of `UNCHANGED` for these columns; None for no column."""
    return "".join(map(mark, sorted(names))) or None


def marked_columns(texts: Iterable[str]) -> set[str]:
    """Return the columns, in lower case, that values of `UNCHANGED` name."""
    return {bytes.fromhex(part).decode() for text in texts for part in text.split(",") if part}
