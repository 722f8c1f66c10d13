"""Errors as HTTP responses: Connect's body `{"error_code", "message"}`, and the status for each class of error."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from kpipe.errors import (
    DefinitionChanged,
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
from kpipe_assets.statements.json_rows import MOST_BYTES, MOST_ROWS, lossless

__all__ = ["LIMITS", "RESPONSES", "Error", "Problem", "Safe", "body_of", "install", "status_of"]

_LOG = logging.getLogger("kpipe.rest")

#: In order: the first class that matches decides.
_STATUS: tuple[tuple[type[KpipeError], int], ...] = (
    (InvalidPipeline, 400),
    (DefinitionChanged, 409),
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
        """Render with lossless values; bytes are JSON already."""
        return content if isinstance(content, bytes) else lossless(content).encode("ascii")


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


class Error(BaseModel):
    """The body of an error.

    Attributes:
        error_code: the HTTP status.
        message: the problem, and what to do.
        error: class of an error of kpipe.
        hint: what to do.
        field: the key or the field that is invalid.
    """

    error_code: int
    message: str
    error: str | None = None
    hint: str | None = None
    field: str | None = None


#: In the description of resources that return rows or records.
LIMITS = (
    f"The response has {MOST_ROWS:,} rows or entries at most, and {MOST_BYTES >> 20} MiB of them in JSON. If there are more, it"
    " has `truncated: true`. A first row that is larger by itself is an error."
)
#: Errors in the description of every resource.
RESPONSES: dict[int | str, dict[str, Any]] = {
    400: {"model": Error, "description": "The request, its config or its statement is invalid"},
    401: {"model": Error, "description": "The token is missing or wrong"},
    403: {"model": Error, "description": "Host, Origin or Sec-Fetch-Site names another server"},
    404: {"model": Error, "description": "There is no such connector, task or class"},
    409: {
        "model": Error,
        "description": "The name exists, another change is in progress or came first, or an operator must decide",
    },
    422: {"model": Error, "description": "The feature is not available here"},
    503: {"model": Error, "description": "Brokers or the destination do not answer"},
}


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
