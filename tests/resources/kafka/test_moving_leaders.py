"""Requests that a broker does not answer because it has left the cluster are sent again: another one leads the partition then."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kpipe.definition.pipeline import Source
from kpipe.errors import BrokerUnreachable, CredentialsRefused
from resources.kafka import topic_metadata
from resources.kafka.errors import LEADERLESS
from resources.kafka.rare_requests import RareRequests
from resources.kafka.topic_metadata import KafkaTopics
from tests.cases import each_case

CODES = sorted(LEADERLESS)


class Answers(Consumer):  # type: ignore[misc]
    """A client that raises these errors, one for each request, before it answers."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)

    def get_watermark_offsets(self, place: TopicPartition, timeout: float, cached: bool) -> tuple[int, int]:
        """A log from 3 to 9."""
        assert place.partition == 1 and timeout > 0 and not cached
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))
        return 3, 9


def requests(*codes: int) -> RareRequests:
    found = RareRequests({}, "orders", 1, "orders/1", ())
    found._client = Answers(*codes)
    return found


@each_case("code", CODES, ids=[KafkaError(code).name() for code in CODES])
def test_the_log_start_is_requested_again(code: int) -> None:
    assert requests(code, code).watermarks() == (3, 9)


def test_an_error_that_stays_is_raised_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resources.kafka.rare_requests._SECONDS", 0.5)
    with pytest.raises(BrokerUnreachable, match="orders/1: requesting the log start"):
        requests(*[KafkaError._DESTROY_BROKER] * 100).watermarks()


def test_other_errors_are_raised_at_once() -> None:
    began = requests(KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(CredentialsRefused):
        began.watermarks()
    assert len(began._client.codes) == 1  # type: ignore[union-attr]


def test_a_plan_waits_for_the_next_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    topics, told = KafkaTopics(Source(brokers="b:1", topic="orders")), [KafkaError._DESTROY_BROKER]

    def answer() -> Any:
        future: Future[str] = Future()
        if told:
            future.set_exception(KafkaException(KafkaError(told.pop())))
        else:
            future.set_result("settled")
        return topics._wait(future, "orders/0")

    monkeypatch.setattr(topic_metadata, "_SETTLE_SECONDS", 60)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert topics._call(answer) == "settled"
