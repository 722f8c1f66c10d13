"""Query the brokers for a pipeline's topics: identity, partitions, offsets. Results are never cached."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from difflib import get_close_matches
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from kpipe.definition.pipeline import Source, Timestamp
from kpipe.errors import BrokerUnreachable, InvalidPipeline, SourceError, TopicUnknown
from kpipe.topics import PartitionId, PartitionState, TopicId, TopicSnapshot
from resources.kafka.client_config import admin_config, check_topics, client_config, operation_timeout_s
from resources.kafka.consumer_group import GroupOffsets
from resources.kafka.errors import LEADERLESS, Voice, failure, reason, unreachable_hint
from resources.kafka.record_times import NEWEST, RecordTimes, search
from resources.secrets import redact, secrets_in

__all__ = ["KafkaTopics"]

_T = TypeVar("_T")
_GRACE_SECONDS = 1.0
"""Extra time for a request beyond its timeout."""


_UNKNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID})
_INTERNAL = "__"
_SETTLE_SECONDS = 2.0
"""Time for which a broker may not have metadata of a new topic, a new partition or a new leader."""


class _Unsettled(Exception):
    """The broker does not have the topic's or the partition leader's metadata yet.

    Attributes:
        error: the broker's; None: its answer omits the topic.
        subject: topic, or topic and partition.
    """

    def __init__(self, error: KafkaError | None, subject: str) -> None:
        super().__init__(error, subject)
        self.error, self.subject = error, subject


class KafkaTopics:
    """`Topics` (kpipe/interfaces.py) over Kafka's admin protocol. Used from one thread at a time.

    Keeps one client. After an error the client is dropped, and with it every address and connection. The next call
    makes a new one, so that no client reconnects while the pipeline waits.

    Args:
        source: what to read.
        environ: variables for the templates of credentials; None: this process's environment.
        timeout_s: for a whole call, in seconds; `operation.timeout.ms` by default.

    Raises:
        InvalidPipeline: the source's settings are not allowed, or librdkafka rejects them.
    """

    def __init__(self, source: Source, environ: Mapping[str, str] | None = None, timeout_s: float | None = None) -> None:
        check_topics(source)
        self._named, self._pattern = source.names, source.topic_pattern
        self._brokers = source.bootstrap
        client_config(source, environ, read=False)
        self._source, self._environ, self._secrets = source, environ, tuple[str, ...]()
        self._group = GroupOffsets(source, environ) if source.group is not None else None
        self._timeout = operation_timeout_s(source) if timeout_s is None else timeout_s
        self._voice = Voice(self._secrets)
        self._admin: AdminClient | None = None
        self._reached = False
        self._deadline = 0.0

    def close(self) -> None:
        """Drop the client; the next call makes a new one."""
        self._admin = None

    def snapshot(self) -> TopicSnapshot:
        """See `Topics`. Ends are last stable offsets (KIP-98: LSO), `high` are high watermarks.

        Identity is queried before and after the offsets, to prove that they belong to the same topics. If a topic is
        recreated in between, all is queried again. The offsets are queried in the order `log_start`, `end`, `high`, without
        waiting in between; if they do not increase, they are queried once more.
        """
        return self._call(self._snapshot)

    def cluster(self) -> str:
        """Return the id of the cluster; no topic has to exist.

        Raises:
            BrokerUnreachable, CredentialsRefused.
        """
        return self._call(lambda: str(self._wait(self._connected().describe_cluster(request_timeout=self._left())).cluster_id))

    def present(self) -> Collection[PartitionId]:
        """See `Topics`."""
        return self._call(self._partitions)

    def follow(self, positions: Mapping[PartitionId, int]) -> None:
        """See `GroupFollower`."""
        if self._group is not None:
            self._group.follow(positions)

    def offsets_at(self, moment: Timestamp, snapshot: TopicSnapshot) -> Mapping[PartitionId, int]:
        """See `Topics`. Never beyond the snapshot's end."""
        return self._call(lambda: self._offsets_at(moment, snapshot))

    def times(self, positions: Mapping[PartitionId, int]) -> Mapping[PartitionId, RecordTimes]:
        """Return the times of the newest committed record and of the first unread one, by partition (record_times.py).

        Raises:
            BrokerUnreachable, TopicUnknown, CredentialsRefused.
        """
        return self._call(lambda: search(positions, self._ask_times))

    def _ask_times(self, moments: Mapping[PartitionId, int]) -> dict[PartitionId, tuple[int, int]]:
        if not moments:
            return {}
        places = {TopicPartition(key.topic.name, key.partition): key for key in moments}
        specs = {
            place: OffsetSpec.max_timestamp() if moments[key] == NEWEST else OffsetSpec.for_timestamp(moments[key])
            for place, key in places.items()
        }
        answers = self._connected().list_offsets(
            specs, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self._left()
        )
        told = {places[place]: self._wait(answer, str(places[place])) for place, answer in answers.items()}
        return {key: (answer.offset, answer.timestamp) for key, answer in told.items()}

    def _offsets_at(self, moment: Timestamp, snapshot: TopicSnapshot) -> Mapping[PartitionId, int]:
        # Values below zero are Kafka's codes: -1 means latest, -2 earliest.
        found = self._offsets(snapshot.partitions, OffsetSpec.for_timestamp(max(0, moment.ms)), True)
        ends = {key: state.end for key, state in snapshot.partitions.items()}
        return {key: min(at, ends[key]) if at >= 0 else ends[key] for key, at in found.items()}

    def _snapshot(self) -> TopicSnapshot:
        tries = 0
        while True:
            before = self._partitions()
            asked = [
                self._ask_offsets(before, spec, committed)
                for spec, committed in ((OffsetSpec.earliest(), True), (OffsetSpec.latest(), True), (OffsetSpec.latest(), False))
            ]
            starts, ends = map(self._told_offsets, asked[:2])
            highs = {key: self._wait(answer, key) for key, answer in asked[2].items()}
            if self._partitions() != before:
                continue
            states = {
                key: PartitionState(starts[key], ends[key], highs[key].offset, _epoch(highs[key].leader_epoch)) for key in before
            }
            wrong = {key: state for key, state in states.items() if not 0 <= state.log_start <= state.end <= state.high}
            if not wrong:
                return TopicSnapshot(states, self._pattern or "")
            tries += 1
            if tries > 1:
                key, state = next(iter(wrong.items()))
                raise BrokerUnreachable(f"{key}: the broker gives offsets that contradict each other: {state}")

    def _partitions(self) -> list[PartitionId]:
        """Return all partitions of all topics. A topic without partitions, or with missing ones, is an error."""
        admin = self._connected()
        names = self._names(admin)
        described = admin.describe_cluster(request_timeout=self._left())
        answers = admin.describe_topics(TopicCollection(list(names)), request_timeout=self._left())
        cluster = self._wait(described).cluster_id
        if not cluster:
            raise BrokerUnreachable(f"{self._brokers}: the brokers did not return a cluster id")
        partitions = []
        for name in names:
            description = self._wait(answers[name], name)
            if self._pattern is not None and description.is_internal:
                continue
            topic = TopicId(cluster, str(description.topic_id), name)
            partitions += _dense(topic, [partition.id for partition in description.partitions])
        return partitions

    def _names(self, admin: AdminClient) -> Sequence[str]:
        """Return the configured topics; with a pattern, the cluster's topics that match it now, in order.

        Kafka's internal topics are excluded: their names begin with two underscores, and brokers mark them as internal.
        """
        if self._pattern is None:
            return self._named
        existing = sorted(admin.list_topics(timeout=self._left()).topics)
        matches = [name for name in existing if not name.startswith(_INTERNAL) and re.search(self._pattern, name)]
        if not matches:
            raise _Unsettled(None, "")
        return matches

    def _offsets(self, keys: Iterable[PartitionId], spec: OffsetSpec, committed: bool) -> dict[PartitionId, int]:
        return self._told_offsets(self._ask_offsets(keys, spec, committed))

    def _ask_offsets(self, keys: Iterable[PartitionId], spec: OffsetSpec, committed: bool) -> dict[PartitionId, Future[Any]]:
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        places = {TopicPartition(key.topic.name, key.partition): key for key in keys}
        answers = self._connected().list_offsets(dict.fromkeys(places, spec), isolation_level=level, request_timeout=self._left())
        if len(answers) != len(places):
            raise BrokerUnreachable(f"{self._brokers}: offsets of {len(places) - len(answers)} partitions are missing")
        return {places[place]: answer for place, answer in answers.items()}

    def _told_offsets(self, answers: Mapping[PartitionId, Future[Any]]) -> dict[PartitionId, int]:
        return {key: self._wait(answer, key).offset for key, answer in answers.items()}

    def _connected(self) -> AdminClient:
        """Return the client; a new one waits until a broker answers."""
        if self._admin is not None:
            return self._admin
        config = admin_config(client_config(self._source, self._environ))  # read again: credentials may have been replaced
        self._secrets = secrets_in(config)
        self._voice = Voice(self._secrets)
        try:
            admin = AdminClient(self._voice.connecting(config))
        except (KafkaException, ValueError, TypeError) as error:
            # From None: librdkafka quotes the rejected value.
            what = redact(str(error), self._secrets)
            raise InvalidPipeline(f"source: the Kafka client rejects its settings: {what}") from None
        while True:
            try:
                # The client caches this id, so it only proves that a broker answers; it is not used as the identity.
                admin.cluster_id(timeout=0.05)
                break
            except KafkaException:
                admin.poll(0)
                self._patience()
        self._admin, self._reached = admin, True
        return admin

    def _call(self, ask: Callable[[], _T]) -> _T:
        began = time.monotonic()
        self._deadline = began + self._timeout
        try:
            if self._admin is not None:
                self._admin.poll(0)
            self._voice.heard()
            while True:
                try:
                    return ask()
                except _Unsettled as why:
                    if time.monotonic() >= began + min(_SETTLE_SECONDS, self._timeout):
                        raise self._settled(why) from None
                time.sleep(0.1)
        except KafkaException as error:
            made = self._failure(error.args[0], "")
            self.close()
            raise made from None
        except SourceError:
            self.close()
            raise

    def _settled(self, why: _Unsettled) -> SourceError:
        if why.error is None and not why.subject:
            return TopicUnknown(
                f"{self._brokers}: the cluster has no topic that matches {self._pattern!r}",
                "create one, or fix source.topic_pattern: it matches anywhere in a name unless anchored with ^ and $",
            )
        if why.error is None or why.error.code() in _UNKNOWN:
            return self._unknown(why.subject.partition("/")[0])
        return self._failure(why.error, why.subject)

    def _wait(self, answer: Future[Any], subject: object = "") -> Any:
        """Return the answer; rejected credentials end the wait at once instead of at the deadline."""
        while True:
            try:
                return answer.result(timeout=0.05)
            except FutureTimeout:
                if self._admin is not None:
                    self._admin.poll(0)
                self._patience(_GRACE_SECONDS)
            except KafkaException as error:
                if error.args[0].code() in _UNKNOWN | LEADERLESS:
                    raise _Unsettled(error.args[0], str(subject)) from None
                raise self._failure(error.args[0], str(subject)) from None

    def _failure(self, error: KafkaError, subject: str) -> SourceError:
        if self._admin is not None:
            self._admin.poll(0)
        where = f"{self._brokers}{f': {subject}' if subject else ''}"
        final = self._voice.final(where)
        if final is not None:
            return final
        made = failure(error, where, self._secrets)
        last = self._voice.explain()
        if isinstance(made, BrokerUnreachable) and last:
            return BrokerUnreachable(f"{made.what} ({last})", unreachable_hint(last))
        return made

    def _patience(self, grace: float = 0.0) -> None:
        """Return to wait again, or raise an error if waiting is useless."""
        final = self._voice.final(self._brokers)
        if final is not None:
            raise final
        if time.monotonic() < self._deadline + grace:
            return
        last = self._voice.explain()
        what = f"no broker of {self._brokers} answered within {self._timeout:g} s"
        if self._voice.refused is not None:
            raise failure(self._voice.refused, self._brokers, self._secrets)
        error = BrokerUnreachable(f"{what}{f': {reason(last)}' if last else ''}", unreachable_hint(last))
        error.reached = self._reached
        raise error.about("source", "brokers")

    def _left(self) -> float:
        """Return the seconds until the deadline, for a request."""
        self._patience()
        return max(0.1, self._deadline - time.monotonic())

    def _unknown(self, name: str) -> TopicUnknown:
        """Return the error for a topic that does not exist, with similar names."""
        try:
            assert self._admin is not None
            names = list(self._admin.list_topics(timeout=self._left()).topics)
        except (KafkaException, SourceError):
            names = []
        if name in names:
            return TopicUnknown(f"{self._brokers}: the cluster had no topic {name}", "it was created meanwhile: run it again")
        near = get_close_matches(name, names, n=3)
        local = self._brokers.startswith(("127.0.0.1:", "localhost:"))
        ours = f"kpipe broker topic {name} (kpipe's local broker), or " if local else ""
        create = f"create it: {ours}kafka-topics.sh --bootstrap-server {self._brokers} --create --topic {name}"
        return TopicUnknown(
            f"{self._brokers}: the cluster has no topic {name}",
            f"did you mean {' or '.join(near)}? else {create}" if near else create,
        )


def _epoch(found: int | None) -> int:
    return -1 if found is None else found


def _dense(topic: TopicId, numbers: list[int]) -> list[PartitionId]:
    """Check that partitions are numbered from 0 without gaps; otherwise the answer is incomplete."""
    if not numbers or sorted(numbers) != list(range(len(numbers))):
        raise BrokerUnreachable(f"{topic}: incomplete list of partitions: found {sorted(numbers)}", "run it again")
    return [PartitionId(topic, number) for number in sorted(numbers)]
