"""Which addresses requests may go to: a name is looked up once, all that it means is looked at, and that is where they go.

Requests come from inside of a network, and where they go is written in a definition. So an address that is not public is asked
only where it is allowed by name: else a definition, or somebody's DNS, could reach what stands behind a firewall, or the service
that gives a cloud's machine its secrets (169.254.169.254). A name that means another address a moment later changes nothing.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from kpipe.definition.sink_options import check_url
from kpipe.errors import DestinationBusy, InvalidPipeline
from resources.schema_registry.config import is_local

__all__ = ["VARIABLE", "Url"]

#: Names that the environment allows beside those of the definition, comma-separated.
VARIABLE = "KPIPE_WEBHOOK_ALLOW"
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an address of IPv4


@dataclass(frozen=True)
class Url:
    """Where requests go. Its text shows the host and no more: a path may be a secret.

    Attributes:
        scheme: http or https.
        host: as it is written.
        port: given, or the scheme's.
        target: path and query, as HTTP sends them.
        named: host, and port where it is given, for the header Host.
    """

    scheme: str
    host: str
    port: int
    target: str = field(repr=False)
    named: str

    @classmethod
    def of(cls, text: str) -> Url:
        """The parts of an address.

        Raises:
            InvalidPipeline: it is none, or would send records over a network in the clear.
        """
        try:
            check_url(text)
        except ValueError as error:
            raise InvalidPipeline(f"into.url: {error}") from None  # what is chained would show it
        parts = urlsplit(text)
        host = str(parts.hostname)
        if parts.scheme == "http" and not is_local(host):
            raise InvalidPipeline("into.url: http to another machine can be read and changed on the way", "use https")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        named = (f"[{host}]" if ":" in host else host) + (f":{parts.port}" if parts.port else "")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(parts.scheme, host, port, target, named)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.named}"

    def looked_up(self, allowed: Collection[str]) -> list[str]:
        """The addresses of the host, each of which may be asked.

        Args:
            allowed: hosts that may be in a private network, or on this machine.

        Raises:
            DestinationBusy: the name cannot be looked up now.
            InvalidPipeline: it means an address that is not asked.
        """
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise DestinationBusy(f"{self}: {self.host} is not known: {error}", "see the name, and the machine's DNS") from None
        by_name = self.host.lower() in {name.strip().lower().strip("[]") for name in allowed}
        for *_, address in found:
            why = _refused(ip_address(str(address[0]).partition("%")[0]), by_name)
            if why:
                named = self.host if self.host == address[0] else f"{self.host} is {address[0]}"
                raise InvalidPipeline(
                    f"{self}: {named}, {why}",
                    f"name a public server; or allow this one by its name: into.allow_hosts: [{self.host}], or {VARIABLE}",
                )
        return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _refused(address: IPv4Address | IPv6Address, by_name: bool) -> str:
    """Why an address is not asked; empty where it may be."""
    plain = _embedded(address)
    if plain.is_multicast or plain.is_unspecified or (plain.is_reserved and not plain.is_loopback):
        return "which is no machine"
    if by_name:
        return ""
    if plain.is_loopback:
        return "which is this machine"
    if plain.is_link_local or plain == ip_address("fd00:ec2::254"):
        return "which is link-local, or where clouds keep the secrets of a machine"
    site = isinstance(plain, IPv6Address) and plain.is_site_local
    return "which is in a private network" if site or not plain.is_global else ""


def _embedded(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The address of IPv4 that one of IPv6 leads to, where it does."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
