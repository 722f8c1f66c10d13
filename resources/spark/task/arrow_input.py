"""Frame records for a program as one Arrow IPC stream: a record batch for each block."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.topics import PartitionId
from resources.kafka.record_block import RecordBlock

__all__ = ["SCHEMA", "RecordStream"]

_TOPIC = pa.field("topic", pa.string())
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
_END = b"\xff\xff\xff\xff\0\0\0\0"


class RecordStream:
    """Stream of one range's records.

    Args:
        source: the partition.
        multi_topic: whether the pipeline reads several topics, so that records name theirs.
    """

    def __init__(self, source: PartitionId, multi_topic: bool) -> None:
        self._source, self._multi_topic = source, multi_topic
        self._schema = SCHEMA.append(_TOPIC) if multi_topic else SCHEMA
        self._begun = False

    def framed(self, held: RecordBlock) -> Iterator[bytes]:
        """Yield the bytes of records; with the schema before the first ones."""
        if not self._begun:
            self._begun = True
            yield self._schema.serialize().to_pybytes()
        count = len(held)
        times = held.column("timestamp")
        if count and pc.min(times).as_py() < 0:  # -1: no timestamp
            times = pc.if_else(pc.greater_equal(times, 0), times, None)
        columns = [
            held.column("key"),
            held.value_array(),
            _headers(held),
            times.cast(SCHEMA.field("timestamp").type),
            pa.repeat(pa.scalar(self._source.partition, pa.int32()), count),
            held.column("offset"),
            *([pa.repeat(pa.scalar(self._source.topic.name), count)] if self._multi_topic else []),
        ]
        yield pa.record_batch(columns, schema=self._schema).serialize()

    def end(self) -> bytes:
        """Return the end of the stream; all of it, if there was no record."""
        head = b"" if self._begun else self._schema.serialize().to_pybytes()
        self._begun = True
        return head + _END


def _headers(held: RecordBlock) -> pa.Array:
    kind = SCHEMA.field("headers").type
    if held.table.column("headers").null_count == len(held):
        empty = pa.array([], kind.value_type)
        return pa.ListArray.from_arrays(pa.array(np.zeros(len(held) + 1, np.int32)), empty, type=kind)
    return pa.array([[{"key": name, "value": value} for name, value in items or ()] for items in held.headers()], kind)
