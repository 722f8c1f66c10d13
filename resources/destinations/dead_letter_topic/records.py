"""Convert dead letters and positions to records of their topics.

Names of headers that begin with `__connect.errors.` are those of Kafka Connect's DeadLetterQueueReporter (KIP-298), which
are read by tools for dead-letter queues.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from kpipe.batch.dead_letter_page import LetterMark, StoredLetter
from kpipe.errors import DestinationError, RecordRejected
from kpipe.ledger.format_version import FORMAT_VERSION, MEMBER, check
from resources.destinations.kafka_sink.messages import Message, header_name, letter_headers

__all__ = ["Position", "message"]

_CONNECT = "__connect.errors."
#: Connect's stages of a sink.
_STAGES = {"parse": "VALUE_CONVERTER", "transform": "TRANSFORMATION"}


def message(letter: StoredLetter, topic: str, pipeline: str) -> Message:
    """Return a dead letter as a record: key, value and headers unchanged, then headers of Connect's names, then kpipe's.

    The record has no timestamp of its own, so retention and limits of the topic apply to when it was written.
    """
    place = letter.topic, letter.partition, letter.offset, letter.timestamp_us
    connect = {
        "topic": letter.topic,
        "partition": str(letter.partition),
        "offset": str(-1 if letter.offset is None else letter.offset),
        "connector.name": pipeline,
        "stage": _STAGES.get(letter.stage, "TASK_PUT"),
        "exception.class.name": f"{RecordRejected.__module__}.{RecordRejected.__name__}",
        "exception.message": letter.reason,
    }
    headers = [
        *((header_name(name), value) for name, value in letter.headers),
        *((f"{_CONNECT}{name}", text.encode("utf-8", "replace")) for name, text in connect.items()),
        *letter_headers(pipeline, letter.mark.batch, place, letter.stage, letter.reason),
    ]
    return {"topic": topic, "value": letter.value, "key": letter.key, "headers": headers}


@dataclass(frozen=True)
class Position:
    """The last dead letter that a topic has received, as the transaction that wrote it recorded it.

    Attributes:
        mark: of the dead letter.
        written: number of records that the topic has received from this ledger.
    """

    mark: LetterMark
    written: int

    def encoded(self) -> bytes:
        """Return the value of a record."""
        return json.dumps({MEMBER: FORMAT_VERSION, **vars(self.mark), "written": self.written}).encode()

    @classmethod
    def decoded(cls, value: bytes, where: str) -> Position:
        """Parse the value of a record.

        Raises:
            FormatTooNew: a newer kpipe has written it.
            DestinationError: kpipe has not written it.
        """
        try:
            said = json.loads(value)
            check(int(said[MEMBER]), where)
            return cls(LetterMark(str(said["batch"]), int(said["at"]), int(said["within"])), int(said["written"]))
        except (ValueError, TypeError, KeyError) as error:
            raise DestinationError(
                f"{where}: the newest position was not written by kpipe", "delete that record: write a tombstone with its key"
            ) from error
