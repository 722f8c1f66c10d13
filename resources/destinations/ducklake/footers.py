"""Find values in the footers of staged files that DuckLake's statistics cannot express.

DuckLake stores the least and the greatest value of a column as text, and leaves out files and tables by them. With DuckDB 1.5.5:

- A text with the character NUL cuts the statement that updates them: queries then miss rows of other files.
- A file with times outside of years 1 to 9999 cannot be registered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kpipe.errors import SchemaConflict
from resources.destinations.staged_file_check import Proven

__all__ = ["check_texts", "has_far_times"]

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
                        f"table {table}: column {name}: a text contains the character NUL, and DuckLake's queries would"
                        " miss rows",
                        "set errors.constraint: dead_letter, or remove it with `set`: replace(COLUMN, chr(0), '')",
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
