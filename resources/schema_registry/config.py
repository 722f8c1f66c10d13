"""How a pipeline gets at its schema registry: time limit, TLS, and secrets. Plain values that pickle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from kpipe.definition.formats import Format
from kpipe.errors import InvalidPipeline
from resources.secrets import Secret

__all__ = ["CREDENTIALS", "PREFIX", "SETTINGS", "Access", "address", "check_registry", "is_local"]

PREFIX: Final = "schema.registry."

SETTINGS: Final = frozenset(
    PREFIX + name for name in ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "timeout.ms", "username")
)
"""What `source.config` may hold for the registry. The name is no secret, as that of SASL is none."""

CREDENTIALS: Final = frozenset(PREFIX + name for name in ("username", "password", "token"))
"""What `source.credentials` may hold for it: a name and a password, or a token."""


@dataclass(frozen=True)
class Access:
    """What a client of the registry needs beside its address. Its repr shows no secret.

    Attributes:
        username, password: for basic authentication; empty: none.
        token: for `Authorization: Bearer`; empty: none.
        ca, certificate, key: paths of PEM files; empty: the machine's authorities, no certificate of our own.
        timeout_s: longest time for an answer as a whole.
        clear: whether credentials may be sent without TLS to another machine.
    """

    username: str = Secret("")
    password: str = Secret("")
    token: str = Secret("")
    ca: str = ""
    certificate: str = ""
    key: str = ""
    timeout_s: float = 10.0
    clear: bool = False

    @classmethod
    def of(cls, config: Mapping[str, str], credentials: Mapping[str, str], clear: bool) -> Access:
        """From settings that begin with `PREFIX`; others are not looked at.

        Raises:
            InvalidPipeline: the time limit is no number, or credentials are of two kinds or half of one.
        """
        both = {**config, **credentials}
        hidden = {name: Secret(both.get(PREFIX + name, "")) for name in ("username", "password", "token")}
        if bool(hidden["username"]) != bool(hidden["password"]):
            raise InvalidPipeline(f"source.credentials: {PREFIX}username and {PREFIX}password go together", "give both")
        if hidden["token"] and hidden["username"]:
            raise InvalidPipeline(f"source.credentials: {PREFIX}token and {PREFIX}username are two ways", "keep one of them")
        given = config.get(f"{PREFIX}timeout.ms", "10000")
        if not given.isdecimal() or int(given) < 1:
            raise InvalidPipeline(f"source.config: {PREFIX}timeout.ms is {given!r}", "write milliseconds, such as 10000")
        files = {name: config.get(f"{PREFIX}ssl.{name}.location", "") for name in ("ca", "certificate", "key")}
        return cls(**hidden, **files, timeout_s=int(given) / 1000, clear=clear)

    @property
    def secrets(self) -> tuple[str, ...]:
        """For `redact`."""
        return tuple(item for item in (self.password, self.token) if item)


def address(text: str) -> str:
    """The address of a registry with its scheme and without a slash at the end; without a scheme it is http.

    Raises:
        InvalidPipeline: no http address, or one that holds a name and a password (it would be shown).
    """
    url = text.strip().rstrip("/")
    url = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query and not parts.fragment
        parts.port  # noqa: B018 - raises where it is none
    except ValueError:
        good = False
    if not good:
        raise InvalidPipeline("format.registry is no address", "write host:port, or https://host:port/path")
    if parts.username is not None or parts.password is not None:
        raise InvalidPipeline(
            "format.registry holds credentials", f"move them to source.credentials: {PREFIX}username, ...password"
        )
    return url


def check_registry(kind: Format | None, access: Access) -> None:
    """Refuse what could not work, or would show a secret to the network, before anything starts.

    Raises:
        InvalidPipeline: see `address`; or credentials would be sent without TLS to another machine.
    """
    if kind is None or kind.registry is None:
        return
    parts = urlsplit(address(kind.registry))
    if parts.scheme == "https" or not (access.password or access.token) or access.clear or is_local(str(parts.hostname)):
        return
    raise InvalidPipeline(
        "format.registry: an http address sends its credentials over the network unencrypted",
        "use https, or, where the network is trusted, add allow.plaintext.credentials: true to source.config",
    )


def is_local(host: str) -> bool:
    """Whether a host is this machine, by its name or by its address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
