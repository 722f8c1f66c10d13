"""Dead letters of a database in a topic: each exactly once, whatever ends, overtakes or fails the producer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kpipe import failpoints
from kpipe.batch.dead_letter_page import StoredLetter
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import DestinationError
from resources.destinations.dead_letter_topic import LetterTopic, Written, publisher
from resources.dev_broker.broker import LocalBroker
from resources.testing.place import batch, begin
from tests.resources.destinations.kafka_place import read_all
from tests.resources.destinations.place import DuckDBPlace

BAD = {(0, 2), (0, 3), (0, 7), (1, 0), (1, 4)}


class Letters:
    """A pipeline with dead letters of its own, and the topic that they are written to."""

    def __init__(self, folder: Path, brokers: str, topic: str, name: str) -> None:
        self.place, self.brokers, self.topic, self.name = DuckDBPlace(folder), brokers, topic, name
        self.destination: Any = self.place.open(name)
        self.destination.commit(begin(name, (0, 1)))

    def read(self, ends: dict[int, int]) -> None:
        """Commit a batch up to these ends."""
        self.destination.commit(batch(self.place, self.destination.ledger()[1], ends, dead=BAD))

    def open(self, topic: str = "") -> LetterTopic:
        fields = {
            "name": self.name,
            "source": {"brokers": self.brokers, "topic": "tweets"},
            "errors": {"topic": topic or self.topic},
            "into": {"table": "tweets"},
        }
        return LetterTopic(Pipeline.model_validate(fields), self.destination, self.destination.ledger()[0])

    def found(self, topic: str = "") -> list[tuple[int, int]]:
        """Return partition and offset of each record, as a consumer of committed records sees them."""
        records = read_all(self.brokers, topic or self.topic)
        return sorted(tuple(int(dict(m.headers())[f"kpipe.{name}"]) for name in ("partition", "offset")) for m in records)


@pytest.fixture
def letters(tmp_path: Path, brokers: str, topic: Callable[..., str], kafka_broker: LocalBroker) -> Iterator[Letters]:
    name = topic(1)
    made = Letters(tmp_path, brokers, name, name.replace("-", "_"))
    yield made
    failpoints.arm(None)
    kafka_broker.delete_topic(f"__kpipe-dead-letters-{made.name}")


def test_each_dead_letter_is_written_once(letters: Letters) -> None:
    letters.read({0: 5, 1: 3})
    first = letters.open()
    assert first.written() == Written(0, 3)
    assert first.publish() == 3 and first.publish() == 3
    letters.read({0: 10, 1: 6})
    assert first.written() == Written(3, 2)
    second = letters.open()
    assert second.publish() == 5  # another run, which fences the first
    letters.read({0: 12})
    assert first.publish() == 5
    assert letters.found() == sorted(BAD)
    assert first.written() == Written(5, 0)
    first.close()
    second.close()


def test_the_record_is_unchanged_and_headers_say_what_failed(letters: Letters) -> None:
    letters.read({0: 3})
    letters.open().publish()
    (stored,) = letters.destination.letter_page(None, 10, 1 << 20)
    (found,) = read_all(letters.brokers, letters.topic)
    headers = found.headers()
    assert (found.key(), found.value()) == (stored.key, stored.value)
    assert headers[: len(stored.headers)] == list(stored.headers) and stored.headers
    said = {name: (value or b"").decode() for name, value in headers[len(stored.headers) :]}
    connect = {
        name.removeprefix("__connect.errors."): text for name, text in said.items() if name.startswith("__connect.errors.")
    }
    assert connect == {
        "topic": "tweets", "partition": "0", "offset": "2", "connector.name": letters.name, "stage": "VALUE_CONVERTER",
        "exception.class.name": "kpipe.errors.RecordRejected", "exception.message": stored.reason,
    }  # fmt: skip
    own = {name.removeprefix("kpipe."): text for name, text in said.items() if name.startswith("kpipe.")}
    assert own == {
        "kind": "dead_letter", "pipeline": letters.name, "batch": stored.mark.batch, "topic": "tweets", "partition": "0",
        "offset": "2", "timestamp_us": str(stored.timestamp_us), "stage": "parse", "reason": stored.reason,
    }  # fmt: skip


@pytest.mark.parametrize("point", failpoints.LETTERS)
def test_a_producer_that_ends_in_its_transaction_repeats_nothing(letters: Letters, point: str) -> None:
    """It is left as a killed process leaves it: with an open transaction, or a committed one that no run has recorded."""
    letters.read({0: 5, 1: 3})
    kept = letters.open()
    failpoints.arm(failpoints.Fault(f"{point}:1:raise"))
    kept.close = lambda: None  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        kept.publish()
    failpoints.arm(None)
    letters.read({0: 10, 1: 6})
    after = letters.open()
    assert after.publish() == 5
    assert letters.found() == sorted(BAD)
    after.close()


def test_many_dead_letters_take_several_transactions(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "_MOST", 2)
    letters.read({0: 10, 1: 6})
    pages: list[Sequence[StoredLetter]] = []
    read = letters.destination.letter_page
    letters.destination.letter_page = lambda *given: pages.append(read(*given)) or pages[-1]
    failpoints.arm(failpoints.Fault("letters.before:2:raise"))
    with pytest.raises(RuntimeError):
        letters.open().publish()
    failpoints.arm(None)
    assert letters.open().written() == Written(2, 3)
    assert letters.open().publish() == 5
    assert letters.found() == sorted(BAD) and max(map(len, pages)) == 2


def test_another_topic_and_a_recreated_one_receive_all(
    letters: Letters, topic: Callable[..., str], kafka_broker: LocalBroker
) -> None:
    letters.read({0: 5, 1: 3})
    made, other = letters.open(), topic(1)
    made.publish()
    assert letters.open(other).publish() == 3 and letters.found(other) == letters.found()
    kafka_broker.delete_topic(letters.topic)
    assert made.publish() == 3  # kpipe has created it again
    assert letters.found() == [(0, 2), (0, 3), (1, 0)]
    made.close()


def test_a_dead_letter_that_is_too_large_waits_with_the_later_ones(letters: Letters, kafka_broker: LocalBroker) -> None:
    letters.read({0: 5})
    kafka_broker.delete_topic(letters.topic)
    kafka_broker.create_topic(letters.topic, 1, {"max.message.bytes": "800"})
    letters.place.sql("UPDATE kpipe_errors SET load_data_line = repeat('x', 900)::BLOB WHERE \"offset\" = 3")
    letters.read({0: 10})
    with pytest.raises(
        DestinationError, match=r"the dead letter of tweets/0 offset 3 is larger than max\.message\.bytes"
    ) as error:
        letters.open().publish()
    assert "max.message.bytes=" in error.value.hint and "--retry" in error.value.hint
    assert letters.found() == [(0, 2)] and letters.open().written() == Written(1, 2)
    letters.place.sql('DELETE FROM kpipe_errors WHERE "offset" = 3')  # as --retry does
    assert letters.open().publish() == 2 and letters.found() == [(0, 2), (0, 7)]


def test_a_topic_that_loses_dead_letters_or_another_copy_of_the_ledger_is_refused(
    letters: Letters, topic: Callable[..., str]
) -> None:
    letters.read({0: 5})
    with pytest.raises(DestinationError, match=r"it is compacted, which would delete dead letters"):
        letters.open(topic(1, **{"cleanup.policy": "compact"})).publish()
    letters.open().publish()
    letters.place.sql("DELETE FROM kpipe_commits WHERE seq = (SELECT max(seq) FROM kpipe_commits)")
    with pytest.raises(DestinationError, match=r"the ledger lacks batch \w+, whose dead letters are in the topic") as error:
        letters.open().publish()
    assert "another errors.topic" in error.value.hint
