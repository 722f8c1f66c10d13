"""Choose the columns of a Parquet file that have statistics in its footer."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

__all__ = ["bounded_columns"]


def bounded_columns(schema: pa.Schema) -> list[str]:
    """Return the paths of all columns but FLOAT and DOUBLE, as the argument `write_statistics` of a writer.

    Bounds in a footer leave out NaN, which is greater than every number in DuckDB and Spark. By such bounds their readers would
    skip row groups that have NaN.
    """
    leaves = [leaf for field in schema for leaf in _leaves(field.name, field.type)]
    floating = {path for path, kind in leaves if pa.types.is_floating(kind)}
    return [path for path, _ in leaves if path not in floating]  # a struct `a` with `b` and a column `a.b` have one path


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the path and the type of each column of a file, as pyarrow names them."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path, kind
