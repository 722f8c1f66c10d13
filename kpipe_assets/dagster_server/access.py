"""Reject web requests that come neither from the UI's own pages nor from a client that has the token.

Dagster's web server has no access control, and executes mutations that arrive by GET. Listening on loopback does not protect
it: every page in a browser and every user of the machine can connect to 127.0.0.1. Each request, websockets
included, therefore passes these checks:

1. Host is a name of this server, so that no page reaches it through a name of its own (DNS rebinding).
2. Origin and Sec-Fetch-Site, where a browser sends them, name this server, port included.
3. The method is GET or HEAD; or POST with `application/json`, which pages of other origins cannot send without a preflight.
4. GraphQL comes as POST; GET opens the page of GraphiQL, and its query string is dropped.
5. The token comes as a cookie or as `Authorization: Bearer`. The printed address brings it once, and is exchanged for the cookie.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kpipe_assets.dagster_server.access_rules import Rules

__all__ = ["Access"]

_HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
# Prevent clickjacking: another site must not embed the UI in a frame, or control a window with it.
_HEADERS = {
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_PAGE = "<!doctype html><meta charset=utf-8><title>kpipe</title><body style='font-family:sans-serif;margin:4em'>"


@dataclass(frozen=True)
class _Refusal:
    status: int
    problem: str
    hint: str


class Access:
    """ASGI middleware: pass on what the rules allow, and answer everything else with a reason.

    Args:
        app: Dagster's web server.
        rules: who may send requests.
    """

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app, self._rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, and pass it on or reject it; see the class."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._foreign(headers) or (_unsafe(scope, headers) if scope["type"] == "http" else None)
        if refusal is None and (answer := self._login(scope, headers)) is not None:
            await answer(scope, receive, _protected(send))
            return
        refusal = refusal or self._unknown(headers)
        if refusal is not None:
            await _answer(scope, headers, refusal)(scope, receive, _protected(send))
            return
        if _is_graphql(scope):
            scope = {**scope, "query_string": b""}
        await self._app(scope, receive, _protected(send))

    def _foreign(self, headers: Headers) -> _Refusal | None:
        """Reject hosts and origins of others."""
        given = headers.getlist("host")
        host = _HOST.fullmatch(given[0]) if len(given) == 1 else None
        if host is None:
            return _Refusal(400, f"Host: invalid header: expected one name, found {', '.join(given) or 'none'}", "")
        name = host["name"].strip("[]").lower()
        if not self._rules.allows(name):
            return _Refusal(
                403,
                f"Host: unknown name: expected {self._rules.host}, found {name}",
                f"if the name is yours, start it with: kpipe ui --allow-host {name}",
            )
        for origin in headers.getlist("origin"):
            if not _is_same(origin, given[0]):
                return _Refusal(
                    403,
                    f"Origin: request of another page: expected {given[0]}, found {origin}",
                    "open the UI's own address; a proxy in front must pass the Host header on as it came",
                )
        for site in headers.getlist("sec-fetch-site"):
            if site not in ("same-origin", "none"):
                return _Refusal(
                    403,
                    f"Sec-Fetch-Site: request of another page: expected same-origin, found {site}",
                    "copy the UI's address into the address bar of the browser",
                )
        return None

    def _login(self, scope: Scope, headers: Headers) -> Response | None:
        """Exchange the token of the printed address for a cookie; None for a request that brings none."""
        if self._rules.token is None or scope["type"] != "http" or scope["method"] != "GET":
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if not any(name == "token" and self._rules.knows(value) for name, value in query):
            return None
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        scope["query_string"] = b""  # the server's own log of requests, where it is on, is written from this
        # A path that begins with two slashes would lead to another host.
        path = "/" + scope.get("raw_path", b"/").decode("latin-1").lstrip("/")
        answer = RedirectResponse(f"{path}?{rest}" if rest else path, 303, {"Cache-Control": "no-store"})
        answer.set_cookie(
            self._rules.cookie, self._rules.token, httponly=True, samesite="strict", secure=scope.get("scheme") == "https"
        )
        return answer

    def _unknown(self, headers: Headers) -> _Refusal | None:
        """Reject requests without the token."""
        if self._rules.token is None or any(map(self._rules.knows, _tokens(headers, self._rules.cookie))):
            return None
        return _Refusal(
            401,
            "token: missing or invalid: expected the token of this start of kpipe ui",
            "open the address that `kpipe ui` printed; in scripts, send the content of KPIPE_HOME/state/ui.token "
            "as `Authorization: Bearer TOKEN`",
        )


def _unsafe(scope: Scope, headers: Headers) -> _Refusal | None:
    """Reject methods and content types that a page of another origin may send without a preflight request."""
    method = scope["method"]
    if method == "POST":
        given = headers.getlist("content-type")
        if [item.partition(";")[0].strip().lower() for item in given] == ["application/json"]:
            return None
        found = ", ".join(given) or "none"
        return _Refusal(
            415, f"Content-Type: not allowed: expected application/json, found {found}", "send the query as a JSON object"
        )
    if method not in ("GET", "HEAD"):
        return _Refusal(405, f"method: not allowed: expected GET or POST, found {method}", "")
    if _is_graphql(scope) and (method == "HEAD" or not _wants_page(headers)):
        return _Refusal(
            405,
            f"/graphql: method not allowed: expected POST, found {method}",
            'send {"query": ..., "variables": ...} as application/json',
        )
    return None


def _is_graphql(scope: Scope) -> bool:
    """Return whether Dagster executes queries at this path, which may have a prefix."""
    return str(scope["path"]).rstrip("/").rpartition("/")[2] == "graphql" and scope.get("method", "GET") in ("GET", "HEAD")


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


def _tokens(headers: Headers, cookie: str) -> Iterable[str]:
    for given in headers.getlist("authorization"):
        kind, _, value = given.partition(" ")
        if kind.lower() == "bearer":
            yield value.strip()
    for given in headers.getlist("cookie"):
        for part in given.split(";"):
            name, _, value = part.strip().partition("=")
            if name == cookie:
                yield value


def _wants_page(headers: Headers) -> bool:
    return "text/html" in headers.get("accept", "")


def _answer(scope: Scope, headers: Headers, refusal: _Refusal) -> Response:
    """Build the response: HTML for browsers, JSON in GraphQL's form for programs."""
    more = {"Cache-Control": "no-store", **({"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {})}
    if scope["type"] == "http" and scope["method"] == "GET" and _wants_page(headers):
        page = f"{_PAGE}<h1>{refusal.status}</h1><p>{escape(refusal.problem)}<p>{escape(refusal.hint)}"
        more["Content-Security-Policy"] = "default-src 'none'; style-src 'unsafe-inline'"
        return HTMLResponse(page, refusal.status, more)
    message = f"{refusal.problem} -> {refusal.hint}" if refusal.hint else refusal.problem
    return JSONResponse({"data": None, "errors": [{"message": message}]}, refusal.status, more)


def _protected(send: Send) -> Send:
    """Add headers that prevent other sites from embedding the response."""

    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
        await send(message)

    return wrapped
