"""Measure CPU time for each Protobuf record to Arrow columns: kpipe compiled, not compiled, and other decoders if installed.

    python -m bench.studies.protobuf [RECORDS]

Records are tweets with nested messages, text, numbers, a timestamp and a list, about 200 bytes each. `ptars` and `protarrow`
are measured if they can be imported. Google's library (upb) only creates Python objects, which is the minimum cost of every
reader that is based on it.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from google.protobuf import message_factory

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from resources.decode.block import Payloads
from resources.decode.protobuf import decoder
from resources.decode.protobuf.descriptors import Files

SCHEMA = """syntax = "proto3";
package bench;
import "google/protobuf/timestamp.proto";
message User { int64 id = 1; string name = 2; int32 followers = 3; bool verified = 4; }
message Tweet {
  int64 id = 1; google.protobuf.Timestamp at = 2; User user = 3; string text = 4; repeated string tags = 5; string lang = 6;
  int32 retweets = 7; int32 likes = 8; optional int64 reply_to = 9; double score = 10;
}
"""


def tweets(count: int) -> tuple[Any, list[bytes]]:
    """Return the message class, and so many messages."""
    kind = message_factory.GetMessageClass(Files(SCHEMA).named("bench.Tweet"))
    found = []
    for at in range(count):
        made: Any = kind(id=2**40 + at, text=f"tweet {at} " + "words and more words " * 5, tags=["kafka", "tables"], lang="en")  # type: ignore[call-arg]
        made.at.seconds, made.at.nanos = 1_700_000_000 + at, 123_456_000
        made.user.id, made.user.name, made.user.followers, made.user.verified = (
            at % 1000,
            f"user number {at % 1000}",
            at,
            at % 2 == 0,
        )
        made.retweets, made.likes, made.score = at % 50, at % 700, at / 7
        found.append(made.SerializeToString())
    return kind, found


def timed(name: str, count: int, work: Callable[[], object]) -> None:
    """Return the minimum of five runs, in CPU time."""
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    print(f"{name:40} {best / count * 1e6:8.2f} µs a record")


def main() -> None:
    """Measure all decoders, and print a line for each."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    kind, payloads = tweets(count)
    print(f"{count:,} records of {sum(map(len, payloads)) / count:.0f} bytes")
    block = Payloads.of(payloads)
    format_ = Format(type="protobuf", schema=SCHEMA, message="bench.Tweet")
    columns = decoder.ProtobufDecoder(format_, Columns()).decode(Payloads.of(payloads[:1])).new_columns
    quick = decoder.ProtobufDecoder(format_, columns)
    assert quick.decode(block).rows == count
    timed("kpipe, compiled", count, lambda: quick.decode(block))
    compiled = decoder.native_protobuf
    decoder.native_protobuf = lambda _: None
    slow = decoder.ProtobufDecoder(format_, columns)
    few = block.part(0, min(count, 5000))
    slow.decode(few)
    timed("kpipe, where there is no C compiler", len(few), lambda: slow.decode(few))
    decoder.native_protobuf = compiled
    timed("google's upb, to Python's objects", count, lambda: [kind.FromString(item) for item in payloads])
    for name in ("ptars", "protarrow"):
        try:
            other = importlib.import_module(name)
        except ImportError:
            print(f"{name:40} not installed")
            continue
        if name == "ptars":
            import pyarrow as pa

            pool = other.HandlerPool([kind.DESCRIPTOR.file])
            handler, array = pool.get_for_message(kind.DESCRIPTOR), pa.array(payloads, pa.binary())
            timed("ptars, from a list", count, lambda handler=handler: handler.list_to_record_batch(payloads))
            timed("ptars, from a column", count, lambda handler=handler, array=array: handler.array_to_record_batch(array))
        else:
            timed(name, count, lambda other=other: other.messages_to_table([kind.FromString(item) for item in payloads], kind))
    one = payloads.copy()
    one[count // 2] = b"\xff"
    spoilt = Payloads.of(one)
    timed("kpipe, with one bad record", count, lambda: quick.decode(spoilt))
    assert quick.decode(spoilt).rows == count - 1
    assert np.asarray(quick.decode(spoilt).kept).shape == (count - 1,)


if __name__ == "__main__":
    main()
