"""Find rows that contain the character NUL, a column at a time, for destinations whose texts cannot store it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.schema.columns import VARCHAR, ListOf, MapOf, Struct, Type
from resources.duckdb_engine.arrow_types import entries

__all__ = ["may_hold_nul", "nul_reasons", "rows_with_nul"]

# JSON writes it as \u0000, unless the backslash itself is escaped: then an odd number of backslashes precedes this one.
_IN_JSON = r"(^|[^\\])(\\\\)*\\u0000"


def may_hold_nul(kind: Type, texts: Collection[Type]) -> bool:
    """Return True if values of the type may contain one of the types `texts`, VARCHAR or JSON."""
    if isinstance(kind, MapOf):
        return may_hold_nul(kind.entries, texts)
    if isinstance(kind, ListOf):
        return may_hold_nul(kind.item, texts)
    if isinstance(kind, Struct):
        return any(may_hold_nul(item, texts) for _, item in kind.fields)
    return kind in texts


def nul_reasons(table: pa.Table, columns: Iterable[tuple[str, Type]], texts: Collection[Type]) -> dict[int, str]:
    """Return by row the reasons of values that contain NUL in one of the types `texts`."""
    reasons: dict[int, str] = {}
    for name, kind in columns:
        for row in rows_with_nul(table.column(name), kind, texts).tolist():
            reasons.setdefault(row, f"{name}: the character NUL, which the table cannot store")
    return reasons


def rows_with_nul(column: Any, kind: Type, texts: Collection[Type]) -> np.ndarray[Any, Any]:
    """Return positions of the rows of an Arrow column that contain NUL at any depth, in one of the types `texts`."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not len(array) or not may_hold_nul(kind, texts):
        return np.array([], np.int64)
    if isinstance(kind, MapOf):
        return rows_with_nul(entries(array), kind.entries, texts)
    if isinstance(kind, ListOf):
        inside = rows_with_nul(pc.list_flatten(array), kind.item, texts)
        return np.unique(np.asarray(pc.list_parent_indices(array))[inside]) if len(inside) else inside
    if isinstance(kind, Struct):
        rows = [rows_with_nul(pc.struct_field(array, [index]), item, texts) for index, (_, item) in enumerate(kind.fields)]
        return np.unique(np.concatenate(rows))
    matches = pc.match_substring(array, "\x00") if kind == VARCHAR else pc.match_substring_regex(array, _IN_JSON)
    return np.asarray(pc.indices_nonzero(pc.fill_null(matches, False)), np.int64)
