"""Read an Arrow IPC stream of a foreign program: each message is checked before Arrow reads it.

A stream is a schema, dictionaries and record batches, each a message of a head (flatbuffer) and a body, then an end marker.
Arrow allocates what a head requests. So heads are read here first, by the fields that bound memory.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator

import pyarrow as pa

from kpipe.errors import TransformFailed

__all__ = ["MOST_BYTES", "Batches"]

#: Longest body of one message, and of all dictionaries that are in use.
MOST_BYTES = 256 << 20
_MOST_HEAD_BYTES = 16 << 20
_CONTINUATION = b"\xff\xff\xff\xff"
_FILE_FORMAT = b"ARROW1"
# Arrow's Message.fbs and Schema.fbs: positions of fields, and MessageHeader.
_HEADER_TYPE, _HEADER, _BODY_LENGTH = 1, 2, 3
_DICTIONARY, _BATCH = 2, 3
_COMPRESSION = 3
_ID, _DATA, _IS_DELTA = 0, 1, 2
_ADVICE = "write one Arrow IPC stream to stdout, and close its writer; write messages to stderr"


class Batches:
    """Record batches of a stream, in order, not validated. Iterate once.

    Args:
        chunks: the stream's bytes.
        where: the program and its range, for messages.
        most: longest body of a message.

    Attributes:
        schema: of the stream; read on entering the iteration.

    Raises:
        TransformFailed: from the iteration: not a stream, cut off, damaged, compressed, too large, or followed by more.
    """

    def __init__(self, chunks: Iterable[bytes], where: str = "", most: int = MOST_BYTES) -> None:
        self._file = _Checked(chunks, where, most)
        self.schema = pa.schema([])

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            reader = pa.ipc.open_stream(pa.PythonFile(self._file, mode="r"))
            self.schema = reader.schema
            self.schema.names  # noqa: B018  # names that are not UTF-8 raise here
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            raise self._damaged(error) from error
        while True:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                break
            except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
                raise self._damaged(error) from error
            if batch.num_rows < 0:
                raise self._file.failed(f"its Arrow stream is damaged: a record batch has {batch.num_rows} rows")
            yield batch
        self._file.finish()

    def _damaged(self, error: Exception) -> Exception:
        if self._file.broken is not None:  # the chunks' own error, which has come through Arrow
            return self._file.broken
        return self._file.failed(f"its Arrow stream is damaged: {brief(error)}")


def brief(error: BaseException) -> str:
    """Return the first line of an error of Arrow, shortened."""
    text = str(error).strip().partition("\n")[0]
    return text if len(text) <= 200 else f"{text[:200]}…"


class _Checked:
    """A file of messages, each read whole and checked before its first byte is returned."""

    closed = False

    def __init__(self, chunks: Iterable[bytes], where: str, most: int) -> None:
        self._chunks, self._where, self._most = iter(chunks), where, most
        self._rest = memoryview(b"")
        self._ready: deque[memoryview | pa.Buffer] = deque()
        self._dictionaries: dict[int, int] = {}
        self._bytes = 0
        self._ended = False
        self.broken: Exception | None = None

    def read(self, size: int) -> memoryview | pa.Buffer:
        """Return `size` bytes; Arrow requests the parts of a message one by one."""
        if not self._ready and not self._ended:
            self._next()
        if not self._ready:
            return memoryview(b"")
        part = self._ready.popleft()
        if size < len(part):
            self._ready.appendleft(part[size:])
            part = part[:size]
        return part

    def finish(self) -> None:
        """Check that nothing follows the end marker, and wait for the end of the chunks."""
        extra = len(self._rest) + sum(map(len, self._chunks))
        if not self._ended:
            raise self.failed("its Arrow stream is damaged: no end marker")
        if extra:
            raise self.failed(f"{extra:,} bytes follow the end of its Arrow stream")

    def failed(self, reason: str, hint: str = _ADVICE) -> TransformFailed:
        """Return the error for a reason."""
        return TransformFailed(f"transform{f' ({self._where})' if self._where else ''}: {reason}", hint, "work")

    def _next(self) -> None:
        start = self._bytes
        mark = self._take(4, start)
        if bytes(mark) != _CONTINUATION:
            begin = bytes(mark) + bytes(self._rest[:12])
            if start == 0 and begin.startswith(_FILE_FORMAT):
                raise self.failed("it wrote Arrow's file format: expected an IPC stream", "use the stream writer of its library")
            what = "expected an Arrow IPC stream" if start == 0 else f"byte {start:,}: expected an Arrow message"
            raise self.failed(f"{what}, found {begin!r}")
        length = bytes(self._take(4, start))
        (size,) = struct.unpack("<i", length)
        if size == 0:
            self._ended = True
            self._ready += [memoryview(_CONTINUATION), memoryview(length)]
            return
        if not 0 < size <= _MOST_HEAD_BYTES:
            most = f"expected {_MOST_HEAD_BYTES:,} at most"
            raise self.failed(f"byte {start:,}: the head of an Arrow message has {size:,} bytes: {most}")
        head = self._take(size, start)
        body = self._checked(bytes(head), start)
        self._ready += [memoryview(_CONTINUATION), memoryview(length), head]
        if body:
            self._ready.append(self._take(body, start))

    def _checked(self, head: bytes, start: int) -> int:
        """Return the length of a message's body, after checking everything that Arrow would allocate for it."""
        try:
            message = _Table.root(head)
            kind, body = message.number(_HEADER_TYPE, "<B"), message.number(_BODY_LENGTH, "<q")
            data = message.table(_HEADER) if kind in (_DICTIONARY, _BATCH) else None
            if kind == _DICTIONARY and data is not None:
                number, delta, data = data.number(_ID, "<q"), data.number(_IS_DELTA, "<B"), data.table(_DATA)
                self._dictionaries[number] = body
                if delta:
                    raise self.failed(
                        "its Arrow stream changes a dictionary by a delta: expected whole dictionaries",
                        "turn off dictionary deltas, or write plain columns",
                    )
            compressed = data is not None and data.has(_COMPRESSION)
        except (struct.error, IndexError) as error:
            raise self.failed(f"byte {start:,}: the head of an Arrow message is damaged") from error
        if compressed:
            raise self.failed("its Arrow stream is compressed: expected plain buffers", "write it without compression")
        if not 0 <= body <= self._most:
            raise self.failed(
                f"an Arrow message has a body of {body:,} bytes: expected {self._most:,} at most", "write smaller record batches"
            )
        if sum(self._dictionaries.values()) > self._most:
            raise self.failed(f"its dictionaries have more than {self._most:,} bytes", "write plain columns")
        return body

    def _take(self, size: int, start: int) -> memoryview:
        """Return the next `size` bytes of the program, in memory of their own."""
        buffer = pa.allocate_buffer(size)
        target, done = memoryview(buffer).cast("B"), 0
        while done < size:
            if not self._rest:
                try:
                    chunk = next(self._chunks, None)
                except Exception as error:
                    self.broken = error
                    raise
                if chunk is None:
                    raise self._cut(start, bytes(target[:done]))
                self._rest = memoryview(chunk)
                continue
            part = self._rest[: size - done]
            target[done : done + len(part)] = part
            self._rest = self._rest[len(part) :]
            done += len(part)
        self._bytes += size
        return target

    def _cut(self, start: int, done: bytes) -> TransformFailed:
        if self._bytes + len(done) == 0:
            return self.failed("it wrote nothing: expected an Arrow IPC stream")
        if self._bytes == 0 and not _CONTINUATION.startswith(done):
            return self.failed(f"expected an Arrow IPC stream, found {done!r}")
        if start == self._bytes and not done:
            return self.failed(f"its Arrow stream has no end marker after {start:,} bytes: it may be cut off")
        return self.failed(f"its Arrow stream is cut off: it ends inside the message at byte {start:,}")


class _Table:
    """A table of a flatbuffer: a signed offset to its vtable, which has the place of each field."""

    def __init__(self, data: bytes, place: int) -> None:
        self._data, self._place = data, place
        self._fields = place - self._read("<i", place)
        self._length = self._read("<H", self._fields)

    @classmethod
    def root(cls, data: bytes) -> _Table:
        """Return the outermost table."""
        return cls(data, struct.unpack_from("<I", data, 0)[0])

    def has(self, field: int) -> bool:
        """Return whether a field is set."""
        return self._where(field) != 0

    def number(self, field: int, code: str) -> int:
        """Return a number; 0 if the field is not set."""
        place = self._where(field)
        return self._read(code, place) if place else 0

    def table(self, field: int) -> _Table | None:
        """Return a table inside this one."""
        place = self._where(field)
        return _Table(self._data, place + self._read("<I", place)) if place else None

    def _where(self, field: int) -> int:
        slot = 4 + 2 * field
        offset = self._read("<H", self._fields + slot) if slot + 2 <= self._length else 0
        return self._place + offset if offset else 0

    def _read(self, code: str, place: int) -> int:
        if place < 0:
            raise IndexError
        number: int = struct.unpack_from(code, self._data, place)[0]
        return number
