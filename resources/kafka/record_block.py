"""Records of a block in columns, so that no record is a Python object; not yet combined with their rows."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["COLUMNS", "Headers", "RecordBlock", "pack_headers"]

Headers = Sequence[tuple[str, bytes | None]]

COLUMNS = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),  # ms since 1970 UTC; -1: no timestamp
        ("line", pa.large_binary()),  # the value followed by a newline; null for a tombstone
        ("key", pa.binary()),
        ("headers", pa.binary()),  # packed by `pack_headers`; null: no headers
    ]
)
_COUNT, _HEADER = struct.Struct("=i"), struct.Struct("=ii")


class RecordBlock:
    """Records in offset order.

    Args:
        table: with `COLUMNS`; none by default.
    """

    def __init__(self, table: pa.Table | None = None) -> None:
        self.table = COLUMNS.empty_table() if table is None else table

    @classmethod
    def of(
        cls,
        offsets: Sequence[int],
        timestamps: Sequence[int],
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
    ) -> RecordBlock:
        """Create a block from parallel lists."""
        packed = [pack_headers(item) if item is not None else None for item in headers] if headers else None
        return cls(
            pa.table(
                [
                    pa.array(offsets, pa.int64()),
                    pa.array(timestamps, pa.int64()),
                    pa.array([None if value is None else value + b"\n" for value in values], pa.large_binary()),
                    pa.array(keys, pa.binary()) if keys is not None else pa.nulls(len(offsets), pa.binary()),
                    pa.array(packed, pa.binary()) if packed is not None else pa.nulls(len(offsets), pa.binary()),
                ],
                schema=COLUMNS,
            )
        )

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def offsets(self) -> list[int]:
        """Offsets of the records."""
        return self.column("offset").to_pylist()

    @property
    def timestamps(self) -> list[int]:
        """Timestamps in ms since 1970 UTC; -1: no timestamp."""
        return self.column("timestamp").to_pylist()

    @property
    def values(self) -> list[bytes | None]:
        """Values of the records; None for a tombstone."""
        return [None if line is None else line[:-1] for line in self.column("line").to_pylist()]

    def keys(self) -> list[bytes | None]:
        """Return the keys."""
        return self.column("key").to_pylist()

    def headers(self) -> list[Headers | None]:
        """Return the headers in order; None for a record without headers."""
        return [None if packed is None else _unpack_headers(packed) for packed in self.column("headers").to_pylist()]

    def column(self, name: str) -> pa.Array:
        """Return one of `COLUMNS` as a single Arrow array."""
        column = self.table.column(name)
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

    def value_array(self) -> pa.Array:
        """Return the values as an Arrow array of bytes; null for a tombstone."""
        return pc.binary_slice(self.column("line"), 0, -1).cast(pa.binary())

    def extend(self, other: RecordBlock) -> None:
        """Append the records of another block."""
        self.table = pa.concat_tables([self.table, other.table]) if len(self) else other.table

    def take(self, count: int) -> RecordBlock:
        """Remove the first `count` records and return them."""
        taken = RecordBlock(self.table.slice(0, count))
        self.table = self.table.slice(count)
        return taken

    def pick(self, indices: Sequence[int], columns: Sequence[str] | None = None) -> RecordBlock:
        """Return the records at these positions, with these columns only; None: all columns."""
        table = self.table if columns is None else self.table.select(list(columns))
        return RecordBlock(table.take(pa.array(np.asarray(indices, dtype=np.int64))))

    def part(self, start: int, end: int) -> RecordBlock:
        """Return the records `[start, end)`."""
        return RecordBlock(self.table.slice(start, end - start))

    def split_tombstones(self) -> tuple[RecordBlock, int]:
        """Return the records with a value, and the number of those without."""
        none = self.table.column("line").null_count
        if not none:
            return self, 0
        return RecordBlock(self.table.filter(pc.is_valid(self.table.column("line")))), int(none)

    def tombstones(self) -> RecordBlock:
        """Return the records without a value."""
        return RecordBlock(self.table.filter(pc.is_null(self.table.column("line"))))


def pack_headers(headers: Headers) -> bytes:
    """Pack headers into one value: their number, then for each the lengths of name and value (-1: null), name and value."""
    parts = [_COUNT.pack(len(headers))]
    for name, value in headers:
        raw = name.encode("utf-8", "surrogateescape")
        parts += [_HEADER.pack(len(raw), -1 if value is None else len(value)), raw, value or b""]
    return b"".join(parts)


def _unpack_headers(packed: bytes) -> list[tuple[str, bytes | None]]:
    (count,), place, headers = _COUNT.unpack_from(packed), _COUNT.size, []
    for _ in range(count):
        name_length, value_length = _HEADER.unpack_from(packed, place)
        place += _HEADER.size
        name = packed[place : place + name_length].decode("utf-8", "replace")
        place += name_length
        headers.append((name, None if value_length < 0 else packed[place : place + value_length]))
        place += max(0, value_length)
    return headers
