"""A record beyond the limit of its topic is named: a row by its source, the ledger by its topic."""

from __future__ import annotations

import pytest

from kpipe.errors import DestinationError, RecordRejected
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
