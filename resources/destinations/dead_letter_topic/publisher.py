"""Write dead letters that a topic lacks, with the position of the last one, in Kafka transactions.

The `transactional.id` belongs to the ledger: a new producer ends the transaction of the older one and fences it. So either
the position that is read afterwards is the newest when the transaction commits, or the transaction fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from kpipe.batch.dead_letter_page import LetterPages, StoredLetter
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import DestinationBusy, DestinationError, KpipeError
from kpipe.failpoints import failpoint
from resources.destinations.dead_letter_topic.records import Position, message
from resources.destinations.kafka_sink.cluster import Cluster, Topic
from resources.destinations.kafka_sink.ledger_topic import newest_value, prepare
from resources.destinations.kafka_sink.messages import Message
from resources.destinations.kafka_sink.producer import Overtaken, Writer

__all__ = ["LetterTopic", "Written"]

#: Settings of a new topic: no record is ever deleted.
_SETTINGS = {"cleanup.policy": "delete", "retention.ms": "-1"}
_MOST, _MOST_BYTES = 1000, 16 << 20  # dead letters of one transaction, and bytes of their keys and values
_TIMEOUT_S = 60  # brokers abort a longer transaction
_SETTLE_S = 2.0  # usual time until a committed transaction becomes readable
_TRIES = 3  # producers that another run may fence


@dataclass(frozen=True)
class Written:
    """Number of records that a topic has received from a ledger, and that it lacks.

    Attributes:
        records: number of records so far.
        waiting: dead letters that it lacks.
    """

    records: int
    waiting: int


class LetterTopic:
    """The topic `errors.topic` of one pipeline.

    Args:
        pipeline: the definition.
        pages: its destination.
        registration: id of the pipeline in the ledger; positions belong to it.
        environ: variables for the templates of credentials; None: this process's environment.
    """

    def __init__(
        self, pipeline: Pipeline, pages: LetterPages, registration: str, environ: Mapping[str, str] | None = None
    ) -> None:
        assert pipeline.errors.topic is not None
        self._pipeline, self._pages, self._registration = pipeline.name, pages, registration
        self.topic, self._positions = pipeline.errors.topic, pipeline.positions_topic
        self._cluster = Cluster(pipeline.source, environ)
        self._writer: Writer | None = None
        self._key = b""  # of the topic that the writer writes
        self._position: Position | None = None
        self._where = f"pipeline {self._pipeline}: dead letters in topic {self.topic}"

    def written(self) -> Written:
        """Return what the topic has received, and how many dead letters it lacks. Writes nothing.

        Raises:
            DestinationError: brokers or destination cannot be read; or the ledger is an older copy.
        """
        found = self._read(self._cluster.topic(self.topic))
        return Written(found.written if found else 0, self._pages.letters_behind(found.mark if found else None))

    def publish(self) -> int:
        """Write the dead letters that the topic lacks, in as many transactions as needed, and return the number of all so far.

        Raises:
            DestinationError: brokers or destination failed; a dead letter is too large; or the ledger is an older copy.
        """
        last = ""
        for _ in range(_TRIES):
            try:
                return self._publish()
            except Overtaken as error:
                last = str(error)
            except BaseException:
                self.close()
                raise
            self.close()
        raise DestinationBusy(
            f"{self._where}: other runs of the pipeline write them at the same time: {last}", "run it again when they have ended"
        )

    def close(self) -> None:
        """Close the producer. A transaction that is open is aborted, or ended by the next producer."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abort()
            writer.close()

    def _publish(self) -> int:
        topic = self._cluster.topic(self.topic)
        if self._writer is not None and (topic is None or self._key_of(topic) != self._key):  # the topic was recreated
            self.close()
        if self._writer is None:
            found = self._read(topic)
            if not self._page(found):  # do not fence another run for nothing
                return found.written if found is not None else 0
            self._writer = self._opened()
        while page := self._page(self._position):
            self._write(self._writer, page)
        return self._position.written if self._position is not None else 0

    def _page(self, position: Position | None) -> Sequence[StoredLetter]:
        return self._pages.letter_page(position.mark if position is not None else None, _MOST, _MOST_BYTES)

    def _write(self, writer: Writer, page: Sequence[StoredLetter]) -> None:
        """Write a page, up to the first record that is too large, in one transaction with the position."""
        messages = [message(letter, self.topic, self._pipeline) for letter in page]
        fitting = list(takewhile(writer.fits, messages))
        if not fitting:
            raise self._too_large(page[0])
        done = self._position.written if self._position is not None else 0
        position = Position(page[len(fitting) - 1].mark, done + len(fitting))
        said: Message = {"topic": self._positions, "partition": 0, "key": self._key, "value": position.encoded()}
        failpoint("letters.read")
        writer.begin()
        writer.write([*fitting, said])
        writer.flush()
        failpoint("letters.before")
        writer.commit()
        failpoint("letters.after")
        self._position = position

    def _opened(self) -> Writer:
        """Return a producer that has the transactional.id, and read the position behind it."""
        prepare(self._cluster, self._positions, self._where, "the pipeline's name determines it")
        if (topic := self._cluster.topic(self.topic)) is None:
            self._cluster.make(self.topic, _SETTINGS)
            topic = self._cluster.topic(self.topic)
        settings = {name: self._cluster.settings(name) for name in (self.topic, self._positions)}
        if topic is None or "compact" in settings[self.topic].get("cleanup.policy", ""):
            how = "it is missing after its creation" if topic is None else "it is compacted, which would delete dead letters"
            raise DestinationError(f"{self._where}: {how}", "create it with cleanup.policy=delete, or set another errors.topic")
        largest = {name: int(found.get("max.message.bytes", 1_048_588)) for name, found in settings.items()}
        writer = Writer(self._cluster, f"{self._positions}-{self._registration}", _TIMEOUT_S, largest)
        try:
            self._position, self._key = self._read(topic, newest=True), self._key_of(topic)
        except BaseException:
            writer.close()
            raise
        return writer

    def _key_of(self, topic: Topic) -> bytes:
        """Return the key of the topic's positions: a recreated topic, or another ledger, begins again."""
        return f"{topic.name}/{topic.id}/{self._registration}".encode()

    def _read(self, topic: Topic | None, newest: bool = False) -> Position | None:
        """Return the position of a topic; None: it has received nothing from this ledger.

        Args:
            topic: the topic; None: it does not exist.
            newest: whether the position must be the newest; otherwise a transaction in progress may be about to replace it.
        """
        place = self._cluster.topic(self._positions)
        if topic is None or place is None:
            return None
        ends = self._cluster.settled(place, _SETTLE_S)[0]
        if newest and ends.stable < ends.high:
            raise DestinationBusy(
                f"{self._where}: topic {self._positions} has an open transaction of another producer",
                "run it again; find the transaction with kafka-transactions.sh find-hanging",
            )
        value = newest_value(self._cluster, self._positions, ends, self._key_of(topic))
        return Position.decoded(value, f"{self._where}: topic {self._positions}") if value else None

    def _too_large(self, letter: StoredLetter) -> KpipeError:
        at = "" if letter.offset is None else f" offset {letter.offset}"
        return DestinationError(
            f"{self._where}: the dead letter of {letter.topic}/{letter.partition}{at} is larger than max.message.bytes of the"
            " topic: it and the later ones are in the destination only",
            f"raise it: kafka-configs.sh --alter --entity-type topics --entity-name {self.topic} --add-config"
            f" max.message.bytes=...; or resolve the dead letter: kpipe errors {self._pipeline} --retry",
        )
