"""Filter rows of a lake's table by comparing columns with values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Condition", "expression", "filtered"]

#: A column, `==`, `>=` or `<`, and a value. A row where the column is NULL or missing does not match.
Condition = tuple[str, str, Any]


def expression(where: Sequence[Condition], schema: pa.Schema) -> Any:
    """Return the conditions as an Arrow expression; None without conditions."""
    found: Any = None
    for name, operator, value in where:
        field, scalar = pc.field(name), pa.scalar(value, _comparable(schema.field(name).type))
        part = field == scalar if operator == "==" else field >= scalar if operator == ">=" else field < scalar
        found = part if found is None else found & part
    return found


def filtered(table: pa.Table, where: Sequence[Condition], limit: int | None) -> pa.Table:
    """Return the rows of a table that match."""
    condition = expression(where, table.schema)
    found = table if condition is None else table.filter(condition)
    return found if limit is None else found.slice(0, limit)


def _comparable(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
