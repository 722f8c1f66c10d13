"""Limit how long a client waits for a database server that does not answer."""

from __future__ import annotations

import time

from kpipe.errors import DestinationBusy

__all__ = ["ServerTimeout"]


class ServerTimeout:
    """Limit the wait for a server: per connection in a run, once for all connections of a statement.

    Args:
        seconds: longest wait of one connection.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._once = False
        self._failure: DestinationBusy | None = None

    def hurry(self, seconds: float) -> None:
        """Wait at most this long, and once: a client that waits for a statement does not wait for each of its connections."""
        self.seconds, self._once = seconds, True

    def deadline(self) -> float:
        """Return the end of a connection's wait, as a time of the monotonic clock.

        Raises:
            DestinationBusy: the server did not answer an earlier connection of the same statement.
        """
        if self._failure is not None:
            raise self._failure
        return time.monotonic() + self.seconds

    def over(self, server: str, reason: str) -> DestinationBusy:
        """Return the error of a server that did not answer in time."""
        error = DestinationBusy(
            f"{server} did not answer within {self.seconds:g} s: {reason}", "start it, or check into.database; then run it again"
        )
        if self._once:
            self._failure = error
        return error
