"""Plan how messages of a Protobuf type are read field by field, and which columns they have.

Column types:

- int32, sint32 and sfixed32: INTEGER. Their 64-bit types: BIGINT. uint32 and fixed32: UINTEGER. Their 64-bit types: UBIGINT.
- float: FLOAT. double: DOUBLE. bool: BOOLEAN. string and enum: VARCHAR. bytes: BLOB. A message: STRUCT. `repeated`: a list.
- Timestamp: TIMESTAMP WITH TIME ZONE. Duration: DECIMAL(21,9) in seconds. A wrapper: the type that it wraps.
- JSON for values that no column type represents exactly: maps, Struct, Value, ListValue, messages that can contain
  themselves, messages without fields.

A field with presence (`optional`, in a oneof, a message, all of proto2) is NULL if it is not set and has no default. A field
without presence is zero if it is absent: writers omit zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from kpipe.schema.columns import BIGINT, BLOB, BOOLEAN, DOUBLE, INSTANT, JSON, VARCHAR, Columns, ListOf, Scalar, Struct, Type
from resources.decode.payload_schemas import Unfit
from resources.duckdb_engine.arrow_types import carried

__all__ = ["Field", "Message", "Plan", "plan"]

# Codes of the steps; resources/native/protobuf.c has the same numbers.
(FLAG, INT32, INT64, UINT32, UINT64, SINT32, SINT64, FOUR, EIGHT, STRING, BYTES, ENUM, MESSAGE, SPAN, MAP, TIMESTAMP, DURATION,
 WRAPPER) = range(18)  # fmt: skip
VARINT, BITS64, SIZED, BEGIN, END, BITS32 = range(6)

_INT, _UINT, _UBIG, _FLOAT = Scalar("INTEGER"), Scalar("UINTEGER"), Scalar("UBIGINT"), Scalar("FLOAT")
# By type number in descriptor.proto: step, wire type, column type, name.
_PLAIN: dict[int, tuple[int, int, Type, str]] = {
    1: (EIGHT, BITS64, DOUBLE, "double"), 2: (FOUR, BITS32, _FLOAT, "float"), 3: (INT64, VARINT, BIGINT, "int64"),
    4: (UINT64, VARINT, _UBIG, "uint64"), 5: (INT32, VARINT, _INT, "int32"), 6: (EIGHT, BITS64, _UBIG, "fixed64"),
    7: (FOUR, BITS32, _UINT, "fixed32"), 8: (FLAG, VARINT, BOOLEAN, "bool"), 9: (STRING, SIZED, VARCHAR, "string"),
    12: (BYTES, SIZED, BLOB, "bytes"), 13: (UINT32, VARINT, _UINT, "uint32"), 14: (ENUM, VARINT, VARCHAR, "enum"),
    15: (FOUR, BITS32, _INT, "sfixed32"), 16: (EIGHT, BITS64, BIGINT, "sfixed64"), 17: (SINT32, VARINT, _INT, "sint32"),
    18: (SINT64, VARINT, BIGINT, "sint64"),
}  # fmt: skip
_GROUP, _MESSAGE = 10, 11
_WELL = "google.protobuf."
_SECONDS = Scalar("DECIMAL(21,9)")
_WRAPPERS = {
    f"{_WELL}{name}Value": kind
    for name, kind in (("Double", 1), ("Float", 2), ("Int64", 3), ("UInt64", 4), ("Int32", 5), ("UInt32", 13), ("Bool", 8),
                       ("String", 9), ("Bytes", 12))
}  # fmt: skip
_JSON = {f"{_WELL}{name}" for name in ("Struct", "Value", "ListValue")}
# Limits on schemas, which are untrusted input: a larger schema is rejected instead of filling memory.
_MOST_COLUMNS = 20_000
_MOST_TYPES = 2_000
_DEEPEST = 60


@dataclass
class Field:
    """A field of a message.

    Attributes:
        number, name: of the field.
        op: code of the step that reads it.
        wire: its wire type; of each item, if it is not packed.
        kind: type of its column; of its items, if it is repeated.
        inner: index of the message for MESSAGE, SPAN, MAP, WRAPPER; index of the enum for ENUM; else 0.
        repeated, required: labels of the field.
        group: index of its oneof, of whose fields only the last one counts; -1: not in a oneof.
        filled: whether an absent field has the value `default`; otherwise it is NULL.
        `said`: name of its type in the schema.
    """

    number: int
    name: str
    op: int
    wire: int
    kind: Type
    inner: int = 0
    repeated: bool = False
    required: bool = False
    group: int = -1
    filled: bool = False
    default: Any = None
    said: str = ""

    @property
    def column(self) -> Type:
        """Type of the field's column."""
        return ListOf(self.kind) if self.repeated and self.op != MAP else self.kind


@dataclass
class Message:
    """A message type.

    Attributes:
        name: full name.
        fields: in the order of the schema, which is the order of columns.
        oneofs: number of oneofs.
    """

    name: str
    fields: list[Field] = field(default_factory=list)
    oneofs: int = 0

    def __post_init__(self) -> None:
        self.known: dict[int, Field] = {}

    def closed(self) -> None:
        """Index the fields by number, once all of them are added."""
        self.known = {item.number: item for item in self.fields}


@dataclass
class Plan:
    """Plan of a message type.

    Attributes:
        messages: all message types that it contains; the first is the type itself.
        enums: names by number.
        columns: the columns of these messages.
        carried: Arrow type of each column as it is read; JSON is read as the bytes that it is converted from.
    """

    messages: list[Message]
    enums: list[dict[int, str]]
    columns: Columns
    carried: pa.StructType


def plan(root: Descriptor) -> Plan:
    """Plan how to read messages of a type.

    Raises:
        Unfit: it cannot be converted to columns.
    """
    builder = _Builder()
    builder.message(root, 0)
    columns = Columns(tuple((item.name, item.column) for item in builder.messages[0].fields))
    if not columns:
        raise Unfit(f"{root.full_name} has no field that could be a column")
    return Plan(builder.messages, builder.enums, columns, pa.struct([(name, carried(kind)) for name, kind in columns]))


def _parts(root: Descriptor) -> Iterator[Descriptor]:
    return (item.message_type for item in root.fields if item.message_type is not None)


class _Builder:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.enums: list[dict[int, str]] = []
        self._built: dict[str, int] = {}
        self._numbered: dict[str, int] = {}
        self._endless: dict[str, bool] = {}
        self._size: dict[str, int] = {}

    def message(self, root: Descriptor, depth: int) -> int:
        """Add a message type with the types of its fields, and return its index."""
        if root.full_name in self._built:
            return self._built[root.full_name]
        if root.GetOptions().message_set_wire_format:
            raise Unfit(f"{root.full_name} is a MessageSet, which is not supported")
        if len(self._built) >= _MOST_TYPES:
            raise Unfit(f"the schema has more than {_MOST_TYPES:,} message types")
        at = self._built[root.full_name] = len(self.messages)
        made = Message(root.full_name, oneofs=len(root.oneofs))
        self.messages.append(made)
        seen: set[str] = set()
        for item in root.fields:
            if item.name.lower() in seen:
                raise Unfit(f"{root.full_name}: duplicate field {item.name[:80]} (upper and lower case are the same)")
            seen.add(item.name.lower())
            made.fields.append(self._field(item, depth))
        made.closed()
        size = sum(self._columns(item) for item in made.fields)
        if size > _MOST_COLUMNS:
            raise Unfit(f"{root.full_name} makes more than {_MOST_COLUMNS:,} columns and members")
        self._size[root.full_name] = size
        return at

    def _columns(self, item: Field) -> int:
        return 1 + (self._size.get(self.messages[item.inner].name, 0) if item.op == MESSAGE else 0)

    def _field(self, item: FieldDescriptor, depth: int) -> Field:
        op, wire, kind, inner, said = self._step(item, depth)
        found = Field(item.number, item.name, op, wire, kind, inner, bool(item.is_repeated), bool(item.is_required), said=said)
        if item.containing_oneof is not None:
            found.group = item.containing_oneof.index
        if not found.repeated and item.message_type is None and not found.required:
            entry = item.containing_type is not None and bool(item.containing_type.GetOptions().map_entry)
            found.filled = not item.has_presence or bool(item.has_default_value) or entry
            found.default = item.default_value if found.filled else None
            if op == ENUM and found.filled:
                found.default = self.enums[inner].get(item.default_value, str(item.default_value))
        return found

    def _step(self, item: FieldDescriptor, depth: int) -> tuple[int, int, Type, int, str]:
        if item.type not in (_GROUP, _MESSAGE):
            op, wire, kind, said = _PLAIN[item.type]
            return op, wire, kind, 0 if item.enum_type is None else self._enum(item.enum_type), said
        inner = item.message_type
        assert inner is not None
        name = inner.full_name
        wire = BEGIN if item.type == _GROUP else SIZED
        if inner.GetOptions().map_entry:
            return MAP, SIZED, JSON, self.message(inner, depth), "map"
        shape = [(part.number, part.type, bool(part.is_repeated)) for part in inner.fields]
        if wire == SIZED and name in (f"{_WELL}Timestamp", f"{_WELL}Duration") and shape == [(1, 3, False), (2, 5, False)]:
            op, kind = (TIMESTAMP, INSTANT) if name.endswith("Timestamp") else (DURATION, _SECONDS)
            return op, wire, kind, self.message(inner, depth), name
        if wire == SIZED and name in _WRAPPERS and shape == [(1, _WRAPPERS[name], False)]:
            return WRAPPER, wire, _PLAIN[_WRAPPERS[name]][2], self.message(inner, depth), name
        if name in _JSON or not inner.fields or self._holds_itself(inner):
            return SPAN, wire, JSON, self.message(inner, depth), name
        if depth >= _DEEPEST:
            raise Unfit("the schema is nested too deeply")
        at = self.message(inner, depth + 1)
        members = tuple((part.name, part.column) for part in self.messages[at].fields)
        return MESSAGE, wire, Struct(members), at, name

    def _enum(self, kind: EnumDescriptor) -> int:
        if kind.full_name not in self._numbered:
            self._numbered[kind.full_name] = len(self.enums)
            names: dict[int, str] = {}
            for item in kind.values:
                names.setdefault(item.number, item.name)  # aliases: the first name counts
            self.enums.append(names)
        return self._numbered[kind.full_name]

    def _holds_itself(self, root: Descriptor) -> bool:
        """Return whether a message of that type can contain another one of it."""
        known = self._endless.get(root.full_name)
        if known is None:
            seen, rest = set[str](), list(_parts(root))
            while rest and root.full_name not in seen:
                item = rest.pop()
                if item.full_name not in seen:
                    seen.add(item.full_name)
                    rest += _parts(item)
                if len(seen) > _MOST_TYPES:
                    raise Unfit(f"the schema has more than {_MOST_TYPES:,} message types")
            known = self._endless[root.full_name] = root.full_name in seen
        return known
