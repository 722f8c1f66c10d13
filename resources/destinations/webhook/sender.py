"""Send a request until it is accepted or finally rejected: interpret responses, and wait between attempts."""

from __future__ import annotations

import random
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

from kpipe.errors import DestinationBusy, DestinationError
from resources.destinations.webhook.signature import headers
from resources.destinations.webhook.url_guard import Url
from resources.net.connections import Pool, TlsPool
from resources.net.http import Answer, HttpFailed, TooLarge, Untrusted, ask
from resources.secrets import Secret, redact

__all__ = ["Endpoint", "Sender", "Stopped", "Verdict"]

#: Statuses that reject the content: another attempt changes nothing, another record may be accepted.
_REFUSED = (400, 413, 422)
#: Statuses to retry. 409: a request with this key is in progress (draft-ietf-httpapi-idempotency-key-header).
_PASSING = (408, 409, 425, 429)
_FIRST_S, _LONGEST_S = 0.25, 30.0  # wait before the second attempt, and longest wait
_MOST_PAUSE_S = 1e9  # limit of Retry-After: threads cannot wait until the year 9999
_LARGEST = 64 << 10  # bytes of a response that are read, for messages only
_SHOWN = 200  # characters of it in messages


_EARLIER = "; an earlier attempt of this request may have been accepted"


class Stopped(Exception):
    """Stopped before a final response. The receiver may have accepted the request."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of a request.

    Attributes:
        status: of HTTP; 0 where the request was rejected before sending.
        reason: why it was rejected; empty where it was accepted.
    """

    status: int
    reason: str = ""


@dataclass(frozen=True)
class Endpoint:
    """The URL of requests, and the settings to send them.

    Attributes:
        url: the URL.
        headers: of every request, including secrets.
        signing: keys to sign with.
        secrets: values that messages must not contain.
        allowed: hosts that may be in a private network.
        connections: limit of concurrent connections.
        timeout_s: limit of the wait for a response.
        retry_s: how long a request is retried.
    """

    url: Url
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    signing: Sequence[bytes] = field(default=(), repr=False)
    secrets: Sequence[Secret] = ()
    allowed: Sequence[str] = ()
    connections: int = 4
    timeout_s: float = 30
    retry_s: float = 120


class Sender:
    """Connections to an endpoint's current addresses. Thread-safe; `close` it after use.

    Args:
        endpoint: URL and settings.
        resumed: whether an earlier process may have sent these requests.

    Attributes:
        taken: true if the receiver may have accepted a request: one was sent, and its response is not a rejection.

    Raises:
        DestinationBusy, InvalidPipeline: as `Url.looked_up`.
    """

    def __init__(self, endpoint: Endpoint, resumed: bool = False) -> None:
        self._to, self._resumed = endpoint, resumed
        self._pools = [self._pool(address) for address in endpoint.url.looked_up(endpoint.allowed)]
        self._stop = threading.Event()
        self.taken = False
        self._quiet_until = 0.0  # the receiver requested a pause; it applies to all threads

    def stop(self) -> None:
        """Make no further attempts: waiting threads raise `Stopped`."""
        self._stop.set()

    def close(self) -> None:
        """Close the connections."""
        for pool in self._pools:
            pool.close()

    def send(self, key: str, body: bytes, what: str) -> Verdict:
        """Send a request until it is accepted or rejected.

        Args:
            key: the idempotency key.
            body: of the request.
            what: for messages: partition and offsets.

        Raises:
            Stopped: `stop` was called.
            DestinationBusy: it was not accepted in time; the receiver may have accepted it without a response.
            DestinationError: the receiver rejects every request.
        """
        until, tries = time.monotonic() + self._to.retry_s, 0
        while True:
            self._pause(self._quiet_until - time.monotonic())
            wait = 0.0
            try:
                answer = self._asked(key, body, self._pools[tries % len(self._pools)])
                verdict = self._judged(answer, what)
                if verdict is not None:
                    earlier = verdict.reason and (tries or self._resumed)
                    return replace(verdict, reason=verdict.reason + _EARLIER) if earlier else verdict
                why, wait = f"HTTP {answer.status}{self._words(answer)}", self._retry_after(answer)
                if answer.status in (429, 503):
                    self._quiet_until = max(self._quiet_until, time.monotonic() + wait)
            except Untrusted as error:
                raise DestinationError(
                    f"{self._to.url}: {what}: its certificate is not trusted: {redact(str(error), self._to.secrets)}",
                    "check into.url; for a private certificate authority, set SSL_CERT_FILE to its certificate",
                ) from None
            except HttpFailed as error:
                why = redact(str(error), self._to.secrets)
            wait = max(wait, min(_LONGEST_S, _FIRST_S * 2**tries) * random.uniform(0.5, 1))  # jitter: retries are spread
            tries += 1
            if time.monotonic() + wait > until:
                raise DestinationBusy(
                    f"{self._to.url}: {what}: not accepted in {tries} attempt{'s' * (tries != 1)}: {why}",
                    "check the receiver's log; the next run sends the same request with the same key (into.retry_s)",
                )
            self._pause(wait)

    def _asked(self, key: str, body: bytes, pool: Pool | TlsPool) -> Answer:
        to = self._to
        told = {"Content-Type": "application/json", **to.headers, "Host": to.url.named, **headers(key, body, to.signing)}
        refused = False
        try:
            answer = ask(pool, "POST", to.url.target, told, to.timeout_s, _LARGEST, body)
            refused = _is_refusal(answer.status)
            return answer
        except TooLarge as error:  # the status comes before the body and decides alone
            refused = _is_refusal(error.status)
            return Answer(error.status, b"")
        except Untrusted:  # before anything was sent
            refused = True
            raise
        finally:
            self.taken = self.taken or not refused

    def _judged(self, answer: Answer, what: str) -> Verdict | None:
        """Return the outcome that the response decides; None: retry.

        Raises:
            DestinationError: the receiver rejects every request.
        """
        status, where = answer.status, f"{self._to.url}: {what}"
        if 200 <= status < 300:
            return Verdict(status)
        if status in _REFUSED:
            return Verdict(status, f"HTTP {status}{self._words(answer)}")
        if status >= 500 or status in _PASSING:
            return None
        if answer.redirects:
            raise DestinationError(
                f"{where}: HTTP {status}: redirects are not followed",
                "set into.url to the redirect's target",
            )
        if status in (401, 403):
            raise DestinationError(
                f"{where}: the receiver rejected the credentials (HTTP {status}{self._words(answer)})",
                "check into.credentials: token, username and password, header.NAME, signing_secret",
            )
        raise DestinationError(
            f"{where}: HTTP {status}{self._words(answer)}",
            "check that into.url is its address, and that it accepts POST requests",
        )

    def _words(self, answer: Answer) -> str:
        text = answer.quoted(_SHOWN, self._to.secrets)
        return f": {text}" if text else ""

    def _retry_after(self, answer: Answer) -> float:
        """Return the seconds to wait that the receiver requests: a number, or a date (RFC 9110, 10.2.3)."""
        text = answer.retry_after
        if text.isascii() and text.isdigit():
            return float(text[:9])
        try:
            then = parsedate_to_datetime(text)
            then = then if then.tzinfo is not None else then.replace(tzinfo=timezone.utc)
        except (ValueError, OverflowError):
            return 0.0
        seconds = (then - datetime.now(timezone.utc)).total_seconds()
        return min(max(0.0, seconds), _MOST_PAUSE_S)

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(max(0.0, seconds)):
            raise Stopped

    def _pool(self, address: str) -> Pool | TlsPool:
        """Open connections to a checked address; the certificate must match the URL's host name."""
        url = self._to.url
        # Not blocking: a connection dropped during a response would be waited for without end. Threads are the limit.
        common: dict[str, Any] = {"maxsize": self._to.connections, "block": False, "retries": False}
        if url.scheme == "http":
            return Pool(address, url.port, **common)
        context = ssl.create_default_context()
        return TlsPool(address, url.port, ssl_context=context, server_hostname=url.host, assert_hostname=url.host, **common)


def _is_refusal(status: int) -> bool:
    """Return whether a response with that status proves that the receiver accepted nothing of the request."""
    return 300 <= status < 500 and status not in _PASSING
