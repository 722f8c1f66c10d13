"""x"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from kpipe.errors import KpipeError
from resources.dev_broker.broker import LocalBroker


@pytest.fixture
def family(kafka_broker: LocalBroker, topic: Any) -> Iterator[tuple[str, Callable[..., str]]]:
    """The beginning of names that nobody else has, and a way to make topics of them."""
    stem, made = topic(1), []

    def make(name: str, partitions: int = 1) -> str:
        kafka_broker.create_topic(f"{stem}.{name}", partitions)
        made.append(f"{stem}.{name}")
        return made[-1]

    yield stem, make
    for name in made:
        with suppress(KpipeError):  # the test may have deleted it
            kafka_broker.delete_topic(name)
