"""Read and administer the destination's cluster: topic identity, settings, offsets and records. Nothing is cached."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from kpipe.definition.pipeline import Into, Source
from kpipe.errors import (
    CredentialsRefused,
    CredentialUnavailable,
    DestinationBusy,
    DestinationError,
    InvalidPipeline,
    SourceError,
)
from kpipe.offsets import Range
from resources.kafka.client_config import admin_config, client_config, operation_timeout_s, registry_access
from resources.kafka.errors import Voice, failure
from resources.kafka.range_reader import RangeReader
from resources.kafka.record_block import RecordBlock
from resources.schema_registry.config import Access
from resources.secrets import redact, secrets_in

__all__ = ["Cluster", "Ends", "Topic"]

_T = TypeVar("_T")
_UNKNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID, KafkaError._UNKNOWN_TOPIC})
# Transient errors of a topic that was just created, or whose leader just moved; longest wait in seconds.
_UNSETTLED = frozenset({KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._NOENT}) | _UNKNOWN
_SETTLE_S = 5.0


@dataclass(frozen=True)
class Topic:
    """A topic's current state.

    Attributes:
        name: of the topic.
        id: unique; a recreated topic has another id.
        partitions: number of partitions.
    """

    name: str
    id: str
    partitions: int


@dataclass(frozen=True)
class Ends:
    """Offsets of one partition: log start offset, last stable offset, high watermark."""

    start: int
    stable: int
    high: int


def _source_of(into: Into) -> Source:
    assert into.brokers is not None and into.topic is not None
    return Source(brokers=into.brokers, topic=into.topic, config=into.config, credentials=into.credentials)


class Cluster:
    """One cluster, by the fields of `into`, or by those of a source. Connects at the first request.

    Args:
        into: brokers, settings and credentials.
        environ: variables for the templates of credentials; None: this process's environment.

    Raises:
        InvalidPipeline: a setting is not allowed, or a variable is not set.
    """

    def __init__(self, into: Into | Source, environ: Mapping[str, str] | None = None) -> None:
        self.field = "source" if isinstance(into, Source) else "into"  # which messages name
        self._source = into if isinstance(into, Source) else _source_of(into)
        self._environ, self.place, self.secrets = environ, self._source.bootstrap, tuple[str, ...]()
        self.rotates = self._source.rotates
        self._reading = self.client_settings(read=False)
        self._timeout = operation_timeout_s(self._source)
        self._voice = Voice()
        self._client: AdminClient | None = None

    def client_settings(self, read: bool = True) -> dict[str, Any]:
        """Return the settings of a new client that reads, with the credentials as they are now.

        Args:
            read: whether files and commands are read; otherwise the settings are only checked.

        Raises:
            InvalidPipeline, CredentialUnavailable: see `client_config`.
        """
        try:
            found = client_config(self._source, self._environ, read)
        except (InvalidPipeline, CredentialUnavailable) as error:  # the source's rules apply; only the field's name differs
            raise type(error)(self._named(error.what), self._named(error.hint)) from None
        self.secrets = secrets_in(found)
        return found

    def registry_access(self, read: bool = True) -> Access:
        """Return access to the schema registry, with the credentials as they are now; see `client_settings`."""
        try:
            return registry_access(self._source, self._environ, read)
        except (InvalidPipeline, CredentialUnavailable) as error:
            raise type(error)(self._named(error.what), self._named(error.hint)) from None

    def unreachable(self, error: SourceError, place: str = "") -> DestinationError:
        """Convert an error of the shared Kafka client, about the cluster or another place, to a destination's.

        It is retriable unless credentials are wrong that do not change.
        """
        busy = error.retriable or (self.rotates and isinstance(error, CredentialsRefused))
        what = f"{place or self.place}: {self._named(error.what)}"
        return (DestinationBusy if busy else DestinationError)(what, self._named(error.hint))

    def _named(self, text: str) -> str:
        """Return a message about a source with the fields of this cluster."""
        return text if self.field == "source" else text.replace("source.", "into.").replace("format.registry", "into.registry")

    def forget(self) -> None:
        """Drop the client: the next request opens new connections."""
        self._client = None

    def topic(self, name: str) -> Topic | None:
        """Read a topic's identity; None: the topic does not exist.

        Raises:
            DestinationError: the brokers do not answer, or reject the request.
        """

        def ask(client: AdminClient) -> Topic | None:
            try:
                told = client.describe_topics(TopicCollection([name]), request_timeout=self._timeout)[name].result(
                    self._timeout + 1
                )
            except KafkaException as error:
                if error.args[0].code() in _UNKNOWN:
                    return None
                raise
            return Topic(name, str(told.topic_id), len(told.partitions))

        return self._asked(ask, f"topic {name}")

    def make(self, name: str, config: Mapping[str, str]) -> None:
        """Create a topic of one partition with the cluster's default replication, unless it exists.

        Raises:
            DestinationError: the brokers do not answer, or reject the request.
        """

        def ask(client: AdminClient) -> None:
            try:
                made = client.create_topics([NewTopic(name, 1, -1, config=dict(config))], request_timeout=self._timeout)
                made[name].result(self._timeout + 1)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

        self._asked(ask, f"creating topic {name}")
        deadline = time.monotonic() + _SETTLE_S
        while self.topic(name) is None and time.monotonic() < deadline:
            time.sleep(0.05)

    def settings(self, name: str) -> dict[str, str]:
        """Read a topic's settings, including defaults.

        Raises:
            DestinationError: the brokers do not answer, or reject the request.
        """

        def ask(client: AdminClient) -> dict[str, str]:
            resource = ConfigResource(ResourceType.TOPIC, name)
            told = client.describe_configs([resource], request_timeout=self._timeout)[resource].result(self._timeout + 1)
            return {key: str(entry.value) for key, entry in told.items()}

        return self._asked(ask, f"settings of topic {name}")

    def ends(self, topic: Topic) -> list[Ends]:
        """Read the offsets of all partitions, in order of their numbers.

        The high watermark is requested before the last stable offset. Once the latter has reached it, every transaction with
        records below it has ended.

        Raises:
            DestinationError: the brokers do not answer, or reject the request.
        """
        kinds = ((OffsetSpec.earliest(), True), (OffsetSpec.latest(), False), (OffsetSpec.latest(), True))

        def ask(client: AdminClient) -> list[Ends]:
            found = []
            for spec, committed in kinds:
                level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
                places = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
                answers = client.list_offsets(dict.fromkeys(places, spec), isolation_level=level, request_timeout=self._timeout)
                found.append([answers[place].result(self._timeout + 1).offset for place in places])
            return [Ends(start, stable, high) for start, high, stable in zip(*found, strict=True)]

        return self._asked(ask, f"offsets of topic {topic.name}")

    def settled(self, topic: Topic, patience_s: float) -> list[Ends]:
        """Return `ends` once every transaction with records so far has ended, or after `patience_s` seconds.

        Brokers acknowledge a commit before its markers are in every log, and its records are readable only then.

        Raises:
            DestinationError: as `ends`.
        """
        deadline, found = time.monotonic() + patience_s, self.ends(topic)
        goals = [item.high for item in found]
        while any(item.stable < goal for item, goal in zip(found, goals, strict=True)) and time.monotonic() < deadline:
            time.sleep(0.005)
            found = self.ends(topic)
        return [Ends(item.start, item.stable, goal) for item, goal in zip(found, goals, strict=True)]

    def read(self, topic: str, partition: int, span: Range) -> Iterator[RecordBlock]:
        """Read the committed records of a range in blocks, up to a proven end.

        Raises:
            DestinationError: the records cannot be read.
        """
        try:
            self._connected()
            with RangeReader(self._reading, topic, partition, span, stall_timeout_s=30, of_batch=False) as reader:
                for held, _ in reader.blocks():
                    yield held
        except SourceError as error:
            self.forget()
            raise self.unreachable(error) from error

    def _asked(self, ask: Callable[[AdminClient], _T], what: str) -> _T:
        deadline = time.monotonic() + _SETTLE_S
        while True:
            try:
                return ask(self._connected())
            except FutureTimeout:
                self.forget()
                last = self._voice.explain()
                raise DestinationBusy(
                    f"{self.place}: {what}: no answer within {self._timeout:g} s{f': {last}' if last else ''}",
                    f"check {self.field}.brokers, and that the brokers run",
                ) from None
            except KafkaException as error:
                self.forget()
                if error.args[0].code() in _UNSETTLED and time.monotonic() < deadline:
                    time.sleep(0.1)
                    continue
                refused = self._voice.final(what)
                made = refused or failure(error.args[0], what, self.secrets)
                raise self.unreachable(made) from None

    def _connected(self) -> AdminClient:
        if self._client is None:
            self._reading = self.client_settings()
            self._voice = Voice(self.secrets)
            try:
                self._client = AdminClient(self._voice.connecting(admin_config(self._reading)))
            except SourceError as error:  # no token
                raise self.unreachable(error) from None
            except (KafkaException, ValueError, TypeError) as error:
                # From None: librdkafka's message quotes the rejected value.
                what = redact(str(error), self.secrets)
                raise InvalidPipeline(f"{self.field}: the Kafka client rejected its settings: {what}") from None
        return self._client
