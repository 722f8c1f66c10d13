"""Store keys and values as bytes, without decoding them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from kpipe.schema.columns import Columns
from resources.decode.block import Decoded, Payloads

__all__ = ["COLUMNS", "RawDecoder"]

COLUMNS = Columns.of({"key": "BLOB", "value": "BLOB"})


class RawDecoder:
    """Returns key and value as bytes; a tombstone is a row whose value is NULL. It rejects no payload."""

    takes_nulls = True

    def decode(self, payloads: Payloads, keys: pa.Array | None = None) -> Decoded:
        """See `Decoder`."""
        buffers = [None, pa.py_buffer(payloads.bounds), pa.py_buffer(payloads.text)]
        lines = pa.Array.from_buffers(pa.large_binary(), len(payloads), buffers)
        values = pc.binary_slice(lines, 0, -1).cast(pa.binary())
        if payloads.missing is not None:
            values = pc.if_else(payloads.missing, None, values)
        table = pa.table({"key": pa.nulls(len(values), pa.binary()) if keys is None else keys, "value": values})
        return Decoded(table, table.num_rows)
