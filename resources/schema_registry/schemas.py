"""Fetch one schema with its references, within limits."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

__all__ = ["LARGEST", "Fetch", "NotFound", "Schema", "UnknownSchema"]

# Limits for one schema with all of its references: bytes, number of references. The registry stores a schema in one Kafka
# record, 1 MB by default.
LARGEST = 8 << 20
_MOST_REFERENCES = 200
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\ufffd]")

#: Sends a request; takes the path, the subject of an error, the deadline in monotonic seconds and the largest size in bytes.
Get = Callable[[str, str, float, int], tuple[dict[str, Any], int]]


class UnknownSchema(Exception):
    """The registry does not have the schema, or the schema cannot be used. The record is invalid; the text has the reason."""


class NotFound(UnknownSchema):
    """The registry does not have it."""


@dataclass(frozen=True)
class Schema:
    """A schema and its references.

    Attributes:
        kind: `AVRO`, `PROTOBUF` or `JSON`.
        text: the schema as registered.
        references: (name, text) of direct and indirect references, each after its own references.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()

    @property
    def size(self) -> int:
        """Number of characters of all texts."""
        return len(self.text) + sum(len(name) + len(text) for name, text in self.references)

    @property
    def is_garbled(self) -> bool:
        """Return whether a text has control characters, which neither base64 nor schemas have: bytes that were read as text."""
        return any(_CONTROL.search(text) for text in (self.text, *(text for _, text in self.references)))


class Fetch:
    """A request for one schema and its references, with limits of bytes, requests and time for all of them.

    Args:
        get: sends a request.
        path: of the request for the schema itself.
        what: the schema, for errors.
        query: the query string of each request.
        ends: the deadline, in monotonic seconds.
    """

    def __init__(self, get: Get, path: str, what: str, query: str, ends: float) -> None:
        self._get, self._path, self._what, self._query, self._ends = get, path, what, query, ends
        self._left = LARGEST
        self._found: dict[tuple[str, int], tuple[str, str]] = {}

    def schema(self) -> Schema:
        """Fetch the schema; raises as `Registry.schema` (client.py)."""
        return self._whole(self._request(self._path, self._what))

    def numbered(self) -> tuple[int, Schema]:
        """Fetch the schema with its id; raises as `Registry.latest` (client.py)."""
        answer = self._request(self._path, self._what)
        number = answer.get("id")
        if not isinstance(number, int) or not 0 <= number < 1 << 32:
            raise UnknownSchema(f"{self._what}: the registry's answer has no id")
        return number, self._whole(answer)

    def _whole(self, answer: dict[str, Any]) -> Schema:
        try:
            self._references(answer, ())
        except NotFound as error:
            raise UnknownSchema(str(error)) from None
        return Schema(str(answer.get("schemaType") or "AVRO"), _text(answer, self._what), tuple(self._found.values()))

    def _request(self, path: str, what: str) -> dict[str, Any]:
        answer, size = self._get(path + self._query, what, self._ends, self._left)
        self._left -= size
        return answer

    def _references(self, answer: dict[str, Any], above: tuple[tuple[str, int], ...]) -> None:
        listed: Any = answer.get("references") or []
        for item in listed if isinstance(listed, list) else [listed]:
            try:
                name, subject, version = str(item["name"]), str(item["subject"]), int(item["version"])
            except (KeyError, TypeError, ValueError, OverflowError):
                raise UnknownSchema(f"{self._what}: invalid references: expected name, subject and version") from None
            key = subject, version
            if key in self._found:
                continue
            if key in above or len(self._found) + len(above) >= _MOST_REFERENCES:
                raise UnknownSchema(f"{self._what}: it refers to itself, or has more than {_MOST_REFERENCES} references")
            what = f"{self._what} refers to {subject!r} version {version}, which"
            inner = self._request(f"/subjects/{quote(subject, safe='')}/versions/{version}", what)
            self._references(inner, (*above, key))
            self._found[key] = name, _text(inner, self._what)


def _text(answer: dict[str, Any], what: str) -> str:
    text = answer.get("schema")
    if not isinstance(text, str):
        raise UnknownSchema(f"{what}: the registry's answer has no field `schema`")
    return text
