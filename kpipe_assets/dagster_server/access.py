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

from html import escape
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from kpipe_assets.dagster_server.access_rules import Rules
from kpipe_assets.dagster_server.request_checks import Refusal, foreign, protected, tokens

__all__ = ["Access"]

_PAGE = "<!doctype html><meta charset=utf-8><title>kpipe</title><body style='font-family:sans-serif;margin:4em'>"


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
        refusal = foreign(headers, self._rules) or (_unsafe(scope, headers) if scope["type"] == "http" else None)
        if refusal is None and (answer := self._login(scope, headers)) is not None:
            await answer(scope, receive, protected(send))
            return
        refusal = refusal or self._unknown(headers)
        if refusal is not None:
            await _answer(scope, headers, refusal)(scope, receive, protected(send))
            return
        if _is_graphql(scope):
            scope = {**scope, "query_string": b""}
        await self._app(scope, receive, protected(send))

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

    def _unknown(self, headers: Headers) -> Refusal | None:
        """Reject requests without the token."""
        if self._rules.token is None or any(map(self._rules.knows, tokens(headers, self._rules.cookie))):
            return None
        return Refusal(
            401,
            "token: missing or invalid: expected the token of this start of kpipe ui",
            "open the address that `kpipe ui` printed; in scripts, send the content of KPIPE_HOME/state/ui.token "
            "as `Authorization: Bearer TOKEN`",
        )


def _unsafe(scope: Scope, headers: Headers) -> Refusal | None:
    """Reject methods and content types that a page of another origin may send without a preflight request."""
    method = scope["method"]
    if method == "POST":
        given = headers.getlist("content-type")
        if [item.partition(";")[0].strip().lower() for item in given] == ["application/json"]:
            return None
        found = ", ".join(given) or "none"
        return Refusal(
            415, f"Content-Type: not allowed: expected application/json, found {found}", "send the query as a JSON object"
        )
    if method not in ("GET", "HEAD"):
        return Refusal(405, f"method: not allowed: expected GET or POST, found {method}", "")
    if _is_graphql(scope) and (method == "HEAD" or not _wants_page(headers)):
        return Refusal(
            405,
            f"/graphql: method not allowed: expected POST, found {method}",
            'send {"query": ..., "variables": ...} as application/json',
        )
    return None


def _is_graphql(scope: Scope) -> bool:
    """Return whether Dagster executes queries at this path, which may have a prefix."""
    return str(scope["path"]).rstrip("/").rpartition("/")[2] == "graphql" and scope.get("method", "GET") in ("GET", "HEAD")


def _wants_page(headers: Headers) -> bool:
    return "text/html" in headers.get("accept", "")


def _answer(scope: Scope, headers: Headers, refusal: Refusal) -> Response:
    """Build the response: HTML for browsers, JSON in GraphQL's form for programs."""
    more = {"Cache-Control": "no-store", **({"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {})}
    if scope["type"] == "http" and scope["method"] == "GET" and _wants_page(headers):
        page = f"{_PAGE}<h1>{refusal.status}</h1><p>{escape(refusal.problem)}<p>{escape(refusal.hint)}"
        more["Content-Security-Policy"] = "default-src 'none'; style-src 'unsafe-inline'"
        return HTMLResponse(page, refusal.status, more)
    message = f"{refusal.problem} -> {refusal.hint}" if refusal.hint else refusal.problem
    return JSONResponse({"data": None, "errors": [{"message": message}]}, refusal.status, more)
