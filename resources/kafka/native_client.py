"""The client in compiled code: librdkafka, as the binding ships it, called without an object for each record."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import confluent_kafka
import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from resources.kafka.client import STEP, Event, Taken
from resources.kafka.failures import Voice
from resources.kafka.held import COLUMNS, Held
from resources.native import library

__all__ = ["NativeClient", "available"]

_P, _I, _T = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
_ERROR = ctypes.CFUNCTYPE(None, _P, _I, _T, _P)
_LOG = ctypes.CFUNCTYPE(None, _P, _I, _T, _T)
_CONSUMER = 1  # rd_kafka_type_t
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
    """The beginning of records.c's `taken`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("count", "tombstones", "some_header", "size", "events")),
        *((name, _Bytes) for name in ("values", "value_bounds", "offsets", "timestamps", "has_value")),
        *((name, _Bytes) for name in ("keys", "key_bounds", "has_key", "headers", "header_bounds")),
        ("event", _Event * _EVENTS),
    )


@lru_cache(maxsize=1)
def _rdkafka() -> ctypes.CDLL | None:
    """The library inside the binding's wheel; None where it is built in otherwise."""
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
            ("rd_kafka_poll_set_consumer", _I, [_P]),
            ("rd_kafka_queue_get_consumer", _P, [_P]),
            ("rd_kafka_queue_destroy", None, [_P]),
            ("rd_kafka_topic_partition_list_new", _P, [_I]),
            ("rd_kafka_topic_partition_list_add", _P, [_P, _T, ctypes.c_int32]),
            ("rd_kafka_topic_partition_list_set_offset", _I, [_P, _T, ctypes.c_int32, ctypes.c_int64]),
            ("rd_kafka_topic_partition_list_destroy", None, [_P]),
            ("rd_kafka_assign", _I, [_P, _P]),
            ("rd_kafka_consumer_close", _I, [_P]),
            ("rd_kafka_destroy", None, [_P]),
        ):
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
        return found
    return None


def available() -> bool:
    """Whether the compiled part and librdkafka are there."""
    return library() is not None and _rdkafka() is not None


class NativeClient:
    """See `Client`; the arguments are those of `BindingClient`.

    Raises:
        KafkaException: the settings are refused.
    """

    def __init__(self, config: Mapping[str, Any], voice: Voice, topic: str, partition: int, start: int) -> None:
        kafka, native = _rdkafka(), library()
        assert kafka is not None and native is not None
        self._kafka, self._native = kafka, native
        self._client: Any = None
        self._queue: Any = None
        self._taken: Any = None
        # Kept as long as the client lives: it calls them.
        self._calls = (_ERROR(_heard(voice)), _LOG(_logged(voice)))
        text = ctypes.create_string_buffer(_TEXT)
        conf = kafka.rd_kafka_conf_new()
        for name, value in {**config, "log.queue": "true"}.items():
            asked = str(value).lower() if isinstance(value, bool) else str(value)
            if kafka.rd_kafka_conf_set(conf, name.encode(), asked.encode(), text, _TEXT):
                kafka.rd_kafka_conf_destroy(conf)
                raise KafkaException(KafkaError(KafkaError._INVALID_ARG, _text(text.value)))
        kafka.rd_kafka_conf_set_error_cb(conf, self._calls[0])
        kafka.rd_kafka_conf_set_log_cb(conf, self._calls[1])
        self._client = kafka.rd_kafka_new(_CONSUMER, conf, text, _TEXT)
        if not self._client:
            kafka.rd_kafka_conf_destroy(conf)
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, _text(text.value)))
        kafka.rd_kafka_set_log_queue(self._client, None)
        kafka.rd_kafka_poll_set_consumer(self._client)
        self._queue = kafka.rd_kafka_queue_get_consumer(self._client)
        self._taken = native.kp_taken_new((_P * 6)(*(ctypes.cast(getattr(kafka, name), _P) for name in _CALLED)))
        places = kafka.rd_kafka_topic_partition_list_new(1)
        kafka.rd_kafka_topic_partition_list_add(places, topic.encode(), partition)
        kafka.rd_kafka_topic_partition_list_set_offset(places, topic.encode(), partition, start)
        code = kafka.rd_kafka_assign(self._client, places)
        kafka.rd_kafka_topic_partition_list_destroy(places)
        if code:
            self.close()
            raise KafkaException(KafkaError(code))

    def take(self, most: int, most_bytes: int, wait_s: float) -> Taken:
        """See `Client`."""
        done = self._native.kp_take(self._taken, self._queue, int(wait_s * 1000), most, most_bytes, STEP)
        if done < 0:
            raise MemoryError("records of a block")
        taken = _Taken.from_address(self._taken)
        events = tuple(
            Event(KafkaError(item.code, _text(item.text)), item.offset, bool(item.about_partition))
            for item in taken.event[: taken.events]
        )
        return Taken(_held(taken), taken.size, events)

    def close(self) -> None:
        """See `Client`."""
        if self._queue:
            self._kafka.rd_kafka_queue_destroy(self._queue)
        if self._client:
            self._kafka.rd_kafka_consumer_close(self._client)
            self._kafka.rd_kafka_destroy(self._client)
        if self._taken:
            self._native.kp_taken_free(self._taken)
        self._client = self._queue = self._taken = None


# In the order of records.c's `client`.
_CALLED = (
    "rd_kafka_consume_batch_queue", "rd_kafka_message_destroy", "rd_kafka_message_timestamp", "rd_kafka_message_headers",
    "rd_kafka_header_get_all", "rd_kafka_message_errstr",
)  # fmt: skip


def _held(taken: _Taken) -> Held:
    count = taken.count
    if not count:
        return Held()
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
    return Held(pa.Table.from_arrays([*numbers, line, key, packed], schema=COLUMNS))


def _none_where_minus_one(headers: pa.Array) -> pa.Array:
    none = b"\xff\xff\xff\xff"
    return pa.array([None if item == none else item for item in headers.to_pylist()], pa.binary())


def _buffer(item: _Bytes) -> pa.Buffer:
    """A copy: the next `take` writes over it."""
    return pa.py_buffer(ctypes.string_at(item.at, item.used) if item.used else b"")


def _bitmap(item: _Bytes) -> pa.Buffer:
    flags = np.frombuffer(ctypes.string_at(item.at, item.used), np.uint8)
    return pa.py_buffer(np.packbits(flags, bitorder="little").tobytes())


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _heard(voice: Voice) -> Callable[[Any, int, bytes, Any], None]:
    return lambda _client, code, reason, _opaque: voice.hear(KafkaError(code, _text(reason or b"")))


def _logged(voice: Voice) -> Callable[[Any, int, bytes, bytes], None]:
    return lambda _client, level, place, line: voice.log(_LEVELS[level], "%s [client] %s", _text(place), _text(line))
