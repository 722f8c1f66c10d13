"""Frame records for a program as one Arrow IPC stream: a record batch for each block."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

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
_LARGE = 1 << 16  # bytes of a part that is worth a write of its own


class RecordStream:
    """Stream of one range's records.

    Args:
        source: the partition.
        multi_topic: whether the pipeline reads several topics, so that records name theirs.
    """

    def __init__(self, source: PartitionId, multi_topic: bool) -> None:
        self._source, self._multi_topic = source, multi_topic
        self._schema = SCHEMA.append(_TOPIC) if multi_topic else SCHEMA
        self._file = _Parts()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._file, mode="w"), self._schema)

    def framed(self, held: RecordBlock) -> Iterator[bytes | memoryview]:
        """Yield the bytes of records, not copied from their columns; with the schema before the first ones."""
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
        self._writer.write_batch(pa.record_batch(columns, schema=self._schema))
        for large, parts in groupby(self._file.taken(), key=_is_large):
            yield from parts if large else (b"".join(parts),)  # noqa: B031 - one of both uses it

    def end(self) -> bytes:
        """Return the end of the stream; all of it, if there was no record."""
        self._writer.close()
        return b"".join(self._file.taken())


class _Parts:
    """A file in memory that does not copy the buffers of columns."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes | memoryview] = []
        self._size = 0

    def write(self, part: bytes | pa.Buffer) -> int:
        self._parts.append(part if isinstance(part, bytes) else memoryview(part))
        self._size += len(part)
        return len(part)

    def taken(self) -> list[bytes | memoryview]:
        """Return the parts written since the last call."""
        parts, self._parts = self._parts, []
        return parts

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._size

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    def close(self) -> None:
        """Do nothing: there is no file."""


def _is_large(part: bytes | memoryview) -> bool:
    return len(part) >= _LARGE


def _headers(held: RecordBlock) -> pa.Array:
    kind = SCHEMA.field("headers").type
    if held.table.column("headers").null_count == len(held):
        empty = pa.array([], kind.value_type)
        return pa.ListArray.from_arrays(pa.array(np.zeros(len(held) + 1, np.int32)), empty, type=kind)
    return pa.array([[{"key": name, "value": value} for name, value in items or ()] for items in held.headers()], kind)
