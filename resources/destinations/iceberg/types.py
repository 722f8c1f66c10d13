"""Convert column types to Iceberg's and back. Types that Iceberg lacks are stored in a type that represents them exactly.

The declared types of such columns are in the table property `kpipe.types`. An entry counts only while it fits the schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, IcebergType, ListType, MapType, StructType

from kpipe.errors import InvalidPipeline, SchemaConflict
from kpipe.schema.columns import Columns, ListOf, MapOf, Scalar, Struct, Type, parse_type

__all__ = ["TYPES", "arrow", "arrow_schema", "columns_of", "declared"]

TYPES = "kpipe.types"  #: property of the table

_ICEBERG = {
    "boolean": "BOOLEAN", "int": "INTEGER", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE", "string": "VARCHAR",
    "binary": "BLOB", "date": "DATE", "time": "TIME", "timestamp": "TIMESTAMP", "timestamptz": "TIMESTAMP WITH TIME ZONE",
}  # fmt: skip
# Iceberg has no unsigned integers, none below 32 or beyond 64 bits, and no JSON; staged files do not contain its UUID type.
_ARROW = {
    "BOOLEAN": pa.bool_(), "TINYINT": pa.int32(), "SMALLINT": pa.int32(), "INTEGER": pa.int32(), "BIGINT": pa.int64(),
    "UTINYINT": pa.int32(), "USMALLINT": pa.int32(), "UINTEGER": pa.int64(), "UBIGINT": pa.decimal128(20, 0),
    "HUGEINT": pa.string(), "FLOAT": pa.float32(), "DOUBLE": pa.float64(), "VARCHAR": pa.string(), "BLOB": pa.binary(),
    "DATE": pa.date32(), "TIME": pa.time64("us"), "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC"), "UUID": pa.string(), "JSON": pa.string(),
}  # fmt: skip


def arrow(kind: Type) -> pa.DataType:
    """Return the Arrow type of a column in the table's files."""
    if isinstance(kind, ListOf):
        return pa.list_(arrow(kind.item))
    if isinstance(kind, MapOf):
        return pa.map_(pa.string(), arrow(kind.item))
    if isinstance(kind, Struct):
        return pa.struct([(name, arrow(item)) for name, item in kind.fields])
    decimal = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", kind.name)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _ARROW[kind.name]


def arrow_schema(columns: Columns) -> pa.Schema:
    """Return the Arrow schema of the table's files."""
    return pa.schema([(name, arrow(kind)) for name, kind in columns])


def columns_of(schema: Schema, properties: Mapping[str, str], where: str) -> Columns:
    """Return the columns of an Iceberg schema.

    Raises:
        SchemaConflict: kpipe cannot write a column's type.
    """
    told: Mapping[str, str] = json.loads(properties.get(TYPES) or "{}")
    found: list[tuple[str, Type]] = []
    for field in schema.fields:
        kind = _of_iceberg(field.field_type)
        if kind is None:
            raise SchemaConflict(
                f"{where}: column {field.name!r} has type {field.field_type}, which kpipe cannot write",
                "change the column's type, or load into another table and derive this one from it",
            )
        found.append((field.name, _meant(told.get(field.name), kind)))
    return Columns(tuple(found))


def declared(columns: Columns) -> str:
    """Return the value of `kpipe.types`: declared types that the schema does not show."""
    return json.dumps({name: str(kind) for name, kind in columns if _plain(kind) != kind})


def _meant(told: str | None, kind: Type) -> Type:
    try:
        meant = parse_type(told) if told else kind
    except InvalidPipeline:
        return kind
    return meant if arrow(meant) == arrow(kind) else kind


def _plain(kind: Type) -> Type:
    """Return the type that the schema alone shows."""
    if isinstance(kind, ListOf):
        return ListOf(_plain(kind.item))
    if isinstance(kind, MapOf):
        return MapOf(_plain(kind.item))
    if isinstance(kind, Struct):
        return Struct(tuple((name, _plain(item)) for name, item in kind.fields))
    if kind.name in _ICEBERG.values() or kind.name.startswith("DECIMAL"):
        return kind
    held = {pa.int32(): "INTEGER", pa.int64(): "BIGINT", pa.string(): "VARCHAR"}.get(_ARROW[kind.name])
    return Scalar(held or "DECIMAL(20,0)")


def _of_iceberg(kind: IcebergType) -> Type | None:
    if isinstance(kind, ListType):
        item = _of_iceberg(kind.element_type)
        return None if item is None else ListOf(item)
    if isinstance(kind, MapType):
        item = _of_iceberg(kind.value_type)
        return None if item is None or str(kind.key_type) != "string" else MapOf(item)
    if isinstance(kind, StructType):
        fields = [(field.name, _of_iceberg(field.field_type)) for field in kind.fields]
        known = tuple((name, item) for name, item in fields if item is not None)
        return Struct(known) if len(known) == len(fields) else None
    if isinstance(kind, DecimalType):
        return Scalar(f"DECIMAL({kind.precision},{kind.scale})")
    name = _ICEBERG.get(str(kind))
    return None if name is None else Scalar(name)
