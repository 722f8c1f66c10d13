"""Answer `/metrics` in an ASGI application. The application's own access rules apply: mount it behind them."""

from __future__ import annotations

from asyncio import to_thread

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from kpipe.errors import KpipeError
from kpipe_assets.metrics.exposition import answer
from resources.home import Home

__all__ = ["PATH", "MetricsEndpoint", "with_metrics"]

PATH = "/metrics"


class MetricsEndpoint:
    """ASGI application that answers a scrape, for applications with routes of their own.

    Args:
        home: KPIPE_HOME.
    """

    def __init__(self, home: Home) -> None:
        self._home = home

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer GET and HEAD with the metrics. An invalid home or setting is status 500 with the reason."""
        response: Response
        if scope["method"] not in ("GET", "HEAD"):
            response = PlainTextResponse(f"{PATH}: method not allowed: expected GET\n", 405, {"Allow": "GET, HEAD"})
        else:
            try:
                body, content_type = await to_thread(answer, self._home, Headers(scope=scope).get("accept", ""))
                response = Response(body, headers={"Content-Type": content_type, "Cache-Control": "no-store"})
            except KpipeError as error:
                response = PlainTextResponse(f"{error}\n", 500)
        await response(scope, receive, send)


def with_metrics(app: ASGIApp, home: Home) -> ASGIApp:
    """Return an application that answers `/metrics` and passes everything else on.

    Args:
        app: the application without metrics.
        home: KPIPE_HOME.
    """
    metrics = MetricsEndpoint(home)

    async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
        own = scope["type"] == "http" and scope["path"].removeprefix(scope.get("root_path", "")) == PATH
        await (metrics if own else app)(scope, receive, send)

    return mounted
