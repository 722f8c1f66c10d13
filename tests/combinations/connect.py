"""Records of an example as Kafka Connect's JsonConverter writes them: with a schema, unless a value is not of its type."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.combinations.values import DEAD, Cell

__all__ = ["STRING", "enveloped", "fields_of", "has_type", "struct", "wrapped"]

_LONG = {"type": "int64", "optional": True}
_BYTES = {"type": "bytes", "optional": True}
STRING = {"type": "string", "optional": True}
#: Schemas of the types of column `x` that Connect has, as org.apache.kafka.connect.json.JsonSchema names them.
_SCHEMAS: dict[str, dict[str, Any]] = {
    "BIGINT": _LONG,
    "DOUBLE": {"type": "double", "optional": True},
    "VARCHAR": STRING,
    "BOOLEAN": {"type": "boolean", "optional": True},
    "BIGINT[]": {"type": "array", "items": _LONG, "optional": True},
    "STRUCT(a BIGINT, b VARCHAR)": {
        "type": "struct",
        "fields": [{**_LONG, "field": "a"}, {**STRING, "field": "b"}],
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
    schema = struct(fields_of(kind, members)) if has_type(kind, cell) else None
    return wrapped(schema, payload)


def wrapped(schema: Any, payload: str) -> bytes:
    """A message: a schema, or None, and a JSON text."""
    return f'{{"schema":{json.dumps(schema)},"payload":{payload}}}'.encode()


def struct(fields: Sequence[Mapping[str, Any]], optional: bool = False) -> dict[str, Any]:
    """The schema of an object."""
    return {"type": "struct", "fields": list(fields), "optional": optional, "name": "mix"}


def fields_of(kind: str, names: Iterable[str]) -> list[dict[str, Any]]:
    """The fields of a row's schema; `kind` is the type of column `x`."""
    own = {"k": STRING, "x": _SCHEMAS.get(kind, {}), "b": _BYTES, "e": STRING}
    return [{**own.get(name, _LONG), "field": name} for name in names]


def has_type(kind: str, cell: Cell) -> bool:
    """Whether the value of `x` has this type, and Connect has the type."""
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
