"""Records of files of lines: a record is a line, its position the offset of its first byte.

A range contains the lines that begin in it, so ranges can be cut at any byte and read in parallel.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.errors import ReadFailed
from kpipe.offsets import Range
from resources.kafka.record_block import COLUMNS, RecordBlock
from resources.sources.connector import Split
from resources.sources.files.content import LONGEST_LINE, Content

__all__ = ["check_text", "first_lines", "inspected", "read_lines"]

HEAD = 64 << 10
_CHUNK = 4 << 20
_BOM = b"\xef\xbb\xbf"
#: First bytes of files that are not lines of UTF-8 text, as regular expressions. Text may begin with the same letters (ORCL,…):
#: these need more of their format, such as a control character that lines do not have.
_CONTROL = rb"(?s:.*?)[\x00-\x08\x0e-\x1a\x1c-\x1f]"
_OTHERS = {
    rb"\x1f\x8b": "gzip", rb"\x28\xb5\x2f\xfd": "Zstandard", rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)": "bzip2",
    rb"\xfd7zXZ": "xz", rb"PK\x03\x04": "ZIP", rb"PAR1" + _CONTROL: "Parquet", rb"Obj\x01": "Avro",
    rb"ORC" + _CONTROL: "ORC", rb"\xff\xfe|\xfe\xff": "UTF-16",
}  # fmt: skip
_SIGNATURE = 1 << 10  # bytes that show a format


def inspected(name: str, content: Content, skip: int, growing: bool) -> Split | None:
    """Return the split of a file; None: it has no record yet.

    The identity of a growing file is a hash of its first record and the lines before it, which appended lines do not change. That
    of a complete file is a hash of its size, its first and its last bytes. A growing file ends after its last newline: half a
    line is not read.

    Args:
        name: of the file.
        content: the open file.
        skip: lines before the first record.
        growing: whether lines may be appended.

    Raises:
        ReadFailed: the file has another format, or a line is too long.
    """
    size = content.facts.size
    head = content.read(0, min(size, HEAD))
    check_text(name, content)
    if not growing:
        if not size:
            return None
        tail = content.read(max(0, size - HEAD), size)
        return Split(name, _hash(b"%d" % size, head, tail), size, complete=True)
    first = _after_lines(head, skip + 1)
    if first is None and size < HEAD:
        return None
    return Split(name, _hash(head if first is None else head[:first]), _last_newline(name, content, size))


def first_lines(content: Content, count: int) -> list[bytes]:
    """Return the first lines of a file, without line ends and byte order mark; fewer if it has fewer in its first 64 KiB."""
    head = content.read(0, min(content.facts.size, HEAD))
    return [line.removesuffix(b"\r") for line in head.removeprefix(_BOM).split(b"\n")[:count]]


def read_lines(name: str, content: Content, span: Range, skip: int, growing: bool) -> Iterator[RecordBlock]:
    """Read the lines that begin in the range. Empty lines are gaps; CR before the newline is not part of a line.

    Args:
        name: of the file.
        content: the open file.
        span: bytes.
        skip: lines before the first record.
        growing: whether a line without a newline is still being written.

    Raises:
        ReadFailed: the file ends before the range does, or a line is too long.
    """
    at = _first(name, content, span, skip)
    held = b""  # the beginning of a line; it starts at `at`
    while at < span.end:
        chunk = content.read(at + len(held), at + len(held) + _CHUNK)
        text, ended = held + chunk, not chunk
        cut = text.rfind(b"\n") + 1
        if ended and not cut:
            if text and not growing:
                yield from _records(text + b"\n", at, span)
            elif growing or at + len(text) < span.end:
                raise _shorter(name, at + len(text), span)
            return
        if not cut and len(text) > LONGEST_LINE:
            raise _too_long(name, at)
        if cut:
            yield from _records(text[:cut], at, span)
        at, held = at + cut, text[cut:]


def _first(name: str, content: Content, span: Range, skip: int) -> int:
    """Return the offset of the first line that begins in the range, or at or after its end."""
    head = content.read(0, min(content.facts.size, HEAD))
    begin = _after_lines(head, skip) if skip else len(_BOM) if head.startswith(_BOM) else 0
    if begin is None:
        if content.facts.size < HEAD:
            return span.end
        raise ReadFailed(f"file {name}: its first {skip} lines are longer than {HEAD:,} bytes", "fix the file")
    if span.start <= begin:
        return begin
    at = span.start - 1
    while at < span.end:
        chunk = content.read(at, min(at + HEAD, at + LONGEST_LINE))
        if not chunk:
            raise _shorter(name, at, span)
        found = chunk.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(chunk)
    return span.end


def _records(text: bytes, at: int, span: Range) -> Iterator[RecordBlock]:
    """Return whole lines as blocks; those that begin at or after the end of the range are left out."""
    bounds = _bounds(text)
    starts = bounds[:-1] + at
    count = int(np.searchsorted(starts, span.end))
    if not count:
        return
    if b"\r\n" in text:
        text = text.replace(b"\r\n", b"\n")
        bounds = _bounds(text)
    buffers = [None, pa.py_buffer(bounds[: count + 1].tobytes()), pa.py_buffer(text)]
    lines = pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, buffers)
    filled = pc.greater(pc.binary_length(lines), 1)
    positions = pa.array(starts[:count])
    if not pc.all(filled).as_py():
        lines, positions = lines.filter(filled), positions.filter(filled)
    size = len(positions)
    table = pa.table(
        [positions, pa.repeat(pa.scalar(-1, pa.int64()), size), lines, pa.nulls(size, pa.binary()), pa.nulls(size, pa.binary())],
        schema=COLUMNS,
    )
    for first in range(0, size, _BLOCK):
        yield RecordBlock(table.slice(first, _BLOCK).combine_chunks())


def _bounds(text: bytes) -> np.ndarray[Any, Any]:
    """Return the offset of each line, and the end of the last one; each line has a newline."""
    return np.concatenate((np.zeros(1, np.int64), np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1))


_BLOCK = 16_384


def check_text(name: str, content: Content) -> None:
    """Check that a file does not begin as another format does.

    Raises:
        ReadFailed: it does; the message names the format.
    """
    head = content.read(0, min(content.facts.size, _SIGNATURE))
    other = next((form for first, form in _OTHERS.items() if re.match(first, head)), None)
    if other is not None:
        hint = "set source.files.type: parquet" if other == "Parquet" else "convert it, or narrow source.files.path"
        raise ReadFailed(f"file {name}: expected lines of UTF-8 text, found {other}", hint)


def _after_lines(head: bytes, count: int) -> int | None:
    """Return the offset behind so many lines; None: there are fewer."""
    at = 0
    for _ in range(count):
        at = head.find(b"\n", at) + 1
        if not at:
            return None
    return at


def _last_newline(name: str, content: Content, size: int) -> int:
    """Return the offset behind the last newline; 0: there is none."""
    end = size
    while end > 0:
        if size - end > LONGEST_LINE:
            raise _too_long(name, end)
        start = max(0, end - HEAD)
        found = content.read(start, end).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _hash(*parts: bytes) -> str:
    return hashlib.blake2b(b"\0".join(parts), digest_size=8).hexdigest()


def _too_long(name: str, at: int) -> ReadFailed:
    return ReadFailed(
        f"file {name}: a line at or after byte {at:,} is longer than {LONGEST_LINE:,} bytes", "check that it is a file of lines"
    )


def _shorter(name: str, end: int, span: Range) -> ReadFailed:
    return ReadFailed(f"file {name}: truncated during the read: expected bytes {span}, found {end:,}", "run it again")
