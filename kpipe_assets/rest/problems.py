"""Errors as HTTP responses: Connect's body `{"error_code", "message"}`, and the status for each class of error."""

from __future__ import annotations

import json
import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from kpipe.errors import (
    DestinationBusy,
    DestinationError,
    Fenced,
    InvalidPipeline,
    InvalidStatement,
    KpipeError,
    NeedsOperator,
    NotAvailable,
    SchemaConflict,
    SourceError,
)
from kpipe.terminal import plain_lines

__all__ = ["Problem", "Safe", "body_of", "install", "status_of"]

_LOG = logging.getLogger("kpipe.rest")

#: In order: the first class that matches decides.
_STATUS: tuple[tuple[type[KpipeError], int], ...] = (
    (InvalidPipeline, 400),
    (InvalidStatement, 400),
    (SchemaConflict, 409),
    (NotAvailable, 422),
    (NeedsOperator, 409),
    (Fenced, 409),
    (DestinationBusy, 409),
    (SourceError, 503),
    (DestinationError, 503),
    (KpipeError, 503),
)


class Safe(JSONResponse):
    """A JSON response in ASCII: a text of the home may contain any character."""

    def render(self, content: Any) -> bytes:
        """Render with lossless values: other types as text, not-a-number as null."""
        return json.dumps(_finite(content), allow_nan=False, separators=(",", ":"), default=str).encode("ascii")


class Problem(Exception):
    """A request that cannot be answered.

    Args:
        status: HTTP status, which is also Connect's `error_code`.
        message: the problem, and what to do.
        more: further members of the body.
    """

    def __init__(self, status: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status, self.message, self.more = status, message, more


def status_of(error: KpipeError) -> int:
    """Return the HTTP status for an error."""
    return next(status for kind, status in _STATUS if isinstance(error, kind))


def body_of(error: KpipeError) -> dict[str, Any]:
    """Return the body for an error: Connect's members, and kpipe's parts of the message."""
    body: dict[str, Any] = {"error_code": status_of(error), "message": str(error), "error": type(error).__name__}
    if error.hint:
        body["hint"] = plain_lines(error.hint)
    if error.field:
        body["field"] = ".".join(error.field)
    return body


def install(app: FastAPI) -> None:
    """Answer every error with Connect's body."""

    @app.exception_handler(Problem)
    def problem(_: Request, error: Problem) -> Safe:
        return Safe({"error_code": error.status, "message": error.message, **error.more}, error.status)

    @app.exception_handler(KpipeError)
    def known(_: Request, error: KpipeError) -> Safe:
        body = body_of(error)
        return Safe(body, body["error_code"], {"Retry-After": "1"} if error.retriable else None)

    @app.exception_handler(RequestValidationError)
    def invalid(_: Request, error: RequestValidationError) -> Safe:
        status, message = _first(error)
        return Safe({"error_code": status, "message": message}, status)

    @app.exception_handler(HTTPException)
    def http(_: Request, error: HTTPException) -> Safe:
        return Safe({"error_code": error.status_code, "message": f"HTTP {error.status_code} {error.detail}"}, error.status_code)

    @app.exception_handler(Exception)
    def unexpected(_: Request, error: Exception) -> Safe:
        _LOG.error("request failed", exc_info=error)
        return Safe({"error_code": 500, "message": f"{type(error).__name__}: see the server's log"}, 500)


def _first(error: RequestValidationError) -> tuple[int, str]:
    """Return status and message of the first problem. A path that does not fit names nothing, as in Connect."""
    first = error.errors()[0]
    where = [str(part) for part in first["loc"]]
    text = first["msg"].removeprefix("Value error, ")
    status = 404 if where[:1] == ["path"] else 400
    return status, plain_lines(f"{'.'.join(where)}: {text[:1].lower() + text[1:]}")


def _finite(value: Any) -> Any:
    """Replace what JSON cannot express: NaN and infinities by null, bytes by text or hexadecimal digits."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode("utf-8")
        except UnicodeDecodeError:
            return {"hex": bytes(value).hex()}
    return value
