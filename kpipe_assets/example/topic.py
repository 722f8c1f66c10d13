"""Fill the demo's topic in transactions: all but one of them commit."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaError, Message, Producer

from kpipe.errors import KpipeError
from kpipe_assets.example.tweets import PARTITIONS, tweet

__all__ = ["ABORTED", "offsets_of", "produce"]

# Records of the aborted transaction: they have offsets, and a read_committed consumer never returns them.
ABORTED = 400
_TRANSACTION = 20_000


def offsets_of(records: int) -> int:
    """Return the number of offsets of a topic with this many tweets, including control records and aborted ones."""
    transactions = -(-records // _TRANSACTION) + 1
    return records + ABORTED + transactions * PARTITIONS


def produce(brokers: str, topic: str, records: int, done: Callable[[int], None], stopped: Callable[[], bool]) -> None:
    """Write tweets in transactions of 20,000, and one aborted transaction in the middle.

    Args:
        brokers: `host:port`.
        topic: the topic, with as many partitions as the tweets have.
        records: number of tweets.
        done: called with the number written so far.
        stopped: whether to end early; a transaction that is open is then aborted.

    Raises:
        KpipeError: a record was rejected.
    """
    settings: dict[str, object] = {
        "bootstrap.servers": brokers,
        "linger.ms": 20,
        "compression.type": "lz4",
        "enable.idempotence": True,
        "partitioner": "consistent",
        "log_level": 0,
        "transactional.id": f"kpipe-demo-{topic}",
    }
    producer = Producer(settings)
    refused: list[str] = []

    def heard(error: KafkaError | None, _: Message) -> None:
        if error is not None and error.code() != KafkaError._PURGE_QUEUE:
            refused.append(error.str())

    def write(numbers: range) -> None:
        for number in numbers:
            item = tweet(number)
            while True:
                try:
                    producer.produce(
                        topic, item.value, item.key, item.partition, heard, timestamp=item.timestamp_ms, headers=item.headers
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            if not number % 1000:
                producer.poll(0)
                if stopped():
                    return

    producer.init_transactions(30)
    for start in range(0, records, _TRANSACTION):
        producer.begin_transaction()
        write(range(start, min(start + _TRANSACTION, records)))
        if stopped():
            producer.abort_transaction(30)
            return
        producer.commit_transaction(30)
        if start == 0:
            producer.begin_transaction()
            write(range(ABORTED))
            producer.flush(30)  # they are in the log before they are aborted
            producer.abort_transaction(30)
        done(min(start + _TRANSACTION, records))
    if producer.flush(30) or refused:
        raise KpipeError(f"topic {topic}: records were not written: {refused[0] if refused else 'no answer'}", "run it again")
