"""Measure a plain loop of the Kafka client, the upper limit: read whole partitions, touch each value, keep nothing.

    python raw_loop.py BROKERS TOPIC PARTITION[,PARTITION...]

Imports only the client, as the start counts. Prints a JSON line.
"""

import json
import resource
import sys
import time

from confluent_kafka import Consumer, TopicPartition

_SETTINGS = {
    "group.id": "bench-raw",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "fetch.queue.backoff.ms": 1,
    "queued.min.messages": 200_000,
    "queued.max.messages.kbytes": 131_072,
    "max.partition.fetch.bytes": 16 << 20,
    "check.crcs": False,
}


def main() -> None:
    brokers, topic, numbers = sys.argv[1:]
    consumer = Consumer({"bootstrap.servers": brokers, **_SETTINGS})
    began, wanted, starts = time.time(), 0, []
    for number in numbers.split(","):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, int(number)), 10)
        wanted += high - low
        starts.append(TopicPartition(topic, int(number), low))
    consumer.assign(starts)
    count = size = 0
    while count < wanted:
        messages = consumer.consume(10_000, timeout=1.0)
        for message in messages:
            size += len(message.value())
        count += len(messages)
    ended = time.time()
    consumer.close()
    used = resource.getrusage(resource.RUSAGE_SELF)
    answer = {
        "count": count,
        "bytes": size,
        "began": began,
        "ended": ended,
        "cpu_s": used.ru_utime + used.ru_stime,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
