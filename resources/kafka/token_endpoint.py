"""Request tokens from an OIDC token endpoint with a client's credentials (RFC 6749, section 4.4)."""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode, urlsplit

from kpipe.errors import BrokerUnreachable, CredentialsRefused, InvalidPipeline
from resources.secrets import Secret, redact

__all__ = ["Endpoint"]

_SECONDS: Final = 10.0  # for the whole answer
_MOST_BYTES: Final = 65_536
_MOST_SHOWN = 200  # characters of the server's reason
_HINT = "check sasl.oauthbearer.client.id, .client.secret and .scope, and that the client may use client credentials"


@dataclass(frozen=True)
class Endpoint:
    """A token endpoint and this client's credentials. Its repr shows no secret.

    Attributes:
        url: the endpoint's address.
        client: the client's id.
        secret: the client's secret.
        scope: requested scope; empty: the server's default.
        authority: file with certificates (PEM) that sign the server's; empty: the system's.
    """

    url: str
    client: str
    secret: Secret = field(repr=False)
    scope: str = ""
    authority: str = ""

    def check(self, plaintext: bool) -> None:
        """Check the address.

        Args:
            plaintext: whether the secret may be sent to another machine without TLS.

        Raises:
            InvalidPipeline: not an http(s) address, it contains credentials, or it would send the secret unencrypted.
        """
        from resources.schema_registry.config import is_local  # imported late: it loads the definition's models

        subject = "source.config: sasl.oauthbearer.token.endpoint.url"
        try:
            parts = urlsplit(self.url)
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.fragment
            parts.port  # noqa: B018 - raises if it is not a port
        except ValueError:
            good = False
        if not good or not self.url.isprintable() or " " in self.url:
            raise InvalidPipeline(f"{subject}: not an http address: expected https://host/path", "copy it from the server")
        if parts.username is not None or parts.password is not None:
            raise InvalidPipeline(f"{subject} contains credentials", "move them to source.credentials")
        if parts.scheme == "http" and not plaintext and not is_local(str(parts.hostname)):
            raise InvalidPipeline(
                f"{subject}: an http address sends the client's secret over the network unencrypted",
                "use https, or, where the network is trusted, add allow.plaintext.credentials: true to source.config",
            )

    def ask(self) -> str:
        """Request a token, and return the server's answer.

        Raises:
            BrokerUnreachable: it did not answer, or failed.
            CredentialsRefused: it rejects the client, or its certificate is not trusted.
        """
        # Imported late: they load an HTTP client, which most readers do not need.
        from resources.net.connections import Connections
        from resources.net.http import HttpFailed, Untrusted, ask, authorization

        body = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        headers = {
            **authorization(self.client, self.secret, ""),
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        try:
            context = ssl.create_default_context(cafile=self.authority or None)
        except OSError as error:  # includes ssl's errors
            raise InvalidPipeline(
                f"source.config: https.ca.location: {self.authority} cannot be read: {error.strerror or error}",
                "name a file of certificates (PEM)",
            ) from None
        pool = Connections(retries=False, ssl_context=context)
        where = f"token server {self.url}"
        try:
            answer = ask(pool, "POST", self.url, headers, _SECONDS, _MOST_BYTES, urlencode(body).encode())
        except Untrusted as error:
            raise CredentialsRefused(
                f"{where}: its certificate is not trusted: {self._shown(str(error))}", "set source.config https.ca.location"
            ) from None
        except HttpFailed as error:
            raise BrokerUnreachable(
                f"{where} does not answer: {self._shown(str(error))}",
                "check source.config sasl.oauthbearer.token.endpoint.url, and that it can be reached from here",
            ) from None
        finally:
            pool.clear()
        if answer.status == 200:
            return answer.body.decode("utf-8", "replace")
        reason = f"HTTP {answer.status}{self._reason(answer.body)}"
        if answer.may_pass:
            raise BrokerUnreachable(f"{where} failed: {reason}", "see the server's own log")
        if answer.redirects:
            raise CredentialsRefused(f"{where} redirects elsewhere ({reason}), which is not followed", "use that address")
        raise CredentialsRefused(f"{where} rejects client {self.client}: {reason}", _HINT)

    def _reason(self, body: bytes) -> str:
        """Return the reason of an error response (RFC 6749, section 5.2)."""
        try:
            found = json.loads(body)
            texts = [found[name] for name in ("error", "error_description") if isinstance(found.get(name), str)]
        except (ValueError, AttributeError, RecursionError):
            return ""
        return self._shown("".join(f": {text}" for text in texts))

    def _shown(self, text: str) -> str:
        from resources.net.http import authorization

        header = authorization(self.client, self.secret, "")["Authorization"]
        return redact(text, (self.secret, header, header.removeprefix("Basic ")))[:_MOST_SHOWN]
