"""Read messages of Debezium in Avro with a schema registry: the schema becomes one of Kafka Connect, values those of its JSON.

Connect's Avro converter keeps the name and the parameters of Connect's schema as `connect.name` and `connect.parameters`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from resources.decode.avro.nodes import Plan
from resources.decode.avro.rows import Reader
from resources.decode.avro.schema_plan import plan
from resources.decode.block import Payloads
from resources.decode.json.rows import Reject
from resources.decode.payload_schemas import Unfit
from resources.schema_registry.client import Schema

__all__ = ["AvroMessages", "plain_plan"]

Made = TypeVar("Made")

_DEEPEST = 60
_TYPES = {
    "int": "int32", "long": "int64", "float": "float32", "double": "float64", "boolean": "boolean", "string": "string",
    "bytes": "bytes", "enum": "string", "fixed": "bytes",
}  # fmt: skip
_CONNECT, _TIMES = "org.apache.kafka.connect.data.", "io.debezium.time."
_LOGICAL = {
    "date": _CONNECT + "Date", "time-millis": _CONNECT + "Time", "timestamp-millis": _CONNECT + "Timestamp",
    "time-micros": _TIMES + "MicroTime", "timestamp-micros": _TIMES + "MicroTimestamp", "uuid": "io.debezium.data.Uuid",
    "decimal": _CONNECT + "Decimal",
}  # fmt: skip


class AvroMessages(Generic[Made]):
    """Messages of one writer's schema.

    Args:
        schema: as the registry returned it.
        make: creates what a schema of Connect is for; raises Reject.

    Raises:
        Unfit: it cannot be used.
    """

    def __init__(self, schema: Schema, make: Callable[[Any], Made]) -> None:
        found = _Connect()
        try:
            for _, other in schema.references:
                found.of(json.loads(other), "", 0)
            self._schema = found.of(json.loads(schema.text), "", 0)
            self.made = make(self._schema)
        except (Reject, ValueError, RecursionError) as error:
            raise Unfit(str(error)) from error
        self._reader = Reader(plain_plan(schema))

    def read(self, payloads: Payloads, chosen: np.ndarray[Any, Any], skip: int) -> Iterator[tuple[int, Any, Made | None]]:
        """Yield position, value, and what belongs to the schema, of each chosen payload; see `Documents` (events.py)."""
        for at in chosen.tolist():
            try:
                value = _valued(self._reader.document(payloads[at][skip:]), self._schema)
            except Reject as error:
                value = error
            yield at, value, self.made


def plain_plan(schema: Schema) -> Plan:
    """Plan how to read data as Connect wrote it, without logical types.

    Raises:
        Unfit: the schema cannot be used.
    """
    try:
        plain = [(name, json.dumps(_without_logical(json.loads(text)))) for name, text in schema.references]
        text = json.dumps(_without_logical(json.loads(schema.text)))
    except (ValueError, RecursionError) as error:
        raise Unfit(str(error)) from error
    return plan(text, plain)


class _Connect:
    """Converter of Avro's schemas to Connect's."""

    def __init__(self) -> None:
        self._named: dict[str, dict[str, Any]] = {}

    def of(self, schema: Any, space: str, depth: int) -> dict[str, Any]:
        """Return the schema of Connect.

        Raises:
            Reject: it has no counterpart.
        """
        if depth > _DEEPEST:
            raise Reject("the schema is nested too deeply")
        if isinstance(schema, list):
            some = [item for item in schema if item != "null"]
            if len(some) != 1:
                raise Reject("the schema has a union of several types")
            return self.of(some[0], space, depth + 1)
        if isinstance(schema, str):
            found = self._named.get(schema) or self._named.get(f"{space}.{schema}")
            if found is not None:
                return found
            schema = {"type": schema}
        if not isinstance(schema, dict):
            raise Reject("it is not a schema of Avro")
        kind = schema.get("type")
        if isinstance(kind, dict | list) or (isinstance(kind, str) and kind not in (*_TYPES, "record", "array", "map")):
            return {**self.of(kind, space, depth + 1), **_annotations(schema)}
        made: dict[str, Any] = {"type": _TYPES.get(str(kind), str(kind)), **_annotations(schema)}
        if kind in ("record", "enum", "fixed"):
            full, space = _full(schema, space)
            self._named[full] = made
        if kind == "record":
            made["type"] = "struct"
            fields = schema.get("fields") if isinstance(schema.get("fields"), list) else []
            made["fields"] = [{**self.of(item["type"], space, depth + 1), "field": item["name"]} for item in fields or ()]
        elif kind == "array":
            made["items"] = self.of(schema.get("items"), space, depth + 1)
        elif kind == "map":
            made |= {"keys": {"type": "string"}, "values": self.of(schema.get("values"), space, depth + 1)}
        return made


def _annotations(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the name and the parameters of Connect's schema, or those of Avro's logical type."""
    name, parameters = schema.get("connect.name"), schema.get("connect.parameters")
    if not isinstance(name, str):
        name = _LOGICAL.get(str(schema.get("logicalType")))
    found: dict[str, Any] = {"name": name} if name else {}
    if isinstance(parameters, Mapping):
        found["parameters"] = parameters
    elif "scale" in schema or "precision" in schema:
        found["parameters"] = {
            "scale": str(schema.get("scale", 0)), "connect.decimal.precision": str(schema.get("precision", 38)),
        }  # fmt: skip
    return found


def _full(schema: Mapping[str, Any], space: str) -> tuple[str, str]:
    name = str(schema.get("name"))
    space = name.rpartition(".")[0] if "." in name else str(schema.get("namespace", space))
    short = name.rpartition(".")[2]
    return (f"{space}.{short}" if space else short), space


def _without_logical(schema: Any) -> Any:
    """Return a schema without logical types, so that its data is what Connect wrote."""
    if isinstance(schema, list):
        return [_without_logical(item) for item in schema]
    if isinstance(schema, dict):
        return {name: _without_logical(item) for name, item in schema.items() if name not in ("logicalType", "default")}
    return schema


def _valued(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return a value as in Connect's JSON; the reader has written bytes as base64."""
    if value is None:
        return None
    kind = schema["type"]
    if kind in ("float32", "float64"):
        return float(value)
    if kind == "array":
        return [_valued(item, schema["items"]) for item in value]
    if kind == "map":
        return {name: _valued(item, schema["values"]) for name, item in value.items()}
    if kind == "struct":
        return {field["field"]: _valued(value[field["field"]], field) for field in schema["fields"]}
    return value
