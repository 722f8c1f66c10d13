"""The web application: Kafka Connect's REST API and kpipe's own resources, behind the checks of each request."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import ASGIApp

from kpipe import __version__
from kpipe.errors import InvalidPipeline, KpipeError
from kpipe_assets.dagster_server.access_rules import Rules, is_loopback
from kpipe_assets.rest import connectors, loggers, offsets, pipelines, plugins, problems, statements
from kpipe_assets.rest.gate import MOST_BYTES, Gate
from kpipe_assets.rest.problems import Safe
from kpipe_assets.rest.worker import Worker
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["CONNECT_VERSION", "check_access", "create_app", "described"]

#: Version of Kafka Connect whose REST API this is; tools decide by it which resources exist.
CONNECT_VERSION = "4.1.0"
_CLUSTER_S = 60.0  # how long the cluster's id is remembered


def check_access(rules: Rules, tls: bool) -> None:
    """Check that a service which other machines can reach has a token and TLS.

    Raises:
        InvalidPipeline: it has not.
    """
    if is_loopback(rules.host):
        return
    if rules.token is None:
        raise InvalidPipeline(
            f"REST: {rules.host} can be reached by other machines, and no token is set", "set a token, or listen on 127.0.0.1"
        )
    if not tls:
        raise InvalidPipeline(
            f"REST: {rules.host} can be reached by other machines, and the token would be sent unencrypted",
            "set the certificate and key files, or listen on 127.0.0.1 behind a proxy",
        )


def create_app(
    home: Home,
    rules: Rules,
    brokers: str | None = None,
    tls: bool = False,
    most_bytes: int = MOST_BYTES,
    mounts: Mapping[str, ASGIApp] | None = None,
) -> ASGIApp:
    """Return the application that a web server runs.

    It reads and changes the home only, so it needs no running service to be correct.

    Args:
        home: KPIPE_HOME.
        rules: who may send requests.
        brokers: brokers of configs that name none, as a Connect worker has them.
        tls: whether the web server has a certificate.
        most_bytes: maximum size of a request's body.
        mounts: further applications by path, such as `/metrics`, behind the same checks.

    Raises:
        InvalidPipeline: other machines could send requests without a token, or read it.
    """
    check_access(rules, tls)
    app = _application(home, rules, brokers)
    for path, other in (mounts or {}).items():
        app.router.routes.append(Route(path, other))
    return Gate(app, rules, most_bytes)


def described(folder: Path) -> dict[str, Any]:
    """Return the paths of the OpenAPI description."""
    paths: dict[str, Any] = _application(Home.at(folder), Rules("127.0.0.1", 8083), None).openapi()["paths"]
    return paths


def _application(home: Home, rules: Rules, brokers: str | None) -> FastAPI:
    shown = f"[{rules.host}]" if ":" in rules.host else rules.host
    worker = Worker(home, f"{shown}:{rules.port}", brokers)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        worker.close()

    app = FastAPI(
        title="kpipe",
        summary="Kafka Connect's REST API, and kpipe's own resources",
        version=__version__,
        docs_url=None,  # both pages load code from other hosts
        redoc_url=None,
        default_response_class=Safe,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    problems.install(app)
    cluster = _Cluster(home)

    @app.get("/", tags=["Kafka Connect: worker"], summary="Get the version of the API, that of kpipe, and the Kafka cluster")
    def root() -> Any:
        return Safe({"version": CONNECT_VERSION, "commit": f"kpipe-{__version__}", "kafka_cluster_id": cluster.name()})

    @app.get("/health", tags=["Kafka Connect: worker"], summary="Return whether requests are answered (KIP-1017)")
    def health() -> Any:
        home.names()
        return Safe({"status": "healthy", "message": "Worker has completed startup and is ready to handle requests."})

    for part in (connectors, offsets, plugins, pipelines, statements):
        app.include_router(part.router(worker))
    app.include_router(loggers.router())
    return app


class _Cluster:
    """The id of the Kafka cluster that the ledgers name.

    Args:
        home: KPIPE_HOME.
    """

    def __init__(self, home: Home) -> None:
        self._home, self._lock = home, threading.Lock()
        self._name, self._until = "", 0.0

    def name(self) -> str:
        """Return the ids, sorted and separated by commas; empty before the first commit."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._name, self._until = ",".join(sorted(self._found())), time.monotonic() + _CLUSTER_S
            return self._name

    def _found(self) -> set[str]:
        found: set[str] = set()
        for name in self._home.names():
            try:
                _, ledger = open_destination(self._home.pipeline(name), self._home).ledger()
            except KpipeError:  # unreadable or busy: others may name it
                continue
            found |= {source.topic.cluster for source in ledger.sources() if source.topic.cluster}
        return found
