"""A Protobuf message type as a plan: how a message is read, field by field, and which columns come of it.

Types: int32 and its like INTEGER, int64 BIGINT, uint32 UINTEGER, uint64 UBIGINT, float FLOAT, double DOUBLE, bool BOOLEAN,
string and enum VARCHAR, bytes BLOB, a message STRUCT, `repeated` a list. Timestamp is TIMESTAMP WITH TIME ZONE, Duration
DECIMAL(21,9) in seconds, wrappers what they wrap. What no column type is exact for is JSON: maps, Struct, Value and ListValue,
messages that can hold themselves, messages without fields.

A field that knows whether it is set (`optional`, of a oneof, a message, all of proto2) is NULL where it is not; unless its
schema declares a default. One that does not know has its zero there: nothing is written for a zero.
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

# The steps; resources/native/protobuf.c has the same numbers.
(FLAG, INT32, INT64, UINT32, UINT64, SINT32, SINT64, FOUR, EIGHT, STRING, BYTES, ENUM, MESSAGE, SPAN, MAP, TIMESTAMP, DURATION,
 WRAPPER) = range(18)  # fmt: skip
VARINT, BITS64, SIZED, BEGIN, END, BITS32 = range(6)

_INT, _UINT, _UBIG, _FLOAT = Scalar("INTEGER"), Scalar("UINTEGER"), Scalar("UBIGINT"), Scalar("FLOAT")
# By the number of the type in descriptor.proto: step, wire type, column, name.
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
# A schema is a stranger's: with more it is refused instead of filling memory.
_MOST_COLUMNS = 20_000
_MOST_TYPES = 2_000
_DEEPEST = 60


@dataclass
class Field:
    """A field of a message.

    Attributes:
        number, name: of the field.
        op: the step.
        wire: its wire type; that of each item, if it is not packed.
        kind: type of its column; of its items, if it is repeated.
        inner: MESSAGE, SPAN, MAP, WRAPPER: which message; ENUM: which enum; else 0.
        repeated, required: whether it is.
        group: of the fields of a oneof, which of them stays; -1: none.
        filled: whether `default` stands in where the field is absent; else NULL.
        said: what the schema calls its type.
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
        """Type of its column."""
        return ListOf(self.kind) if self.repeated and self.op != MAP else self.kind


@dataclass
class Message:
    """A message type.

    Attributes:
        name: in full.
        fields: in the order of the schema, which is that of columns.
        oneofs: how many.
    """

    name: str
    fields: list[Field] = field(default_factory=list)
    oneofs: int = 0

    def __post_init__(self) -> None:
        self.known: dict[int, Field] = {}

    def closed(self) -> None:
        """All fields are there."""
        self.known = {item.number: item for item in self.fields}


@dataclass
class Plan:
    """How messages of a type are read.

    Attributes:
        messages: the types that it takes; the first is the message itself.
        enums: names by number.
        columns: of the table that such messages would make.
        carried: Arrow type of each column as it is read: JSON as the bytes that it is made of.
    """

    messages: list[Message]
    enums: list[dict[int, str]]
    columns: Columns
    carried: pa.StructType


def plan(root: Descriptor) -> Plan:
    """Plan how to read messages of a type.

    Raises:
        Unfit: no table fits it.
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
        """Index of a message type."""
        if root.full_name in self._built:
            return self._built[root.full_name]
        if root.GetOptions().message_set_wire_format:
            raise Unfit(f"{root.full_name} is a MessageSet, which is not read")
        if len(self._built) >= _MOST_TYPES:
            raise Unfit(f"the schema has more than {_MOST_TYPES:,} message types")
        at = self._built[root.full_name] = len(self.messages)
        made = Message(root.full_name, oneofs=len(root.oneofs))
        self.messages.append(made)
        seen: set[str] = set()
        for item in root.fields:
            if item.name.lower() in seen:
                raise Unfit(f"{root.full_name} has the field {item.name[:80]} twice (upper and lower case are the same)")
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
                names.setdefault(item.number, item.name)  # of several names the first
            self.enums.append(names)
        return self._numbered[kind.full_name]

    def _holds_itself(self, root: Descriptor) -> bool:
        """Whether a message of that type can stand inside of one."""
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
