"""Find values in the footers of staged files that DuckLake's statistics cannot express.

DuckLake stores the least and the greatest value of a column as text, and leaves out files and tables by them. With DuckDB 1.5.5:

- A text with the character NUL cuts the statement that updates them: queries then miss rows of other files.
- A file with times outside of years 1 to 9999 cannot be registered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq

from kpipe.errors import SchemaConflict
from resources.destinations.staged_file_check import Proven

__all__ = ["check_texts", "has_far_times"]

_DAYS = (-719_162, 2_932_896)  # years 1 to 9999
_DAY_US = 86_400_000_000


def check_texts(table: str, files: Sequence[Proven]) -> None:
    """Check that no bound of a text column contains the character NUL.

    Raises:
        SchemaConflict: one does.
    """
    for file in files:
        for name, kind, low, high in _bounds(file):
            if kind == "String" and (b"\x00" in _bytes(low) or b"\x00" in _bytes(high)):
                raise SchemaConflict(
                    f"table {table}: column {name}: a text contains the character NUL, and DuckLake's queries would miss rows",
                    "set errors.constraint: dead_letter, or remove it with `set`: replace(COLUMN, chr(0), '')",
                )


def has_far_times(file: Proven) -> bool:
    """Return whether a date or timestamp of the file is outside of years 1 to 9999."""
    for _, kind, low, high in _bounds(file):
        if kind in ("Date", "Timestamp"):
            unit = 1 if kind == "Date" else _DAY_US
            if low < _DAYS[0] * unit or high >= (_DAYS[1] + 1) * unit:
                return True
    return False


def _bounds(file: Proven) -> list[tuple[str, str, Any, Any]]:
    """Return path, logical type, least and greatest value of each column in each row group, as far as the footer has them."""
    metadata = pq.read_metadata(file.path)
    found = []
    for group in (metadata.row_group(at) for at in range(metadata.num_row_groups)):
        for at in range(metadata.num_columns):
            column, kind = group.column(at), str(metadata.schema.column(at).logical_type.type).title()
            if column.statistics is not None and column.statistics.has_min_max:
                found.append((column.path_in_schema, kind, column.statistics.min_raw, column.statistics.max_raw))
    return found


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
