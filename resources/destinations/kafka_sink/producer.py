"""One transactional producer of a pipeline: the next producer with the same transactional.id fences it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from kpipe.errors import DestinationBusy, DestinationError, InvalidPipeline, KpipeError, RecordRejected, SourceError
from resources.destinations.kafka_sink.cluster import Cluster
from resources.destinations.kafka_sink.messages import Message, origin, weight
from resources.kafka.client_config import admin_config
from resources.kafka.errors import Voice
from resources.secrets import redact

__all__ = ["Overtaken", "Writer"]

_BEGIN_S = 60.0  # longest wait for the transactional.id: the coordinator may be ending an older transaction
_END_S = 60.0  # longest wait for the response to a commit; then the ledger is read back
_BESIDE = 128  # upper limit of a batch's overhead around its only record, in bytes
_LARGEST_BATCH = 1_000_000  # bytes: librdkafka's default
_POLL_EACH = 1000  # records between two polls of the client
#: Errors that show that another producer has fenced this one.
_FENCED = frozenset(
    {
        KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.INVALID_PRODUCER_ID_MAPPING, KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_TXN_STATE, KafkaError.CONCURRENT_TRANSACTIONS,
    }
)  # fmt: skip
_SETTINGS: Mapping[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,  # each record once, in the order of its partition
    "linger.ms": 5,
    "compression.type": "lz4",
    # The partitioner of Kafka's Java client: both send a key to the same partition.
    "partitioner": "murmur2_random",
    "delivery.report.only.error": True,
    # The client's queue limits the memory of a batch of any size.
    "queue.buffering.max.kbytes": 65536,
    "queue.buffering.max.messages": 200_000,
}


class Overtaken(Exception):
    """Another producer took the transactional.id. This producer's transaction is aborted."""


class Writer:
    """A producer that has its transactional.id, and may begin a transaction.

    Args:
        cluster: to write to.
        name: topic of the ledger, and `transactional.id`, one for each pipeline: brokers accept only its newest producer.
        timeout_s: brokers abort a longer transaction.
        largest: limit of a record's bytes by topic.

    Raises:
        Overtaken: another producer took the transactional.id at the same time.
        DestinationError: the brokers do not answer, or reject the request.
    """

    def __init__(self, cluster: Cluster, name: str, timeout_s: int, largest: Mapping[str, int]) -> None:
        config = admin_config(cluster.client_settings())
        self._cluster, self._voice, self._failed, self._largest = cluster, Voice(cluster.secrets), "", dict(largest)
        self._ledger = name
        try:
            connecting = self._voice.connecting(config)
        except SourceError as error:  # no token
            raise cluster.unreachable(error) from None
        settings = {
            **connecting, **_SETTINGS,
            "transactional.id": name,
            "transaction.timeout.ms": timeout_s * 1000,
            "message.max.bytes": max(1000, min(max(largest.values()), 1_000_000_000)),
            # Brokers compare a topic's limit with the whole batch. A record that is larger is a batch of its own; see `fits`.
            "batch.size": max(1, min(_LARGEST_BATCH, *largest.values())),
            "on_delivery": self._refused,
        }  # fmt: skip
        try:
            self._producer = Producer(settings)
        except (KafkaException, ValueError, TypeError) as error:
            # From None: librdkafka's message quotes the rejected value.
            raise InvalidPipeline(
                f"{cluster.field}: the Kafka client rejected its settings: {redact(str(error), cluster.secrets)}"
            ) from None
        with self._answered("initializing the transactional.id"):
            self._producer.init_transactions(_BEGIN_S)

    def begin(self) -> None:
        """Begin a transaction."""
        self._failed = ""
        with self._answered("beginning a transaction"):
            self._producer.begin_transaction()

    def write(self, messages: Sequence[Message]) -> None:
        """Enqueue records; they are sent in order within each partition.

        Raises:
            RecordRejected: a record is larger than its topic's limit.
            DestinationError: the ledger is larger than its topic's limit.
            Overtaken, DestinationError: as the class.
        """
        produce, poll = self._producer.produce, self._producer.poll
        with self._answered("writing"):
            for at, message in enumerate(messages):
                if at % _POLL_EACH == 0:
                    poll(0)
                if not self.fits(message):
                    raise self._too_large(message)
                while True:
                    try:
                        produce(**message)
                        break
                    except BufferError:  # the queue is full: wait until records were sent
                        poll(0.05)
                        if self._failed:
                            raise self._error(self._failed) from None

    def fits(self, message: Message) -> bool:
        """Return whether a record's size is within the limit of its topic."""
        size = weight(message)
        return size <= self._largest.get(message["topic"], size + _BESIDE) - _BESIDE

    def _too_large(self, message: Message) -> KpipeError:
        if message["topic"] == self._ledger:
            limit, found = self._largest[self._ledger], weight(message) + _BESIDE
            return DestinationError(
                f"ledger topic {self._ledger}: expected records of at most {limit} bytes, found {found}: the ledger names each"
                " partition, and each file that was read",
                f"raise its max.message.bytes (kafka-configs.sh --alter --topic {self._ledger}); or read new files with a"
                " pipeline of another name",
            )
        said = origin(message.get("headers", ()))
        where, offset = ((said.get(f"kpipe.{name}") or b"").decode() for name in ("partition", "offset"))
        limit = self._largest[message["topic"]]
        return RecordRejected(
            f"partition {where} offset {offset}: record too large for topic {message['topic']}:"
            f" expected at most {limit} bytes, found {weight(message) + _BESIDE}",
            f"raise its max.message.bytes (kafka-configs.sh --alter --topic {message['topic']}), or drop columns (select)",
        )

    def flush(self) -> None:
        """Wait until all required brokers have acknowledged all records.

        Raises:
            Overtaken, DestinationError: as the class.
        """
        with self._answered("writing"):
            self._producer.flush(_END_S)
        if self._failed:
            raise self._error(self._failed)

    def commit(self) -> None:
        """Commit the transaction. After an error, it may be committed or not.

        Raises:
            Overtaken, DestinationError: as the class.
        """
        with self._answered("committing"):
            self._producer.commit_transaction(_END_S)

    def abort(self) -> bool:
        """Abort the transaction; False: it is left to the next producer, or to the brokers' timeout."""
        try:
            self._producer.abort_transaction(10.0)
        except (KafkaException, SystemError):
            return False
        return True

    def close(self) -> None:
        """Discard unsent records."""
        with suppress(KafkaException, SystemError):
            self._producer.purge()
            self._producer.poll(0)

    @contextmanager
    def _answered(self, what: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._made(error.args[0], what) from None
        except SystemError:
            # After a fatal error, the binding calls back with its exception pending, and Python reports it under this name.
            raise self._made(self._fatal(), what) from None

    def _fatal(self) -> KafkaError:
        """Return the error with which a client answers after a fatal error."""
        try:
            self._producer.abort_transaction(1.0)
        except KafkaException as error:
            told: KafkaError = error.args[0]
            return told
        except SystemError:
            pass
        return KafkaError(KafkaError._FATAL, "the client has failed", True)

    def _made(self, told: KafkaError, what: str) -> Exception:
        told = self._fatal() if told.code() == KafkaError._FATAL else told  # which lacks the cause
        if told.code() in _FENCED:
            return Overtaken(told.str())
        refused = self._voice.final(self._cluster.place)
        if refused is not None:
            return self._cluster.unreachable(refused)
        kind = DestinationBusy if told.retriable() else DestinationError
        return self._error(f"{what}: {self._failed or told.str()}", kind)

    def _error(self, text: str, kind: type[KpipeError] = DestinationError) -> Exception:
        hint = "check the brokers, then run it again"
        if "INVALID_TRANSACTION_TIMEOUT" in text or "transaction timeout" in text.lower():
            hint = "lower into.transaction_timeout_s below the brokers' transaction.max.timeout.ms"
        if "invalid timestamp" in text.lower():  # check_times accepted them by this machine's clock
            hint = "compare the clocks of this machine and of the brokers; see message.timestamp.after.max.ms of the topic"
        return kind(f"{self._cluster.place}: {redact(text, self._cluster.secrets)}", hint)

    def _refused(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and not self._failed:
            self._failed = f"topic {message.topic()}: {error.str()}"
