"""Payloads kept as they are: extract and load, transform later."""

from __future__ import annotations

import pyarrow as pa

from kpipe.schema import Columns
from resources.decode.block import Decoded, Payloads

__all__ = ["COLUMNS", "decode_raw"]

COLUMNS = Columns.of({"key": "BLOB", "value": "BLOB"})


def decode_raw(values: pa.Array | Payloads, keys: pa.Array | None) -> Decoded:
    """Key and value as bytes; a tombstone is a row whose value is NULL. Rejects nothing.

    Args:
        values: a column of bytes, or payloads.
        keys: a column of bytes; None where they are not known.
    """
    items = pa.array(values.values, pa.binary()) if isinstance(values, Payloads) else values
    table = pa.table({"key": pa.nulls(len(items), pa.binary()) if keys is None else keys, "value": items})
    return Decoded(table, table.num_rows)
