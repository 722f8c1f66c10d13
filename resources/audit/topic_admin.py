"""Query the brokers for what an audit needs of a topic: identity, bounds, cleanup policy, offsets of a group."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from kpipe.audit.windows import LogBounds
from kpipe.definition.pipeline import Source
from kpipe.errors import BrokerUnreachable, InvalidPipeline
from resources.kafka.client_config import admin_config, client_config, operation_timeout_s
from resources.kafka.errors import Voice, failure
from resources.kafka.rare_requests import cleanup_policy
from resources.kafka.topic_metadata import KafkaTopics
from resources.secrets import redact, secrets_in

__all__ = ["Identity", "TopicAdmin"]


@dataclass(frozen=True)
class Identity:
    """A topic, which keeps its name but not its id if it is recreated."""

    cluster: str
    id: str
    name: str


class TopicAdmin:
    """Queries about one topic; nothing is cached.

    Args:
        source: brokers, settings and credentials; names one topic.

    Raises:
        InvalidPipeline: the settings are not allowed.
    """

    def __init__(self, source: Source) -> None:
        self._source, self._topic = source, source.names[0]
        self._topics = KafkaTopics(source)

    def state(self) -> tuple[Identity, dict[int, LogBounds]]:
        """Return identity and bounds of all partitions, both of the same moment.

        Raises:
            SourceError: no broker answered, or the topic does not exist.
        """
        found = self._topics.snapshot().partitions
        topic = next(iter(found)).topic
        bounds = {key.partition: LogBounds(state.log_start, state.end, state.high) for key, state in found.items()}
        return Identity(topic.cluster, topic.topic_id, topic.name), bounds

    def cleanup_policy(self) -> str:
        """Return the topic's `cleanup.policy`; empty if the user may not read it.

        Raises:
            SourceError: the request failed.
        """
        client = self._client()  # answers arrive as long as it exists
        return cleanup_policy(client, self._topic, self._timeout, self._secrets)

    def group_offsets(self, group: str) -> dict[int, int]:
        """Return the committed offsets of a consumer group, by partition.

        Raises:
            InvalidPipeline: the group has committed no offset of the topic.
            SourceError: the request failed.
        """
        asked = [ConsumerGroupTopicPartitions(group)]
        client = self._client()
        try:
            answer = client.list_consumer_group_offsets(asked, request_timeout=self._timeout)
            places: list[TopicPartition] = answer[group].result(self._timeout + 1).topic_partitions
        except KafkaException as error:
            raise failure(error.args[0], f"offsets of group {group}", self._secrets) from None
        except FutureTimeout:
            raise BrokerUnreachable(f"offsets of group {group}: no answer within {self._timeout:g} s") from None
        found = {place.partition: place.offset for place in places if place.topic == self._topic and place.offset >= 0}
        if not found:
            raise InvalidPipeline(
                f"--to group:{group}: the group has committed no offset of topic {self._topic}",
                "a sink of Kafka Connect has group connect-NAME; list groups: kafka-consumer-groups.sh --list",
            )
        return found

    def _client(self) -> AdminClient:
        self._timeout = operation_timeout_s(self._source)
        config: Mapping[str, Any] = admin_config(client_config(self._source))
        self._secrets = secrets_in(config)
        try:
            return AdminClient(Voice(self._secrets).connecting(config))
        except (KafkaException, ValueError, TypeError) as error:
            what = redact(str(error), self._secrets)
            raise InvalidPipeline(f"the Kafka client rejects its settings: {what}") from None
