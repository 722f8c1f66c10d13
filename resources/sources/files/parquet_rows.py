"""Records of Parquet files: a record is a row as a JSON object, its position the number of the row."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterator
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from kpipe.errors import ReadFailed
from kpipe.offsets import Range
from resources.kafka.record_block import RecordBlock
from resources.sources.block_size import FIRST, blocks
from resources.sources.connector import Split
from resources.sources.files.content import Content
from resources.sources.files.int96_times import checked, int96_columns
from resources.sources.json_rows import json_rows

__all__ = ["count_rows", "inspect_rows", "read_rows", "schema_of"]

_TAIL = 64 << 10


def inspect_rows(name: str, content: Content) -> Split | None:
    """Return the split of a file; None: it has no rows, or no bytes, as the markers of folders and jobs.

    Its identity is a hash of its size and its last 64 KiB, the footer.

    Raises:
        ReadFailed: it is not a Parquet file.
    """
    size = content.facts.size
    if not size:
        return None
    with _opened(name, content) as file:
        rows = file.metadata.num_rows
    tail = content.read(max(0, size - _TAIL), size)
    return Split(name, hashlib.blake2b(b"%d\0" % size + tail, digest_size=8).hexdigest(), rows, complete=True) if rows else None


def count_rows(name: str, content: Content) -> int:
    """Return the number of rows.

    Raises:
        ReadFailed: it is not a Parquet file.
    """
    with _opened(name, content) as file:
        return int(file.metadata.num_rows)


def schema_of(name: str, content: Content) -> pa.Schema:
    """Return names and types of the columns.

    Raises:
        ReadFailed: it is not a Parquet file.
    """
    with _opened(name, content) as file:
        return file.schema_arrow


def read_rows(
    name: str, content: Content, span: Range, change: Callable[[pa.Table], pa.Table] = lambda rows: rows
) -> Iterator[RecordBlock]:
    """Read rows `[start, end)`; only row groups with some of them are fetched.

    Args:
        name: of the file.
        content: the open file.
        span: rows.
        change: returns other columns for the same rows.

    Raises:
        ReadFailed: the file is damaged, or a column has a type that has no form in JSON.
    """
    with _opened(name, content) as file:
        start = 0
        for group in range(file.metadata.num_row_groups):
            end = start + file.metadata.row_group(group).num_rows
            if end > span.start and start < span.end:
                yield from _rows(name, _batches(name, content, file, group), Range(start, end), span, change)
            start = end


def _batches(name: str, content: Content, file: pq.ParquetFile, group: int) -> Iterator[pa.RecordBatch]:
    """Read the rows of a group; times of INT96 a second time, with all digits."""
    found, times = file.iter_batches(FIRST, row_groups=[group]), int96_columns(file)
    if not times:
        return cast("Iterator[pa.RecordBatch]", found)
    exact = _opened(name, content, "ns").iter_batches(FIRST, row_groups=[group], columns=times)
    return checked(f"file {name}", found, exact)


def _rows(
    name: str, batches: Iterator[pa.RecordBatch], held: Range, span: Range, change: Callable[[pa.Table], pa.Table]
) -> Iterator[RecordBlock]:
    at = held.start
    for rows in blocks(batches):
        first, last = max(at, span.start), min(at + len(rows), span.end)
        if first < last:
            part = rows.slice(first - at, last - first)
            yield json_rows(f"file {name}", change(part), pa.array(range(first, last), pa.int64()))
        at += len(rows)
        if at >= span.end:
            return


class _Stream(io.RawIOBase):
    """Content as the stream that PyArrow reads."""

    def __init__(self, content: Content) -> None:
        super().__init__()
        self._content, self._at = content, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._content.facts.size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._content.facts.size if size < 0 else self._at + size
        data = self._content.read(self._at, end)
        self._at += len(data)
        return data


def _opened(name: str, content: Content, int96: str = "us") -> pq.ParquetFile:
    try:
        return pq.ParquetFile(cast("BinaryIO", _Stream(content)), coerce_int96_timestamp_unit=int96)
    except (pa.ArrowInvalid, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise ReadFailed(f"file {name}: not a Parquet file: {reason}", "set source.files.type, or remove the file") from None
