"""Client in compiled code: calls librdkafka from the binding's wheel without a Python object for each record."""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import confluent_kafka
import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from resources.kafka import native_token
from resources.kafka.consumer import STEP, Event, Taken, ends_in_time
from resources.kafka.errors import Voice
from resources.kafka.record_block import COLUMNS, RecordBlock
from resources.kafka.token_source import SETTING, TokenSource
from resources.native import library

__all__ = ["NativeClient", "available"]

_P, _I, _T = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
_ERROR = ctypes.CFUNCTYPE(None, _P, _I, _T, _P)
_LOG = ctypes.CFUNCTYPE(None, _P, _I, _T, _T)
_CONSUMER = 1  # rd_kafka_type_t
_NO_CONSUMER_CLOSE = 8  # RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE: it is in no group
_TEXT = 512  # longest error text, as in records.c
_EVENTS = 16
_LEVELS = (logging.CRITICAL,) * 3 + (logging.ERROR, logging.WARNING, logging.INFO, logging.INFO, logging.DEBUG)  # syslog's


class _Bytes(ctypes.Structure):
    _fields_ = (("at", _P), ("used", ctypes.c_size_t), ("room", ctypes.c_size_t))


class _Event(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_int32),
        ("about_partition", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("text", ctypes.c_char * _TEXT),
    )


class _Taken(ctypes.Structure):
    """First fields of the struct `taken` in records.c."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("count", "tombstones", "some_header", "size", "events")),
        *((name, _Bytes) for name in ("values", "value_bounds", "offsets", "timestamps", "has_value")),
        *((name, _Bytes) for name in ("keys", "key_bounds", "has_key", "headers", "header_bounds")),
        ("event", _Event * _EVENTS),
    )


@lru_cache(maxsize=1)
def _rdkafka() -> ctypes.CDLL | None:
    """Return the library inside the binding's wheel, or None if it is linked in another way."""
    package = Path(confluent_kafka.__file__).parent
    for file in (*package.parent.glob("confluent_kafka.libs/librdkafka*"), *package.glob(".dylibs/librdkafka*.dylib")):
        found = ctypes.CDLL(str(file))
        for name, result, arguments in (
            ("rd_kafka_conf_new", _P, []),
            ("rd_kafka_conf_destroy", None, [_P]),
            ("rd_kafka_conf_set", _I, [_P, _T, _T, _T, ctypes.c_size_t]),
            ("rd_kafka_conf_set_error_cb", None, [_P, _ERROR]),
            ("rd_kafka_conf_set_log_cb", None, [_P, _LOG]),
            ("rd_kafka_new", _P, [_I, _P, _T, ctypes.c_size_t]),
            ("rd_kafka_set_log_queue", _I, [_P, _P]),
            ("rd_kafka_poll", _I, [_P, _I]),
            ("rd_kafka_topic_new", _P, [_P, _T, _P]),
            ("rd_kafka_topic_destroy", None, [_P]),
            ("rd_kafka_queue_new", _P, [_P]),
            ("rd_kafka_queue_destroy", None, [_P]),
            ("rd_kafka_consume_start_queue", _I, [_P, ctypes.c_int32, ctypes.c_int64, _P]),
            ("rd_kafka_consume_stop", _I, [_P, ctypes.c_int32]),
            ("rd_kafka_last_error", _I, []),
            ("rd_kafka_destroy_flags", None, [_P, _I]),
        ):
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
        native_token.declare(found)
        return found
    return None


def available() -> bool:
    """Return True if the compiled part and librdkafka are available."""
    return library() is not None and _rdkafka() is not None


class _Connection:
    """Connected client, used by any number of reads at once, and the buffers that reads fill.

    From opening a connection to its first record takes at least 20 ms (threads, connections, metadata), so a worker keeps
    it for its next ranges. It belongs to no group and stores nothing.

    Attributes:
        voices: of the reads that use it.
        places: topic and partition of each.
        spoiled: whether one of its reads failed; no other read starts on it.
        left: when the last read ended, in seconds (monotonic).
    """

    def __init__(self, config: Mapping[str, str], source: TokenSource | None, voice: Voice) -> None:
        kafka, native = _rdkafka(), library()
        assert kafka is not None and native is not None
        self.kafka, self.native = kafka, native
        self.voices: list[Voice] = [voice]
        self.places: set[tuple[str, int]] = set()
        self.spoiled, self.left = False, time.monotonic()
        # librdkafka calls them, so they are referenced as long as the client exists.
        self._calls = (_ERROR(self._heard), _LOG(self._logged))
        self._tokens = native_token.Tokens(kafka, source, self.voices) if source is not None else None
        text = ctypes.create_string_buffer(_TEXT)
        conf = kafka.rd_kafka_conf_new()
        for name, value in {**config, "log.queue": "true"}.items():
            if kafka.rd_kafka_conf_set(conf, name.encode(), value.encode(), text, _TEXT):
                kafka.rd_kafka_conf_destroy(conf)
                raise KafkaException(KafkaError(KafkaError._INVALID_ARG, _text(text.value)))
        kafka.rd_kafka_conf_set_error_cb(conf, self._calls[0])
        kafka.rd_kafka_conf_set_log_cb(conf, self._calls[1])
        if self._tokens is not None:
            self._tokens.register(conf)
        self.client = kafka.rd_kafka_new(_CONSUMER, conf, text, _TEXT)
        if not self.client:
            kafka.rd_kafka_conf_destroy(conf)
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, _text(text.value)))
        kafka.rd_kafka_set_log_queue(self.client, None)
        self._buffers: list[int] = []
        if self._tokens is not None:
            self._tokens.renew(self.client)

    def poll(self) -> None:
        """Receive errors, log lines and requests for tokens."""
        self.kafka.rd_kafka_poll(self.client, 0)
        if self._tokens is not None:
            self._tokens.retry(self.client)

    def borrow(self) -> int:
        """Return buffers that no other read uses meanwhile."""
        try:
            return self._buffers.pop()
        except IndexError:
            made: int = self.native.kp_taken_new((_P * 6)(*(ctypes.cast(getattr(self.kafka, name), _P) for name in _CALLED)))
            return made

    def give_back(self, buffers: int) -> None:
        """Return buffers for use by the next read."""
        self._buffers.append(buffers)

    def end(self) -> None:
        while self._buffers:
            self.native.kp_taken_free(self._buffers.pop())
        self.kafka.rd_kafka_destroy_flags(self.client, _NO_CONSUMER_CLOSE)

    def _heard(self, _client: Any, code: int, reason: bytes, _opaque: Any) -> None:
        for voice in list(self.voices):
            voice.hear(KafkaError(code, _text(reason or b"")))

    def _logged(self, _client: Any, level: int, place: bytes, line: bytes) -> None:
        for voice in list(self.voices):
            voice.log(_LEVELS[level], "%s [client] %s", _text(place), _text(line))


_Key = tuple[int, tuple[tuple[str, str], ...], TokenSource | None]
# Connections by settings and process: the threads of a connection do not exist in a forked process.
_KEPT: dict[_Key, _Connection] = {}
_LOCK = threading.Lock()
_KEPT_SECONDS = 60.0
"""A connection that was idle for longer is not used again: its metadata of the topic may be outdated."""


class NativeClient:
    """Client in compiled code; see `Client`. The other arguments are those of `BindingClient`.

    Records arrive in a queue created for this read, so it cannot contain records of an earlier read.

    Args:
        fresh: whether to open a connection even if one is kept.

    Raises:
        KafkaException: librdkafka rejects the settings.
    """

    def __init__(
        self, config: Mapping[str, Any], voice: Voice, topic: str, partition: int, start: int, fresh: bool = False
    ) -> None:
        tokens = config.get(SETTING)
        given = ((key, value) for key, value in config.items() if key != SETTING)
        settings = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in given}
        self._key = (os.getpid(), tuple(sorted(settings.items())), tokens)
        self._voice, self._partition, self._buffers = voice, partition, 0
        self._connection: _Connection | None
        self._place = topic, partition
        self._connection, self.fresh = _join(self._key, settings, voice, self._place, fresh)
        kafka = self._connection.kafka
        self._topic = kafka.rd_kafka_topic_new(self._connection.client, topic.encode(), None)
        self._queue = kafka.rd_kafka_queue_new(self._connection.client)
        if not self._topic or kafka.rd_kafka_consume_start_queue(self._topic, partition, start, self._queue):
            code = kafka.rd_kafka_last_error()
            self._partition = -1  # there is nothing to stop
            self.close()
            raise KafkaException(KafkaError(code))

    def take(self, most: int, most_bytes: int, wait_s: float) -> Taken:
        """See `Client`."""
        connection = self._connection
        assert connection is not None
        self._buffers = self._buffers or connection.borrow()
        done = connection.native.kp_take(self._buffers, self._queue, int(wait_s * 1000), most, most_bytes, STEP)
        if done < 0:
            raise MemoryError("records of a block")
        connection.poll()
        taken = _Taken.from_address(self._buffers)
        events = tuple(
            Event(KafkaError(item.code, _text(item.text)), item.offset, bool(item.about_partition))
            for item in taken.event[: taken.events]
        )
        return Taken(_held(taken), taken.size, events)

    def close(self, keep: bool = False) -> None:
        """See `Client`."""
        connection, self._connection = self._connection, None
        if connection is None:
            return

        def work() -> None:
            kafka = connection.kafka
            if self._partition >= 0:
                kafka.rd_kafka_consume_stop(self._topic, self._partition)
            kafka.rd_kafka_queue_destroy(self._queue)
            if self._topic:
                kafka.rd_kafka_topic_destroy(self._topic)
            if self._buffers:
                connection.give_back(self._buffers)
            if _leave(self._key, connection, self._voice, self._place, keep):
                connection.end()

        if not ends_in_time(work):
            _spoil(self._key, connection)


def _join(key: _Key, settings: Mapping[str, str], voice: Voice, place: tuple[str, int], fresh: bool) -> tuple[_Connection, bool]:
    """Return the kept connection or a new one, and whether it is new.

    Two reads of one partition never share a connection: librdkafka would take them for one read and abort the process.
    """
    idle_since = time.monotonic() - _KEPT_SECONDS
    with _LOCK:
        # Also those of other keys: one with a password that was replaced would try to log in forever.
        idle = [item for item, one in _KEPT.items() if item[0] == key[0] and not one.voices and one.left < idle_since]
        old = [_KEPT.pop(item) for item in idle]
        kept = None if fresh else _KEPT.get(key)
        if kept is not None and place in kept.places:
            kept = None
        if kept is not None:
            kept.voices.append(voice)
            kept.places.add(place)
    for one in old:
        ends_in_time(one.end)
    if kept is not None:
        return kept, False
    made = _Connection(settings, key[2], voice)
    made.places.add(place)
    with _LOCK:
        _KEPT.setdefault(key, made)
    return made, True


def _spoil(key: _Key, connection: _Connection) -> None:
    """Prevent other reads from starting on a connection."""
    with _LOCK:
        connection.spoiled = True
        if _KEPT.get(key) is connection:
            del _KEPT[key]


def _leave(key: _Key, connection: _Connection, voice: Voice, place: tuple[str, int], keep: bool) -> bool:
    """Unregister a read that has stopped; return True if its connection is to be closed, too."""
    with _LOCK:
        connection.voices.remove(voice)
        connection.places.discard(place)
        connection.left = time.monotonic()
        connection.spoiled = connection.spoiled or not keep
        if connection.spoiled and _KEPT.get(key) is connection:
            del _KEPT[key]
        return not connection.voices and _KEPT.get(key) is not connection


# In the order of records.c's `client`.
_CALLED = (
    "rd_kafka_consume_batch_queue", "rd_kafka_message_destroy", "rd_kafka_message_timestamp", "rd_kafka_message_headers",
    "rd_kafka_header_get_all", "rd_kafka_message_errstr",
)  # fmt: skip


def _held(taken: _Taken) -> RecordBlock:
    count = taken.count
    if not count:
        return RecordBlock()
    some = (taken.tombstones > 0, True, bool(taken.some_header))
    line, key, headers = (
        pa.Array.from_buffers(kind, count, [_bitmap(present) if present and wanted else None, _buffer(bounds), _buffer(data)])
        for kind, present, wanted, bounds, data in (
            (pa.large_binary(), taken.has_value, some[0], taken.value_bounds, taken.values),
            (pa.binary(), taken.has_key, some[1], taken.key_bounds, taken.keys),
            (pa.large_binary(), None, some[2], taken.header_bounds, taken.headers),
        )
    )
    packed = pa.nulls(count, pa.binary()) if not some[2] else _none_where_minus_one(headers)
    numbers = [pa.Array.from_buffers(pa.int64(), count, [None, _buffer(item)]) for item in (taken.offsets, taken.timestamps)]
    return RecordBlock(pa.Table.from_arrays([*numbers, line, key, packed], schema=COLUMNS))


def _none_where_minus_one(headers: pa.Array) -> pa.Array:
    none = b"\xff\xff\xff\xff"
    return pa.array([None if item == none else item for item in headers.to_pylist()], pa.binary())


def _buffer(item: _Bytes) -> pa.Buffer:
    """Return a copy: the next `take` overwrites the buffer."""
    return pa.py_buffer(ctypes.string_at(item.at, item.used) if item.used else b"")


def _bitmap(item: _Bytes) -> pa.Buffer:
    flags = np.frombuffer(ctypes.string_at(item.at, item.used), np.uint8)
    return pa.py_buffer(np.packbits(flags, bitorder="little").tobytes())


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
