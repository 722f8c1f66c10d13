"""Parse messages of Debezium's JSON: the envelope of a change, or a key, with and without its schema."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from resources.decode.debezium.connect_schema import Plan, plan
from resources.decode.json.rows import Reject, load

__all__ = ["Change", "Changes", "Image", "Keys", "unavailable_values"]

Made = TypeVar("Made")

_SCHEMA, _PAYLOAD = b'{"schema":', b',"payload":'
_MOST_SCHEMAS = 64
_ROWS, _OTHERS = ("c", "r", "u"), {"d": "delete", "t": "truncate", "m": "message"}


@dataclass(frozen=True)
class Image:
    """A row of the source, or its key.

    Attributes:
        values: the members, as JSON.
        plan: of the schema; None: the message has none.
    """

    values: Mapping[str, Any]
    plan: Plan | None


@dataclass(frozen=True)
class Change:
    """A change of the source's table.

    Attributes:
        what: `row` (insert, update or snapshot), `delete`, `truncate` or `message`.
        row: the row after the change; of a delete the row before it, as far as the source logs it.
    """

    what: str
    row: Image | None


class _Documents(Generic[Made]):
    """Reader of messages, which parses a schema once: the converter writes it first, with the same bytes in each message.

    Args:
        make: creates what a schema is for; raises Reject.
    """

    def __init__(self, make: Callable[[Any], Made]) -> None:
        self._make = make
        self._made: OrderedDict[bytes, Made] = OrderedDict()

    def read(self, payload: bytes) -> tuple[Any, Made | None]:
        """Return the payload and what belongs to its schema; None without a schema.

        Raises:
            Reject: it is not one JSON object, or its schema cannot be used.
        """
        for prefix in self._made if payload.startswith(_SCHEMA) else ():
            if payload.startswith(prefix) and payload.endswith(b"}"):
                inner = payload[len(prefix) : -1]
                if inner == b"null":
                    return None, self._made[prefix]
                try:
                    value = load(inner)
                except Reject:  # read it as a whole, with a reason that fits
                    break
                self._made.move_to_end(prefix, last=False)
                return value, self._made[prefix]
        document = load(payload)
        if set(document) != {"schema", "payload"}:
            return document, None
        schema, value = document["schema"], document["payload"]
        if schema is None:
            return value, None
        made = self._make(schema)
        prefix = _prefix(payload)
        if prefix:
            self._made[prefix] = made
            self._made.move_to_end(prefix, last=False)
            if len(self._made) > _MOST_SCHEMAS:
                self._made.popitem()
        return value, made


def _prefix(payload: bytes) -> bytes:
    """Return the bytes up to the member `payload`; empty if the message is written in another way."""
    if not payload.startswith(_SCHEMA):
        return b""
    text = payload.decode("utf-8")
    _, end = json.JSONDecoder().raw_decode(text, len(_SCHEMA))
    prefix = text[:end].encode() + _PAYLOAD
    return prefix if payload.startswith(prefix) else b""


class Changes:
    """Reader of envelopes."""

    def __init__(self) -> None:
        self._documents = _Documents(_images)

    def read(self, payload: bytes) -> Change:
        """Parse a value.

        Raises:
            Reject: it is not a change.
        """
        value, plans = self._documents.read(payload)
        if not isinstance(value, Mapping) or not isinstance(value.get("op"), str):
            raise Reject("not a change event of Debezium: it has no member op")
        operation = value["op"]
        if operation in _ROWS:
            after = value.get("after")
            if not isinstance(after, Mapping):
                raise Reject(f"op {operation} without the row after the change (member after)")
            return Change("row", Image(after, _of(plans, "after")))
        if operation not in _OTHERS:
            raise Reject(f"unknown op {operation[:20]!r}: expected c, r, u, d, t or m")
        before = value.get("before") if operation == "d" else None
        return Change(_OTHERS[operation], Image(before, _of(plans, "before")) if isinstance(before, Mapping) else None)


class Keys:
    """Reader of keys."""

    def __init__(self) -> None:
        self._documents = _Documents(plan)

    def read(self, key: bytes) -> Image:
        """Parse a key.

        Raises:
            Reject: it is not an object.
        """
        value, found = self._documents.read(key)
        if not isinstance(value, Mapping):
            raise Reject("the key is not an object")
        return Image(value, found)


def _images(schema: Any) -> Mapping[str, Plan]:
    """Return the plans of the rows before and after a change."""
    fields = schema.get("fields") if isinstance(schema, Mapping) else None
    found = {}
    for field in fields if isinstance(fields, list) else ():
        name = field.get("field") if isinstance(field, Mapping) else None
        if name in ("before", "after"):
            found[name] = plan(field)
    if "after" not in found:
        raise Reject("the schema is not that of a change event of Debezium: it has no field after")
    return found


def _of(plans: Mapping[str, Plan] | None, name: str) -> Plan | None:
    return None if plans is None else plans.get(name, plans["after"])


def unavailable_values(placeholder: str) -> Callable[[Any], bool]:
    """Return the test whether a value is the placeholder: a text, bytes, or the only item of a list or object."""
    import base64

    raw = placeholder.encode()
    texts = {placeholder, base64.b64encode(raw).decode(), json.dumps({placeholder: placeholder}, separators=(",", ":"))}
    named = uuid.UUID(bytes=hashlib.md5(raw, usedforsecurity=False).digest(), version=3)
    lists: tuple[Any, ...] = ([placeholder], [ord(letter) for letter in placeholder], [str(named)])

    def test(value: Any) -> bool:
        if isinstance(value, str):
            return value in texts
        if isinstance(value, list):
            return value in lists
        return isinstance(value, dict) and value == {placeholder: placeholder}

    return test
