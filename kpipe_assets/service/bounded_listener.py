"""Accept a bounded number of connections at a time: each takes a file descriptor from the pipelines of the process."""

from __future__ import annotations

import socket
from typing import Any

__all__ = ["BoundedListener"]


class BoundedListener(socket.socket):
    """A listening socket that closes a further connection at once while `most` are open.

    The bound is here, because asyncio notifies the protocol of a TLS connection only after the handshake, for which a client may
    take a minute.

    Args:
        listening: file descriptor of a listening socket; it belongs to this object.
        most: connections.
    """

    def __init__(self, listening: int, most: int) -> None:
        super().__init__(fileno=listening)
        self._most = most
        self._open: set[_Connection] = set()

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection.

        Raises:
            ConnectionAbortedError: there are too many, so it was closed; asyncio waits for the next one.
        """
        accepted, address = super().accept()
        if len(self._open) >= self._most:
            accepted.close()
            raise ConnectionAbortedError("too many connections")
        connection = _Connection(accepted.detach(), self._open)
        self._open.add(connection)
        return connection, address


class _Connection(socket.socket):
    """A connection that is listed while it is open.

    Args:
        accepted: its file descriptor.
        listed: the list.
    """

    def __init__(self, accepted: int, listed: set[_Connection]) -> None:
        super().__init__(fileno=accepted)
        self._listed = listed

    def close(self) -> None:
        """Close it, and remove it from the list."""
        super().close()
        self._listed.discard(self)
