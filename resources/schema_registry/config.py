"""Settings of a pipeline's schema registry client: time limit, TLS and credentials. Plain values that pickle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from kpipe.definition.formats import Format
from kpipe.errors import InvalidPipeline
from resources.secrets import Secret

__all__ = ["CREDENTIALS", "PREFIX", "SETTINGS", "Access", "address", "check_address", "check_registry", "is_local"]

PREFIX: Final = "schema.registry."

SETTINGS: Final = frozenset(
    PREFIX + name for name in ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "timeout.ms", "username")
)
"""The registry's settings in `source.config`. As with SASL, the user name is not a secret."""

CREDENTIALS: Final = frozenset(PREFIX + name for name in ("username", "password", "token"))
"""The registry's settings in `source.credentials`: user name and password, or a token."""


@dataclass(frozen=True)
class Access:
    """Settings of a registry client, apart from the address. The repr contains no secret.

    Attributes:
        username, password: for basic authentication; empty: not used.
        token: for `Authorization: Bearer`; empty: not used.
        ca, certificate, key: paths of PEM files; empty: the system's certificate authorities, no client certificate.
        timeout_s: time limit of one request, including its whole answer.
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
        """Read the settings that begin with `PREFIX`, and ignore others.

        Raises:
            InvalidPipeline: the time limit is not a number, a user name or password is missing, or a token is given, too.
        """
        both = {**config, **credentials}
        hidden = {name: Secret(both.get(PREFIX + name, "")) for name in ("username", "password", "token")}
        if bool(hidden["username"]) != bool(hidden["password"]):
            raise InvalidPipeline(
                f"source.credentials: expected {PREFIX}username and {PREFIX}password together, found one", "set both or none"
            )
        if hidden["token"] and hidden["username"]:
            raise InvalidPipeline(
                f"source.credentials: expected {PREFIX}token or {PREFIX}username, found both", "remove one of them"
            )
        timeout_ms = config.get(f"{PREFIX}timeout.ms", "10000")
        if not timeout_ms.isdecimal() or int(timeout_ms) < 1:
            raise InvalidPipeline(
                f"source.config: invalid {PREFIX}timeout.ms: expected a number of at least 1, found {timeout_ms!r}",
                "write milliseconds, such as 10000",
            )
        files = {name: config.get(f"{PREFIX}ssl.{name}.location", "") for name in ("ca", "certificate", "key")}
        return cls(**hidden, **files, timeout_s=int(timeout_ms) / 1000, clear=clear)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that `redact` removes from errors."""
        return tuple(item for item in (self.password, self.token) if item)


def address(text: str, field: str = "format.registry") -> str:
    """Normalize a registry's address: add `http://` if the scheme is missing, and remove trailing slashes.

    Raises:
        InvalidPipeline: not an http(s) address, or it contains credentials, which logs would show.
    """
    url = text.strip().rstrip("/")
    url = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query and not parts.fragment
        parts.port  # noqa: B018 - raises if it is not a port
    except ValueError:
        good = False
    if not good:
        raise InvalidPipeline(f"{field}: not an http address", "write host:port, or https://host:port/path")
    if parts.username is not None or parts.password is not None:
        raise InvalidPipeline(
            f"{field}: the address contains credentials",
            f"move them to {_side(field)}.credentials: {PREFIX}username and {PREFIX}password",
        )
    return url


def check_registry(kind: Format | None, access: Access) -> None:
    """Check the registry's address and the transport of its credentials before a run starts.

    Raises:
        InvalidPipeline: invalid address (see `address`), or credentials would be sent without TLS to another machine.
    """
    if kind is not None and kind.registry is not None:
        check_address(kind.registry, access, "format.registry")


def check_address(url: str, access: Access, field: str) -> None:
    """Check a registry's address and the transport of its credentials; see `check_registry`.

    Args:
        url: the address.
        access: the settings.
        field: with the address.
    """
    parts = urlsplit(address(url, field))
    if parts.scheme == "https" or not (access.password or access.token) or access.clear or is_local(str(parts.hostname)):
        return
    raise InvalidPipeline(
        f"{field}: an http address sends the credentials over the network unencrypted",
        f"use https, or, if the network is trusted, add allow.plaintext.credentials: true to {_side(field)}.config",
    )


def _side(field: str) -> str:
    return "into" if field.startswith("into.") else "source"


def is_local(host: str) -> bool:
    """Return whether a host name or address is this machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
