"""Read schemas of Kafka Connect's JSON converter (`schemas.enable=true`): columns of a struct, and how its values convert."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf, nan
from typing import Any

from kpipe.schema.columns import BIGINT, BLOB, BOOLEAN, DOUBLE, FLOAT, JSON, VARCHAR, Columns, ListOf, MapOf, Scalar, Struct, Type
from resources.decode.debezium.semantic_types import Convert, as_bytes, semantic
from resources.decode.json.rows import Reject, wire_value
from resources.duckdb_engine.arrow_types import LARGEST_FLOAT

__all__ = ["Plan", "as_json", "plan"]

_DEEPEST = 100
# A part of Avro's schema that is used in several places counts in each of them: 28 records with two fields each can make 2 ** 28.
_MOST_COLUMNS = 20_000
_INTEGERS = {
    "int8": (Scalar("INTEGER"), 2**7), "int16": (Scalar("INTEGER"), 2**15), "int32": (Scalar("INTEGER"), 2**31),
    "int64": (BIGINT, 2**63),
}  # fmt: skip
_REALS = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}


@dataclass(frozen=True)
class Plan:
    """The columns of a struct.

    Attributes:
        columns: name and type of each field.
        converts: for each field, the conversion of its values.
    """

    columns: Columns
    converts: tuple[Convert, ...]

    def row(self, value: Mapping[str, Any]) -> list[Any]:
        """Return the values of the fields; a missing one is NULL.

        Raises:
            Reject: a value is not of its field's type; the text names the field.
        """
        found = []
        for (name, _), convert in zip(self.columns, self.converts, strict=True):
            item = value.get(name)
            try:
                found.append(None if item is None else convert(item))
            except Reject as error:
                raise Reject(f"{name[:40]}: {error}") from error
        return found


def plan(schema: Any) -> Plan:
    """Return the plan of a struct's schema.

    Raises:
        Reject: it is not a schema of Kafka Connect, or a large one.
    """
    return _plan(schema, 0, count(1))


def _plan(schema: Any, depth: int, made: Iterator[int]) -> Plan:
    """Return the plan of a struct's schema, which is in that many others; `made` counts the fields."""
    if not isinstance(schema, Mapping) or schema.get("type") != "struct" or not isinstance(schema.get("fields"), Sequence):
        raise Reject("the schema is not a struct of Kafka Connect")
    names, kinds, converts = [], [], []
    for field in schema["fields"]:
        name = field.get("field") if isinstance(field, Mapping) else None
        if not isinstance(name, str):
            raise Reject("a field of the schema has no name")
        if next(made) > _MOST_COLUMNS:
            raise Reject(f"the schema makes more than {_MOST_COLUMNS:,} columns and members")
        kind, convert = _field(field, depth + 1, made)
        names.append(name)
        kinds.append(kind)
        converts.append(convert)
    if len({name.lower() for name in names}) < len(names):
        raise Reject("two fields of the schema differ by case only")
    return Plan(Columns(tuple(zip(names, kinds, strict=True))), tuple(converts))


def _field(schema: Mapping[str, Any], depth: int, made: Iterator[int]) -> tuple[Type, Convert]:
    """Return the type of a schema, and the conversion of values that are not null."""
    if depth > _DEEPEST:
        raise Reject("the schema is nested too deeply")
    name, kind, parameters = schema.get("name"), schema.get("type"), schema.get("parameters")
    if isinstance(name, str):
        found = semantic(name, parameters if isinstance(parameters, Mapping) else {})
        if found is not None:
            return found
    if not isinstance(kind, str):
        raise Reject(f"the schema has an unknown type: {str(kind)[:40]}")
    if kind in _INTEGERS:
        integer, limit = _INTEGERS[kind]
        return integer, _whole(limit)
    if kind in ("float", "float32"):
        return FLOAT, lambda value: _real(value, LARGEST_FLOAT)
    if kind in ("double", "float64"):
        return DOUBLE, lambda value: _real(value, inf)
    if kind == "boolean":
        return BOOLEAN, _flag
    if kind == "string":
        return VARCHAR, _string
    if kind == "bytes":
        return BLOB, as_bytes
    if kind == "array" and isinstance(schema.get("items"), Mapping):
        item, convert = _field(schema["items"], depth + 1, made)
        return ListOf(item), _items(convert)
    if kind == "map" and isinstance(schema.get("values"), Mapping):
        keys = schema.get("keys")
        item, convert = _field(schema["values"], depth + 1, made)
        if isinstance(keys, Mapping) and keys.get("type") == "string":
            return MapOf(item), _entries(convert)
        return JSON, as_json
    if kind == "struct":
        inner = _plan(schema, depth, made)
        if not inner.columns:
            return JSON, as_json
        return Struct(inner.columns.items), _members(inner)
    raise Reject(f"the schema has an unknown type: {str(kind)[:40]}")


def as_json(value: Any) -> Any:
    """Return compact JSON text of a value."""
    return wire_value(value, JSON, "value")


def _whole(limit: int) -> Convert:
    def convert(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
            raise Reject(f"not an integer of the schema's range: {str(value)[:40]}")
        return value

    return convert


def _real(value: Any, largest: float) -> float:
    if isinstance(value, str) and value in _REALS:
        return _REALS[value]
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise Reject(f"not a number: {str(value)[:40]}")
    try:
        found = float(value)
    except OverflowError:
        found = -inf if value < 0 else inf
    if abs(found) > largest and abs(found) != inf:
        raise Reject(f"{str(value)[:40]} is beyond the range of a FLOAT")
    return found


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Reject(f"not a boolean: {str(value)[:40]}")
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise Reject(f"not a text: {json.dumps(value, default=str)[:40]}")
    return value


def _items(convert: Convert) -> Convert:
    def converted(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise Reject("not a list")
        return [None if item is None else convert(item) for item in value]

    return converted


def _entries(convert: Convert) -> Convert:
    def converted(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise Reject("not an object")
        return [(name, None if item is None else convert(item)) for name, item in value.items()]

    return converted


def _members(inner: Plan) -> Callable[[Any], dict[str, Any]]:
    def converted(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Reject("not an object")
        return dict(zip(inner.columns.names(), inner.row(value), strict=True))

    return converted
