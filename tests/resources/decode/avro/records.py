"""Encode Avro records, and decode blocks of them."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from resources.decode.avro.decoder import AvroDecoder
from resources.decode.avro.schema_plan import plan
from resources.decode.block import Decoded, Payloads


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    """A schema from (name, type) pairs."""
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields]}


def written(schema: Any, *rows: Any) -> list[bytes]:
    parsed, found = fastavro.parse_schema(schema), []
    for row in rows:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, row)
        found.append(buffer.getvalue())
    return found


def decode(schema: Any, payloads: list[bytes], columns: dict[str, str] | None = None) -> Decoded:
    """With the columns that the schema has, unless others are given."""
    kind = Format(type="avro", schema=json.dumps(schema))
    known = plan(json.dumps(schema)).columns if columns is None else Columns.of(columns)
    return AvroDecoder(kind, known).decode(Payloads.of(payloads))


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}
