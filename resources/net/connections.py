"""Connections of urllib3 with one deadline and one size limit for a whole exchange.

The timeouts of urllib3 and http.client apply to each read. A peer can send one byte at a time (of a status line, a header,
a chunk extension, a trailer), or repeat `100 Continue`, without end. So before each call the sockets set
their timeout to the time that is left of the exchange, and count the bytes that they receive.
"""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import NameResolutionError, NewConnectionError

__all__ = ["Connections", "Exchange", "Pool", "TlsPool", "TooMuch", "exchange"]

#: Limit in bytes before the body: status line, headers and all interim answers (1xx) together.
MOST_BEFORE_BODY = 64 << 10
#: Limit of bytes on the wire for each byte of a body: a chunk of one byte takes six.
_FRAMING = 8


class TooMuch(Exception):
    """The peer has sent more bytes than the exchange allows."""


@dataclass
class Exchange:
    """The limits and the progress of one request and its answer.

    Attributes:
        ends: the deadline, in monotonic seconds.
        largest: limit of the answer's body, in bytes.
        status: the HTTP status; 0 until the headers are read.
        received: bytes received, without those of TLS.
    """

    ends: float
    largest: int
    status: int = 0
    received: int = 0

    @property
    def late(self) -> bool:
        """True if the deadline has passed."""
        return time.monotonic() >= self.ends

    def left(self) -> float:
        """Return the seconds until the deadline.

        Raises:
            TimeoutError: the deadline has passed.
        """
        seconds = self.ends - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the deadline of the exchange has passed")
        return seconds

    def took(self, count: int) -> int:
        """Add received bytes, and return their number.

        Raises:
            TooMuch: the exchange has exceeded its limit.
        """
        self.received += count
        most = MOST_BEFORE_BODY + (_FRAMING * self.largest if self.status else 0)
        if self.received > most + _BUFFER:
            where = "with its framing" if self.status else "before its body"
            raise TooMuch(f"the answer has more than {most:,} bytes {where}")
        return count


_BUFFER = 8192  # http.client reads this far ahead: bytes of the body may arrive with the headers
_now: ContextVar[Exchange | None] = ContextVar("exchange", default=None)


@contextmanager
def exchange(ends: float, largest: int) -> Iterator[Exchange]:
    """Limit this thread's calls on this module's connections to one exchange."""
    current = Exchange(ends, largest)
    token = _now.set(current)
    try:
        yield current
    finally:
        _now.reset(token)


def _left() -> float | None:
    current = _now.get()
    return None if current is None else current.left()


def _took(count: int) -> int:
    current = _now.get()
    return count if current is None else current.took(count)


class _Socket(socket.socket):
    """A socket whose calls end at the exchange's deadline."""

    def connect(self, address: Any) -> None:
        self.settimeout(_left())
        super().connect(address)

    def recv_into(self, *args: Any, **more: Any) -> int:
        self.settimeout(_left())
        return _took(super().recv_into(*args, **more))

    def sendall(self, *args: Any, **more: Any) -> None:
        self.settimeout(_left())
        super().sendall(*args, **more)


class _TlsSocket(ssl.SSLSocket):
    """A TLS socket whose calls end at the exchange's deadline: ssl's timeout covers all reads of one call."""

    def do_handshake(self, block: bool = False) -> None:
        self.settimeout(_left())
        super().do_handshake(block)

    def recv_into(self, *args: Any, **more: Any) -> int:
        self.settimeout(_left())
        return _took(super().recv_into(*args, **more))

    def send(self, *args: Any, **more: Any) -> int:  # `sendall` calls it
        self.settimeout(_left())
        return super().send(*args, **more)


def _connected(connection: HTTPConnection) -> socket.socket:
    """Connect to one of the host's addresses. The system's resolver limits the time of the name lookup."""
    try:
        found = socket.getaddrinfo(connection._dns_host, connection.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise NameResolutionError(connection.host, connection, socket.gaierror(str(error))) from error
    failed: OSError | None = None
    for family, kind, protocol, _, address in found:
        made = _Socket(family, kind, protocol)
        try:
            for option in connection.socket_options or ():
                made.setsockopt(*option)
            made.connect(address)
            return made
        except OSError as error:
            made.close()
            failed = error
    raise NewConnectionError(connection, f"Failed to establish a new connection: {failed}") from failed


class _Connection(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        return _connected(self)


class _TlsConnection(HTTPSConnection):
    def _new_conn(self) -> socket.socket:
        return _connected(self)

    def connect(self) -> None:
        self.ssl_context = self.ssl_context or ssl.create_default_context()
        self.ssl_context.sslsocket_class = _TlsSocket
        super().connect()


class Pool(urllib3.HTTPConnectionPool):
    """Connections to one host."""

    ConnectionCls = _Connection


class TlsPool(urllib3.HTTPSConnectionPool):
    """Connections to one host, with TLS."""

    ConnectionCls = _TlsConnection


class Connections(urllib3.PoolManager):
    """Connections to any host."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.pool_classes_by_scheme = {"http": Pool, "https": TlsPool}


def _is_foreign(_: logging.LogRecord) -> bool:
    """Drop urllib3's log lines during an exchange: they contain the URL, whose path may be a secret."""
    return _now.get() is None


for _name in ("urllib3.connection", "urllib3.connectionpool"):
    logging.getLogger(_name).addFilter(_is_foreign)
