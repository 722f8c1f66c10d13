"""One request over urllib3, bounded as a whole: no redirects, no retries, no compression, no answer too large or too slow."""

from __future__ import annotations

import ssl
import time
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass

import urllib3
from urllib3.util.ssl_match_hostname import CertificateError

from resources.net.connections import Connections, Pool, TlsPool, TooMuch, exchange

__all__ = ["Answer", "HttpFailed", "TooLarge", "TooSlow", "Untrusted", "ask", "authorization", "get"]


class HttpFailed(Exception):
    """There was no whole answer. The text may hold what a server said: redact it."""


class TooLarge(HttpFailed):
    """The answer has more bytes than allowed.

    Attributes:
        status: of HTTP, which stands before them.
    """

    def __init__(self, what: str, status: int) -> None:
        super().__init__(what)
        self.status = status


class TooSlow(HttpFailed):
    """The answer was not there in time."""


class Untrusted(HttpFailed):
    """The server's certificate is none that is trusted, or is another server's."""


@dataclass(frozen=True)
class Answer:
    """What a server answered.

    Attributes:
        status: of HTTP.
        body: all of it.
        type: media type, in lower case, without parameters.
        encoding: how the body is compressed all the same; empty: not.
        sized: whether it said how long it is, so that one that was cut off is noticed.
        retry_after: the header of that name; empty where there is none.
    """

    status: int
    body: bytes
    type: str = ""
    encoding: str = ""
    sized: bool = True
    retry_after: str = ""

    @property
    def redirects(self) -> bool:
        """Whether it sends elsewhere, which is not followed."""
        return 300 <= self.status < 400


def authorization(username: str, password: str, token: str) -> dict[str, str]:
    """The header of a token, or of a name and a password; nothing where there is neither."""
    if token:
        return {"Authorization": f"Bearer {token}"}
    if username:
        return {"Authorization": "Basic " + b64encode(f"{username}:{password}".encode()).decode()}
    return {}


def get(pool: Pool | TlsPool | Connections, url: str, headers: Mapping[str, str], limit_s: float, largest: int) -> Answer:
    """A GET; see `ask`."""
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
    """Send a request and return its answer. Time and size are bounded as a whole, whatever the peer sends.

    Args:
        pool: where connections come from; its retries are not used.
        method: of HTTP.
        url: the address, as the pool takes it.
        headers: beside those that are always sent.
        limit_s: seconds until the whole answer is there, from before the connection is made.
        largest: bytes of it.
        body: what is sent.

    Raises:
        HttpFailed: it is not there, not whole, too large or too slow.
    """
    with exchange(time.monotonic() + limit_s, largest) as now:
        try:
            response = pool.request(
                method,
                url,
                body=body,
                headers={"Accept-Encoding": "identity", "User-Agent": "kpipe", **headers},
                timeout=max(limit_s, 0.001),  # of each step; connections end them all together
                redirect=False,
                retries=False,
                preload_content=False,
                decode_content=False,
            )
            now.status = int(response.status)
            try:
                answer = _answer(response, largest)
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
            raise (Untrusted if wrong else HttpFailed)(str(error)) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            if now.late:
                raise TooSlow(f"no whole answer within {limit_s:g} s") from None
            raise HttpFailed(str(error)) from None


def _answer(response: urllib3.BaseHTTPResponse, largest: int) -> Answer:
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
    )
