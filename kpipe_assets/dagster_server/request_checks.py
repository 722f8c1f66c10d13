"""Checks that every web server of kpipe makes: Host, Origin, fetch metadata and token, whatever it serves."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Send

from kpipe_assets.dagster_server.access_rules import Rules

__all__ = ["Refusal", "foreign", "protected", "tokens"]

_HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
# Prevent clickjacking: another site must not embed the UI in a frame, or control a window with it.
_HEADERS = {
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class Refusal:
    """A rejected request: the status, the problem, and what the client can do."""

    status: int
    problem: str
    hint: str


def foreign(headers: Headers, rules: Rules, command: str = "kpipe ui") -> Refusal | None:
    """Reject hosts and origins of others.

    Args:
        headers: the request's headers.
        rules: who may send requests.
        command: the command that serves, for hints.
    """
    given = headers.getlist("host")
    host = _HOST.fullmatch(given[0]) if len(given) == 1 else None
    if host is None:
        return Refusal(400, f"Host: invalid header: expected one name, found {', '.join(given) or 'none'}", "")
    name = host["name"].strip("[]").lower()
    if not rules.allows(name):
        return Refusal(
            403,
            f"Host: unknown name: expected {rules.host}, found {name}",
            f"if the name is yours, start it with: {command} --allow-host {name}",
        )
    for origin in headers.getlist("origin"):
        if not _is_same(origin, given[0]):
            return Refusal(
                403,
                f"Origin: request of another page: expected {given[0]}, found {origin}",
                f"send it from a page of {command} itself; a proxy in front must pass the Host header on as it came",
            )
    for site in headers.getlist("sec-fetch-site"):
        if site not in ("same-origin", "none"):
            return Refusal(
                403,
                f"Sec-Fetch-Site: request of another page: expected same-origin, found {site}",
                f"copy the address of {command} into the address bar of the browser, or use another client",
            )
    return None


def _is_same(origin: str, host: str) -> bool:
    """Return whether an Origin names the host and port of the Host header."""
    try:
        parts = urlsplit(origin)
        default = {"http": 80, "https": 443}[parts.scheme]
        found = (parts.hostname, parts.port or default)
        wanted = urlsplit(f"//{host}")
        return found == (wanted.hostname, wanted.port or default)
    except (KeyError, ValueError):  # `null`, an extension's, a port that is not a number
        return False


def tokens(headers: Headers, cookie: str, basic: bool = False) -> Iterable[str]:
    """Yield what may be the token: `Authorization: Bearer`, the cookie and, if `basic`, the password of `Basic`."""
    for given in headers.getlist("authorization"):
        kind, _, value = given.partition(" ")
        if kind.lower() == "bearer":
            yield value.strip()
        elif kind.lower() == "basic" and basic:
            yield _password(value)
    for given in headers.getlist("cookie"):
        for part in given.split(";"):
            name, _, value = part.strip().partition("=")
            if name == cookie:
                yield value


def _password(value: str) -> str:
    try:
        return base64.b64decode(value.strip(), validate=True).decode("utf-8").partition(":")[2]
    except (binascii.Error, ValueError):
        return ""


def protected(send: Send) -> Send:
    """Add headers that prevent other sites from embedding the response."""

    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
        await send(message)

    return wrapped
