"""One transactional producer of a pipeline: whoever makes the next one of the same name fences it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from kpipe.errors import DestinationBusy, DestinationError, InvalidPipeline, KpipeError, RecordRejected
from resources.destinations.kafka_sink.cluster import Cluster
from resources.destinations.kafka_sink.messages import Message, origin, weight
from resources.kafka.errors import Voice
from resources.secrets import redact

__all__ = ["Overtaken", "Writer"]

_BEGIN_S = 60.0  # longest time to get at the producer's name: the coordinator may still be ending what another left
_END_S = 60.0  # longest time for the answer to a commit; then the ledger says what became of it
_BESIDE = 128  # bytes of a batch around its only record, at most
_POLL_EACH = 1000  # records between two looks at what the client says
#: What the brokers say of a producer whose name another one has taken.
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
    # The hash of Kafka's own Java client, so that both send a key to the same partition.
    "partitioner": "murmur2_random",
    "delivery.report.only.error": True,
    # The client's queue bounds what a batch takes in memory, whatever its size.
    "queue.buffering.max.kbytes": 65536,
    "queue.buffering.max.messages": 200_000,
}


class Overtaken(Exception):
    """Another producer took the name. What this one had begun is aborted."""


class Writer:
    """A producer that has its name, and may begin a transaction.

    Args:
        cluster: that is written.
        name: `transactional.id`, one for each pipeline: the brokers let only the newest producer of a name write.
        timeout_s: after which the brokers abort a transaction by themselves.
        largest: bytes of a record that each topic takes.

    Raises:
        Overtaken: another one took the name just then.
        DestinationError: the brokers do not answer, or refuse.
    """

    def __init__(self, cluster: Cluster, name: str, timeout_s: int, largest: Mapping[str, int]) -> None:
        self._cluster, self._voice, self._failed, self._largest = cluster, Voice(cluster.secrets), "", dict(largest)
        settings = {
            **cluster.writing, **_SETTINGS, **self._voice.settings(),
            "transactional.id": name,
            "transaction.timeout.ms": timeout_s * 1000,
            "message.max.bytes": max(1000, min(max(largest.values()), 1_000_000_000)),
            "on_delivery": self._refused,
        }  # fmt: skip
        try:
            self._producer = Producer(settings)
        except (KafkaException, ValueError, TypeError) as error:
            # From None: librdkafka quotes the value that it does not like.
            raise InvalidPipeline(f"into: the Kafka client refuses its settings: {redact(str(error), cluster.secrets)}") from None
        with self._answered("taking the producer's name"):
            self._producer.init_transactions(_BEGIN_S)

    def begin(self) -> None:
        """Begin a transaction."""
        self._failed = ""
        with self._answered("beginning a transaction"):
            self._producer.begin_transaction()

    def write(self, messages: Sequence[Message]) -> None:
        """Hand records over; they are sent in the order of their partitions.

        Raises:
            RecordRejected: one is larger than its topic takes.
            Overtaken, DestinationError: as the class.
        """
        produce, poll = self._producer.produce, self._producer.poll
        with self._answered("writing"):
            for at, message in enumerate(messages):
                if at % _POLL_EACH == 0:
                    poll(0)
                if (size := weight(message)) > self._largest.get(message["topic"], size) - _BESIDE:
                    raise self._too_large(message, size)
                while True:
                    try:
                        produce(**message)
                        break
                    except BufferError:  # the queue is full: wait until something was sent
                        poll(0.05)
                        if self._failed:
                            raise self._error(self._failed) from None

    def _too_large(self, message: Message, size: int) -> RecordRejected:
        said = origin(message.get("headers", ()))
        where, offset = ((said.get(f"kpipe.{name}") or b"").decode() for name in ("partition", "offset"))
        limit = self._largest[message["topic"]]
        return RecordRejected(
            f"partition {where} offset {offset}: the record would take {size + _BESIDE} bytes,"
            f" topic {message['topic']} takes {limit}",
            f"raise its max.message.bytes (kafka-configs.sh --alter --topic {message['topic']}), or leave columns out (select)",
        )

    def flush(self) -> None:
        """Wait until everything was taken by all brokers that must have it.

        Raises:
            Overtaken, DestinationError: as the class.
        """
        with self._answered("writing"):
            self._producer.flush(_END_S)
        if self._failed:
            raise self._error(self._failed)

    def commit(self) -> None:
        """Make all of it visible. An error does not say that it is not.

        Raises:
            Overtaken, DestinationError: as the class.
        """
        with self._answered("committing"):
            self._producer.commit_transaction(_END_S)

    def abort(self) -> bool:
        """Take it back; False where that is left to the next producer, or to the brokers' time limit."""
        try:
            self._producer.abort_transaction(10.0)
        except (KafkaException, SystemError):
            return False
        return True

    def close(self) -> None:
        """Drop what was not sent."""
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
            # After a fatal error the binding goes on to call back with its exception pending, which Python calls by this name.
            raise self._made(self._fatal(), what) from None

    def _fatal(self) -> KafkaError:
        """What a client that has failed for good says to everything."""
        try:
            self._producer.abort_transaction(1.0)
        except KafkaException as error:
            told: KafkaError = error.args[0]
            return told
        except SystemError:
            pass
        return KafkaError(KafkaError._FATAL, "the client has failed", True)

    def _made(self, told: KafkaError, what: str) -> Exception:
        told = self._fatal() if told.code() == KafkaError._FATAL else told  # which says that there was one, and not which
        if told.code() in _FENCED:
            return Overtaken(told.str())
        refused = self._voice.final(self._cluster.place)
        if refused is not None:
            return DestinationError(f"{refused.what}".replace("source.", "into."), refused.hint.replace("source.", "into."))
        kind = DestinationBusy if told.retriable() else DestinationError
        return self._error(f"{what}: {self._failed or told.str()}", kind)

    def _error(self, text: str, kind: type[KpipeError] = DestinationError) -> Exception:
        hint = "check the brokers; run it again"
        if "INVALID_TRANSACTION_TIMEOUT" in text or "transaction timeout" in text.lower():
            hint = "lower into.transaction_timeout_s below the brokers' transaction.max.timeout.ms"
        if "invalid timestamp" in text.lower():  # times were compared with this machine's clock before
            hint = "compare the clocks of this machine and of the brokers; see message.timestamp.after.max.ms of the topic"
        return kind(f"{self._cluster.place}: {redact(text, self._cluster.secrets)}", hint)

    def _refused(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and not self._failed:
            self._failed = f"topic {message.topic()}: {error.str()}"
