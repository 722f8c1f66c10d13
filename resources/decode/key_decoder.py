"""Keys of records to columns of the table's key: which row a tombstone deletes."""

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
    """Reads the keys of records.

    Without a format a key of one column is its text, as CSV's fields are read, and a key of several columns a JSON object with
    these members.

    Args:
        columns: names and types.
        kind: how the record's key holds them.
        access: to the schema registry.
    """

    def __init__(self, columns: Columns, kind: Format | None = None, access: Access | None = None) -> None:
        self._columns, self._texts = columns, Texts(columns) if kind is None and len(columns) == 1 else None
        self._decoder = JsonDecoder(columns) if kind is None else key_decoder(kind, columns, access)

    def read(self, keys: pa.Array) -> tuple[pa.Table, dict[int, str]]:
        """The columns, one row for each key, and why by position where a key names no row.

        Args:
            keys: as bytes; null where a record has none.
        """
        table, reasons = self._texts.read([keys]) if self._texts is not None else self._decoded(keys)
        missing = dict.fromkeys(pc.indices_nonzero(keys.is_null()).to_pylist(), "a tombstone without a key")
        return table, {**nulls(table, self._columns), **reasons, **missing}

    def _decoded(self, keys: pa.Array) -> tuple[pa.Table, dict[int, str]]:
        decoded = self._decoder.decode(Payloads.of([value or b"" for value in keys.to_pylist()]))
        reasons, places = dict(decoded.rejects), pa.nulls(len(keys), pa.int64()).to_pylist()
        for row, at in enumerate(range(len(keys)) if decoded.kept is None else decoded.kept):
            if places[at] is not None:
                reasons[at] = "the key of a tombstone gives several rows"
            places[at] = row
        return decoded.table.select(list(self._columns.names())).take(pa.array(places, pa.int64())), reasons


def nulls(table: pa.Table, key: Columns) -> dict[int, str]:
    """Rows that have no key: NULL in one of its columns, by position."""
    reasons: dict[int, str] = {}
    for name in key.names():
        column = table.column(name)
        if column.null_count:
            for at in pc.indices_nonzero(column.is_null()).to_pylist():
                reasons.setdefault(at, f"{name}, which is of the key, is NULL or missing")
    return reasons
