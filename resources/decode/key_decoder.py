"""Decode keys of records to the table's key columns, to find the row that a tombstone deletes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from resources.decode.block import Payloads
from resources.decode.cast_text import Texts
from resources.decode.factory import key_decoder
from resources.decode.json.decoder import JsonDecoder
from resources.schema_registry.config import Access

__all__ = ["KeyReader", "nulls"]


class KeyReader:
    """Decodes the keys of records.

    Without a format, the key of a table with one key column is the text of its value, read like a CSV field. With several key
    columns it is a JSON object.

    Args:
        columns: names and types of the key columns.
        kind: the format of the record's key.
        access: settings of the schema registry.
    """

    def __init__(self, columns: Columns, kind: Format | None = None, access: Access | None = None) -> None:
        self._columns, self._texts = columns, Texts(columns) if kind is None and len(columns) == 1 else None
        self._decoder = JsonDecoder(columns) if kind is None else key_decoder(kind, columns, access)

    def read(self, keys: pa.Array) -> tuple[pa.Table, dict[int, str]]:
        """Return one row for each key, and by position the reasons of invalid keys.

        Args:
            keys: a column of bytes; null for a record without a key.
        """
        table, reasons = self._texts.read([keys])[:2] if self._texts is not None else self._decoded(keys)
        missing = dict.fromkeys(pc.indices_nonzero(keys.is_null()).to_pylist(), "a tombstone without a key")
        return table, {**nulls(table, self._columns), **reasons, **missing}

    def _decoded(self, keys: pa.Array) -> tuple[pa.Table, dict[int, str]]:
        decoded = self._decoder.decode(Payloads.of([value or b"" for value in keys.to_pylist()]))
        reasons, rows = dict(decoded.rejects), pa.nulls(len(keys), pa.int64()).to_pylist()
        for row, position in enumerate(range(len(keys)) if decoded.kept is None else decoded.kept):
            if rows[position] is not None:
                reasons[position] = "the key of a tombstone: expected one row, found several"
            rows[position] = row
        for position in [position for position, row in enumerate(rows) if row is None and position not in reasons]:
            reasons[position] = "the key of a tombstone: expected one row, found none"
        return decoded.table.select(list(self._columns.names())).take(pa.array(rows, pa.int64())), reasons


def nulls(table: pa.Table, key: Columns) -> dict[int, str]:
    """Return by position the reasons of rows with NULL in a key column."""
    reasons: dict[int, str] = {}
    for name in key.names():
        column = table.column(name)
        if column.null_count:
            for row in pc.indices_nonzero(column.is_null()).to_pylist():
                reasons.setdefault(row, f"key column {name} is NULL or missing")
    return reasons
