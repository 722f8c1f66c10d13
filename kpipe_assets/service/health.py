"""`GET /health` of the service: whether it runs, and the state of each pipeline."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from kpipe_assets.service.service import PipelineService

__all__ = ["health_app", "serve_health"]

_Message = MutableMapping[str, Any]
_App = Callable[[_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]], Awaitable[None]]


def health_app(service: PipelineService) -> _App:
    """Return an ASGI app that answers `GET /health` with the state of each pipeline."""

    async def app(
        scope: _Message, receive: Callable[[], Awaitable[_Message]], send: Callable[[_Message], Awaitable[None]]
    ) -> None:
        if scope["type"] != "http":
            return
        body: dict[str, Any]
        if scope["path"] != "/health":
            status, body = 404, {"error": f"{scope['path']}: not found: expected /health"}
        elif scope["method"] not in ("GET", "HEAD"):
            status, body = 405, {"error": f"{scope['method']}: not allowed: expected GET"}
        else:
            status, body = 200, {"status": "running", "pipelines": service.pipelines()}
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(body).encode() + b"\n"})

    return app


def serve_health(service: PipelineService, listening: int) -> None:
    """Answer requests on a listening socket in a thread.

    Args:
        service: the service.
        listening: file descriptor of the socket.
    """
    import uvicorn

    config = uvicorn.Config(health_app(service), log_level="warning", access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    sockets = [socket.socket(fileno=listening)]
    threading.Thread(target=server.run, kwargs={"sockets": sockets}, name="kpipe http", daemon=True).start()
