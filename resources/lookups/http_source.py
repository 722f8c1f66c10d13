"""Files behind an address: one GET, to an address that has been looked at, and nowhere else."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import SplitResult, urlsplit

from kpipe.definition.lookups import Lookup
from kpipe.definition.yaml_codec import resolve
from kpipe.errors import CredentialsRefused, InvalidPipeline, LookupFailed
from resources.lookups.file_source import too_large
from resources.net.connections import Pool, TlsPool
from resources.net.http import Answer, HttpFailed, TooLarge, TooSlow, Untrusted, authorization, get
from resources.schema_registry.config import is_local
from resources.secrets import Secret, redact

__all__ = ["KINDS", "Web"]

#: What an answer says it is.
KINDS = {
    "text/csv": "csv", "application/csv": "csv", "text/tab-separated-values": "csv", "application/json": "json",
    "application/x-ndjson": "json", "application/jsonl": "json", "application/vnd.apache.parquet": "parquet",
}  # fmt: skip
_CREDENTIALS = ("username", "password", "token")
# Answers that another try may change.
_PASSING = (408, 425, 429)


@dataclass(frozen=True)
class Web:
    """A lookup's address, and the secrets that it is asked with. Its repr shows none.

    Attributes:
        name: of the lookup.
        lookup: its definition.
        secrets: by the names of `credentials`.
    """

    name: str
    lookup: Lookup
    secrets: Mapping[str, Secret] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, lookup: Lookup, environ: Mapping[str, str] | None = None) -> Web:
        """What the definition names, looked at before anything is asked.

        Raises:
            InvalidPipeline: the address is none, holds a secret, or would send one, or the rows, over the network in the clear.
        """
        made = cls(name, lookup, _secrets(name, lookup, environ))
        parts = made._parts()
        if parts.scheme != "https" and not is_local(str(parts.hostname)):
            raise InvalidPipeline(f"lookups.{name}.url: http to another machine can be read and changed on the way", "use https")
        return made

    def fetch(self) -> Answer:
        """The file.

        Raises:
            LookupFailed: there was no whole answer (retriable).
            CredentialsRefused: the server wants others.
            InvalidPipeline: it answers something else, too much, or its address is one that is not asked.
        """
        parts, lookup = self._parts(), self.lookup
        where = f"lookups.{self.name}: {lookup.describe()}"
        pool = self._pool(parts)
        host = str(parts.hostname) if ":" not in str(parts.hostname) else f"[{parts.hostname}]"
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {
            "Host": host + (f":{parts.port}" if parts.port else ""),
            "Accept": "text/csv, application/json, application/vnd.apache.parquet, */*;q=0.1",
            **authorization(*(self.secrets.get(part, "") for part in _CREDENTIALS)),
        }
        try:
            answer = get(pool, path, headers, lookup.timeout_s, lookup.max_mb << 20)
        except TooLarge:
            raise too_large(self.name, lookup) from None
        except TooSlow as error:
            raise LookupFailed(f"{where}: {error}", f"see why it is slow, or raise lookups.{self.name}.timeout_s") from None
        except Untrusted as error:
            raise InvalidPipeline(
                f"{where}: its certificate is not trusted: {redact(str(error), self.secrets.values())}",
                f"name a file with the certificate of its authority (PEM): lookups.{self.name}.ca",
            ) from None
        except HttpFailed as error:
            why = redact(str(error), self.secrets.values())
            raise LookupFailed(f"{where} cannot be read: {why}", "see that the server runs, and answers whole") from None
        finally:
            pool.close()
        return self._good(where, answer)

    def _good(self, where: str, answer: Answer) -> Answer:
        if answer.status in (401, 403):
            raise CredentialsRefused(
                f"{where} refuses these credentials (HTTP {answer.status})",
                f"see lookups.{self.name}.credentials: username and password, or token",
            )
        if answer.redirects:
            raise InvalidPipeline(
                f"{where} redirects elsewhere (HTTP {answer.status}), which is not followed", "name the address that it leads to"
            )
        if answer.status >= 500 or answer.status in _PASSING:
            raise LookupFailed(f"{where} answers HTTP {answer.status}", "see the server's own log")
        if answer.status != 200:
            raise InvalidPipeline(f"{where} answers HTTP {answer.status}", f"see that lookups.{self.name}.url is its address")
        if answer.encoding:
            raise InvalidPipeline(
                f"{where} answers compressed, which was not asked for", "have the server send it as it is (identity)"
            )
        if not answer.sized:
            raise InvalidPipeline(
                f"{where} does not say how long its answer is, so that one that was cut off could not be told from a whole one",
                "have the server send Content-Length, or chunks",
            )
        return answer

    def _parts(self) -> SplitResult:
        field = f"lookups.{self.name}.url"
        try:
            parts = urlsplit(str(self.lookup.url).strip())
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.fragment
            parts.port  # noqa: B018 - raises where it is none
        except ValueError:
            good = False
        if not good or any(char.isspace() or not char.isprintable() for char in str(self.lookup.url).strip()):
            raise InvalidPipeline(f"{field} is no address", "write https://host/path")
        if parts.username is not None or parts.password is not None:
            raise InvalidPipeline(
                f"{field} holds credentials", f"move them to lookups.{self.name}.credentials: username and password"
            )
        return parts

    def _pool(self, parts: SplitResult) -> Pool | TlsPool:
        """Connections to the very address that was looked at: a name may mean another one a moment later."""
        host = str(parts.hostname)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        address = self._looked_at(host, port)
        if parts.scheme == "http":
            return Pool(address, port, retries=False)
        return TlsPool(address, port, retries=False, ssl_context=self._trust(), server_hostname=host)

    def _trust(self) -> ssl.SSLContext:
        """Which authorities are trusted: those of the definition's file, else the machine's."""
        try:
            return ssl.create_default_context(cafile=self.lookup.ca)
        except OSError as error:  # ssl's own errors are such, too
            raise InvalidPipeline(
                f"lookups.{self.name}.ca: {self.lookup.ca} cannot be read: {error.strerror or error}",
                "name a file of certificates (PEM)",
            ) from None

    def _looked_at(self, host: str, port: int) -> str:
        where = f"lookups.{self.name}: {self.lookup.describe()}"
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise LookupFailed(f"{where}: {host} is not known: {error}", "see the name, and the machine's DNS") from None
        for *_, address in found:
            why = _refused(ip_address(str(address[0]).partition("%")[0]), is_local(host))
            if why:
                named = host if host == address[0] else f"{host} is {address[0]}"
                raise InvalidPipeline(f"{where}: {named}, {why}", "name a server; this machine is asked as localhost")
        return str(found[0][-1][0])


def _refused(address: IPv4Address | IPv6Address, local: bool) -> str:
    """Why an address is not asked: those that only mean something to the machine itself, as its cloud's own secrets do."""
    plain = address.ipv4_mapped if isinstance(address, IPv6Address) and address.ipv4_mapped else address
    if plain.is_loopback:
        return "" if local else "which is this machine under another name"
    if plain == ip_address("fd00:ec2::254") or plain.is_link_local:
        return "which is link-local, where clouds keep the secrets of a machine"
    return "which is no machine" if plain.is_multicast or plain.is_unspecified or plain.is_reserved else ""


def _secrets(name: str, lookup: Lookup, environ: Mapping[str, str] | None) -> dict[str, Secret]:
    found: dict[str, Secret] = {}
    where = f"lookups.{name}.credentials"
    for key, template in lookup.credentials.items():
        if key not in _CREDENTIALS:
            raise InvalidPipeline(f"{where}: {key} is not a credential", f"credentials are {', '.join(_CREDENTIALS)}")
        try:
            found[key] = Secret(resolve(template, environ))
        except InvalidPipeline as error:
            # From None: what is chained shows up in tracebacks, and the template itself may be the secret.
            raise InvalidPipeline(f"{where}: {key}: {error.what}", error.hint) from None
        if not found[key].strip() or not found[key].isprintable():
            raise InvalidPipeline(f"{where}: {key} is empty, or holds a control character", "set the variable that it names")
    if ("username" in found) != ("password" in found):
        raise InvalidPipeline(f"{where}: username and password go together", "give both")
    if "token" in found and "username" in found:
        raise InvalidPipeline(f"{where}: token and username are two ways", "keep one of them")
    return found
