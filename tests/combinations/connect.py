"""Records of an example as Kafka Connect's JsonConverter writes them: with a schema, unless a value is not of its type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.combinations.values import DEAD, Cell

__all__ = ["enveloped"]

_LONG = {"type": "int64", "optional": True}
_STRING = {"type": "string", "optional": True}
#: Schemas of the types of column `x` that Connect has, as org.apache.kafka.connect.json.JsonSchema names them.
_SCHEMAS: dict[str, dict[str, Any]] = {
    "BIGINT": _LONG,
    "DOUBLE": {"type": "double", "optional": True},
    "VARCHAR": _STRING,
    "BOOLEAN": {"type": "boolean", "optional": True},
    "BIGINT[]": {"type": "array", "items": _LONG, "optional": True},
    "STRUCT(a BIGINT, b VARCHAR)": {
        "type": "struct",
        "fields": [{**_LONG, "field": "a"}, {**_STRING, "field": "b"}],
        "optional": True,
    },
    "MAP(VARCHAR, BIGINT)": {"type": "map", "keys": {"type": "string"}, "values": _LONG, "optional": True},
}


def enveloped(kind: str, cell: Cell, members: Mapping[str, str]) -> bytes:
    """The record with its schema, which is null where the value of `x` is none of its type.

    Args:
        kind: type of column `x`.
        cell: of column `x`.
        members: JSON texts by name.
    """
    payload = "{" + ",".join(f'"{name}":{text}' for name, text in members.items()) + "}"
    own = {"k": _STRING, "x": _SCHEMAS.get(kind, {})}
    fields = [{**own.get(name, _LONG), "field": name} for name in members]
    schema = {"type": "struct", "fields": fields, "optional": False, "name": "mix"} if _has_type(kind, cell) else None
    return f'{{"schema":{json.dumps(schema)},"payload":{payload}}}'.encode()


def _has_type(kind: str, cell: Cell) -> bool:
    if kind not in _SCHEMAS or cell.want[0] is DEAD:
        return False
    value = json.loads(cell.text)
    if value is None:
        return True
    if kind == "STRUCT(a BIGINT, b VARCHAR)":  # the converter writes each field
        return set(value) == {"a", "b"}
    if kind in ("BIGINT[]", "MAP(VARCHAR, BIGINT)"):
        items = value.values() if isinstance(value, dict) else value
        return all(item is None or type(item) is int for item in items)
    return type(value) is {"BIGINT": int, "DOUBLE": float, "VARCHAR": str, "BOOLEAN": bool}[kind]
