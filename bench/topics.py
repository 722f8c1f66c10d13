"""Write topics to measure with: records of several shapes, equal in each run, written by several processes at once."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

from confluent_kafka import Producer

from resources.dev_broker.broker import LocalBroker

__all__ = ["COLUMNS", "SHAPES", "Topic", "fill", "retweets_sum"]

WORDS = [
    "kafka", "spark", "dagster", "duckdb", "stream", "batch", "offset", "partition", "leaf", "commit", "exactly", "once",
    "pipeline", "tweet", "data", "lake", "house", "join", "scan", "probe",
]  # fmt: skip

COLUMNS = {
    "id": "BIGINT",
    "created_at": "TIMESTAMP WITH TIME ZONE",
    "text": "VARCHAR",
    "lang": "VARCHAR",
    "user": "STRUCT(id BIGINT, screen_name VARCHAR, followers BIGINT)",
    "retweets": "BIGINT",
    "score": "DOUBLE",
}
"""Of a tweet, as kpipe is told them; bench/contenders/spark_server.py has the same in Spark's words."""

_PRODUCERS = 2
_SETTINGS = {
    "linger.ms": 50,
    "batch.num.messages": 10_000,
    "queue.buffering.max.messages": 1_000_000,
    "compression.type": "lz4",
    "enable.idempotence": True,
    "message.max.bytes": 2_000_000,  # before compression, unlike the broker's limit
}

Make = Callable[[int], bytes]


def _mixed(number: int) -> int:
    """Return a pseudorandom number (Knuth's multiplicative hash), equal in each run."""
    return number * 2_654_435_761 & 0xFFFF_FFFF


def _phrases(words: int) -> list[bytes]:
    return [" ".join(random.Random(seed).choices(WORDS, k=words)).encode() for seed in range(4096)]


def _tweets() -> Make:
    """Return tweets of 285 bytes on average. Two phrases of 7 words make 16 million texts: too many for a dictionary."""
    halves = _phrases(7)
    times = [b"2026-11-20T%02d:%02d:%02dZ" % (i // 3600, i // 60 % 60, i % 60) for i in range(86_400)]
    langs = (b"en", b"fr", b"de", b"jp")

    def make(i: int) -> bytes:
        mixed, user = _mixed(i), i % 100_003
        return (
            b'{"id": %d, "created_at": "%b", "text": "%b %b", "lang": "%b", "user": {"id": %d, "screen_name": "user_%d",'
            b' "followers": %d}, "retweets": %d, "score": 0.%016d}'
        ) % (
            i, times[i % 86_400], halves[mixed & 4095], halves[mixed >> 12 & 4095], langs[mixed >> 24 & 3], user, user,
            mixed % 100_000, (mixed >> 8) % 1000, mixed * 2_305_843,
        )  # fmt: skip

    return make


def _small() -> Make:
    """Return records of 30 bytes."""
    return lambda i: b'{"id": %d, "v": %d}' % (i, 10_000_000 + _mixed(i) % 90_000_000)


def _large() -> Make:
    """Return records of 20 kB: one long text."""
    phrases = _phrases(7)
    texts = [b" ".join(random.Random(seed).choices(phrases, k=450))[:19_950] for seed in range(256)]
    return lambda i: b'{"id": %d, "at": %d, "text": "%b"}' % (i, i * 7, texts[_mixed(i) & 255])


def _wide() -> Make:
    """Return records of 100 columns: the id, 33 integers, 33 numbers with a fraction, 33 texts."""
    words = [word.encode() for word in WORDS]
    names = [b', "i%02d": %%d, "f%02d": 0.%%09d, "s%02d": "%%b"' % (n, n, n) for n in range(33)]
    text = b'{"id": %d' + b"".join(names) + b"}"

    def make(i: int) -> bytes:
        mixed = _mixed(i)
        values: list[int | bytes] = [i]
        for n in range(33):
            mixed = _mixed(mixed + n)
            values += (mixed % 100_000, mixed % 1_000_000_000, words[mixed % len(words)])
        return text % tuple(values)

    return make


def _huge() -> Make:
    """Of 1 MB: one long text."""
    large = _large()
    return lambda i: b'{"id": %d, "text": "%b"}' % (i, b"".join(large(i * 50 + at)[-19_800:-2] for at in range(50)))


def _columns(count: int) -> Make:
    """Of so many columns, with an integer of five digits in each."""
    names = [b', "column_%04d": ' % at for at in range(1, count)]

    def make(i: int) -> bytes:
        mixed = _mixed(i)
        return b'{"id": %d%b}' % (i, b"".join([b"%b%d" % (name, (mixed >> at % 16) % 100_000) for at, name in enumerate(names)]))

    return make


def _members(count: int) -> Make:
    """Of 20 integers, which are others in each record: so many names together."""
    return lambda i: b'{"id": %d%b}' % (
        i, b"".join([b', "member_%05d": %d' % ((i * 20 + at) % count, _mixed(i + at) % 100_000) for at in range(20)])
    )  # fmt: skip


SHAPES: Mapping[str, Callable[[], Make]] = {
    "tweets": _tweets, "small": _small, "large": _large, "wide": _wide, "huge": _huge,
    "100 columns": lambda: _columns(100), "300 columns": lambda: _columns(300), "1000 columns": lambda: _columns(1000),
    "2000 members": lambda: _members(2000),
}  # fmt: skip


@dataclass(frozen=True)
class Topic:
    """A topic and what is in it.

    Attributes:
        name: of the topic.
        shape: which of SHAPES.
        records: with ids 0 to records - 1.
        partitions: in it.
        skew: share of the records that partition 0 holds; None: the same for all.
        header_bytes: of each record's header; 0: it has none.
        value_bytes: of all values.
    """

    name: str
    shape: str
    records: int
    partitions: int
    skew: float | None = None
    header_bytes: int = 0
    value_bytes: int = field(default=0, compare=False)


def fill(broker: LocalBroker, topic: Topic) -> Topic:
    """Create the topic and write it; return it with the bytes written."""
    broker.create_topic(topic.name, topic.partitions, {"retention.ms": "-1"})
    brokers = str(broker.status().brokers)
    # Spawned: a forked process would inherit the threads' locks of whatever clients this one has.
    with multiprocessing.get_context("spawn").Pool(_PRODUCERS) as pool:  # leaving it ends them
        written = sum(pool.map(_produce, [(brokers, topic, worker) for worker in range(_PRODUCERS)], chunksize=1))
    return Topic(**{**asdict(topic), "value_bytes": written})


def _produce(order: tuple[str, Topic, int]) -> int:
    brokers, topic, worker = order
    make, place, parts = SHAPES[topic.shape](), _placed(topic), topic.partitions
    producer = Producer({"bootstrap.servers": brokers, **_SETTINGS})
    written = 0
    headers = [("header", random.Random(0).randbytes(topic.header_bytes))] if topic.header_bytes else None
    for i in range(worker, topic.records, _PRODUCERS):
        value = make(i)
        written += len(value)
        while True:
            try:
                partition = i % parts if place is None else place(i)
                producer.produce(topic.name, value, b"%d" % (i % 100_003), partition, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
        if i % 5000 == worker:
            producer.poll(0)
    left = producer.flush(120)
    if left:
        msg = f"{topic.name}: {left} records were not written"
        raise RuntimeError(msg)
    return written


def _placed(topic: Topic) -> Callable[[int], int] | None:
    if topic.skew is None:
        return None
    first, others = int(topic.skew * 1000), topic.partitions - 1
    return lambda i: 0 if i // 2 % 1000 < first else 1 + i % others


def retweets_sum(records: int) -> int:
    """Return the sum of the column `retweets` of that many tweets."""
    return sum((_mixed(i) >> 8) % 1000 for i in range(records))
