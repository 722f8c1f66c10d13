"""Compile Protobuf schemas, and decode blocks of messages."""

from __future__ import annotations

from typing import Any

from google.protobuf import message_factory
from google.protobuf.message import Message

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from resources.decode.block import Decoded, Payloads
from resources.decode.protobuf.decoder import ProtobufDecoder
from resources.decode.protobuf.descriptors import Files
from resources.decode.protobuf.message_plan import plan

_CLASSES: dict[tuple[str, str], type[Message]] = {}


def proto(body: str, syntax: str = "proto3") -> str:
    """A .proto file of package t."""
    return f'syntax = "{syntax}";\npackage t;\n{body}'


def made(text: str, name: str = "t.M") -> Any:
    """The class of a message."""
    if (text, name) not in _CLASSES:
        _CLASSES[text, name] = message_factory.GetMessageClass(Files(text).named(name))
    return _CLASSES[text, name]


def decode(text: str, payloads: list[bytes], columns: dict[str, str] | None = None, message: str = "t.M") -> Decoded:
    """With the columns that the schema has, unless others are given."""
    kind = Format(type="protobuf", schema=text, message=message)
    known = plan(Files(text).named(message)).columns if columns is None else Columns.of(columns)
    return ProtobufDecoder(kind, known).decode(Payloads.of(payloads))


SMALL = proto("""
message In { string name = 1; int32 n = 2; }
message M { int32 i = 1; string s = 2; bool b = 3; uint32 u = 4; In in = 5; repeated fixed32 r = 6;
  oneof c { int32 x = 7; In y = 8; }
  map<string, string> m = 9; sint32 z = 10; int64 l = 11; }
""")
