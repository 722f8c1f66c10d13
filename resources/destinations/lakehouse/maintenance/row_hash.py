"""Expressions of DuckDB whose hashes differ where the values of a column differ.

DuckDB's `hash` alone has one result for these values:

- NULL, `[]` and `[NULL]`
- a NULL STRUCT, and one of NULLs
- `[[1], [2]]` and `[[1, 2]]`
- 0.0 and -0.0
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from resources.duckdb_engine.file_connection import quote
from resources.duckdb_engine.sandbox import literal

__all__ = ["parts"]


def parts(value: str, kind: pa.DataType, depth: int = 0) -> Iterator[str]:
    """Return expressions over a value. All of them are equal for two values only if these are the same.

    Args:
        value: SQL of the value.
        kind: its type.
        depth: number of lambdas around it.
    """
    item = f"kpipe_item_{depth}"
    if pa.types.is_struct(kind):
        yield f"{value} IS NULL"
        for field in kind:
            yield from parts(f"struct_extract({value}, {literal(field.name)})", field.type, depth)
    elif pa.types.is_map(kind):
        yield f"{value} IS NULL"
        pairs = pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
        yield from parts(f"map_entries({value})", pairs, depth)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = ", ".join(parts(quote(item), kind.value_type, depth + 1))
        yield f"len({value})"
        yield f"list_transform({value}, lambda {quote(item)}: hash({inner}))"
    else:
        yield value
        if pa.types.is_floating(kind):
            yield f"signbit({value})"
