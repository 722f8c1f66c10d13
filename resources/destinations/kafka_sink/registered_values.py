"""Encode rows with a schema in a registry, in Confluent's wire format: a zero byte, the id in four bytes, then the value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa

from kpipe.definition.pipeline import Into
from kpipe.errors import InvalidPipeline, SourceError
from kpipe.schema.columns import Columns, ListOf, MapOf, Struct, Type
from resources.destinations.json_documents import documents
from resources.destinations.kafka_sink.avro_values import AvroValues
from resources.destinations.kafka_sink.cluster import Cluster
from resources.schema_registry.client import Registry, registry
from resources.schema_registry.config import check_address

__all__ = ["RegisteredValues", "json_schema"]

_T = TypeVar("_T")


class RegisteredValues:
    """The values of one topic. Their schema is registered under `TOPIC-value` before rows are written.

    Args:
        into: the destination, with the address of its registry.
        cluster: with the registry's settings and credentials.

    Raises:
        InvalidPipeline: the address is invalid, or credentials would be sent unencrypted.
    """

    def __init__(self, into: Into, cluster: Cluster) -> None:
        assert into.registry is not None
        self._url, self._kind, self._cluster = into.registry, into.format, cluster
        self._subject = f"{into.topic}-value"
        self._ids: dict[str, int] = {}
        self._protobuf: tuple[Columns, Callable[[pa.Table, Columns], list[bytes]]] | None = None
        try:
            check_address(self._url, cluster.registry_access(read=False), "into.registry")
        except InvalidPipeline as error:
            raise error.about("into", "registry") from None

    def encoder(self, columns: Columns) -> Callable[[pa.Table, Columns], list[bytes]]:
        """Return the function that encodes rows, after their schema was registered.

        Args:
            columns: all columns of the topic's rows.

        Raises:
            SchemaConflict: a column has no counterpart in the schema.
            DestinationError: the registry rejects the schema or the credentials.
            DestinationBusy: the registry did not answer.
            NotAvailable: a Protobuf schema is text, and the compiler is not installed.

        The function raises Misfits (rejected_rows.py) for rows that the schema cannot represent.
        """
        if self._kind == "protobuf":
            return self._of_protobuf(columns)
        if self._kind == "avro":
            avro = AvroValues(columns)
            prefix = self._prefix("AVRO", avro.schema)
            return lambda block, _: [prefix + value for value in avro.rows(block)]
        framed = self._prefix("JSON", json_schema(columns))
        return lambda block, held: [framed + value.encode() for value in documents(block, held)]

    def _prefix(self, kind: str, schema: str) -> bytes:
        if schema not in self._ids:
            number = self._asked(lambda registry: registry.register(self._subject, kind, schema))
            self._ids.clear()
            self._ids[schema] = number
        return b"\0" + self._ids[schema].to_bytes(4, "big")

    def _of_protobuf(self, columns: Columns) -> Callable[[pa.Table, Columns], list[bytes]]:
        if self._protobuf is None or self._protobuf[0] != columns:
            from resources.destinations.kafka_sink.protobuf_subject import message_of
            from resources.destinations.kafka_sink.protobuf_values import ProtobufValues

            number, message = self._asked(lambda registry: message_of(registry, self._subject, columns))
            # After the id, the index of the message type: a zero is the first one.
            values, prefix = ProtobufValues(columns, message), b"\0" + number.to_bytes(4, "big") + b"\0"
            self._protobuf = columns, lambda block, _: [prefix + value for value in values.rows(block)]
        return self._protobuf[1]

    def _asked(self, ask: Callable[[Registry], _T]) -> _T:
        try:
            return ask(registry(self._url, self._cluster.registry_access()))
        except SourceError as error:
            raise self._cluster.unreachable(error, f"topic {self._subject.removesuffix('-value')}") from None


def json_schema(columns: Columns) -> str:
    """Return the JSON Schema of the documents of rows (resources/destinations/json_documents.py).

    Unknown members are excluded. So a schema with more columns is compatible: no document of the older schema has one of them.
    """
    return json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", "title": "Row", **_object(columns.items)})


def _object(fields: tuple[tuple[str, Type], ...]) -> dict[str, Any]:
    return {"type": "object", "properties": {name: _nullable(kind) for name, kind in fields}, "additionalProperties": False}


def _nullable(kind: Type) -> dict[str, Any]:
    found = _schema(kind)
    types = found.get("type", [])
    return {**found, "type": [*([types] if isinstance(types, str) else types), "null"]} if found else {}


def _schema(kind: Type) -> dict[str, Any]:
    if isinstance(kind, ListOf):
        return {"type": "array", "items": _nullable(kind.item)}
    if isinstance(kind, MapOf):
        return {"type": "object", "additionalProperties": _nullable(kind.item)}
    if isinstance(kind, Struct):
        return _object(kind.fields)
    name = str(kind)
    if name == "JSON":
        return {}
    if name == "BOOLEAN":
        return {"type": "boolean"}
    if re.fullmatch(r"U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER", name):
        return {"type": "integer"}
    if name.startswith("DECIMAL"):
        return {"type": "number"}
    if name in ("FLOAT", "DOUBLE"):  # NaN and infinities are text
        return {"type": ["number", "string"]}
    return {"type": "string", "contentEncoding": "base64"} if name == "BLOB" else {"type": "string"}
