"""Download a lookup's file with one GET request to a checked address; redirects are not followed."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import SplitResult, urlsplit

from kpipe.definition.lookups import Lookup
from kpipe.errors import CredentialsRefused, CredentialUnavailable, InvalidPipeline, LookupFailed
from resources.lookups.file_source import too_large
from resources.net.connections import Pool, TlsPool
from resources.net.http import Answer, HttpFailed, TooLarge, TooSlow, Untrusted, authorization, get
from resources.schema_registry.config import is_local
from resources.secret_references import secret
from resources.secrets import Secret, redact

__all__ = ["KINDS", "Web"]

#: Formats by the media type of the answer.
KINDS = {
    "text/csv": "csv", "application/csv": "csv", "text/tab-separated-values": "csv", "application/json": "json",
    "application/x-ndjson": "json", "application/jsonl": "json", "application/vnd.apache.parquet": "parquet",
}  # fmt: skip
_CREDENTIALS = ("username", "password", "token")


@dataclass(frozen=True)
class Web:
    """A lookup's URL and the credentials for it. Its repr shows no secret.

    Attributes:
        name: of the lookup.
        lookup: its definition.
        environ: values for the templates of credentials, which are read for each request.
    """

    name: str
    lookup: Lookup
    environ: Mapping[str, str] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, name: str, lookup: Lookup, environ: Mapping[str, str] | None = None) -> Web:
        """Check the definition before any request is sent.

        Raises:
            InvalidPipeline: the URL is invalid, contains a secret, or would send secrets or rows unencrypted.
        """
        made = cls(name, lookup, environ)
        _secrets(name, lookup, environ, read=False)
        parts = made._parts()
        if parts.scheme != "https" and not is_local(str(parts.hostname)):
            raise InvalidPipeline(f"lookups.{name}.url: http to another machine can be read and changed in transit", "use https")
        return made

    def fetch(self) -> Answer:
        """Download the file.

        Raises:
            LookupFailed: the answer was incomplete or missing (retriable).
            CredentialsRefused: the server rejects the credentials.
            InvalidPipeline: the answer has another type or is too large, or the server's address is not allowed.
        """
        parts, lookup = self._parts(), self.lookup
        secrets = _secrets(self.name, lookup, self.environ)
        where = f"lookups.{self.name}: {lookup.describe()}"
        pool = self._pool(parts)
        host = str(parts.hostname) if ":" not in str(parts.hostname) else f"[{parts.hostname}]"
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {
            "Host": host + (f":{parts.port}" if parts.port else ""),
            "Accept": "text/csv, application/json, application/vnd.apache.parquet, */*;q=0.1",
            **authorization(*(secrets.get(part, "") for part in _CREDENTIALS)),
        }
        try:
            answer = get(pool, path, headers, lookup.timeout_s, lookup.max_mb << 20)
        except TooLarge:
            raise too_large(self.name, lookup) from None
        except TooSlow as error:
            raise LookupFailed(f"{where}: {error}", f"see why it is slow, or raise lookups.{self.name}.timeout_s") from None
        except Untrusted as error:
            raise InvalidPipeline(
                f"{where}: its certificate is not trusted: {redact(str(error), secrets.values())}",
                f"name a file with the certificate of its authority (PEM): lookups.{self.name}.ca",
            ) from None
        except HttpFailed as error:
            why = redact(str(error), secrets.values())
            raise LookupFailed(
                f"{where} cannot be read: {why}", "check that the server runs and sends complete answers"
            ) from None
        finally:
            pool.close()
        return self._good(where, answer)

    def _good(self, where: str, answer: Answer) -> Answer:
        if answer.status in (401, 403):
            raise CredentialsRefused(
                f"{where} rejects these credentials (HTTP {answer.status})",
                f"see lookups.{self.name}.credentials: username and password, or token",
            )
        if answer.redirects:
            raise InvalidPipeline(
                f"{where} redirects elsewhere (HTTP {answer.status}), which is not followed", "use the address of the redirect"
            )
        if answer.may_pass:
            raise LookupFailed(f"{where} answers HTTP {answer.status}", "see the server's own log")
        if answer.status != 200:
            raise InvalidPipeline(f"{where} answers HTTP {answer.status}", f"check the address: lookups.{self.name}.url")
        if answer.encoding:
            raise InvalidPipeline(
                f"{where} sends compressed content, which was not requested",
                "configure the server to send it uncompressed (identity)",
            )
        if not answer.sized:
            raise InvalidPipeline(
                f"{where}: answer without a length, so that a truncated one could not be detected",
                "configure the server to send Content-Length, or chunks",
            )
        return answer

    def _parts(self) -> SplitResult:
        field = f"lookups.{self.name}.url"
        try:
            parts = urlsplit(str(self.lookup.url).strip())
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.fragment
            parts.port  # noqa: B018 - raises if it is invalid
        except ValueError:
            good = False
        if not good or any(char.isspace() or not char.isprintable() for char in str(self.lookup.url).strip()):
            raise InvalidPipeline(f"{field}: not a URL: expected https://host/path", "write https://host/path")
        if parts.username is not None or parts.password is not None:
            raise InvalidPipeline(
                f"{field} contains credentials", f"move them to lookups.{self.name}.credentials: username and password"
            )
        return parts

    def _pool(self, parts: SplitResult) -> Pool | TlsPool:
        """Return connections to the checked IP address: a second lookup of the name may return another one."""
        host = str(parts.hostname)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        address = self._looked_at(host, port)
        if parts.scheme == "http":
            return Pool(address, port, retries=False)
        return TlsPool(address, port, retries=False, ssl_context=self._trust(), server_hostname=host)

    def _trust(self) -> ssl.SSLContext:
        """Trusted certificate authorities: those of the definition's file, else the machine's."""
        try:
            return ssl.create_default_context(cafile=self.lookup.ca)
        except OSError as error:  # includes ssl's errors
            raise InvalidPipeline(
                f"lookups.{self.name}.ca: {self.lookup.ca} cannot be read: {error.strerror or error}",
                "name a file of certificates (PEM)",
            ) from None

    def _looked_at(self, host: str, port: int) -> str:
        where = f"lookups.{self.name}: {self.lookup.describe()}"
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise LookupFailed(f"{where}: {host} cannot be resolved: {error}", "check the name, and the machine's DNS") from None
        for *_, address in infos:
            why = _refused(ip_address(str(address[0]).partition("%")[0]), is_local(host))
            if why:
                named = host if host == address[0] else f"{host} is {address[0]}"
                raise InvalidPipeline(f"{where}: {named}, {why}", "name a server; use localhost for this machine")
        return str(infos[0][-1][0])


def _refused(address: IPv4Address | IPv6Address, local: bool) -> str:
    """Return why an address is not allowed: local addresses may give access to the machine's own secrets."""
    plain = address.ipv4_mapped if isinstance(address, IPv6Address) and address.ipv4_mapped else address
    if plain.is_loopback:
        return "" if local else "which is this machine under another name"
    if plain == ip_address("fd00:ec2::254") or plain.is_link_local:
        return "which is link-local, where clouds keep the secrets of a machine"
    return "which is not the address of a machine" if plain.is_multicast or plain.is_unspecified or plain.is_reserved else ""


def _secrets(name: str, lookup: Lookup, environ: Mapping[str, str] | None, read: bool = True) -> dict[str, Secret]:
    credentials: dict[str, Secret] = {}
    where = f"lookups.{name}.credentials"
    for key, template in lookup.credentials.items():
        if key not in _CREDENTIALS:
            raise InvalidPipeline(f"{where}: {key} is not a credential", f"credentials are {', '.join(_CREDENTIALS)}")
        try:
            credentials[key] = Secret(secret(template, environ, read))
        except InvalidPipeline as error:
            # From None: tracebacks show chained errors, and the template itself may be the secret.
            raise InvalidPipeline(f"{where}: {key}: {error.what}", error.hint) from None
        except CredentialUnavailable as error:
            raise CredentialUnavailable(f"{where}: {key}: {error.what}", error.hint) from None
        if not credentials[key].strip() or not credentials[key].isprintable():
            raise InvalidPipeline(f"{where}: {key} is empty, or contains a control character", "set the variable that it names")
    if ("username" in credentials) != ("password" in credentials):
        raise InvalidPipeline(f"{where}: username and password go together", "set both")
    if "token" in credentials and "username" in credentials:
        raise InvalidPipeline(f"{where}: both token and username are set", "keep one of them")
    return credentials
