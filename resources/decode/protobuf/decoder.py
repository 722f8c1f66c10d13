"""Decode Protobuf payloads to columns, each with its writer's schema and message type.

Why kpipe has its own decoder, and what others cost: ADR 20.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from resources.decode import confluent_wire
from resources.decode.block import Decoded, Payloads
from resources.decode.exploded_columns import column_lists
from resources.decode.growth_guard import Bound
from resources.decode.payload_schemas import Part, Unfit, Written, assembled
from resources.decode.protobuf.descriptors import Files
from resources.decode.protobuf.message_plan import plan
from resources.decode.protobuf.native import native_protobuf
from resources.decode.protobuf.rows import Reader
from resources.decode.schema_decoder import Typed
from resources.schema_registry.client import Schema
from resources.schema_registry.config import Access

__all__ = ["ProtobufDecoder"]

Rows = np.ndarray[Any, Any]


class ProtobufDecoder:
    """Decoder of payloads with one message each, with Confluent's prefix (schema and message) if the format has a registry.

    Fields of the schema without a column are reported as new columns, even if they are never set.

    Args:
        kind: the format.
        columns: the payload columns.
        access: settings of the registry.
        bound: limits on a schema's new columns; None: no limits.

    Raises:
        InvalidPipeline: the registry's address is invalid.
    """

    takes_nulls = False

    def __init__(self, kind: Format, columns: Columns, access: Access | None = None, bound: Bound | None = None) -> None:
        self._columns, self._bound = columns, bound
        self._written = Written(kind, "PROTOBUF", lambda schema: _Types(schema, columns, kind), access)

    def decode(self, payloads: Payloads, keys: pa.Array | None = None) -> Decoded:
        """See `Decoder`.

        Raises:
            RegistryFailed, CredentialsRefused: the registry did not return the schema of an id.
        """
        parts = []
        for chosen, skip, reader in self._written.groups(payloads):
            if isinstance(reader, str):
                parts.append(Part(None, chosen, [(int(at), reader) for at in chosen], Columns()))
            else:
                parts += reader.decode(payloads, chosen, skip)
        return assembled(parts, self._columns, len(payloads), self._bound)


class _Types:
    """Decoder of messages of one schema, which may have several message types."""

    def __init__(self, schema: Schema, columns: Columns, kind: Format) -> None:
        self._columns, self._kind = columns, kind
        self._files = Files(schema.text, schema.references, kind.registry is None)
        self._made: dict[str, Typed | Unfit] = {}
        if kind.registry is None:
            self._typed(self._files.named(kind.message).full_name)

    def decode(self, payloads: Payloads, chosen: Rows, skip: int) -> Iterator[Part]:
        """Decode the chosen payloads to rows."""
        if self._kind.registry is None:
            yield self._part(self._files.named(self._kind.message).full_name, payloads, chosen, skip)
            return
        for some, indexes, more in confluent_wire.messages(payloads, chosen, skip):
            if isinstance(indexes, str):
                yield _refused(some, indexes)
                continue
            try:
                name = self._files.at(indexes)
            except Unfit as error:
                yield _refused(some, f"its schema cannot be used: {error}")
                continue
            if self._kind.message is not None and name != self._kind.message:
                yield _refused(some, f"it is a {name}, not a {self._kind.message}")
                continue
            yield self._part(name, payloads, some, skip + more)

    def _part(self, name: str, payloads: Payloads, chosen: Rows, skip: int) -> Part:
        found = self._typed(name)
        return _refused(chosen, str(found)) if isinstance(found, Unfit) else found.decode(payloads, chosen, skip)

    def _typed(self, name: str) -> Typed | Unfit:
        if name not in self._made:
            try:
                found = plan(self._files.named(name))
                reader = Reader(found)
                self._made[name] = Typed(
                    found.columns, found.carried, native_protobuf(found), reader.row, reader.leaves(), self._columns,
                    self._kind.mapping, lists=column_lists(self._kind, found.columns, self._columns),
                )  # fmt: skip
            except Unfit as error:
                self._made[name] = error
        return self._made[name]


def _refused(chosen: Rows, why: str) -> Part:
    return Part(None, chosen, [(int(at), why) for at in chosen], Columns())
