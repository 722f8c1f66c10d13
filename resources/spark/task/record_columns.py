"""Columns of a record that are not decoded: timestamp, headers, and the record as a whole."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from resources.kafka.record_block import RecordBlock

__all__ = ["HEADERS", "INSTANT", "headers", "instants", "originals"]

INSTANT = pa.timestamp("us", "UTC")
HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))


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
