"""A record beyond the limit of its topic is named: a row by its source, the ledger by its topic."""

from __future__ import annotations

from typing import Any

import pytest

from kpipe.definition.source import Source
from kpipe.errors import DestinationError, RecordRejected
from resources.destinations.kafka_sink import producer
from resources.destinations.kafka_sink.cluster import Cluster
from resources.destinations.kafka_sink.producer import Writer


@pytest.mark.parametrize(
    ("topic", "error", "words"),
    [
        ("kpipe-ledger-p", DestinationError, "ledger topic kpipe-ledger-p: expected records of at most 1000 bytes, found "),
        ("out", RecordRejected, "record too large for topic out"),
    ],
)
def test_a_record_that_is_too_large(topic: str, error: type[Exception], words: str) -> None:
    writer = object.__new__(Writer)
    writer._ledger, writer._largest = "kpipe-ledger-p", {"kpipe-ledger-p": 1000, "out": 1000}
    message = {"topic": topic, "value": b"x" * 2000, "headers": [("kpipe.partition", b"0"), ("kpipe.offset", b"7")]}
    assert not writer.fits(message)
    with pytest.raises(error, match=words):
        raise writer._too_large(message)


@pytest.mark.parametrize(
    ("largest", "batch", "record"),
    [({"a": 1_048_588, "b": 20_000}, 20_000, 1_048_588), ({"a": 8_000_000}, 1_000_000, 8_000_000), ({"a": 0}, 1, 1000)],
)
def test_a_batch_fits_in_each_topic(largest: dict[str, int], batch: int, record: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers compare the limit with the batch: a topic with a low one rejected each transaction of small records."""
    found: dict[str, Any] = {}

    class Recorded:
        def __init__(self, settings: dict[str, Any]) -> None:
            found.update(settings)

        def init_transactions(self, _: float) -> None:
            pass

    monkeypatch.setattr(producer, "Producer", Recorded)
    Writer(Cluster(Source(brokers="localhost:9092", topic="a")), "kpipe-ledger-p", 60, largest)
    assert (found["batch.size"], found["message.max.bytes"]) == (batch, record)
