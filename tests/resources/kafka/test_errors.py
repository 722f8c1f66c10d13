"""What a run makes of an error of Kafka's: another try, or the end."""

from __future__ import annotations

from confluent_kafka import KafkaError

from resources.kafka.errors import LEADERLESS, failure
from tests.cases import each_case

# Another leader, a broker that comes back, a quota: met by readers, and over after a while.
PASSING = sorted(
    LEADERLESS
    | {KafkaError.FETCH_SESSION_ID_NOT_FOUND, KafkaError.LISTENER_NOT_FOUND, KafkaError.THROTTLING_QUOTA_EXCEEDED}
    | {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.PREFERRED_LEADER_NOT_AVAILABLE}
)


@each_case("code", PASSING, ids=[KafkaError(code).name() for code in PASSING])
def test_what_passes_is_tried_again(code: int) -> None:
    """A run ended once with FENCED_LEADER_EPOCH: leaders had moved for longer than a plan waits for them."""
    error = failure(KafkaError(code), "orders/0")
    assert error.retriable and "orders/0" in str(error)


@each_case(
    "code", [KafkaError._AUTHENTICATION, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_ID, KafkaError._BAD_MSG]
)
def test_what_does_not_is_told(code: int) -> None:
    assert not failure(KafkaError(code), "orders/0").retriable


@each_case(
    "text",
    [
        "ssl://b:1/bootstrap: SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener?",
        "ssl://b:1/bootstrap: Disconnected: SSL connection closed by peer (after 2ms in state SSL_HANDSHAKE)",
        "b:1/bootstrap: Disconnected while requesting ApiVersion: might be caused by incorrect security.protocol configuration",
    ],
)
def test_a_port_of_another_protocol(text: str) -> None:
    """librdkafka has several words for it; which one comes depends on when it sees that the broker hung up."""
    assert "security.protocol" in (failure(KafkaError(KafkaError._TRANSPORT, text), "b:1").hint or "")
