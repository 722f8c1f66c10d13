"""Ports for servers of tests, chosen before the servers start."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path

__all__ = ["free_port"]

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_chance = random.SystemRandom()  # processes that test side by side choose others
_given: set[int] = set()
_TAKEN = range(20_000, 30_000)  # local brokers choose ports of their own there (resources/dev_broker/broker.py)


def free_port() -> int:
    """Return a port that no process listens on now, another one each time.

    The system gives none of these ports to a client. It would give it away before the server has started, or while it restarts.
    """
    first, last = 10_000, 32_768
    with suppress(OSError, ValueError):
        last = max(first + 2000, int(_RANGE.read_text().split()[0]))
    while True:
        port = _chance.randrange(first, last)
        if port in _given or port in _TAKEN:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
