"""Read messages of Debezium in Protobuf with a schema registry: the type becomes a schema of Kafka Connect, values its JSON.

Confluent's Protobuf converter does not keep the names of Connect's schemas, so `format.types` declares the semantic types of
numbers and texts.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

import numpy as np

from kpipe.definition.formats import Format
from kpipe.schema.columns import INSTANT, VARCHAR
from resources.decode import confluent_wire
from resources.decode.block import Payloads
from resources.decode.debezium.semantic_types import semantic
from resources.decode.json.rows import Reject
from resources.decode.payload_schemas import Unfit
from resources.decode.protobuf import message_plan as steps
from resources.decode.protobuf.descriptors import Files
from resources.decode.protobuf.message_plan import Field, Message, plan
from resources.decode.protobuf.rows import Reader
from resources.decode.schema_decoder import Leaves
from resources.schema_registry.client import Schema

__all__ = ["ProtobufMessages"]

Made = TypeVar("Made")
_TYPES = {
    "BOOLEAN": "boolean", "INTEGER": "int32", "UINTEGER": "int64", "BIGINT": "int64", "UBIGINT": "int64", "FLOAT": "float32",
    "DOUBLE": "float64", "VARCHAR": "string", "BLOB": "bytes",
}  # fmt: skip
_DECIMAL, _VARIABLE = "confluent.type.Decimal", "io.debezium.data.VariableScaleDecimal"
_Convert = Callable[[Any], Any]
_MOMENT, _INSTANT = "io.debezium.time.MicroTimestamp", "io.debezium.time.ZonedTimestamp"
_MOMENTS = ("TIMESTAMP", str(INSTANT))
_EPOCH = datetime(1970, 1, 1)


class ProtobufMessages(Generic[Made]):
    """Messages of one schema, which may have several message types.

    Args:
        schema: as the registry returned it.
        make: creates what a schema of Connect is for; raises Reject.
        kind: the format.
        rows: whether the messages are change events, not keys.

    Raises:
        Unfit: the schema cannot be used.
    """

    def __init__(self, schema: Schema, make: Callable[[Any], Made], kind: Format, rows: bool) -> None:
        self._files = Files(schema.text, schema.references, alone=False)
        self._make, self._kind, self._rows = make, kind, rows
        self._known: dict[str, _Type[Made] | Reject] = {}

    def read(self, payloads: Payloads, chosen: np.ndarray[Any, Any], skip: int) -> Iterator[tuple[int, Any, Made | None]]:
        """Yield position, value, and what belongs to the schema, of each chosen payload; see `Documents` (events.py)."""
        for some, indexes, more in confluent_wire.messages(payloads, chosen, skip):
            found = Reject(indexes) if isinstance(indexes, str) else self._type(indexes)
            for at in some.tolist():
                if isinstance(found, Reject):
                    yield at, found, None
                    continue
                try:
                    value: Any = found.read(payloads[at][skip + more :])
                except Reject as error:
                    value = error
                yield at, value, found.made

    def _type(self, indexes: tuple[int, ...]) -> _Type[Made] | Reject:
        try:
            name = self._files.at(indexes)
            if name not in self._known:
                self._known[name] = _Type(self._files, name, self._make, self._kind, self._rows)
        except Unfit as error:
            return Reject(f"its schema cannot be used: {error}")
        except Reject as error:
            self._known[name] = error
        return self._known[name]


class _Type(Generic[Made]):
    def __init__(self, files: Files, name: str, make: Callable[[Any], Made], kind: Format, rows: bool) -> None:
        found = plan(files.named(name))
        self._reader, self._messages = Reader(found), found.messages
        self._types = {name.lower(): text for name, text in kind.types.items()}
        #: Messages around a column.
        self._images = ((),) if not rows or kind.envelope == "flat" else (("before",), ("after",))
        self._leaves: Leaves = self._reader.leaves()
        root = found.messages[0]
        if rows:
            self._check(root, kind)
        schema, self._convert = self._struct(root, ())
        self.made = make(schema)

    def read(self, datum: bytes) -> Any:
        """Return the value as in Connect's JSON.

        Raises:
            Reject: the bytes are not a message of the type.
        """
        return self._convert(self._reader.row(datum))

    def _check(self, root: Message, kind: Format) -> None:
        """Check that NULL differs from zero: by default, the converter writes nullable columns as plain fields.

        Raises:
            Reject: no column of the row may be NULL.
        """
        after = next((item for item in root.fields if item.name == "after" and item.op == steps.MESSAGE), None)
        row = root if kind.envelope == "flat" else self._messages[after.inner] if after is not None else None
        if row is not None and row.fields and all(item.filled for item in row.fields):
            raise Reject(
                f"its schema cannot be used: no field of {row.name} is optional, so NULL would be read as zero or an empty text:"
                " set optional.for.nullables=true for the converter"
            )

    def _struct(self, message: Message, path: tuple[str | None, ...]) -> tuple[dict[str, Any], _Convert]:
        fields, converts = [], list[tuple[str, _Convert]]()
        for item in message.fields:
            below = (*path, item.name)
            schema, convert = self._field(item, below)
            fields.append({**schema, "field": item.name})
            converts.append((item.name, convert))

        def members(value: Mapping[str, Any]) -> dict[str, Any]:
            found = ((name, value.get(name), convert) for name, convert in converts)
            return {name: None if held is None else convert(held) for name, held, convert in found}

        return {"type": "struct", "fields": fields}, members

    def _field(self, item: Field, path: tuple[str | None, ...]) -> tuple[dict[str, Any], _Convert]:
        declared = self._types.get(item.name.lower(), "") if path[:-1] in self._images else ""
        if item.repeated and item.op != steps.MAP:
            if declared:
                raise _misdeclared(item, "a list", declared)
            schema, convert = self._one(item, (*path, None), "")
            return {"type": "array", "items": schema}, lambda values: [convert(value) for value in values]
        return self._one(item, path, declared)

    def _one(self, item: Field, path: tuple[str | None, ...], declared: str) -> tuple[dict[str, Any], _Convert]:
        """Return the schema of a single value, and its conversion.

        Args:
            item: the field.
            path: names of the fields down to it; None for the items of a list.
            declared: its semantic type in `format.types`; empty: none.

        Raises:
            Reject: the type is declared for a message that has another type of its own.
        """
        if item.op in (steps.MAP, steps.SPAN):
            if declared:
                raise _misdeclared(item, "a map" if item.op == steps.MAP else f"a {self._messages[item.inner].name}", declared)
            leaf = self._leaves[path]
            return {"type": "struct", "fields": []}, lambda value: json.loads(leaf(value))
        if item.op == steps.TIMESTAMP:  # microseconds, whatever the unit of the declared type
            if declared and _type_of(declared) not in _MOMENTS:
                raise _misdeclared(item, "a google.protobuf.Timestamp", declared)
            if declared and _type_of(declared) == str(INSTANT):
                return {"type": "string", "name": _INSTANT}, _zoned
            return {"type": "int64", "name": _MOMENT}, lambda value: value
        if item.op == steps.DURATION:
            if declared and _type_of(declared) != str(VARCHAR):
                raise _misdeclared(item, "a google.protobuf.Duration", declared)
            return {"type": "string"}, lambda value: f"{value:f}"
        if item.op == steps.MESSAGE:
            inner = self._messages[item.inner]
            if inner.name == _DECIMAL:
                return {"type": "struct", "name": declared or _VARIABLE}, _unscaled(declared) if declared else _variable
            if declared:
                raise _misdeclared(item, f"a {inner.name}", declared)
            return self._struct(inner, path)
        made = {"type": _TYPES[str(item.kind)], **({"name": declared} if declared else {})}
        return made, _base64 if made["type"] == "bytes" else lambda value: value


def _type_of(declared: str) -> str:
    """Return the column type of a semantic type; `Images` has checked the name."""
    found = semantic(declared, {})
    return str(found[0]) if found is not None else ""


def _misdeclared(item: Field, what: str, declared: str) -> Reject:
    return Reject(f"its schema cannot be used: field {item.name[:40]} is {what}, not {declared}: remove it from format.types")


def _zoned(value: int) -> str:
    return f"{(_EPOCH + timedelta(microseconds=value)).isoformat()}Z"


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


def _variable(value: Mapping[str, Any]) -> dict[str, Any]:
    return {"scale": value["scale"], "value": _base64(value["value"])}


def _unscaled(declared: str) -> _Convert:
    scale = declared.rstrip(")").rpartition("(")[2].rpartition(",")[2]

    def convert(value: Mapping[str, Any]) -> str:
        if str(value["scale"]) != scale:
            raise Reject(f"a decimal of scale {value['scale']}, and format.types declares {declared}")
        return _base64(value["value"])

    return convert
