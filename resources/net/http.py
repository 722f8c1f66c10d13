"""Send one HTTP request with limits of time and size for the whole answer, without redirects, retries and compression."""

from __future__ import annotations

import ssl
import time
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import urllib3
from urllib3.util.ssl_match_hostname import CertificateError

from resources.net.connections import Connections, Pool, TlsPool, TooMuch, exchange
from resources.secrets import redact, secret_forms

__all__ = ["Answer", "HttpFailed", "TooLarge", "TooSlow", "Untrusted", "ask", "authorization", "get"]


_PLAIN_HEADERS = {"accept", "accept-encoding", "content-type", "content-length", "host", "user-agent"}


class HttpFailed(Exception):
    """The answer is missing or incomplete. The text may quote the server: redact it."""


class TooLarge(HttpFailed):
    """The answer has more bytes than allowed.

    Attributes:
        status: the HTTP status.
    """

    def __init__(self, what: str, status: int) -> None:
        super().__init__(what)
        self.status = status


class TooSlow(HttpFailed):
    """The answer was not complete at the deadline."""


class Untrusted(HttpFailed):
    """The server's certificate is not trusted, or belongs to a different server."""


@dataclass(frozen=True)
class Answer:
    """A server's answer.

    Attributes:
        status: the HTTP status.
        body: the whole body.
        type: the media type, in lower case, without parameters.
        encoding: `Content-Encoding`, although no compression was requested; empty if absent.
        sized: whether the answer declares its length; without it, a truncated body cannot be detected.
        retry_after: the header `Retry-After`; empty if absent.
        link: the header `Link`; empty if absent.
        hidden: secret texts of the request, which the body may repeat.
    """

    status: int
    body: bytes
    type: str = ""
    encoding: str = ""
    sized: bool = True
    retry_after: str = ""
    link: str = ""
    hidden: tuple[str, ...] = field(default=(), repr=False)

    def quoted(self, most: int, secrets: Iterable[str] = ()) -> str:
        """Return the beginning of the body for a message, without secrets of the request: servers may repeat its headers.

        Args:
            most: characters.
            secrets: more texts that are masked.
        """
        # Masked as a whole, then cut: the cut could go through a secret.
        return redact(self.body.decode("utf-8", "replace").strip(), (*self.hidden, *secrets))[:most]

    @property
    def redirects(self) -> bool:
        """True if it is a redirect, which is not followed."""
        return 300 <= self.status < 400

    @property
    def may_pass(self) -> bool:
        """True if it is an error that may be temporary."""
        return self.status >= 500 or self.status in (408, 425, 429)


def authorization(username: str, password: str, token: str) -> dict[str, str]:
    """Build the header of a token, or of a user name and password; empty without credentials."""
    if token:
        return {"Authorization": f"Bearer {token}"}
    if username:
        return {"Authorization": "Basic " + b64encode(f"{username}:{password}".encode()).decode()}
    return {}


def get(pool: Pool | TlsPool | Connections, url: str, headers: Mapping[str, str], limit_s: float, largest: int) -> Answer:
    """Send a GET; see `ask`."""
    return ask(pool, "GET", url, headers, limit_s, largest)


def ask(
    pool: Pool | TlsPool | Connections,
    method: str,
    url: str,
    headers: Mapping[str, str],
    limit_s: float,
    largest: int,
    body: bytes | None = None,
) -> Answer:
    """Send a request, and return its answer. The limits apply to the whole exchange, whatever the peer sends.

    Args:
        pool: the connections; its retries are not used.
        method: the HTTP method.
        url: the address, in the form that the pool takes.
        headers: added to those that are always sent.
        limit_s: seconds from connecting to the end of the answer.
        largest: limit of the answer's body, in bytes.
        body: the request's body.

    Raises:
        HttpFailed: the answer is missing, incomplete, too large or too slow.
    """
    with exchange(time.monotonic() + limit_s, largest) as now:
        try:
            response = pool.request(
                method,
                url,
                body=body,
                headers={"Accept-Encoding": "identity", "User-Agent": "kpipe", **headers},
                timeout=max(limit_s, 0.001),  # for each call; `Connections` limits their sum
                redirect=False,
                retries=False,
                preload_content=False,
                decode_content=False,
            )
            now.status = int(response.status)
            try:
                answer = _answer(response, largest, tuple(_secret_texts(url, headers)))
                response.release_conn()
                return answer
            except BaseException:
                response.close()
                raise
        except TooMuch as error:
            raise (TooLarge(str(error), now.status) if now.status else HttpFailed(str(error))) from None
        except urllib3.exceptions.SSLError as error:
            reason = error.args[0] if error.args else error
            wrong = isinstance(reason, ssl.SSLCertVerificationError | CertificateError)
            raise (Untrusted if wrong else HttpFailed)(_shown(error, url, headers)) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            if now.late:
                raise TooSlow(f"no complete answer within {limit_s:g} s") from None
            raise HttpFailed(_shown(error, url, headers)) from None
        except UnicodeError:  # its text quotes the character, and its object has the whole value
            raise HttpFailed("a header cannot be sent: a credential has characters beyond Latin-1") from None


def _shown(error: Exception, url: str, headers: Mapping[str, str]) -> str:
    """Return the text of an error without the parameters of the address and the values of headers, which a server may echo."""
    return redact(str(error), _secret_texts(url, headers))


def _secret_texts(url: str, headers: Mapping[str, str]) -> list[str]:
    """Return the parameters of an address, the values of headers, and their words without the scheme, such as Bearer.

    The path is not secret, except that of a webhook, whose caller masks it.
    """
    values = [value for name, value in headers.items() if name.lower() not in _PLAIN_HEADERS]
    words = [word for value in values for word in value.split()[1:]]
    return [*secret_forms("?" + url.partition("?")[2]), *(text for text in (*values, *words) if len(text) > 3)]


def _answer(response: urllib3.BaseHTTPResponse, largest: int, hidden: tuple[str, ...]) -> Answer:
    """Read an answer to its end.

    Raises:
        TooLarge: its body has more bytes than allowed.
    """
    found = bytearray()
    while piece := response.read1(65536):
        found += piece
        if len(found) > largest:
            raise TooLarge(f"the answer has more than {largest:,} bytes", int(response.status))
    headers = response.headers
    encoding = headers.get("Content-Encoding", "").strip().lower()
    return Answer(
        status=int(response.status),
        body=bytes(found),
        type=headers.get("Content-Type", "").partition(";")[0].strip().lower(),
        encoding="" if encoding == "identity" else encoding,
        sized="Content-Length" in headers or headers.get("Transfer-Encoding", "").lower() == "chunked",
        retry_after=headers.get("Retry-After", "").strip(),
        link=headers.get("Link", "").strip(),
        hidden=hidden,
    )
