"""Rare requests beside a read: a topic's metadata, its log start, its settings. The reading client receives records only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from kpipe.errors import BrokerUnreachable
from resources.kafka.errors import LEADERLESS, Voice, failure, unreachable_hint

__all__ = ["ASK_SECONDS", "RareRequests", "cleanup_policy", "may_compact", "watermark_offsets"]

ASK_SECONDS = 2.0
"""Time without records after which the topic's metadata is requested; also the timeout of that request."""

_SECONDS, _PAUSE_S = 10.0, 0.2
_T = TypeVar("_T")
_DENIED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


def cleanup_policy(client: AdminClient, topic: str, timeout_s: float, secrets: Iterable[str] = ()) -> str:
    """Return a topic's `cleanup.policy`; empty if the user may not read it.

    Raises:
        SourceError: the request failed.
    """
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def ask(left: float) -> str:
        answers = client.describe_configs([resource], request_timeout=left)
        return str(answers[resource].result(left + 1)["cleanup.policy"].value)

    try:
        return _repeated(ask, timeout_s)
    except KafkaException as error:
        if error.args[0].code() in _DENIED:
            return ""
        raise failure(error.args[0], f"settings of topic {topic}", secrets) from None
    except FutureTimeout:
        raise BrokerUnreachable(f"settings of topic {topic}: no answer within {timeout_s:g} s") from None


def may_compact(policy: str) -> bool:
    """Return whether a `cleanup.policy` lets Kafka remove records between others; an unknown one (empty) may."""
    return not policy or "compact" in policy


def watermark_offsets(client: Consumer, place: TopicPartition, timeout_s: float) -> tuple[int, int]:
    """Return a partition's log start and high watermark.

    Raises:
        KafkaException: the request failed, or no broker led the partition within the time.
    """
    low, high = _repeated(lambda left: client.get_watermark_offsets(place, timeout=left, cached=False), timeout_s)
    return low, high


def _repeated(ask: Callable[[float], _T], timeout_s: float) -> _T:
    """Return the answer to a request, which is sent again while leaders move. `ask` gets the seconds that are left."""
    deadline = time.monotonic() + timeout_s
    while True:
        left = deadline - time.monotonic()
        try:
            return ask(max(_PAUSE_S, left))
        except KafkaException as error:
            if error.args[0].code() not in LEADERLESS or left <= _PAUSE_S:
                raise
        time.sleep(_PAUSE_S)


class RareRequests:
    """Requests about one partition, each with a timeout. Opens a client with the first one.

    Args:
        config: `client_config` of the source.
        topic: topic's name.
        partition: partition's number.
        where: the read, for messages.
        secrets: values to mask in messages.
    """

    #: Whether records can be removed between others.
    compacts = True

    def __init__(self, config: Mapping[str, Any], topic: str, partition: int, where: str, secrets: Iterable[str]) -> None:
        self._config, self._topic, self._partition, self._where = config, topic, partition, where
        self._secrets = tuple(secrets)
        self._client: Consumer | None = None

    def close(self) -> None:
        """Close the client; can be called again."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(RuntimeError, KafkaException):
                client.close()

    def check_topic(self) -> None:
        """Request the topic's metadata: a reading client does not report a topic without access, and reports a missing one late.

        Raises:
            SourceError: the topic is missing, or access to it is denied.
        """
        with suppress(KafkaException):  # brokers that do not answer run into the deadline
            metadata = self._connected().list_topics(self._topic, timeout=ASK_SECONDS).topics.get(self._topic)
            if metadata is not None and metadata.error is not None:
                raise failure(metadata.error, self._where, self._secrets)

    def watermarks(self) -> tuple[int, int]:
        """Return the log start and the high watermark.

        Raises:
            SourceError: the request failed.
        """
        place = TopicPartition(self._topic, self._partition)
        try:
            return watermark_offsets(self._connected(), place, _SECONDS)
        except KafkaException as error:
            where = f"{self._where}: requesting the log start"
            if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:
                # The partition was read a moment ago; a broker that restarts answers before it has loaded its partitions.
                raise BrokerUnreachable(f"{where}: {error.args[0].str()}", unreachable_hint("")) from None
            raise failure(error.args[0], where, self._secrets) from None

    def may_be_compacted(self) -> bool:
        """Return whether records may be missing without a trace; True if the user may not read the topic's settings.

        Raises:
            SourceError: the request failed.
        """
        from resources.kafka.client_config import admin_config  # loads pydantic, which a read does not need

        client = AdminClient(Voice(self._secrets).connecting(admin_config(self._config)))
        return may_compact(cleanup_policy(client, self._topic, _SECONDS, self._secrets))

    def _connected(self) -> Consumer:
        if self._client is None:
            self._client = Consumer(Voice(self._secrets).connecting(self._config))
        return self._client
