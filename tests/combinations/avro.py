"""Records of an example as Avro, written by fastavro, and what a mapping takes out of them."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import fastavro

from tests.combinations.values import DEAD, TYPES, Cell

__all__ = ["MAPPING", "SCHEMA_TYPES", "TAG", "cells", "encoded", "schema", "storable", "whole"]

#: Types of column `x` that an Avro schema has, as it names them.
SCHEMA_TYPES: dict[str, Any] = {
    "BIGINT": "long",
    "DOUBLE": "double",
    "VARCHAR": "string",
    "BOOLEAN": "boolean",
    "BIGINT[]": {"type": "array", "items": ["null", "long"]},
    "STRUCT(a BIGINT, b VARCHAR)": {
        "type": "record",
        "name": "Inner",
        "fields": [{"name": "a", "type": ["null", "long"]}, {"name": "b", "type": ["null", "string"]}],
    },
}
#: Beside the columns: the whole record, and a value out of its map, for which the table has no column yet.
MAPPING = {"w": "%", "t": "tags::a"}
TAG = "650"


def schema(kind: str) -> dict[str, Any]:
    """The schema of records whose column `x` is of a type."""
    kinds = {"id": "long", "k": "string", "x": SCHEMA_TYPES[kind], "g": "long", "m": "long"}
    fields: list[dict[str, Any]] = [{"name": name, "type": ["null", inner]} for name, inner in kinds.items()]
    return {"type": "record", "name": "R", "fields": [*fields, {"name": "tags", "type": {"type": "map", "values": "string"}}]}


def cells(kind: str) -> tuple[Cell, ...]:
    """The values of a type that Avro can hold as they are."""
    return tuple(cell for cell in TYPES[kind] if cell.want[0] is not DEAD)


def _members(cell: Cell, id: int, key: str | None, g: int) -> dict[str, Any]:
    return {"id": id, "k": key, "x": cell.want[0], "g": g, "m": 1, "tags": {"a": TAG}}


def encoded(kind: str, cell: Cell, id: int, key: str | None, g: int) -> bytes:
    """The record's datum."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema(kind)), _members(cell, id, key, g))
    return out.getvalue()


def whole(cell: Cell, id: int, key: str | None, g: int) -> str:
    """The record as JSON, as `%` takes it."""
    return json.dumps(_members(cell, id, key, g))


def storable(cell: Cell) -> bool:
    """Whether the whole record is JSON, which has neither NaN nor infinity."""
    value = cell.want[0]
    return not isinstance(value, float) or math.isfinite(value)
