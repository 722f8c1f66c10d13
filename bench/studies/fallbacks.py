"""Measure the decoders of payloads that compiled code does not support: `python -m bench.studies.fallbacks [RECORDS]`.

Prints CPU time for each record. JSON: with and without Arrow's reader between the compiled reader and the Python decoder. Avro:
compiled, one by one, and by fastavro and Arrow. `KPIPE_NATIVE=0` measures JSON without compiled code.
"""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa

from bench.topics import COLUMNS, SHAPES
from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from resources.decode.avro import decoder as avro
from resources.decode.block import Payloads
from resources.decode.json.decoder import JsonDecoder

_ROUNDS = 5
_SCHEMA = {"type": "record", "name": "Tweet", "fields": [
    {"name": "id", "type": "long"}, {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "user", "type": {"type": "record", "name": "User", "fields": [
        {"name": "id", "type": "long"}, {"name": "name", "type": "string"}, {"name": "verified", "type": "boolean"}]}},
    {"name": "text", "type": "string"}, {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "lang", "type": ["null", "string"]}, {"name": "retweets", "type": "int"}, {"name": "score", "type": "double"},
]}  # fmt: skip


class _WithoutArrow(JsonDecoder):
    """The JSON decoder without its middle tier."""

    def __init__(self, columns: Columns) -> None:
        super().__init__(columns)
        self._blockwise = False


def compare(case: str, count: int, ways: dict[str, Callable[[], object]]) -> None:
    """Print the best and the worst of some alternating rounds."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_ROUNDS):
        for name, work in ways.items():
            began = time.process_time()
            work()
            found[name].append((time.process_time() - began) / count * 1e6)
    for name, times in found.items():
        print(f"{case:44} {name:22} {min(times):8.2f} to {max(times):8.2f} µs a record", flush=True)


def measure_json(count: int) -> None:
    """Measure blocks that the compiled reader decodes, and blocks that it rejects."""
    make = SHAPES["tweets"]()
    tweets = [make(at) for at in range(count)]
    bad = [tweets[0].replace(b"-11-", b"-13-"), *tweets[1:]]
    fewer = {name: kind for name, kind in COLUMNS.items() if name not in ("lang", "retweets")}
    cases: dict[str, tuple[dict[str, str], list[bytes]]] = {
        "JSON, every member has a column": (COLUMNS, tweets),
        "JSON, 2 members without a column": (fewer, tweets),
        "JSON, no columns yet": ({}, tweets),
        "JSON, 1 bad timestamp in the block": (COLUMNS, bad),
    }
    for case, (columns, payloads) in cases.items():
        kinds = Columns.of(columns)
        now, without = JsonDecoder(kinds), _WithoutArrow(kinds)
        compare(case, count, {
            "with Arrow's reader": lambda payloads=payloads, now=now: now.decode(Payloads.of(payloads)),
            "without": lambda payloads=payloads, without=without: without.decode(Payloads.of(payloads)),
        })  # fmt: skip


def measure_avro(count: int) -> None:
    """Measure records of one schema, all of them valid."""
    schema: Any = fastavro.parse_schema(_SCHEMA)
    data = []
    for at in range(count):
        user = {"id": at % 1000, "name": f"user number {at % 1000}", "verified": at % 2 == 0}
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, {
            "id": 2**40 + at, "at": 1_700_000_000_000_000 + at, "user": user,
            "text": f"tweet {at} " + "words and more words " * 5,
            "tags": ["kafka", "tables"], "lang": "en", "retweets": at % 50, "score": at / 7,
        })  # fmt: skip
        data.append(out.getvalue())
    block, kind = Payloads.of(data), Format(type="avro", schema=json.dumps(_SCHEMA))
    columns = avro.AvroDecoder(kind, Columns()).decode(block.part(0, 1)).new_columns
    quick, native = avro.AvroDecoder(kind, columns), avro.native_avro
    quick.decode(block.part(0, 1))
    avro.native_avro = lambda _: None  # type: ignore[assignment]
    slow = avro.AvroDecoder(kind, columns)
    slow.decode(block.part(0, 1))
    avro.native_avro = native
    compare("Avro", count, {
        "compiled": lambda: quick.decode(block),
        "one by one": lambda: slow.decode(block),
        "fastavro and Arrow": lambda: pa.Table.from_pylist([
            fastavro.schemaless_reader(io.BytesIO(item), schema, None) for item in data
        ]),
    })  # fmt: skip


if __name__ == "__main__":
    measure_json(int(sys.argv[1]) if len(sys.argv) > 1 else 16_384)
    measure_avro(int(sys.argv[1]) if len(sys.argv) > 1 else 16_384)
