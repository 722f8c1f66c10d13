"""Produce at a steady rate. Each tweet contains its produce time `t`, in seconds since 1970.

    python steady.py BROKERS TOPIC PARTITIONS RATE SECONDS FIRST_ID

Prints a JSON line: number of records, seconds, and the largest lag behind the rate in records.
"""

import json
import random
import sys
import time

from confluent_kafka import Producer

_TICK_S = 0.005
_SETTINGS = {"linger.ms": 5, "acks": "1", "compression.type": "lz4", "queue.buffering.max.messages": 1_000_000}
_WORDS = ("kafka", "spark", "stream", "batch", "offset", "commit", "exactly", "once", "lake", "house", "scan", "probe")


def tails() -> list[bytes]:
    """Return the ends of 1,000 records."""
    chance = random.Random(1)
    return [
        b'"created_at": "2026-11-20T00:00:00Z", "text": "%b", "lang": "en", "user": {"id": %d, "screen_name": "user_%d",'
        b' "followers": %d}, "retweets": %d, "score": 0.%06d}'
        % (" ".join(chance.choices(_WORDS, k=16)).encode(), i, i, i, i, chance.randrange(1_000_000))
        for i in range(1000)
    ]


def main() -> None:
    brokers, topic = sys.argv[1:3]
    partitions, rate, seconds, first = map(int, sys.argv[3:])
    producer = Producer({"bootstrap.servers": brokers, **_SETTINGS})
    endings, total, done, behind = tails(), rate * seconds, 0, 0
    began = time.time()
    while done < total:
        due = min(total, int((time.time() - began) * rate))
        behind = max(behind, due - done)
        while done < due:
            number = first + done
            value = b'{"id": %d, "t": %.6f, %b' % (number, time.time(), endings[number % 1000])
            producer.produce(topic, value, partition=number % partitions)
            done += 1
            if not done % 200:
                producer.poll(0)
        producer.poll(0)
        time.sleep(_TICK_S)
    left = producer.flush(60)
    print(json.dumps({"produced": done - left, "seconds": round(time.time() - began, 2), "most_behind": behind}))


if __name__ == "__main__":
    main()
