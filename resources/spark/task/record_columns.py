"""Columns of a record that are not decoded: timestamp, headers, and the record as a whole; dead letters consist of these."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kpipe.topics import PartitionId
from resources.kafka.record_block import RecordBlock

__all__ = ["HEADERS", "INSTANT", "dead_letters", "headers", "instants", "originals"]

INSTANT = pa.timestamp("us", "UTC")
HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
_DEAD_LETTERS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", INSTANT),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("stage", pa.string()),
        ("reason", pa.string()),
    ]
)


def instants(timestamps: pa.Array, last: int) -> pa.Array:
    """Convert Kafka's milliseconds to microseconds UTC; NULL before 1970 (-1: no timestamp, KIP-32) and after the last.

    The latter occur when a producer writes microseconds or nanoseconds. They must not fail the batch on each retry.
    """
    ends = pc.min_max(timestamps).as_py() if len(timestamps) else {"min": 0, "max": 0}
    if ends["min"] < 0 or ends["max"] > last:
        timestamps = pc.if_else(pc.and_(pc.greater_equal(timestamps, 0), pc.less_equal(timestamps, last)), timestamps, None)
    return timestamps.cast(pa.timestamp("ms", "UTC")).cast(INSTANT)


def originals(held: RecordBlock) -> pa.Array:
    """Return the whole records as structs."""
    arrays = [held.column("key"), held.value_array(), headers(held)]
    return pa.StructArray.from_arrays(arrays, names=["key", "value", "headers"])


def headers(held: RecordBlock) -> pa.Array:
    """Return the headers as lists of structs; NULL for a record without headers."""
    if held.table.column("headers").null_count == len(held):
        return pa.nulls(len(held), HEADERS)
    rows = [None if items is None else [{"name": name, "value": value} for name, value in items] for items in held.headers()]
    return pa.array(rows, HEADERS)


def dead_letters(source: PartitionId, held: RecordBlock, stage: str, reasons: Sequence[str], last: int) -> pa.Table:
    """Return records as dead letters, in the columns of a staged file.

    Args:
        source: their partition.
        held: the records.
        stage: that rejected them.
        reasons: one for each.
        last: see `instants`.
    """
    count = len(held)
    return pa.table(
        [
            pa.repeat(pa.scalar(source.topic.name, pa.string()), count),
            pa.repeat(pa.scalar(source.partition, pa.int32()), count),
            pa.array([offset if offset >= 0 else None for offset in held.offsets], pa.int64()),
            instants(held.column("timestamp"), last),
            held.column("key"),
            held.value_array(),
            headers(held),
            pa.repeat(pa.scalar(stage, pa.string()), count),
            pa.array(list(reasons), pa.string()),
        ],
        schema=_DEAD_LETTERS,
    )
