"""Measure how fast one Python process reads a partition: the raw client's loop against kpipe's bounded reader.

    .venv/bin/python bench/studies/reader.py [--brokers HOST:PORT] [--records 2000000]

Without --brokers a local Kafka is started in a temporary folder and stopped afterwards. Prints figures, checks none.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kpipe.definition.pipeline import Source
from kpipe.offsets import Range
from resources.dev_broker.broker import LocalBroker
from resources.kafka import range_reader
from resources.kafka.client_config import client_config
from resources.kafka.topic_metadata import KafkaTopics

SIZE = 286
LIBRDKAFKA = {
    "queued.max.messages.kbytes": 65536,
    "fetch.queue.backoff.ms": 1000,
    "fetch.wait.max.ms": 500,
    "fetch.message.max.bytes": 1_048_576,
}


@contextmanager
def some_kafka(given: str | None) -> Iterator[str]:
    if given:
        yield given
        return
    with tempfile.TemporaryDirectory() as folder:
        broker = LocalBroker(Path(folder) / "broker")
        try:
            yield str(broker.start().brokers)
        finally:
            broker.stop()


def fill(brokers: str, records: int) -> str:
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer(
        {"bootstrap.servers": brokers, "linger.ms": 20, "batch.size": 500_000, "queue.buffering.max.messages": 1_000_000}
    )
    values = [json.dumps({"id": at, "text": "t" * 220}).encode().ljust(SIZE)[:SIZE] for at in range(1000)]
    for at in range(records):
        while True:
            try:
                producer.produce(topic, values[at % 1000], partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    return topic


def raw(config: dict[str, Any], topic: str, records: int, take: int) -> None:
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, 0, 0)])
    got = 0
    while got < records:
        got += len(consumer.consume(take, 0.2))
    consumer.close()


def bounded(config: dict[str, Any], topic: str, records: int, take: int) -> None:
    range_reader.BLOCK_RECORDS = take
    with range_reader.RangeReader(config, topic, 0, Range(0, records)) as ranges:
        for _ in ranges.blocks():
            pass


def measure(brokers: str, topic: str, records: int, how: str, take: int, settings: dict[str, int]) -> None:
    """Measure in a separate process: the largest memory is per process."""
    config = client_config(Source(brokers=brokers, topic=topic, config=settings), {})
    before, cpu = time.perf_counter(), time.process_time()
    {"raw": raw, "reader": bounded}[how](config, topic, records, take)
    wall, cpu = time.perf_counter() - before, time.process_time() - cpu
    print(
        f"{how:7} take={take:<6} {json.dumps(settings):131} {records / wall / 1e6:5.2f} M records/s"
        f" {records * SIZE / wall / 1e6:5.0f} MB/s  cpu {cpu / records * 1e6:4.2f} s per M  memory {_peak()}",
        flush=True,
    )


def _peak() -> str:
    """Return the largest memory of this process; getrusage would include that of its parent."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return f"{int(line.split()[1]) >> 10} MB"
    return "unknown"


def small(brokers: str, topic: str, records: int) -> None:
    config = client_config(Source(brokers=brokers, topic=topic), {})

    def each(name: str, call: Any) -> None:
        times = []
        for _ in range(30):
            began = time.perf_counter()
            call()
            times.append((time.perf_counter() - began) * 1000)
        print(f"{name:44} median {sorted(times)[15]:6.1f} ms, worst {max(times):6.1f} ms", flush=True)

    def one(at: int) -> None:
        with range_reader.RangeReader(config, topic, 0, Range(at, at + 1)) as ranges:
            list(ranges.blocks())

    def early() -> None:
        with range_reader.RangeReader(config, topic, 0, Range(0, records)) as ranges:
            next(ranges.blocks())

    def client() -> None:
        Consumer(config).close()

    topics = KafkaTopics(Source(brokers=brokers, topic=topic))
    each("client made and closed", client)
    each("range of one record, whole", lambda: one(records // 2))
    each("range of one record, the last of the log", lambda: one(records - 1))
    each("first block of a long range, then left", early)
    each("snapshot", topics.snapshot)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure(*json.loads(options.one))
        return
    with some_kafka(options.brokers) as brokers:
        topic = fill(brokers, options.records)
        for how, take, settings in (
            ("raw", 2000, LIBRDKAFKA),
            ("raw", 2000, {}),
            ("reader", 500, {}),
            ("reader", 2000, {}),
            ("reader", 10_000, {}),
            ("reader", 500, LIBRDKAFKA),
            ("reader", 500, {"queued.max.messages.kbytes": 4096}),
            ("reader", 500, {"queued.max.messages.kbytes": 65536}),
            ("reader", 500, {"fetch.message.max.bytes": 1_048_576}),
        ):
            one = json.dumps([brokers, topic, options.records, how, take, settings])
            subprocess.run([sys.executable, __file__, "--one", one], check=True)
        small(brokers, topic, options.records)


if __name__ == "__main__":
    main()
