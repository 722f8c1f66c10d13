"""Read messages of Debezium with a schema registry: each by its own schema, in Avro or Protobuf."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from kpipe.definition.formats import Format
from resources.decode.block import Payloads
from resources.decode.debezium.avro_documents import AvroMessages
from resources.decode.debezium.protobuf_documents import ProtobufMessages
from resources.decode.json.rows import Reject
from resources.decode.payload_schemas import Written
from resources.schema_registry.client import Schema
from resources.schema_registry.config import Access

__all__ = ["RegistryDocuments"]

Made = TypeVar("Made")


class RegistryDocuments(Generic[Made]):
    """Reader of messages with a registry's prefix.

    Args:
        kind: the format.
        make: creates what a schema of Connect is for; raises Reject.
        access: settings of the registry.
        rows: whether the messages are change events, not keys.
    """

    def __init__(self, kind: Format, make: Callable[[Any], Made], access: Access | None, rows: bool) -> None:
        def messages(schema: Schema) -> AvroMessages[Made] | ProtobufMessages[Made]:
            return AvroMessages(schema, make) if schema.kind == "AVRO" else ProtobufMessages(schema, make, kind, rows)

        self._written = Written(kind, ("AVRO", "PROTOBUF"), messages, access)

    def read(self, payloads: Payloads) -> Iterator[tuple[int, Any, Made | None]]:
        """Yield for each message its position, its value and what belongs to its schema; see `Documents` (events.py).

        Raises:
            RegistryFailed, CredentialsRefused: the registry did not return the schema of an id.
        """
        for chosen, skip, known in self._written.groups(payloads):
            if isinstance(known, str):
                yield from ((at, Reject(known), None) for at in chosen.tolist())
            else:
                yield from known.read(payloads, chosen, skip)
