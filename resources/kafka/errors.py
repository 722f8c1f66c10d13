"""What went wrong, in kpipe's words: librdkafka's error codes, and what a client says besides its answers."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError

from kpipe.errors import BrokerUnreachable, CredentialsRefused, ReadFailed, RecordsUnreadable, SourceError, TopicUnknown
from kpipe.terminal import plain
from resources.secrets import redact

__all__ = ["DAMAGED", "Voice", "failure", "unreachable_hint"]

_LOG = logging.getLogger("kpipe.kafka")
_REPEAT_SECONDS = 30.0
"""A client that cannot connect says so several times a second; the same line is logged again after this."""

_REFUSED = frozenset(
    {
        KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.ILLEGAL_SASL_STATE, KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.SECURITY_DISABLED, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNSUPPORTED_SASL_MECHANISM,
    }
)  # fmt: skip
_UNKNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID, KafkaError._UNKNOWN_TOPIC})
# Those of Kafka's that a client is to try again (org.apache.kafka.common.protocol.Errors: RetriableException), as far as a reader
# can meet them; and the client's own about connections.
_UNREACHABLE = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN, KafkaError._DESTROY_BROKER, KafkaError._NOENT, KafkaError._RESOLVE, KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE, KafkaError._TRANSPORT, KafkaError._WAIT_CACHE, KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.ELIGIBLE_LEADERS_NOT_AVAILABLE, KafkaError.FENCED_LEADER_EPOCH, KafkaError.FETCH_SESSION_ID_NOT_FOUND,
        KafkaError.INVALID_FETCH_SESSION_EPOCH, KafkaError.KAFKA_STORAGE_ERROR, KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.LISTENER_NOT_FOUND, KafkaError.NETWORK_EXCEPTION, KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE, KafkaError.REQUEST_TIMED_OUT, KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)  # fmt: skip
OUT_OF_RANGE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
_TOO_LARGE = frozenset({KafkaError._BAD_COMPRESSION, KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE})

_FINAL = _UNKNOWN | _TOO_LARGE | {KafkaError._UNKNOWN_PARTITION, KafkaError._BAD_MSG}

_HINTS = {
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "allow the user Describe on the cluster",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "allow the user Describe on group kpipe-stores-nothing (nothing is stored in it)",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "allow the user Describe and Read on the topic",
    KafkaError._SSL: "check source.config: security.protocol, ssl.ca.location and the port (TLS and plain ones differ)",
}
_CREDENTIALS = "check source.credentials, sasl.mechanism and security.protocol; is the variable the one that you meant?"
_RAISE_LIMIT = "raise source.config receive.message.max.bytes (the largest response, in bytes) above the largest record"
DAMAGED = (
    "run it again: it may have been the network; if it comes back, the log on the broker's disk is damaged: restore it, or"
    " move its leader to a replica"
)
_SECURE = "the broker hangs up: check security.protocol and the port (TLS, SASL and plain ones differ)"


def failure(error: KafkaError, where: str, secrets: Iterable[str] = ()) -> SourceError:
    """The error to raise for one of librdkafka's.

    Args:
        error: what the client or the broker said.
        where: topic, partition and offsets, or the brokers; opens the message.
        secrets: values to take out of the text.
    """
    code, text = error.code(), redact(error.str(), secrets)
    if code in _REFUSED:
        return CredentialsRefused(f"{where}: {text}", _HINTS.get(code, _CREDENTIALS))
    if code in _UNKNOWN:
        return TopicUnknown(f"{where}: {text}", "check the topic's name and the brokers")
    if code in _UNREACHABLE:
        return BrokerUnreachable(f"{where}: {text}", unreachable_hint(text))
    if code in OUT_OF_RANGE:
        hint = "run it again: the next plan compares the ledger with the log and says what is gone"
        return ReadFailed(f"{where}: the broker does not have these offsets any more, or not yet: {text}", hint)
    if code in _TOO_LARGE or (code == KafkaError._BAD_MSG and "receive.message.max.bytes" in text):
        return RecordsUnreadable(f"{where}: {text}", _RAISE_LIMIT)
    # Else only a damaged record batch is told so: CRC, or a size that cannot be.
    if code == KafkaError._BAD_MSG:
        return RecordsUnreadable(f"{where}: {text} ({error.name()})", DAMAGED)
    return ReadFailed(f"{where}: {text} ({error.name()})")


def unreachable_hint(text: str) -> str:
    """What to look at when a broker cannot be reached, by the client's words."""
    # Which of these librdkafka 2.x says depends on whether it reads the end of the stream or sees the hang-up first.
    if any(word in text for word in ("security.protocol", "listener", "SSL_HANDSHAKE")):
        return _SECURE
    # A broker that wants a password of a client that has none just closes the connection.
    return f"check source.brokers{'' if text else ', security.protocol'}, and that Kafka runs"


class Voice:
    """Error callback and logger of one client. Its lines go to Python's logger `kpipe.kafka`, redacted, each once.

    Authentication and TLS failures are told only here, not in the answers to requests; so are refused connections.

    Attributes:
        refused: the last authentication or TLS failure.
        last: the last error of any kind.
        aside: the last event that does not matter by itself, for want of a better explanation.
        down: whether all brokers are down, by the client's last word.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.refused: KafkaError | None = None
        self.last: KafkaError | None = None
        self.aside: KafkaError | None = None
        self.down = False
        self._secrets = tuple(secrets)
        self._said: dict[str, float] = {}

    def settings(self) -> dict[str, Any]:
        """What the client's settings need, so that it talks to this object."""
        return {"error_cb": self.hear, "logger": self}

    def log(self, level: int, form: str, *args: object) -> None:
        """Called by the client's binding as if this were a `logging.Logger`."""
        text = plain(redact(form % args, self._secrets))
        key, now = re.sub(r"\d+", "", text), time.monotonic()
        if now - self._said.get(key, -_REPEAT_SECONDS) < _REPEAT_SECONDS:
            return
        self._said[key] = now
        # What matters is raised; these lines are for who looks for the reason.
        _LOG.log(min(level, logging.INFO), "%s", text)

    def heard(self) -> None:
        """The brokers have answered: what was said before is past."""
        self.refused, self.last, self.down = None, None, False

    def explain(self) -> str:
        """The client's last word, for a message; empty when it has said nothing."""
        error = self.last or self.aside
        return redact(error.str(), self._secrets) if error is not None else ""

    def final(self, where: str) -> SourceError | None:
        """The error to raise when waiting on is of no use: credentials refused by all brokers, or the topic is gone."""
        if self.refused is not None and self.down:
            return failure(self.refused, where, self._secrets)
        if self.last is not None and self.last.code() in _FINAL:
            return failure(self.last, where, self._secrets)
        return None

    def hear(self, error: KafkaError) -> None:
        """What the client says by itself."""
        code = error.code()
        if code == KafkaError._ALL_BROKERS_DOWN:
            self.down = True
            return
        self.last = error
        if code in _REFUSED:
            self.refused = error
