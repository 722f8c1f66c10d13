"""Read the committed offsets of a consumer group, and refuse a group that still has members."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from kpipe.adoption.positions import Positions
from kpipe.definition.pipeline import Source
from kpipe.errors import BrokerUnreachable, InvalidPipeline
from kpipe.topics import PartitionId
from resources.kafka.client_config import admin_config, client_config, operation_timeout_s
from resources.kafka.errors import Voice, failure
from resources.secrets import redact, secrets_in

__all__ = ["ConsumerGroup"]

_LISTED = 20


class ConsumerGroup:
    """A consumer group of a loader.

    Args:
        source: brokers, settings and credentials.
        name: of the group.
    """

    def __init__(self, source: Source, name: str) -> None:
        self._source, self.name = source, name
        self._timeout = operation_timeout_s(source)
        config: Mapping[str, Any] = admin_config(client_config(source))
        self._secrets = secrets_in(config)
        try:
            self._client = AdminClient(Voice(self._secrets).connecting(config))
        except (KafkaException, ValueError, TypeError) as error:
            what = redact(str(error), self._secrets)
            raise InvalidPipeline(f"the Kafka client rejects its settings: {what}") from None

    def positions(self, partitions: Collection[PartitionId]) -> Positions:
        """Return the group's offsets of these partitions; its members are problems.

        Offsets that a transaction has not committed yet are not returned: the request waits for them (KIP-447). Members are
        listed before and after the offsets, so that no member has committed in between.

        Raises:
            InvalidPipeline: the group has committed no offset of the topics.
            SourceError: the request failed.
        """
        problems = self._members()
        offsets = self._offsets(partitions)
        problems = problems or self._members()
        if not offsets:
            topics = ", ".join(sorted({source.topic.name for source in partitions}))
            raise InvalidPipeline(
                f"consumer group {self.name}: it has committed no offset of {topics}",
                "check the name with kafka-consumer-groups.sh --list; offsets of a group without members expire after"
                " offsets.retention.minutes",
            )
        return Positions(f"consumer group {self.name}", offsets, problems=problems)

    def _offsets(self, partitions: Collection[PartitionId]) -> dict[tuple[str, int], int]:
        places = [TopicPartition(source.topic.name, source.partition) for source in sorted(partitions)]
        asked = [ConsumerGroupTopicPartitions(self.name, places)]
        answer = self._wait(
            self._client.list_consumer_group_offsets(asked, require_stable=True, request_timeout=self._timeout), "offsets"
        )
        found: dict[tuple[str, int], int] = {}
        for place in answer.topic_partitions:
            if place.error is not None:
                raise failure(place.error, f"offsets of group {self.name}: {place.topic}/{place.partition}", self._secrets)
            if place.offset >= 0:  # negative: none
                found[place.topic, place.partition] = int(place.offset)
        return found

    def _members(self) -> Sequence[str]:
        """Return a sentence for each member; a group of Kafka's newer protocol (KIP-848) is described in the same way."""
        description = self._wait(self._client.describe_consumer_groups([self.name], request_timeout=self._timeout), "members")
        found = []
        for member in description.members[:_LISTED]:
            held = member.assignment.topic_partitions if member.assignment is not None else []
            places = ", ".join(f"{place.topic}/{place.partition}" for place in held[:_LISTED]) or "nothing"
            client = redact(f"{member.client_id} on {member.host}", ())
            found.append(f"consumer group {self.name} is active: member {client} reads {places}: stop the loader first")
        if len(description.members) > _LISTED:
            found.append(f"consumer group {self.name}: {len(description.members) - _LISTED} more members")
        return found

    def _wait(self, answers: Mapping[str, Any], what: str) -> Any:
        try:
            return answers[self.name].result(self._timeout + 1)
        except KafkaException as error:
            raise failure(error.args[0], f"{what} of group {self.name}", self._secrets) from None
        except FutureTimeout:
            raise BrokerUnreachable(f"{what} of group {self.name}: no answer within {self._timeout:g} s") from None
