"""Convert librdkafka's error codes to kpipe's errors, and collect the errors that a client reports by callback."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError

from kpipe.errors import (
    BrokerUnreachable,
    CredentialsRefused,
    KpipeError,
    ReadFailed,
    RecordsUnreadable,
    SourceError,
    TopicUnknown,
)
from kpipe.terminal import plain
from resources.kafka.token_source import SETTING, TokenSource
from resources.secrets import redact

__all__ = ["DAMAGED", "LEADERLESS", "Voice", "failure", "reason", "unreachable_hint"]

_LOG = logging.getLogger("kpipe.kafka")
_SETTLE_SECONDS = 3.0  # until a client has reported what happened before it got a new token
_REPEAT_SECONDS = 30.0
"""A client that cannot connect logs that several times a second; a line is repeated after this time only."""

_REFUSED = frozenset(
    {
        KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.ILLEGAL_SASL_STATE, KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.SECURITY_DISABLED, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNSUPPORTED_SASL_MECHANISM,
    }
)  # fmt: skip
_LOGIN = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED})
_UNKNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID, KafkaError._UNKNOWN_TOPIC})
# Retriable errors of Kafka (org.apache.kafka.common.protocol.Errors: RetriableException) that a reader can receive, and
# the client's own connection errors.
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
#: A leader moves; another request reaches the next one. FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH: client and broker have
#: different leader epochs (KIP-320). _DESTROY_BROKER: the broker has left the metadata of the cluster (librdkafka 2.10, #4557).
LEADERLESS = frozenset(
    {
        KafkaError._DESTROY_BROKER, KafkaError._NOENT, KafkaError.FENCED_LEADER_EPOCH, KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.REPLICA_NOT_AVAILABLE, KafkaError.UNKNOWN_LEADER_EPOCH,
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
_CREDENTIALS = "check source.credentials and its variables, sasl.mechanism and security.protocol"
_RAISE_LIMIT = "raise source.config receive.message.max.bytes (the largest response, in bytes) above the largest record"
DAMAGED = (
    "run it again: the network may have failed; if it fails again, the log on the broker's disk is damaged: restore it, or"
    " move its leader to a replica"
)
_SECURE = "the broker closes the connection: check security.protocol and the port (TLS, SASL and plain ones differ)"


def failure(error: KafkaError, where: str, secrets: Iterable[str] = ()) -> SourceError:
    """Convert one of librdkafka's errors to the error to raise.

    Args:
        error: of the client or the broker.
        where: topic, partition and offsets, or the brokers; the message begins with it.
        secrets: values to mask in the text.
    """
    code, text = error.code(), redact(error.str(), secrets)
    if code in _REFUSED:
        return CredentialsRefused(f"{where}: {text}", _HINTS.get(code, _CREDENTIALS))
    if code in _UNKNOWN:
        return TopicUnknown(f"{where}: {text}", "check the topic's name and the brokers")
    if code in _UNREACHABLE:
        return BrokerUnreachable(f"{where}: {text}", unreachable_hint(text))
    if code in OUT_OF_RANGE:
        hint = "run it again: the next plan compares the ledger with the log and reports missing offsets"
        return ReadFailed(f"{where}: the broker does not have these offsets any more, or not yet: {text}", hint)
    if code in _TOO_LARGE or (code == KafkaError._BAD_MSG and "receive.message.max.bytes" in text):
        return RecordsUnreadable(f"{where}: {text}", _RAISE_LIMIT)
    # Otherwise, this code means a damaged record batch: a wrong CRC, or an impossible size.
    if code == KafkaError._BAD_MSG:
        return RecordsUnreadable(f"{where}: {text} ({error.name()})", DAMAGED)
    return ReadFailed(f"{where}: {text} ({error.name()})")


# Words of librdkafka's texts about connections (rd_kafka_broker_fail, rd_getaddrinfo), with a plain reason.
_REASONS = {
    "onnection refused": "connection refused: no program listens on that port",
    "ailed to resolve": "the host name does not resolve",
    "o route to host": "no route to the host",
    "etwork is unreachable": "no route to the host",
    "onnection setup timed out": "the host does not answer on that port",
}


def reason(text: str) -> str:
    """Return why a broker cannot be reached, selected by the client's text; that text, if no reason is known."""
    return next((reason for words, reason in _REASONS.items() if words in text), text)


def unreachable_hint(text: str) -> str:
    """Return a hint for a broker that cannot be reached, selected by the client's text."""
    # librdkafka 2.x reports one of these, depending on whether it reads the end of the stream or the closed connection first.
    if any(word in text for word in ("security.protocol", "listener", "SSL_HANDSHAKE", "SASL state")):
        return _SECURE
    # A broker that requires a password closes the connection of a client without one.
    return f"check source.brokers{'' if text else ', security.protocol'}, and that Kafka runs and can be reached from here"


class Voice:
    """Error callback and logger of one client. Log lines go to Python's logger `kpipe.kafka`, redacted, without repetitions.

    Authentication failures, TLS failures and refused connections are reported only here, not in responses to requests.

    Attributes:
        refused: the last authentication or TLS failure.
        last: the last error of any kind.
        unauthenticated: why there is no token for SASL/OAUTHBEARER; None: there is one, or none is needed.
        renewed_at: when the client got its current token, in seconds (monotonic); None: it needs none.
        aside: the last event that is harmless by itself, used for lack of a better explanation.
        down: whether all brokers are down, as far as the client has reported.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.refused: KafkaError | None = None
        self.last: KafkaError | None = None
        self.renewed_at: float | None = None
        self.unauthenticated: KpipeError | None = None
        self.aside: KafkaError | None = None
        self.down = False
        self._secrets = tuple(secrets)
        self._said: dict[str, float] = {}

    def settings(self) -> dict[str, Any]:
        """Return the settings that register this object with a client."""
        return {"error_cb": self.hear, "logger": self}

    def connecting(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings for a new client of confluent-kafka, which has a token if it needs one.

        Raises:
            KpipeError: no token could be obtained; see `TokenSource.token`.
        """
        source = config.get(SETTING)
        if source is None:
            return {**config, **self.settings()}
        source.token()  # its errors are clearer than a client's, which waits ten seconds for a token
        return {**config, **self.settings(), SETTING: partial(self.renewed, source)}

    def renewed(self, source: TokenSource, _config: str = "") -> tuple[str, float, str, dict[str, str]]:
        """Return a token, as confluent-kafka takes it, and note if that fails; raises as `TokenSource.token`."""
        try:
            token = source()
        except KpipeError as error:
            self.renewal(error)
            raise
        self.renewal(None)
        return token

    def renewal(self, failed: KpipeError | None) -> None:
        """Note that the client has got a token, or why not."""
        self.unauthenticated = failed
        if failed is None:
            self.renewed_at = time.monotonic()

    def log(self, level: int, form: str, *args: object) -> None:
        """Log a line of the client, which calls this as if it were a `logging.Logger`."""
        text = plain(redact(form % args, self._secrets))
        key, now = re.sub(r"\d+", "", text), time.monotonic()
        if now - self._said.get(key, -_REPEAT_SECONDS) < _REPEAT_SECONDS:
            return
        self._said[key] = now
        # Errors that matter are raised; these lines help to find their cause.
        _LOG.log(min(level, logging.INFO), "%s", text)

    def heard(self) -> None:
        """Forget earlier errors, as the brokers have answered."""
        self.refused, self.last, self.down = None, None, False

    def explain(self) -> str:
        """Return the client's last error, for a message; empty if it has reported none."""
        error = self.last or self.aside
        return redact(error.str(), self._secrets) if error is not None else ""

    def final(self, where: str) -> SourceError | None:
        """Return an error that waiting cannot resolve: all brokers reject the credentials, or the topic is missing."""
        if self.refused is not None and self.down:
            return failure(self.refused, where, self._secrets)
        if self.last is not None and self.last.code() in _FINAL:
            return failure(self.last, where, self._secrets)
        return None

    def hear(self, error: KafkaError) -> None:
        """Record an error that the client reports by callback."""
        code = error.code()
        if code == KafkaError._ALL_BROKERS_DOWN:
            self.down = True
            return
        if code in _LOGIN and self.unauthenticated is not None:
            # There is no token, or only an expired one. The client's own text does not contain the reason.
            code = KafkaError._TRANSPORT if self.unauthenticated.retriable else KafkaError._AUTHENTICATION
            error = KafkaError(code, str(self.unauthenticated))
        elif code in _LOGIN and self.renewed_at is not None and self._passes(error.str()):
            code = KafkaError._TRANSPORT
            error = KafkaError(code, error.str())
        self.last = error
        if code in _REFUSED:
            self.refused = error

    def _passes(self, text: str) -> bool:
        """Return whether a rejected login with a token may succeed the next time.

        A client that is not polled gets no new token, connects with the expired one, and reports that when it is polled.
        Brokers reject a second login within a second (KIP-368), to which a token that expires that soon leads.
        """
        assert self.renewed_at is not None
        return "current SASL state" in text or time.monotonic() < self.renewed_at + _SETTLE_SECONDS
