"""Convert between `into.partition_by` and an Iceberg table's partition spec."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyiceberg.table import Table, Transaction
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform, YearTransform

from kpipe.definition.lakehouse_options import Part

__all__ = ["divide", "parts_of"]

_UNITS: dict[str, Any] = {
    "": IdentityTransform, "year": YearTransform, "month": MonthTransform, "day": DayTransform, "hour": HourTransform,
}  # fmt: skip


def parts_of(table: Table) -> tuple[Part, ...] | None:
    """Return the table's partition columns; None: one has an unsupported transform (bucket, truncate), or is in a STRUCT."""
    known = {kind: unit for unit, kind in _UNITS.items()}
    columns = {column.field_id: column.name for column in table.schema().fields}
    found = []
    for field in table.spec().fields:
        unit, name = known.get(type(field.transform)), columns.get(field.source_id)
        if unit is None or name is None:
            return None
        found.append(Part(name, unit))
    return tuple(found)


def divide(change: Transaction, parts: Sequence[Part]) -> None:
    """Partition a table that has no rows yet."""
    with change.update_spec() as update:
        for part in parts:
            update.add_field(part.column, _UNITS[part.unit]())
