"""Decide which addresses requests may reach: resolve a name once, check every address of it, connect only to these.

Requests are sent from inside a network, to a URL from a definition. So addresses that are not public are reached only if their
host is allowed by name. Else a definition, or foreign DNS, could reach hosts behind a firewall, or a cloud's metadata service
(169.254.169.254), which hands out the machine's credentials. A later change of the name's address has no effect.
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

#: Environment variable with more allowed hosts, comma-separated.
VARIABLE = "KPIPE_WEBHOOK_ALLOW"
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address


@dataclass(frozen=True)
class Url:
    """The URL of requests. As text it shows scheme and host only, as a path may be a secret.

    Attributes:
        scheme: http or https.
        host: as written.
        port: as written, or the scheme's default.
        target: path and query, as HTTP sends them.
        named: host, and port if written, for the header Host.
    """

    scheme: str
    host: str
    port: int
    target: str = field(repr=False)
    named: str

    @classmethod
    def of(cls, text: str) -> Url:
        """Parse a URL.

        Raises:
            InvalidPipeline: the URL is invalid, or would send records unencrypted over a network.
        """
        try:
            check_url(text)
        except ValueError as error:
            raise InvalidPipeline(f"into.url: {error}") from None  # a chained exception would show the URL
        parts = urlsplit(text)
        host = str(parts.hostname)
        if parts.scheme == "http" and not is_local(host):
            raise InvalidPipeline(
                "into.url: expected https, found http to another machine: traffic can be read and changed", "use https"
            )
        port = parts.port or (443 if parts.scheme == "https" else 80)
        named = (f"[{host}]" if ":" in host else host) + (f":{parts.port}" if parts.port else "")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(parts.scheme, host, port, target, named)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.named}"

    def looked_up(self, allowed: Collection[str]) -> list[str]:
        """Resolve the host to addresses, all of which may be reached.

        Args:
            allowed: hosts that may be in a private network, or on this machine.

        Raises:
            DestinationBusy: the name cannot be resolved now.
            InvalidPipeline: an address may not be reached.
        """
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise DestinationBusy(
                f"{self}: {self.host} cannot be resolved: {error}", "check the host in into.url, and this machine's DNS"
            ) from None
        by_name = self.host.lower() in {name.strip().lower().strip("[]") for name in allowed}
        for *_, address in found:
            why = _refused(ip_address(str(address[0]).partition("%")[0]), by_name)
            if why:
                named = self.host if self.host == address[0] else f"{self.host} is {address[0]}"
                raise InvalidPipeline(
                    f"{self}: {named}, {why}",
                    f"use a public server; or allow this host: into.allow_hosts: [{self.host}], or the variable {VARIABLE}",
                )
        return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _refused(address: IPv4Address | IPv6Address, by_name: bool) -> str:
    """Return why an address may not be reached; empty if it may."""
    plain = _embedded(address)
    if plain.is_multicast or plain.is_unspecified or (plain.is_reserved and not plain.is_loopback):
        return "which is not a host address"
    if by_name:
        return ""
    if plain.is_loopback:
        return "which is this machine"
    if plain.is_link_local or plain == ip_address("fd00:ec2::254"):
        return "which is link-local or a cloud's metadata service"
    site = isinstance(plain, IPv6Address) and plain.is_site_local
    return "which is in a private network" if site or not plain.is_global else ""


def _embedded(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that an IPv6 address embeds, if any."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
