"""Find values that DuckLake's statistics cannot express: in the footers of staged files, and in rows to insert.

DuckLake stores the least and the greatest value of a column as text, and leaves out files and tables by them. With DuckDB 1.5.5:

- A text with the character NUL cuts the statement that updates them: queries then miss rows of other files. Any text can
  become a bound later: of the file that an INSERT writes, or when files are merged. So tasks reject all of them
  (value_limits.py), and a commit checks what it adds.
- A file with times outside of years 1 to 9999 cannot be registered.
"""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kpipe.errors import SchemaConflict
from resources.destinations.staged_file_check import Proven
from resources.duckdb_engine.file_connection import Connection, quote

__all__ = ["check_rows", "check_texts", "has_far_times"]

_PROBLEM = "a text contains the character NUL, and DuckLake's queries would miss rows"
_DAYS = (-719_162, 2_932_896)  # years 1 to 9999
_DAY_US = 86_400_000_000


def check_texts(table: str, files: Sequence[Proven]) -> None:
    """Check that no bound of a text column contains the character NUL.

    Raises:
        SchemaConflict: one does, or a text does in a column whose footer lacks a bound.
    """
    for file in files:
        with pq.ParquetFile(file.path) as source:
            for group, name, kind, column in _chunks(source.metadata):
                if kind == "String" and _has_nul(source, group, column):
                    raise SchemaConflict(
                        f"table {table}: column {name}: {_PROBLEM}",
                        "set errors.constraint: dead_letter, or remove it with `set`: replace(COLUMN, chr(0), '')",
                    )


def check_rows(connection: Connection, table: str, rows: str, parameters: Sequence[object] = ()) -> None:
    """Check that no text of rows to insert contains the character NUL, at any depth.

    Args:
        connection: inside a transaction.
        table: name of the table.
        rows: a SELECT, with Kafka's coordinates.
        parameters: of the SELECT.

    Raises:
        SchemaConflict: one does; the message contains partition and offset.
    """
    described = connection.execute(f"DESCRIBE {rows}", parameters).fetchall()
    names = [name for name, kind, *_ in described if "VARCHAR" in kind]
    if not names:
        return
    tests = [f"coalesce(contains(CAST({quote(name)} AS VARCHAR), chr(0)), false)" for name in names]
    found = connection.execute(
        f"SELECT _kafka_partition, _kafka_offset, [{', '.join(tests)}] FROM ({rows}) WHERE {' OR '.join(tests)} LIMIT 1",
        parameters,
    ).fetchone()
    if found is not None:
        raise SchemaConflict(
            f"partition {found[0]} offset {found[1]}: table {table}: column {names[found[2].index(True)]}: {_PROBLEM}",
            "remove it with replace(COLUMN, chr(0), ''): in `set`, or in into.update, or in the table's row of this key",
        )


def has_far_times(file: Proven) -> bool:
    """Return whether a date or timestamp of the file is outside of years 1 to 9999."""
    for _, _, kind, column in _chunks(pq.read_metadata(file.path)):
        found = column.statistics
        if kind in ("Date", "Timestamp") and found is not None and found.has_min_max:
            unit = 1 if kind == "Date" else _DAY_US
            if found.min_raw < _DAYS[0] * unit or found.max_raw >= (_DAYS[1] + 1) * unit:
                return True
    return False


def _chunks(metadata: pq.FileMetaData) -> Iterator[tuple[int, str, str, pq.ColumnChunkMetaData]]:
    """Yield row group, path and logical type of each column of each row group, and its part of the footer."""
    for group in range(metadata.num_row_groups):
        for at in range(metadata.num_columns):
            column = metadata.row_group(group).column(at)
            yield group, column.path_in_schema, str(metadata.schema.column(at).logical_type.type).title(), column


def _has_nul(source: pq.ParquetFile, group: int, column: pq.ColumnChunkMetaData) -> bool:
    """Return whether a bound contains NUL. Footers have no bounds of long texts, but may have the other one of such a column."""
    found = column.statistics
    if found is not None and (found.has_min_max or not found.num_values):
        return found.has_min_max and any(b"\x00" in _bytes(end) for end in (found.min_raw, found.max_raw))
    table = source.read_row_group(group, columns=[column.path_in_schema])
    return any(pc.any(pc.match_substring(text, "\x00")).as_py() for part in table.column(0).chunks for text in _texts(part))


def _texts(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the texts at any depth."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        yield array.dictionary
    elif pa.types.is_map(kind):
        yield from _texts(array.keys)
        yield from _texts(array.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _texts(array.flatten())
    elif pa.types.is_struct(kind):
        for inner in array.flatten():
            yield from _texts(inner)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        yield array


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
