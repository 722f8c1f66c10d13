"""Payloads kept as they are: extract and load, transform later."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from kpipe.schema import Columns
from resources.decode.block import Decoded, Payloads

__all__ = ["COLUMNS", "decode_raw"]

COLUMNS = Columns.of({"key": "BLOB", "value": "BLOB"})


def decode_raw(values: Sequence[bytes | None] | Payloads, keys: Sequence[bytes | None]) -> Decoded:
    """Key and value as bytes; a tombstone is a row whose value is NULL. Rejects nothing."""
    items = values.values if isinstance(values, Payloads) else values
    table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(items, pa.binary())})
    return Decoded(table, table.num_rows)
