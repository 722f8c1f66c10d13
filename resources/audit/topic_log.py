"""Read the state of each offset of a topic's log: committed, aborted, no record, expired.

Two views are compared. Consumers of both isolation levels skip control records; only `read_uncommitted` returns records of
aborted transactions. An offset that neither view returns contains a control record, or was removed by compaction or retention.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, cast

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from numpy.typing import NDArray

from kpipe.audit.outcomes import State
from kpipe.audit.windows import Window
from kpipe.definition.pipeline import Source
from kpipe.errors import BrokerUnreachable, InvalidPipeline, ReadFailed, ReadStalled
from resources.kafka.client_config import client_config
from resources.kafka.consumer import ends_in_time
from resources.kafka.errors import OUT_OF_RANGE, Voice, failure
from resources.kafka.rare_requests import watermark_offsets
from resources.secrets import redact, secrets_in

__all__ = ["TopicLog"]

_AT_ONCE = 5_000
_WAIT_S = 0.2
_STALL_S = 60.0
_LOG_START_S = 10.0

Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int64]
#: Gets messages in order, and their offsets.
Handle = Callable[[Sequence[Message], Offsets], None]
_error, _offset, _value = Message.error, cast("Callable[[Message], int]", Message.offset), Message.value


class TopicLog:
    """Reader of one topic; a context manager.

    Args:
        source: brokers, settings and credentials; names one topic.
        stall_s: longest time without a record, in seconds.
    """

    def __init__(self, source: Source, stall_s: float = _STALL_S) -> None:
        self._source, self._topic, self._stall = source, source.names[0], stall_s
        self._metadata: Consumer | None = None
        self._secrets: tuple[str, ...] = ()

    def __enter__(self) -> TopicLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        client, self._metadata = self._metadata, None
        if client is not None:
            ends_in_time(client.close)

    def states(self, window: Window) -> Bytes:
        """Return the `State` of each offset of a window that ends at or below the last stable offset.

        Raises:
            ReadStalled: no progress before the deadline.
            BrokerUnreachable, CredentialsRefused, TopicUnknown, ReadFailed: see `resources.kafka.errors.failure`.
        """
        states = np.zeros(len(window), np.uint8)
        try:
            self._read(window, "read_committed", states)
            gaps = np.flatnonzero(states == State.NONE)
            if len(gaps):
                part = Window(window.partition, window.start + int(gaps[0]), window.start + int(gaps[-1]) + 1)
                self._read(part, "read_uncommitted", states[gaps[0] : gaps[-1] + 1])
                # Requested last: offsets that retention removed during the read are not taken for control records.
                start = self._log_start(window.partition)
                below = states[: max(0, start - window.start)]
                below[below == State.NONE] = State.EXPIRED
        except KafkaException as error:
            raise failure(error.args[0], self._where(window), self._secrets) from None
        return states

    def records(self, window: Window, level: str, handle: Handle) -> int:
        """Pass the records of a window to a function, in order, some at a time.

        Args:
            window: ends at or below the last stable offset.
            level: isolation level.
            handle: see `Handle`.

        Returns:
            Offsets of the window that retention has removed meanwhile or before.

        Raises:
            SourceError: as `states`.
        """
        try:
            return self._consume(window, level, handle)
        except KafkaException as error:
            raise failure(error.args[0], self._where(window), self._secrets) from None

    def _read(self, window: Window, level: str, states: Bytes) -> None:
        """Record the states of the records that a consumer of this isolation level gets."""

        def record(messages: Sequence[Message], offsets: Offsets) -> None:
            places = offsets - window.start
            if level == "read_committed":
                empty = np.fromiter((_value(message) is None for message in messages), bool, len(messages))
                states[places] = np.where(empty, State.TOMBSTONE, State.VALUE)
            else:
                here = states[places]
                states[places] = np.where(here == State.NONE, State.ABORTED, here)

        self._consume(window, level, record)

    def _consume(self, window: Window, level: str, handle: Handle) -> int:
        """Read until the end of the window is proven, and return the number of offsets that retention has removed.

        The consumer is new for each window, so that no event of an earlier one proves an end.
        """
        client, voice = self._client(level)
        try:
            return self._follow(client, voice, window, handle)
        finally:
            ends_in_time(client.close)

    def _follow(self, client: Consumer, voice: Voice, window: Window, handle: Handle) -> int:
        removed = 0
        client.assign([TopicPartition(self._topic, window.partition, window.start)])
        heard, last = time.monotonic(), window.start - 1
        while last < window.end - 1:
            messages = client.consume(_AT_ONCE, 0) or client.consume(1, _WAIT_S)
            errors = [(error, message) for message in messages if (error := _error(message)) is not None]
            if errors:
                messages = [message for message in messages if _error(message) is None]
            if messages:
                voice.heard()
                heard, last = time.monotonic(), self._record(window, messages, last, handle)
            for error, message in errors:
                code = error.code()
                if code == KafkaError._PARTITION_EOF:
                    if (message.offset() or 0) >= window.end:
                        last = window.end
                elif code in OUT_OF_RANGE:
                    start = self._log_start(window.partition)
                    if start <= last + 1:
                        raise failure(error, self._where(window), self._secrets)
                    removed += min(start, window.end) - 1 - last
                    last = min(start, window.end) - 1  # retention removed these offsets
                    client.assign([TopicPartition(self._topic, window.partition, start)])
                elif message.topic() is not None:
                    raise failure(error, f"{self._where(window)}, after offset {last}", self._secrets)
                else:
                    voice.aside = error
            if not messages:
                self._check(window, voice, heard, last)
        return removed

    def _record(self, window: Window, messages: list[Message], last: int, handle: Handle) -> int:
        offsets = np.fromiter(map(_offset, messages), np.int64, len(messages))
        if offsets[0] <= last or (np.diff(offsets) <= 0).any():
            raise ReadFailed(f"{self._where(window)}: offsets do not increase after {last}", "run it again")
        inside = int(np.searchsorted(offsets, window.end))
        if inside:
            handle(messages[:inside], offsets[:inside])
        return int(offsets[-1])

    def _check(self, window: Window, voice: Voice, heard: float, last: int) -> None:
        final = voice.final(self._where(window))
        if final is not None:
            raise final
        if time.monotonic() > heard + self._stall:
            why = voice.explain()
            raise ReadStalled(
                f"{self._where(window)}: no record for {self._stall:g} s after offset {last}{f': {why}' if why else ''}",
                "check the brokers, then run it again: windows that are finished are not read again",
            )

    def _log_start(self, partition: int) -> int:
        if self._metadata is None:
            self._metadata, _ = self._client("read_committed")
        client = self._metadata
        place = TopicPartition(self._topic, partition)
        try:
            low, _ = watermark_offsets(client, place, _LOG_START_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:
                raise BrokerUnreachable(f"{self._topic}/{partition}: requesting the log start: {error.args[0].str()}") from None
            raise
        return int(low)

    def _client(self, level: str) -> tuple[Consumer, Voice]:
        config: dict[str, Any] = {**client_config(self._source), "isolation.level": level}
        self._secrets = secrets_in(config)
        voice = Voice(self._secrets)
        try:
            return Consumer(voice.connecting(config)), voice
        except (KafkaException, ValueError, TypeError) as error:
            what = redact(str(error), self._secrets)
            raise InvalidPipeline(f"the Kafka client rejects its settings: {what}") from None

    def _where(self, window: Window) -> str:
        return f"{self._topic}/{window.partition} [{window.start}, {window.end})"
