"""Streams of foreign programs: whole ones are read, all others are errors that name the problem."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from kpipe.errors import SourceError, TransformFailed
from resources.decode.arrow.ipc_stream import Batches

BATCH = pa.record_batch({"id": [1, 2], "tag": pa.array(["a", "b"]).dictionary_encode()})
OTHER = pa.record_batch({"id": [3], "tag": pa.array(["c"]).dictionary_encode()})


def stream(*batches: pa.RecordBatch, **options: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


DATA = stream(BATCH, OTHER)


def failure(data: bytes, **more: Any) -> str:
    with pytest.raises(TransformFailed) as raised:
        list(Batches([data] if data else [], "orders/0 [0, 2)", **more))
    assert raised.value.phase == "work"
    return raised.value.what


@pytest.mark.parametrize("size", [1, 3, 64, 1 << 20])
def test_chunks_of_any_size_are_read(size: int) -> None:
    batches = Batches([DATA[at : at + size] for at in range(0, len(DATA), size)])
    assert list(batches) == [BATCH, OTHER]
    assert batches.schema == BATCH.schema


def test_a_stream_without_batches_is_whole() -> None:
    schema = BATCH.schema.serialize().to_pybytes()
    assert list(Batches([schema + b"\xff\xff\xff\xff\0\0\0\0"])) == []


def test_every_cut_is_noticed() -> None:
    for end in range(len(DATA)):
        assert "Arrow" in failure(DATA[:end])
    assert failure(DATA[:-8]).endswith(f"its Arrow stream has no end marker after {len(DATA) - 8:,} bytes: it may be cut off")
    assert failure(DATA[:100]) == "transform (orders/0 [0, 2)): its Arrow stream is cut off: it ends inside the message at byte 0"
    assert failure(b"").endswith("it wrote nothing: expected an Arrow IPC stream")


def test_what_follows_the_end_is_an_error() -> None:
    assert failure(DATA + b"x").endswith("1 bytes follow the end of its Arrow stream")
    assert failure(DATA + DATA).endswith(f"{len(DATA):,} bytes follow the end of its Arrow stream")


@pytest.mark.parametrize("text", [b'{"id":1}\n', b"x\n", b"hello"])
def test_text_is_quoted(text: bytes) -> None:
    assert failure(text).endswith(f"expected an Arrow IPC stream, found {text!r}")


def test_text_between_messages_is_quoted() -> None:
    schema = BATCH.schema.serialize().to_pybytes()
    assert failure(schema + b"DEBUG: one\n").endswith(f"byte {len(schema)}: expected an Arrow message, found b'DEBUG: one\\n'")


def test_the_file_format_is_named() -> None:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, BATCH.schema) as writer:
        writer.write_batch(BATCH)
    assert failure(sink.getvalue()).endswith("it wrote Arrow's file format: expected an IPC stream")


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_buffers_are_refused(codec: str) -> None:
    assert failure(stream(BATCH, compression=codec)).endswith("its Arrow stream is compressed: expected plain buffers")


def test_a_long_body_is_refused_before_it_is_read() -> None:
    start = len(BATCH.schema.serialize())
    (size,) = struct.unpack_from("<i", DATA, start + 4)
    body = struct.pack("<q", pa.ipc.read_message(pa.py_buffer(DATA[start:])).body.size)
    head = DATA[start + 8 : start + 8 + size]
    assert head.count(body) == 1
    long = DATA[: start + 8] + head.replace(body, struct.pack("<q", 1 << 40))
    assert f"a body of {1 << 40:,} bytes: expected 268,435,456 at most" in failure(long)


def test_a_long_head_is_refused_before_it_is_read() -> None:
    for size in (-1, 1 << 30):
        assert f"the head of an Arrow message has {size:,} bytes" in failure(b"\xff\xff\xff\xff" + struct.pack("<i", size))


def test_dictionaries_are_replaced_and_bounded() -> None:
    wide = [pa.record_batch({"tag": pa.array([str(at) * 1000]).dictionary_encode()}) for at in range(9)]
    assert list(Batches([stream(*wide)], most=2000)) == wide  # each replaces the one before
    two = pa.record_batch({"a": wide[0].column(0), "b": wide[1].column(0)})
    assert "its dictionaries have more than 2,000 bytes" in failure(stream(two), most=2000)


def test_dictionary_deltas_are_refused() -> None:
    more = pa.record_batch({"id": [3], "tag": pa.DictionaryArray.from_arrays(pa.array([2]), ["a", "b", "c"])})
    more = more.cast(BATCH.schema)
    assert "changes a dictionary by a delta" in failure(stream(BATCH, more, emit_dictionary_deltas=True))


def test_another_schema_in_the_stream_is_an_error() -> None:
    other = pa.record_batch({"name": ["x"]})
    assert "damaged" in failure(stream(BATCH)[:-8] + stream(other))


@pytest.mark.parametrize("error", [TransformFailed("it exited with status 3"), OSError("disk"), SourceError("no broker")])
def test_errors_of_the_process_stay_what_they_are(error: Exception) -> None:
    def chunks() -> Iterator[bytes]:
        yield DATA[:300]
        raise error

    with pytest.raises(type(error)) as raised:
        list(Batches(chunks()))
    assert raised.value is error


def test_the_process_is_awaited_after_the_end() -> None:
    """Its exit status decides, even if the stream is whole."""

    def chunks() -> Iterator[bytes]:
        yield DATA
        raise TransformFailed("it exited with status 1")

    batches = iter(Batches(chunks()))
    assert [next(batches), next(batches)] == [BATCH, OTHER]
    with pytest.raises(TransformFailed, match="status 1"):
        next(batches)
