"""Load a topic into a Delta table as an afternoon's script does: confluent-kafka, PyArrow's JSON reader, deltalake.

    python delta_script.py BROKERS TOPIC TABLE

Offsets are in the metadata of each commit, so one process at a time is exactly once. Rows that cannot be parsed end it.
Prints a JSON line.
"""

import io
import json
import resource
import sys
import time

import pyarrow as pa
import pyarrow.json
from confluent_kafka import Consumer, TopicPartition
from deltalake import CommitProperties, DeltaTable, write_deltalake

_ROWS = 500_000
_SETTINGS = {
    "group.id": "bench-script",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "fetch.queue.backoff.ms": 1,
    "queued.min.messages": 200_000,
    "queued.max.messages.kbytes": 131_072,
    "max.partition.fetch.bytes": 16 << 20,
}
_USER = pa.struct([("id", pa.int64()), ("screen_name", pa.string()), ("followers", pa.int64())])
_SCHEMA = pa.schema(
    [
        ("id", pa.int64()), ("created_at", pa.timestamp("us", "UTC")), ("text", pa.string()), ("lang", pa.string()),
        ("user", _USER), ("retweets", pa.int64()), ("score", pa.float64()),
    ]
)  # fmt: skip
_PARSE = pyarrow.json.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore")
_READ = pyarrow.json.ReadOptions(block_size=16 << 20)


def _committed(table: str) -> dict[str, int]:
    if not DeltaTable.is_deltatable(table):
        return {}
    return dict(json.loads(DeltaTable(table).history(1)[0]["offsets"]))


def main() -> None:
    brokers, topic, table = sys.argv[1:]
    began = time.time()
    consumer = Consumer({"bootstrap.servers": brokers, **_SETTINGS})
    offsets, ends = _committed(table), {}
    for number in consumer.list_topics(topic, 10).topics[topic].partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), 10)
        offsets.setdefault(str(number), low)
        ends[str(number)] = high
    consumer.assign([TopicPartition(topic, int(number), offset) for number, offset in offsets.items()])
    parts: list[pa.Table] = []
    while True:
        messages = consumer.consume(10_000, timeout=0.2)
        if messages:
            lines = []
            for message in messages:
                if message.error():
                    raise SystemExit(str(message.error()))
                lines.append(message.value())
                offsets[str(message.partition())] = message.offset() + 1
            parts.append(pyarrow.json.read_json(io.BytesIO(b"\n".join(lines)), _READ, _PARSE))
        done = all(offsets[number] >= end for number, end in ends.items())
        if sum(map(len, parts)) >= _ROWS or (done and parts):
            properties = CommitProperties(custom_metadata={"offsets": json.dumps(offsets)})
            write_deltalake(table, pa.concat_tables(parts), mode="append", commit_properties=properties)
            parts = []
        if done:
            break
    ended = time.time()
    consumer.close()
    used = resource.getrusage(resource.RUSAGE_SELF)
    answer = {"seconds": ended - began, "cpu_s": used.ru_utime + used.ru_stime}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
