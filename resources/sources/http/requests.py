"""Request a page of a list: bounded, without redirects, from addresses that are allowed."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

from kpipe.definition.source import SourceHttp
from kpipe.errors import CredentialsRefused, DestinationBusy, InvalidPipeline, ReadFailed, ReadStalled
from resources.destinations.webhook.url_guard import Url
from resources.net.connections import Pool, TlsPool
from resources.net.http import Answer, HttpFailed, TooLarge, authorization, get
from resources.secrets import Secret, redact
from resources.sources.http.json_list import items, member, parsed
from resources.sources.http.link_header import next_link

__all__ = ["CREDENTIALS", "HEADER", "Page", "Pages", "checked"]

HEADER = "header."  # prefix of credentials that are sent as headers
CREDENTIALS = ("token", "username", "password")


@dataclass(frozen=True)
class Page:
    """A page of the list.

    Attributes:
        texts: its records as they were written.
        values: its records.
        following: the URL of the next page, if pages are linked; empty: it is the last one.
    """

    texts: Sequence[str]
    values: Sequence[Mapping[str, Any]]
    following: str = ""


def checked(http: SourceHttp, text: str | None = None) -> Url:
    """Return the parsed address of the list, or of another page of it.

    Raises:
        InvalidPipeline: it is invalid, or would be read unencrypted over a network.
    """
    try:
        return Url.of(text or http.url)
    except InvalidPipeline as error:
        raise InvalidPipeline(error.what.replace("into.", "source.http."), error.hint.replace("into.", "source.http.")) from None


class Pages:
    """Requests of one split. A context manager.

    Args:
        http: the definition.
        secrets: credentials by name.

    Raises:
        InvalidPipeline: the server's address is not allowed.
        ReadStalled: its name cannot be resolved.
    """

    def __init__(self, http: SourceHttp, secrets: Mapping[str, Secret]) -> None:
        self._http, self._secrets, self._url = http, secrets, checked(http)
        try:
            address = self._url.looked_up(http.allow_hosts)[0]
        except DestinationBusy as error:
            raise ReadStalled(_own(error.what), "check the host in source.http.url, and this machine's DNS") from None
        except InvalidPipeline as error:
            hint = f"use a public server; or allow this host: source.http.allow_hosts: [{self._url.host}]"
            raise InvalidPipeline(_own(error.what), hint) from None
        self._pool: Pool | TlsPool
        if self._url.scheme == "http":
            self._pool = Pool(address, self._url.port, retries=False)
        else:
            trust = ssl.create_default_context()
            self._pool = TlsPool(address, self._url.port, retries=False, ssl_context=trust, server_hostname=self._url.host)
        own = {name.removeprefix(HEADER): value for name, value in secrets.items() if name.startswith(HEADER)}
        login = authorization(*(secrets.get(name, "") for name in ("username", "password", "token")))
        self._headers = {"Host": self._url.named, "Accept": "application/json", **http.headers, **own, **login}

    def __enter__(self) -> Pages:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def with_parameter(self, name: str, value: object) -> str:
        """Return the list's URL with one more parameter, which replaces the same one of the definition."""
        parts = urlsplit(self._http.url)
        given = [(key, text) for key, text in parse_qsl(parts.query, keep_blank_values=True) if key != name]
        return parts._replace(query=urlencode([*given, (name, str(value))])).geturl()

    def get(self, url: str) -> Page:
        """Request a page.

        Raises:
            ReadFailed: the response is not a page of the list; the message names the reason, without content of the response.
            ReadStalled: the server did not answer, or with a temporary error.
            CredentialsRefused: the server rejects the credentials.
        """
        where = self._http.name
        try:
            target = checked(self._http, url)
        except InvalidPipeline:
            if url == self._http.url:
                raise
            raise ReadFailed(
                f"{where}: the URL of the next page is invalid, or not https", "check source.http.next_link"
            ) from None
        if (target.scheme, target.host, target.port) != (self._url.scheme, self._url.host, self._url.port):
            raise ReadFailed(
                f"{where}: the next page is on another server: {target}", "name the server that has all pages: source.http.url"
            )
        try:
            answer = get(self._pool, target.target, self._headers, self._http.timeout_s, self._http.max_mb << 20)
        except TooLarge:
            raise ReadFailed(
                f"{where}: the response has more than {self._http.max_mb} MiB",
                "request smaller pages, or raise source.http.max_mb",
            ) from None
        except HttpFailed as error:
            raise ReadStalled(
                f"{where}: {redact(str(error), self._secrets.values())}", "check the server; run it again"
            ) from None
        self._check(where, answer)
        try:
            text = answer.body.decode()
            document = parsed(text)
            found = items(text, self._http.records)
        except RecursionError:
            raise ReadFailed(f"{where}: the response is nested too deeply", "check source.http.url") from None
        except ValueError as error:
            why = str(error) if str(error).startswith("expected") else "not JSON in UTF-8"
            raise ReadFailed(f"{where}: the response: {why}", "check source.http.url and source.http.records") from None
        return Page([raw for raw, _ in found], [value for _, value in found], self._following(url, document, answer))

    def _following(self, url: str, document: Any, answer: Answer) -> str:
        """Return the URL of the next page; empty if there is none.

        Raises:
            ReadFailed: the response has another value in its place, so that the list would seem to end.
        """
        http = self._http
        if http.cursor is not None:
            cursor = self._continued("cursor", member(document, http.cursor), (str, int))
            return self.with_parameter(str(http.cursor_parameter), cursor) if cursor is not None else ""
        if http.next_link is None:
            return ""
        try:
            if http.next_link.lower() == "link":
                link = next_link(answer.link)
            else:
                link = member(document, http.next_link)
                if isinstance(link, dict) and "href" in link:  # HAL, JSON:API
                    link = link["href"]
                link = self._continued("next_link", link, (str,))
            return urljoin(url, link) if link else ""
        except ValueError:
            raise ReadFailed(f"{http.name}: the URL of the next page is invalid", "check source.http.next_link") from None

    def _continued(self, field: str, value: Any, types: tuple[type, ...]) -> Any:
        """Return the value that leads to the next page; None if the list ends: it is absent, null, false or empty."""
        if value is None or value is False or value == "":
            return None
        if type(value) not in types:
            expected = " or ".join("an integer" if kind is int else "a text" for kind in types)
            what = f"member {getattr(self._http, field)}: expected {expected}, found {type(value).__name__}"
            raise ReadFailed(f"{self._http.name}: {what}", f"check source.http.{field}")
        return value

    def _check(self, where: str, answer: Answer) -> None:
        if answer.status in (401, 403):
            raise CredentialsRefused(
                f"{where} rejects these credentials (HTTP {answer.status})",
                f"see source.credentials: {', '.join(CREDENTIALS)} or {HEADER}NAME",
            )
        if answer.redirects:
            raise ReadFailed(
                f"{where} redirects elsewhere (HTTP {answer.status}), which is not followed", "use the address of the redirect"
            )
        if answer.may_pass:
            raise ReadStalled(f"{where} answers HTTP {answer.status}", "see the server's own log; it is tried again")
        if answer.status != 200:
            raise ReadFailed(f"{where} answers HTTP {answer.status}", "check the address and the parameters: source.http")
        if answer.encoding or not answer.sized:
            why = "compressed content, which was not requested" if answer.encoding else "a response without a length"
            raise ReadFailed(f"{where} sends {why}", "configure the server to send Content-Length, or chunks, uncompressed")


def _own(text: str) -> str:
    return text.replace("into.", "source.http.")
