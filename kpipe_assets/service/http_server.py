"""Serve REST, `/metrics` and `/health` in a thread of the service process.

Requests run in threads of their own, so that none waits for another one to end: `/health` is answered by the event loop,
`/metrics` by the loop's executor, everything else by up to 40 threads of AnyIO. Slow work is bounded in
`kpipe_assets/rest/worker.py`. Pipelines do not wait for any of these threads.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from kpipe_assets.metrics.endpoint import PATH, MetricsEndpoint
from kpipe_assets.rest.app import RUNNING, create_app
from kpipe_assets.service.bounded_listener import BoundedListener
from kpipe_assets.service.http_settings import HttpSettings, check_certificate, read_token
from kpipe_assets.service.renewed_files import RenewedFiles
from resources.home import Home

__all__ = ["HttpServer"]

# More are closed at once: each takes a file descriptor from the pipelines.
_CONNECTIONS = 200
# A connection that has sent no further request for one to two of these is closed.
_IDLE_S = 30.0
# Time between two checks of the files of certificate and token.
_RENEWAL_S = 10.0
# At the end, requests in progress may take so long.
_GRACE_S = 10
_READY = "Worker has completed startup and is ready to handle requests."  # as in KIP-1017


class HttpServer:
    """The HTTP server of a service.

    Args:
        home: KPIPE_HOME.
        settings: access, TLS and brokers.
        listening: file descriptor of the socket.
        pipelines: returns the state of each pipeline for `/health`.
        report: prints a line.
    """

    def __init__(
        self,
        home: Home,
        settings: HttpSettings,
        listening: int,
        pipelines: Callable[[], Mapping[str, Mapping[str, Any]]],
        report: Callable[[str], None],
    ) -> None:
        self._pipelines, self._ending = pipelines, False
        app = create_app(
            home,
            settings.rules,
            settings.brokers,
            tls=settings.certificate is not None,
            mounts={PATH: MetricsEndpoint(home)},
            health=self._health,
        )
        config = uvicorn.Config(
            app,
            http=_Connection,
            loop="asyncio",
            ws="none",
            lifespan="on",
            log_level="error",  # warnings would be lines that any client can cause
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_GRACE_S,
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.key,
        )
        config.load()  # reads the certificate: an error must end the service, not this thread

        def renew_certificate() -> None:
            if config.ssl is not None and settings.certificate is not None:
                # In another context first: a failure would leave half of the files in this one.
                check_certificate(Path(settings.certificate), None if settings.key is None else Path(settings.key))
                config.ssl.load_cert_chain(settings.certificate, settings.key, password=lambda: "")

        def renew_token() -> None:
            if settings.token_file is not None:
                app.rules = replace(app.rules, token=read_token(Path(settings.token_file)))

        certificate = RenewedFiles("certificate", (settings.certificate, settings.key), renew_certificate, report)
        token = RenewedFiles("token", (settings.token_file,), renew_token, report)
        token.load()  # the supervisor has sent the token that it read when it began
        self._server = _Server(config, [certificate, token])
        sockets: list[socket.socket] = [BoundedListener(listening, _CONNECTIONS)]
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": sockets}, name="kpipe http", daemon=True)

    def start(self) -> None:
        """Begin to answer requests."""
        self._thread.start()

    def ending(self) -> None:
        """Answer `/health` with 503 from now on: the service waits for its batches. May be called by a signal handler."""
        self._ending = True

    def stop(self) -> None:
        """Accept no further request, and wait for those in progress."""
        self._server.should_exit = True
        self._thread.join(_GRACE_S + 5)

    def _health(self) -> tuple[int, Mapping[str, Any]]:
        found = {"pipelines": self._pipelines()}
        if self._ending:
            return 503, {"status": "ending", "message": "The service ends after the current batches.", **found}
        return 200, {"status": RUNNING, "message": _READY, **found}


class _Server(uvicorn.Server):
    """A server that uses a renewed certificate for further connections, and a renewed token for further requests.

    Args:
        config: settings of uvicorn.
        files: that may be replaced.
    """

    def __init__(self, config: uvicorn.Config, files: Sequence[RenewedFiles]) -> None:
        super().__init__(config)
        self._files, self._next = files, 0.0

    async def on_tick(self, counter: int) -> bool:
        """Check the files now and then."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _RENEWAL_S
            for one in self._files:
                one.check()
        return await super().on_tick(counter)


class _Connection(H11Protocol):
    """A connection that is closed if it sends no complete header for some time."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch(None)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def _watch(self, before: object) -> None:
        """Close the connection if the last request is still the same, and has been answered."""
        self._timer = self.loop.call_later(_IDLE_S, self._look, before)

    def _look(self, before: object) -> None:
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self.cycle is before:
            self.transport.abort()
        else:
            self._watch(self.cycle)
