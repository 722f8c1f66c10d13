"""Reject requests before they reach a resource: of other pages, without the token, too large, or not JSON."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kpipe_assets.dagster_server.access_rules import Rules
from kpipe_assets.dagster_server.request_checks import Refusal, foreign, protected, tokens
from kpipe_assets.rest.problems import Safe

__all__ = ["MOST_BYTES", "Gate", "is_authorized"]

#: Maximum size of a request's body.
MOST_BYTES = 1 << 20
_DEEPEST = 64
_BODY_S = 60.0  # longest time for a body: a connection that sends none must not stay
# Orchestrators probe without a token.
_PUBLIC = ("/health",)
_AUTHORIZED = "kpipe.authorized"


def is_authorized(scope: Scope) -> bool:
    """Return whether a request has brought the token, or needs none."""
    return bool(scope.get(_AUTHORIZED))


class Gate:
    """ASGI middleware: check a request's headers and body, and pass it on or reject it.

    A body is read here, once and up to a limit. No resource sees text that is not JSON, or characters that no file can
    contain.

    Args:
        app: the application.
        rules: who may send requests.
        most: maximum size of a body, in bytes.

    Attributes:
        rules: may be replaced, by the thread that answers requests.
    """

    def __init__(self, app: ASGIApp, rules: Rules, most: int = MOST_BYTES) -> None:
        self._app, self.rules, self._most = app, rules, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request; see the class."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        send = protected(send)
        headers = Headers(scope=scope)
        unknown = self._unknown(headers)
        refusal = foreign(headers, self.rules, "kpipe serve")
        if refusal is None and scope.get("path") not in _PUBLIC:
            refusal = unknown
        if refusal is None and scope["type"] != "http":
            refusal = Refusal(403, "websocket: not served", "")
        body = b""
        if refusal is None:
            body, refusal = await self._body(headers, receive)
        if refusal is not None:
            await _answer(refusal)(scope, receive, send)
            return
        # HEAD is answered as GET; the web server leaves out the body.
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        scope = {**_without_slash(scope), "method": method, _AUTHORIZED: unknown is None}
        await self._app(scope, _again(body, receive), send)

    def _unknown(self, headers: Headers) -> Refusal | None:
        """Reject requests without the token."""
        rules = self.rules
        if rules.token is None or any(map(rules.knows, tokens(headers, rules.cookie, basic=True))):
            return None
        return Refusal(
            401,
            "token: missing or invalid: expected the token of kpipe serve",
            "send it as `Authorization: Bearer TOKEN`, or as the password of Basic with any user name",
        )

    async def _body(self, headers: Headers, receive: Receive) -> tuple[bytes, Refusal | None]:
        """Read the body up to the limit, and check that it is JSON."""
        large = Refusal(413, f"body: too large: expected at most {self._most} bytes", "send less at once")
        length = headers.get("content-length", "0")
        if not length.isdigit():
            return b"", Refusal(400, "Content-Length: not a number", "")
        if len(length) > 12 or int(length) > self._most:
            return b"", large
        parts, size, deadline = [], 0, time.monotonic() + _BODY_S
        while True:
            try:
                message = await asyncio.wait_for(receive(), deadline - time.monotonic())
            except asyncio.TimeoutError:
                return b"", Refusal(408, f"body: incomplete after {_BODY_S:g} s", "send it again")
            if message["type"] == "http.disconnect":
                return b"", Refusal(400, "body: the client ended the connection", "")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._most:
                return b"", large
            if not message.get("more_body", False):
                break
        body = b"".join(parts)
        return body, _checked(body, headers) if body else None


def _without_slash(scope: Scope) -> Scope:
    """Remove a slash at the end of the path, as Connect's server ignores it, and clients send it."""
    path = scope["path"]
    return {**scope, "path": path[:-1], "raw_path": path[:-1].encode()} if len(path) > 1 and path.endswith("/") else scope


def _checked(body: bytes, headers: Headers) -> Refusal | None:
    """Reject a body of another content type, which other pages may send without a preflight, and what is not JSON."""
    kinds = [item.partition(";")[0].strip().lower() for item in headers.getlist("content-type")]
    if kinds != ["application/json"]:
        return Refusal(
            415, f"Content-Type: not allowed: expected application/json, found {', '.join(kinds) or 'none'}", "send JSON"
        )
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_no_duplicates)
        problem = _problem(value)
    except (ValueError, RecursionError) as error:
        problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    return Refusal(400, f"body: not JSON: {problem}", "send one JSON value in UTF-8") if problem else None


def _no_constant(name: str) -> Any:
    msg = f"{name} is not a value of JSON"
    raise ValueError(msg)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Reject a member that is given twice, as kpipe's YAML does."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            msg = f"member {name!r} is duplicated"
            raise ValueError(msg)
        found[name] = value
    return found


def _problem(value: Any, depth: int = 0) -> str:
    """Return what is wrong with a value: half a surrogate pair, or too much nesting; empty if nothing is."""
    if depth > _DEEPEST:
        return f"nested too deeply: at most {_DEEPEST} levels"
    if isinstance(value, str):
        return "" if not any("\ud800" <= sign <= "\udfff" for sign in value) else "a text contains half of a surrogate pair"
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "a number is too large"
    if isinstance(value, dict):
        return next(filter(None, (_problem(item, depth + 1) for pair in value.items() for item in pair)), "")
    if isinstance(value, list):
        return next(filter(None, (_problem(item, depth + 1) for item in value)), "")
    return ""


def _again(body: bytes, receive: Receive) -> Receive:
    """Return the body once, then what the client sends: the end of its connection."""
    given = False

    async def wrapped() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return wrapped


def _answer(refusal: Refusal) -> Response:
    more = {"Cache-Control": "no-store"}
    if refusal.status == 401:
        more["WWW-Authenticate"] = 'Basic realm="kpipe", charset="UTF-8"'
    message = f"{refusal.problem} -> {refusal.hint}" if refusal.hint else refusal.problem
    return Safe({"error_code": refusal.status, "message": message}, refusal.status, more)
