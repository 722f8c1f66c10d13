"""Requests sent until they are taken, or refused for good. What an answer means, and how long to wait for the next try."""

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

#: Answers that speak of what was sent: another try changes nothing, another record may be taken.
_REFUSED = (400, 413, 422)
#: Answers that another try may change. 409: a request of this key is still at work (draft-ietf-httpapi-idempotency-key-header).
_PASSING = (408, 409, 425, 429)
_FIRST_S, _LONGEST_S = 0.25, 30.0  # wait before the second try, and before any further one
_MOST_PAUSE_S = 1e9  # of Retry-After, as nine digits; threads cannot wait for the year 9999
_LARGEST = 64 << 10  # bytes of an answer that are read: it is only shown
_SHOWN = 200  # signs of it in messages


_EARLIER = "; an earlier try of this request may have been taken"


class Stopped(Exception):
    """Told to stop before the request was taken. Nobody knows whether the receiver has it."""


@dataclass(frozen=True)
class Verdict:
    """What became of a request.

    Attributes:
        status: of HTTP; 0 where it was refused unsent.
        reason: why it was refused; empty where it was taken.
    """

    status: int
    reason: str = ""


@dataclass(frozen=True)
class Endpoint:
    """Where requests go, and how.

    Attributes:
        url: the address.
        headers: of every request, secrets among them.
        signing: keys to sign with.
        secrets: what no message may show.
        allowed: hosts that may be in a private network.
        connections: at the same time.
        timeout_s: until an answer is there.
        retry_s: how long a request is sent again.
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
    """Connections to the addresses that an endpoint has now. Used by several threads; `close` it.

    Args:
        endpoint: where requests go.
        resumed: whether an earlier process may have sent them.

    Attributes:
        taken: whether the receiver may have taken anything: some request left, and its answer is not a refusal.

    Raises:
        DestinationBusy, InvalidPipeline: as `Url.looked_up`.
    """

    def __init__(self, endpoint: Endpoint, resumed: bool = False) -> None:
        self._to, self._resumed = endpoint, resumed
        self._pools = [self._pool(address) for address in endpoint.url.looked_up(endpoint.allowed)]
        self._stop = threading.Event()
        self.taken = False
        self._quiet_until = 0.0  # the receiver has asked for a pause: of everybody

    def stop(self) -> None:
        """No further try: who waits for one ends with `Stopped`."""
        self._stop.set()

    def close(self) -> None:
        """Drop the connections."""
        for pool in self._pools:
            pool.close()

    def send(self, key: str, body: bytes, what: str) -> Verdict:
        """Send a request until it is taken or refused.

        Args:
            key: by which the receiver knows it again.
            body: of the request.
            what: for messages: partition and offsets.

        Raises:
            Stopped: by `stop`.
            DestinationBusy: it was not taken in time; the receiver may have it all the same.
            DestinationError: the receiver takes nothing from us.
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
                    "see into.url, and that SSL_CERT_FILE names the authority where it is one of yours",
                ) from None
            except HttpFailed as error:
                why = redact(str(error), self._to.secrets)
            wait = max(wait, min(_LONGEST_S, _FIRST_S * 2**tries) * random.uniform(0.5, 1))  # so that not all come back at once
            tries += 1
            if time.monotonic() + wait > until:
                raise DestinationBusy(
                    f"{self._to.url}: {what}: not taken in {tries} {'try' if tries == 1 else 'tries'}: {why}",
                    "see the receiver's log; the same request, with the same key, is sent when it is run again (into.retry_s)",
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
        except TooLarge as error:  # the status stands before it, and is all that counts
            refused = _is_refusal(error.status)
            return Answer(error.status, b"")
        except Untrusted:  # before anything was sent
            refused = True
            raise
        finally:
            self.taken = self.taken or not refused

    def _judged(self, answer: Answer, what: str) -> Verdict | None:
        """What the answer decides; None: nothing yet.

        Raises:
            DestinationError: the receiver takes nothing from us.
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
                f"{where}: redirects elsewhere (HTTP {status}), which is not followed",
                "name the address that it leads to: into.url",
            )
        if status in (401, 403):
            raise DestinationError(
                f"{where}: the receiver refuses these credentials (HTTP {status}{self._words(answer)})",
                "see into.credentials: token, username and password, header.NAME, signing_secret",
            )
        raise DestinationError(
            f"{where}: HTTP {status}{self._words(answer)}", "see that into.url is its address, and that it takes POST requests"
        )

    def _words(self, answer: Answer) -> str:
        text = redact(answer.body[: 4 * _SHOWN].decode("utf-8", "replace").strip(), self._to.secrets)
        return f": {text[:_SHOWN]}" if text else ""

    def _retry_after(self, answer: Answer) -> float:
        """Seconds that the receiver asks to be left alone: a number, or a date (RFC 9110, 10.2.3)."""
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
        """Connections to an address that has been looked at; the certificate must be the name's."""
        url = self._to.url
        # Not blocking: one that was dropped in the middle of an answer would be waited for for ever. Threads are the limit.
        common: dict[str, Any] = {"maxsize": self._to.connections, "block": False, "retries": False}
        if url.scheme == "http":
            return Pool(address, url.port, **common)
        context = ssl.create_default_context()
        return TlsPool(address, url.port, ssl_context=context, server_hostname=url.host, assert_hostname=url.host, **common)


def _is_refusal(status: int) -> bool:
    """Return whether an answer of that status means that the receiver has taken nothing of the request."""
    return 300 <= status < 500 and status not in _PASSING
