"""Decode Avro payloads to columns, each with its writer's schema.

CPU time for a tweet of 182 bytes: fastavro 7 to 11 µs for Python objects and 4 more for Arrow columns, cavro 7, Apache's
library 40, pyruhvro (arrow-rs) 0.26, this decoder 0.36. pyruhvro ignores bytes after the datum, which indicate a wrong schema.
It also fails a block as a whole, and its package has no licence: see ADR 13.
"""

from __future__ import annotations

import pyarrow as pa

from kpipe.definition.formats import Format, Mapped
from kpipe.definition.json_path import parse_path, write_path
from kpipe.schema.columns import Columns
from resources.decode.avro.native import native_avro
from resources.decode.avro.nodes import Plan
from resources.decode.avro.rows import Reader
from resources.decode.avro.schema_plan import plan
from resources.decode.avro.schema_resolution import Resolution
from resources.decode.block import Decoded, Payloads
from resources.decode.exploded_columns import column_lists
from resources.decode.growth_guard import Bound
from resources.decode.payload_schemas import Part, Written, assembled
from resources.decode.schema_decoder import Typed
from resources.schema_registry.client import Schema
from resources.schema_registry.config import Access

__all__ = ["AvroDecoder"]


class AvroDecoder:
    """Decodes a datum a payload, with Confluent's prefix where the format has a registry.

    A payload becomes a row only if it is one datum of its schema, and every field with a column fits the column's type.
    Fields of the schema without a column are reported as new columns, even if they are always null.

    Args:
        kind: the format.
        columns: the payload columns.
        access: settings of the registry.
        name: name of the column if the schema is not a record.
        bound: limits on a schema's new columns; None: no limits.

    Raises:
        InvalidPipeline: the registry's address is invalid.
    """

    takes_nulls = False

    def __init__(
        self, kind: Format, columns: Columns, access: Access | None = None, name: str = "value", bound: Bound | None = None
    ) -> None:
        self._columns, self._bound = columns, bound
        self._written = Written(kind, "AVRO", lambda schema: _schema(schema, columns, name, kind), access)

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
                parts.append(reader.decode(payloads, chosen, skip))
        return assembled(parts, self._columns, len(payloads), self._bound)


def _schema(schema: Schema, columns: Columns, name: str, kind: Format) -> Typed:
    """Create the decoder of one schema."""
    found = plan(schema.text, schema.references, name)
    reader, other, wanted = Reader(found), None, found
    if kind.registry is not None and kind.definition is not None:
        wanted = plan(kind.definition, name=name)
        other = Resolution(found, wanted)
    mapping = kind.mapping and {column: _plain(item, wanted) for column, item in kind.mapping.items()}
    lists = column_lists(kind, found.columns if other is None else other.columns, columns)
    native = native_avro(found)
    return Typed(found.columns, found.carried, native, reader.row, reader.leaves(), columns, mapping, other, lists)


def _plain(item: str | Mapped, wanted: Plan) -> str | Mapped:
    """Remove branch names from a path. As in SingleStore, a branch that a record does not use is NULL, not a reject."""
    path, default = (item.path, item.default) if isinstance(item, Mapped) else (item, None)
    parts, named = wanted.without_branches(parse_path(path))
    return Mapped(path=write_path(parts), default=default) if named else item
