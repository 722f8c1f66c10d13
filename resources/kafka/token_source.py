"""Obtain tokens for SASL/OAUTHBEARER, for the clients of the driver and of workers, and renew them before they expire.

A token comes from an OIDC token endpoint, or from the credential `sasl.oauthbearer.token`: a file or a command, which are
read again. librdkafka's own OIDC client does not report HTTP's status: rejected credentials could not be distinguished from
a server that is down ([ADR 49](../../docs/adr/0049-tokens-and-credentials-that-rotate.md)).

A source travels to workers in the client's settings as `oauth_cb`, with the token that the driver has. Each process keeps
one token for all of its clients.
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final

from kpipe.definition.references import rotates
from kpipe.errors import CredentialsRefused
from resources.kafka.token_endpoint import Endpoint
from resources.secrets import Secret

__all__ = ["SETTING", "Token", "TokenSource"]

SETTING: Final = "oauth_cb"
"""Name of the source in a client's settings; confluent-kafka calls it for each new token."""

_RENEW_AFTER = 0.8  # of its lifetime, as librdkafka does
_REFERENCE = "sasl.oauthbearer.token"


@dataclass(frozen=True)
class Token:
    """A token and its validity, in seconds since 1970.

    Attributes:
        value: the token.
        expires: when brokers reject it.
        obtained: when this process or the driver obtained it.
        principal: the name in the token, for librdkafka's log lines.
    """

    value: Secret
    expires: float
    obtained: float
    principal: str

    @property
    def fresh(self) -> bool:
        """True until it should be renewed."""
        return self.obtained - 60 <= time.time() < self.obtained + _RENEW_AFTER * (self.expires - self.obtained)


@dataclass(frozen=True)
class TokenSource:
    """Source of tokens. Equal sources share one token in each process.

    Attributes:
        endpoint: an OIDC token endpoint; None: `reference`.
        reference: a template for the token; contains no secret, except for a constant token.
        extensions: SASL extensions (KIP-342), name and value.
    """

    endpoint: Endpoint | None = None
    reference: Secret = field(default=Secret(""), repr=False)
    extensions: tuple[tuple[str, str], ...] = ()

    def token(self) -> Token:
        """Return this process's token; obtain a new one when it is due.

        Raises:
            BrokerUnreachable: the token endpoint did not answer.
            CredentialsRefused: it rejects the client, or what it returned is not a valid token.
            InvalidPipeline, CredentialUnavailable: the file or the command failed.
        """
        with _LOCK:
            lock = _LOCKS.setdefault(self, threading.Lock())
        with lock:  # the clients of a process start at the same time: one of them requests it
            found = _TOKENS.get(self)
            if found is None or not found.fresh:
                found = self._obtained()
                with _LOCK:
                    _TOKENS[self] = found
            return found

    def __call__(self, _config: str = "") -> tuple[str, float, str, dict[str, str]]:
        """Return a token as confluent-kafka takes it; raises as `token`."""
        found = self.token()
        return str(found.value), found.expires, found.principal, dict(self.extensions)

    def secrets(self) -> tuple[str, ...]:
        """Return values that must never be shown."""
        held = _TOKENS.get(self)
        return tuple(
            str(item)
            for item in (
                self.endpoint.secret if self.endpoint is not None else "",
                held.value if held is not None else "",
                "" if rotates([self.reference]) else self.reference,
            )
            if item
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self.endpoint, self.reference, self.extensions, _TOKENS.get(self))

    def _obtained(self) -> Token:
        now = time.time()
        if self.endpoint is not None:
            where, text = self.endpoint.url, self.endpoint.ask()
        else:
            where, text = f"source.credentials: {_REFERENCE}", self._read()
        return _parsed(text, where, now)

    def _read(self) -> str:
        from resources.secret_references import credential  # imported late: most readers need none

        return credential(f"source.credentials: {_REFERENCE}", self.reference)


_LOCK = threading.Lock()
_LOCKS: dict[TokenSource, threading.Lock] = {}
_TOKENS: dict[TokenSource, Token] = {}


def _arrived(
    endpoint: Endpoint | None, reference: Secret, extensions: tuple[tuple[str, str], ...], token: Token | None
) -> TokenSource:
    """Return a source that another process has sent, and keep its token if it is newer."""
    made = TokenSource(endpoint, reference, extensions)
    if token is not None:
        with _LOCK:
            held = _TOKENS.get(made)
            if held is None or held.obtained < token.obtained:
                _TOKENS[made] = token
    return made


def _parsed(text: str, where: str, now: float) -> Token:
    """Return the token of an OAuth response (RFC 6749, section 5.1), or of a JSON Web Token (RFC 7519).

    Raises:
        CredentialsRefused: it is neither, or has expired. The message contains nothing of it.
    """
    value, lasts = text.strip(), None
    if value.startswith("{"):
        try:
            answer = json.loads(value)
            value, lasts = answer["access_token"], answer.get("expires_in")
        except (ValueError, KeyError, RecursionError):
            raise CredentialsRefused(f"{where}: expected JSON with access_token, found none", "check what it returns") from None
    if not isinstance(value, str) or not value or not value.isascii() or any(char <= " " for char in value):
        raise CredentialsRefused(f"{where}: expected a token, found another text", "check what it returns")
    claims = _claims(value)
    try:
        expires = now + float(lasts) if lasts is not None and not isinstance(lasts, bool) else float(claims["exp"])
    except (KeyError, TypeError, ValueError):
        raise CredentialsRefused(
            f"{where}: the token has no time of expiry: expected expires_in, or a JSON Web Token with exp",
            'return JSON: {"access_token": "...", "expires_in": 900}',
        ) from None
    if not now < expires < now + 10 * 366 * 86400:
        raise CredentialsRefused(
            f"{where}: the token expires {expires - now:.0f} s from now, by this machine's clock: expected a later time",
            "compare the clocks of this machine and of the token server",
        )
    subject = claims.get("sub")
    return Token(Secret(value), expires, now, subject if isinstance(subject, str) and subject else "kpipe")


def _claims(value: str) -> dict[str, Any]:
    """Return the claims of a JSON Web Token; empty for another token. Brokers check the signature."""
    parts = value.split(".")
    if len(parts) != 3:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
