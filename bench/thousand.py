"""The 1,000 small records that a command or a click in the UI loads, and the pipeline that loads them."""

from __future__ import annotations

from confluent_kafka import Producer

from kpipe.definition.pipeline import Into, Pipeline, Source

__all__ = ["PARTITIONS", "RECORDS", "definition", "produce"]

RECORDS, PARTITIONS = 1000, 4


def definition(name: str, brokers: str, topic: str) -> Pipeline:
    """Return a pipeline of that name, into a table of its name in DuckDB."""
    columns = {"id": "BIGINT", "text": "VARCHAR", "lang": "VARCHAR"}
    return Pipeline(name=name, source=Source(brokers=brokers, topic=topic), columns=columns, into=Into(table=name))


def produce(brokers: str, topic: str) -> None:
    """Write the records."""
    producer = Producer({"bootstrap.servers": brokers})
    for number in range(RECORDS):
        value = b'{"id": %d, "text": "some words of a record", "lang": "en"}' % number
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(60) == 0
