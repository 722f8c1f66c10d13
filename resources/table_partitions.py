"""Split rows by the values that a table is divided by: in tasks, and where the driver rewrites a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from kpipe.definition.lakehouse_options import Part
from kpipe.errors import SchemaConflict

__all__ = ["Values", "apart"]

#: Values of one division, one for each part: a DATE as its days since 1970, a whole DECIMAL as an integer; None is NULL.
Values = tuple[Any, ...]
_UNITS = {"year": "Y", "month": "M", "day": "D", "hour": "h"}


def apart(table: pa.Table, parts: Sequence[Part]) -> Iterator[tuple[Values, pa.Table]]:
    """Yield the rows of each division, in their order. A column that the table lacks is NULL in all rows.

    Raises:
        SchemaConflict: a table cannot be divided by a column of that type.
    """
    if not table.num_rows:
        return
    kinds, codes = [], np.zeros(table.num_rows, np.int64)
    for part in parts:
        encoded = _valued(table, part).dictionary_encode(null_encoding="encode")
        kinds.append(encoded.dictionary)
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
    groups, places = np.unique(codes, return_inverse=True)
    for number, code in enumerate(groups.tolist()):
        values: list[Any] = []
        for kind in reversed(kinds):
            code, index = divmod(code, len(kind))
            value = kind[index].as_py()
            values.insert(0, int(value) if isinstance(value, Decimal) else value)
        yield tuple(values), table if len(groups) == 1 else table.take(pa.array(np.flatnonzero(places == number)))


def _valued(table: pa.Table, part: Part) -> pa.Array:
    """Return each row's value: the column's, or its number of years, months, days or hours since 1970 (UTC)."""
    index = next((index for index, name in enumerate(table.column_names) if name.lower() == part.column.lower()), None)
    if index is None or pa.types.is_null(table.column(index).type):
        return pa.nulls(table.num_rows)
    array = table.column(index).combine_chunks()
    kind = array.type
    if part.unit and (pa.types.is_timestamp(kind) or (pa.types.is_date32(kind) and part.unit != "hour")):
        moments = (array if pa.types.is_date32(kind) else array.cast(pa.timestamp("us"))).to_numpy(zero_copy_only=False)
        numbers = moments.astype(f"datetime64[{_UNITS[part.unit]}]").astype(np.int64)
        return pa.array(numbers, mask=np.isnat(moments))
    plain = (pa.types.is_integer, pa.types.is_string, pa.types.is_date32, pa.types.is_boolean, _is_whole)
    if part.unit or not any(fits(kind) for fits in plain):
        raise SchemaConflict(
            f"into.partition_by: {part}: the column is {kind}",
            "divide by text, whole numbers, dates or true and false; or by year, month, day or hour of an instant",
        )
    return array.cast(pa.int32()) if pa.types.is_date32(kind) else array


def _is_whole(kind: pa.DataType) -> bool:
    """Return whether the values are whole numbers: Iceberg and Delta store UBIGINT as DECIMAL(20,0)."""
    return bool(pa.types.is_decimal(kind) and kind.scale == 0)
