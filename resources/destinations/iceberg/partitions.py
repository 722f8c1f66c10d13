"""Convert between `into.partition_by` and an Iceberg table's partition spec, and between their values."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform, YearTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType

from kpipe.definition.lakehouse_options import Part
from resources.table_partitions import Values

__all__ = ["divide", "parts_of", "record_of", "values_of"]

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


def record_of(table: TableMetadata, spec: int, values: Values) -> Record:
    """Return the values of a partition as pyiceberg writes them to manifests: a UBIGINT is stored as DECIMAL(20,0)."""
    kinds = [field.field_type for field in table.specs()[spec].partition_type(table.schema()).fields]
    return Record(
        *(
            Decimal(value) if isinstance(kind, DecimalType) and isinstance(value, int) else value
            for kind, value in zip(kinds, values, strict=True)
        )
    )


def values_of(partition: Record) -> Values:
    """Return the values of a manifest's partition as kpipe computes them; the inverse of `record_of`."""
    return tuple(_plain(partition[at]) for at in range(len(partition)))


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, Decimal) and value.as_tuple().exponent == 0 else value
