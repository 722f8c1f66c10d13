"""Parse messages of Debezium's JSON: the envelope of a change, or a key, with and without its schema."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from kpipe.definition.formats import Format
from resources.decode.block import Payloads
from resources.decode.debezium.connect_schema import plan
from resources.decode.debezium.envelopes import ENVELOPES, Change, Image, Plans
from resources.decode.json.rows import Reject, load
from resources.schema_registry.config import Access

__all__ = ["Changes", "Documents", "JsonDocuments", "Keys", "unavailable_values"]

Made = TypeVar("Made")
Out = TypeVar("Out", covariant=True)

_SCHEMA = b'{"schema":'
_SPACE, _PAYLOAD = re.compile(r"[ \t\n\r]*"), re.compile(r'[ \t\n\r]*,[ \t\n\r]*"payload"[ \t\n\r]*:[ \t\n\r]*')
_MOST_SCHEMAS = 64


class Documents(Protocol[Out]):
    """Reader of messages."""

    def read(self, payloads: Payloads) -> Iterator[tuple[int, Any, Out | None]]:
        """Yield for each message position, value and what belongs to its schema; a `Reject` in place of an invalid value."""
        ...


class JsonDocuments(Generic[Made]):
    """Reader of messages in JSON, which parses a schema once: the converter writes it first, with the same bytes in each message.

    Args:
        make: creates what a schema is for; raises Reject.
        enveloped: whether a message without the members `schema` and `payload` is invalid; else it is the payload.
    """

    def __init__(self, make: Callable[[Any], Made], enveloped: bool = False) -> None:
        self._make, self._enveloped = make, enveloped
        self._made: OrderedDict[bytes, Made] = OrderedDict()

    def read(self, payloads: Payloads) -> Iterator[tuple[int, Any, Made | None]]:
        """See `Documents`."""
        for at in range(len(payloads)):
            try:
                value, made = self._one(payloads[at])
            except Reject as error:
                value, made = error, None
            yield at, value, made

    def _one(self, payload: bytes) -> tuple[Any, Made | None]:
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
            if self._enveloped:
                raise Reject("expected the members schema and payload only (format.schemas_enable)")
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
    """Return the bytes of a JSON object up to the value of the member `payload`; empty if another member is first."""
    if not payload.startswith(_SCHEMA):
        return b""
    text = payload.decode("utf-8")
    _, end = json.JSONDecoder().raw_decode(text, _SPACE.match(text, len(_SCHEMA)).end())  # type: ignore[union-attr]
    found = _PAYLOAD.match(text, end)
    return text[: found.end()].encode() if found is not None else b""


class Changes:
    """Reader of envelopes.

    Args:
        kind: the format.
        access: settings of its registry.
    """

    def __init__(self, kind: Format, access: Access | None = None) -> None:
        self._envelope, self._table = ENVELOPES[kind.envelope], kind.source_table
        self._documents = _documents(kind, self._envelope.plans, access, rows=True)

    def read(self, payloads: Payloads) -> Iterator[tuple[int, Change | Reject]]:
        """Yield the position of each value, and the change or the reason why it is invalid.

        Events of other tables than `format.source_table` are messages, whatever else they contain.
        """
        for at, value, plans in self._documents.read(payloads):
            if isinstance(value, Reject):
                yield at, value
                continue
            try:
                yield at, self._change(value, plans)
            except Reject as error:
                yield at, error

    def _change(self, value: Any, plans: Plans | None) -> Change:
        if self._table is None:
            return self._envelope.change(value, plans)
        names = self._envelope.table(value)
        if names and self._table not in (".".join(names[at:]) for at in range(len(names))):
            return Change("message", None)
        change = self._envelope.change(value, plans)
        if change.what != "message" and not names:
            raise Reject("the event does not name its table, which format.source_table selects")
        return change


class Keys:
    """Reader of keys; for arguments see `Changes`."""

    def __init__(self, kind: Format, access: Access | None = None) -> None:
        self._documents = _documents(kind, plan, access, rows=False)
        self._prefix = ENVELOPES[kind.envelope].prefix

    def _named(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name.removeprefix(self._prefix): item for name, item in value.items()} if self._prefix else value

    def read(self, keys: Sequence[bytes]) -> dict[int, Image | Reject]:
        """Return for each position the key or the reason why there is none."""
        images: dict[int, Image | Reject] = {}
        for at, value, found in self._documents.read(Payloads.of(keys)):
            if isinstance(value, Reject):
                images[at] = value
            else:
                images[at] = (
                    Image(self._named(value), found) if isinstance(value, Mapping) else Reject("the key is not an object")
                )
        return images


def _documents(kind: Format, make: Callable[[Any], Made], access: Access | None, rows: bool) -> Documents[Made]:
    if kind.registry is None:
        return JsonDocuments(make)
    from resources.decode.debezium.registry_documents import RegistryDocuments

    return RegistryDocuments(kind, make, access, rows)


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
