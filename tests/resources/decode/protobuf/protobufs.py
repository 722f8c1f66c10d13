"""Protobuf for tests: schemas and messages at random, and what google's library reads as the row that kpipe should give."""

from __future__ import annotations

import base64
import json
import struct
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from random import Random
from typing import Any

from google.protobuf import duration_pb2, message_factory, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)  # fmt: skip
from google.protobuf.message import Message

from resources.decode.protobuf.descriptors import Files

SCALARS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 18)
_INTEGERS = {
    3: (64, 1),
    4: (64, 0),
    5: (32, 1),
    6: (64, 0),
    7: (32, 0),
    13: (32, 0),
    15: (32, 1),
    16: (64, 1),
    17: (32, 1),
    18: (64, 1),
}
_WELL = ("Timestamp", "Duration", "Int64Value", "StringValue", "BoolValue", "FloatValue", "BytesValue")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def schema(dice: Random) -> FileDescriptorProto:
    """A file whose message M holds anything that a column is exact for, and maps."""
    file = FileDescriptorProto(name="m.proto", package="t", syntax=dice.choice(["proto2", "proto3"]))
    file.dependency.extend(item.DESCRIPTOR.name for item in (timestamp_pb2, duration_pb2, wrappers_pb2))
    numbers = [0, *dice.sample(range(-5, 300), dice.randint(0, 4))]
    kind = EnumDescriptorProto(name="E")
    for at, number in enumerate(dict.fromkeys(numbers)):
        kind.value.add(name=f"V{at}", number=number)
    file.enum_type.append(kind)
    _message(dice, file.message_type.add(name="M"), file.syntax, "t.M", 2)
    return file


def _message(dice: Random, message: DescriptorProto, syntax: str, path: str, depth: int) -> None:
    numbers = dice.sample([*range(1, 40), 2047, 2048, 18999, 2**29 - 1], dice.randint(1, 6))
    if dice.random() < 0.3:
        message.oneof_decl.add(name="choice")
    for at, number in enumerate(numbers):
        field = message.field.add(name=f"f{at}", number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
        shape = dice.random()
        if shape < 0.55 or not depth:
            field.type = dice.choice(SCALARS)  # type: ignore[assignment]
        elif shape < 0.65:
            field.type, field.type_name = FieldDescriptorProto.TYPE_ENUM, ".t.E"
        elif shape < 0.75:
            field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".google.protobuf.{dice.choice(_WELL)}"
        elif shape < 0.85:
            entry = message.nested_type.add(name=f"F{at}Entry")
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, label=1, type=dice.choice([3, 5, 8, 9]))
            entry.field.add(name="value", number=2, label=1, type=dice.choice([3, 8, 9]))
            field.type, field.type_name, field.label = FieldDescriptorProto.TYPE_MESSAGE, f".{path}.F{at}Entry", 3  # type: ignore[assignment]
            continue
        else:
            inner = message.nested_type.add(name=f"N{at}")
            _message(dice, inner, syntax, f"{path}.N{at}", depth - 1)
            group = syntax == "proto2" and dice.random() < 0.4
            field.type = FieldDescriptorProto.TYPE_GROUP if group else FieldDescriptorProto.TYPE_MESSAGE
            field.type_name = f".{path}.N{at}"
            if group:
                field.name = f"n{at}"
        _labelled(dice, message, field, syntax)
    if not any(field.HasField("oneof_index") for field in message.field):
        message.ClearField("oneof_decl")


def _labelled(dice: Random, message: DescriptorProto, field: FieldDescriptorProto, syntax: str) -> None:
    scalar = field.type not in (10, 11)
    chance = dice.random()
    if chance < 0.3:
        field.label = FieldDescriptorProto.LABEL_REPEATED
        if scalar and field.type not in (9, 12) and dice.random() < 0.7:
            field.options.packed = dice.random() < 0.5
    elif chance < 0.5 and message.oneof_decl and field.type != 14:
        field.oneof_index = 0
    elif syntax == "proto2" and chance < 0.6 and field.type != 14:
        field.label = FieldDescriptorProto.LABEL_REQUIRED
    elif syntax == "proto2" and chance < 0.7 and scalar:
        value = {8: "true", 9: "dé\n", 12: "ab", 14: "V0", 1: "1.5", 2: "-inf"}.get(field.type, "7")
        field.default_value = value


def loaded(file: FileDescriptorProto) -> tuple[str, type[Message]]:
    """The file as a pipeline's `schema`, and the class of its message M."""
    needed = [
        FileDescriptorProto.FromString(item.DESCRIPTOR.serialized_pb) for item in (timestamp_pb2, duration_pb2, wrappers_pb2)
    ]
    text = base64.b64encode(FileDescriptorSet(file=[*needed, file]).SerializeToString()).decode()
    return text, message_factory.GetMessageClass(Files(text).named("t.M"))


def filled(dice: Random, made: Message) -> Message:
    """The message with values at random."""
    for field in made.DESCRIPTOR.fields:
        if not field.is_required and dice.random() < 0.25:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key, value = field.message_type.fields
            for _ in range(dice.randint(0, 3)):
                getattr(made, field.name)[_scalar(dice, key)] = _scalar(dice, value)
        elif field.is_repeated:
            for _ in range(dice.randint(0, 4)):
                target = getattr(made, field.name)
                if field.message_type is None:
                    target.append(_scalar(dice, field))
                else:
                    _inner(dice, target.add())
        elif field.message_type is None:
            setattr(made, field.name, _scalar(dice, field))
        else:
            getattr(made, field.name).SetInParent()
            _inner(dice, getattr(made, field.name))
    return made


def _inner(dice: Random, made: Message) -> None:
    if isinstance(made, timestamp_pb2.Timestamp) or made.DESCRIPTOR.full_name.endswith("protobuf.Timestamp"):
        made.seconds, made.nanos = dice.randint(-62135596800, 253402300799), dice.choice([0, 1, 999999999, 5000])  # type: ignore[attr-defined]
    elif made.DESCRIPTOR.full_name.endswith("protobuf.Duration"):
        nanos = dice.randint(-315576000000 * 10**9, 315576000000 * 10**9)
        sign = -1 if nanos < 0 else 1
        made.seconds, made.nanos = sign * (abs(nanos) // 10**9), sign * (abs(nanos) % 10**9)  # type: ignore[attr-defined]
    else:
        filled(dice, made)


def _scalar(dice: Random, field: FieldDescriptor) -> Any:
    if field.enum_type is not None:
        return dice.choice([item.number for item in field.enum_type.values])
    if field.type in _INTEGERS:
        bits, signed = _INTEGERS[field.type]
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        return dice.choice([0, 1, low, high, dice.randint(low, high), dice.randint(max(low, -200), 200)])
    if field.type == 8:
        return dice.random() < 0.5
    if field.type in (1, 2):
        value = dice.choice([0.0, -0.0, 1.5, float("inf"), dice.uniform(-1e30, 1e30)])
        return value if field.type == 1 else struct.unpack("<f", struct.pack("<f", value))[0]
    text = "".join(dice.choice(["a", "é", "\0", "\n", "€", "😀", '"']) for _ in range(dice.choice([0, 1, 5, 200])))
    return text if field.type == 9 else text.encode() + bytes([dice.randint(0, 255)])


def row(made: Message) -> dict[str, Any]:
    """What google's library read, as kpipe's row."""
    found: dict[str, Any] = {}
    for field in made.DESCRIPTOR.fields:
        value = getattr(made, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            found[field.name] = {_key(key): value[key] for key in value}
        elif field.is_repeated:
            found[field.name] = [_cell(item, field) for item in value]
        elif field.has_presence and not made.HasField(field.name) and not field.has_default_value:
            found[field.name] = None
        else:
            found[field.name] = _cell(value, field)
    return found


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _cell(value: Any, field: FieldDescriptor) -> Any:
    kind: Descriptor | None = field.message_type
    if field.enum_type is not None:
        names = {item.number: item.name for item in reversed(field.enum_type.values)}
        return names.get(value, str(value))
    if kind is None:
        return value
    if kind.full_name == "google.protobuf.Timestamp":
        return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if kind.full_name == "google.protobuf.Duration":
        return Decimal(value.seconds * 10**9 + value.nanos).scaleb(-9)
    return value.value if kind.full_name.startswith("google.protobuf.") else row(value)


def told(rows: list[dict[str, Any]], kind: Descriptor) -> list[dict[str, Any]]:
    """Rows that kpipe gave, with its JSON as objects."""
    return [_told(item, kind) for item in rows]


def _told(item: dict[str, Any], kind: Descriptor) -> dict[str, Any]:
    found = dict(item)
    for field in kind.fields:
        inner, value = field.message_type, item[field.name]
        if inner is None or value is None or inner.full_name.startswith("google.protobuf."):
            continue
        if inner.GetOptions().map_entry:
            found[field.name] = json.loads(value)
        elif field.is_repeated:
            found[field.name] = told(value, inner)
        else:
            found[field.name] = _told(value, inner)
    return found


def alike(mine: Any, theirs: Any) -> bool:
    """Whether two values are the same; a number that a closed enum does not have is text to us, and nothing to google's."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        # upb, unlike Google's other parsers, drops an entry of a map that has an unknown field.
        return mine.keys() >= theirs.keys() and all(alike(mine[key], value) for key, value in theirs.items())
    if isinstance(mine, list) and isinstance(theirs, list):
        if len(mine) > len(theirs):
            mine = [item for item in mine if not _number(item)]
        return len(mine) == len(theirs) and all(map(alike, mine, theirs))
    return mine == theirs or (mine != mine and theirs != theirs) or (_number(mine) and not isinstance(theirs, dict | list))


def _number(value: Any) -> bool:
    return isinstance(value, str) and value.lstrip("-").isdecimal()
