"""Decide which hosts and tokens a web server accepts.

This module needs no web server, so that `kpipe ui` and `kpipe serve` can report that none is installed.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
from dataclasses import dataclass
from pathlib import Path

from kpipe.errors import InvalidPipeline

__all__ = ["Rules", "check_reachable", "is_loopback"]


@dataclass(frozen=True)
class Rules:
    """Access rules of the web server.

    Attributes:
        host: address that the server listens on.
        port: port that it listens on; part of the cookie's name, since browsers send cookies to every port.
        names: further names that the Host header may contain, without port.
        token: secret that clients send; None if every client of the port may do everything.
    """

    host: str
    port: int
    names: tuple[str, ...] = ()
    token: str | None = None

    @classmethod
    def read(cls, file: Path) -> Rules:
        """Read what `write` wrote."""
        values = json.loads(file.read_text(encoding="utf-8"))
        return cls(values["host"], values["port"], tuple(values["names"]), values["token"])

    def write(self, file: Path) -> None:
        """Write the rules into a folder that is private already."""
        values = {"host": self.host, "port": self.port, "names": self.names, "token": self.token}
        file.write_text(json.dumps(values), encoding="utf-8")

    @property
    def cookie(self) -> str:
        """Name of the cookie."""
        return f"kpipe-{self.port}"

    def allows(self, name: str) -> bool:
        """Return whether the Host header may contain this name: a lower-case host, without port and brackets."""
        if name in ("localhost", self.host.lower(), *(item.lower() for item in self.names)):
            return True
        # No page's name is an address, so that none can be rebound. A server on loopback is reached by loopback addresses only.
        return is_loopback(name) or (_address(name) is not None and not is_loopback(self.host))

    def knows(self, given: str) -> bool:
        """Return whether this is the token, in constant time."""
        return self.token is not None and hmac.compare_digest(given.encode(), self.token.encode())


def check_reachable(rules: Rules, tls: bool) -> None:
    """Check that a service which other machines can reach has a token and TLS.

    Raises:
        InvalidPipeline: it has not.
    """
    if is_loopback(rules.host):
        return
    if rules.token is None:
        raise InvalidPipeline(
            f"--host {rules.host}: other machines can reach this address: expected a token, found none",
            "set --token-file FILE, or listen on 127.0.0.1",
        )
    if not tls:
        raise InvalidPipeline(
            f"--host {rules.host}: other machines can reach this address, and the token would be sent unencrypted: expected TLS,"
            " found none",
            "set --tls-certificate FILE and --tls-key FILE, or listen on 127.0.0.1 behind a proxy",
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to the host."""
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
