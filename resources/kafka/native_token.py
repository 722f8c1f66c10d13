"""Give tokens to a client of librdkafka that compiled code uses, without confluent-kafka."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from kpipe.errors import CredentialsRefused, KpipeError
from resources.kafka.errors import Voice
from resources.kafka.token_source import TokenSource

__all__ = ["Tokens", "declare"]

_P, _T = ctypes.c_void_p, ctypes.c_char_p
# The callback that librdkafka calls for a new token, from `rd_kafka_poll`.
_REFRESH = ctypes.CFUNCTYPE(None, _P, _T, _P)
_TEXT = 512
_RETRY_SECONDS = 1.0


def declare(kafka: Any) -> None:
    """Declare the functions about tokens."""
    pairs = ctypes.POINTER(_T)
    for name, result, arguments in (
        ("rd_kafka_conf_set_oauthbearer_token_refresh_cb", None, [_P, _REFRESH]),
        (
            "rd_kafka_oauthbearer_set_token", ctypes.c_int,
            [_P, _T, ctypes.c_int64, _T, pairs, ctypes.c_size_t, _T, ctypes.c_size_t],
        ),
        ("rd_kafka_oauthbearer_set_token_failure", ctypes.c_int, [_P, _T]),
    ):  # fmt: skip
        function = getattr(kafka, name)
        function.restype, function.argtypes = result, arguments


class Tokens:
    """Tokens of one client.

    Args:
        kafka: librdkafka.
        source: where tokens come from.
        voices: of the reads that use the client; each records whether it has a token.

    Raises:
        KpipeError: no token could be obtained; see `TokenSource.token`.
    """

    def __init__(self, kafka: Any, source: TokenSource, voices: Sequence[Voice]) -> None:
        source.token()  # its errors are clearer than a client's
        self._kafka, self._source, self._voices = kafka, source, voices
        self._failed_at: float | None = None
        self._call = _REFRESH(self._refresh)  # referenced as long as the client exists

    def register(self, conf: int) -> None:
        """Let librdkafka call for new tokens."""
        self._kafka.rd_kafka_conf_set_oauthbearer_token_refresh_cb(conf, self._call)

    def renew(self, client: int) -> None:
        """Give a client the current token, or the reason why there is none."""
        failed: KpipeError | None = None
        try:
            self._set(client)
        except KpipeError as error:
            failed = error
        except KafkaException as error:
            failed = CredentialsRefused(f"token: {error.args[0].str()}", "check what issues the tokens")
        self._failed_at = None if failed is None else time.monotonic()
        for voice in list(self._voices):
            voice.renewal(failed)
        if failed is not None:
            self._kafka.rd_kafka_oauthbearer_set_token_failure(client, failed.what.encode())

    def retry(self, client: int) -> None:
        """Try again after a failure. librdkafka itself would do that after ten seconds."""
        if self._failed_at is not None and time.monotonic() > self._failed_at + _RETRY_SECONDS:
            self.renew(client)

    def _refresh(self, client: int, _config: bytes, _opaque: Any) -> None:
        self.renew(client)

    def _set(self, client: int) -> None:
        value, expires, principal, extensions = self._source()
        flat = [part.encode() for pair in extensions.items() for part in pair]
        array, why = (_T * len(flat))(*flat), ctypes.create_string_buffer(_TEXT)
        code = self._kafka.rd_kafka_oauthbearer_set_token(
            client, value.encode(), int(expires * 1000), principal.encode(), array, len(flat), why, _TEXT
        )
        if code:
            raise KafkaException(KafkaError(KafkaError._AUTHENTICATION, why.value.decode("utf-8", "replace")))
