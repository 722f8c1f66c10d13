"""The web application: Kafka Connect's REST API and kpipe's own resources, behind the checks of each request."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from starlette.routing import Route
from starlette.types import ASGIApp

from kpipe import __version__
from kpipe.definition.pipeline import Pipeline, Source
from kpipe.definition.references import rotates
from kpipe.errors import KpipeError
from kpipe_assets.dagster_server.access_rules import Rules, check_reachable
from kpipe_assets.rest import connectors, loggers, offsets, pipelines, plugins, problems, statements
from kpipe_assets.rest.gate import MOST_BYTES, Gate, is_authorized
from kpipe_assets.rest.problems import Safe
from kpipe_assets.rest.worker import Worker
from kpipe_assets.runs.status import may_open
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["CONNECT_VERSION", "RUNNING", "Health", "create_app", "described"]

#: Version of Kafka Connect whose REST API this is; tools decide by it which resources exist.
CONNECT_VERSION = "4.1.0"
#: `status` of `/health` while requests are answered.
RUNNING = "running"
#: Returns the HTTP status and the body of `/health`.
Health = Callable[[], tuple[int, Mapping[str, Any]]]
_CLUSTER_S, _UNKNOWN_S = 60.0, 10.0  # how long the cluster's id is remembered, and that none was found
_QUERIED, _ANSWER_S = 3, 2.0  # clusters whose brokers are queried for the id, and the longest wait for each


def create_app(
    home: Home,
    rules: Rules,
    brokers: str | None = None,
    tls: bool = False,
    most_bytes: int = MOST_BYTES,
    mounts: Mapping[str, ASGIApp] | None = None,
    health: Health = lambda: (200, {"status": RUNNING}),
) -> Gate:
    """Return the application that a web server runs.

    It reads and changes the home only, so it needs no running service to be correct.

    Args:
        home: KPIPE_HOME.
        rules: who may send requests.
        brokers: brokers of configs that name none, as a Connect worker has them.
        tls: whether the web server has a certificate.
        most_bytes: maximum size of a request's body.
        mounts: further applications by path, such as `/metrics`, behind the same checks.
        health: returns the status and the body of `/health`, without waiting. Clients without the token get `status` only.

    Raises:
        InvalidPipeline: other machines could send requests without a token, or read it.
    """
    check_reachable(rules, tls)
    app = _application(home, rules, brokers, health)
    for path, other in (mounts or {}).items():
        app.router.routes.append(Route(path, other))
    return Gate(app, rules, most_bytes)


def described(folder: Path) -> dict[str, Any]:
    """Return the paths of the OpenAPI description."""
    paths: dict[str, Any] = _application(Home.at(folder), Rules("127.0.0.1", 8083), None, lambda: (200, {})).openapi()["paths"]
    return paths


def _application(home: Home, rules: Rules, brokers: str | None, health: Health) -> FastAPI:
    host = socket.gethostname() if rules.host in ("0.0.0.0", "::") else rules.host
    shown = f"[{host}]" if ":" in host else host
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
        responses=problems.RESPONSES,
    )
    problems.install(app)
    cluster = _Cluster(home, brokers)

    @app.get("/", tags=["Kafka Connect: worker"], summary="Get the version of the API, that of kpipe, and the Kafka cluster")
    def root() -> Any:
        return Safe({"version": CONNECT_VERSION, "commit": f"kpipe-{__version__}", "kafka_cluster_id": cluster.name()})

    @app.get("/health", tags=["Kafka Connect: worker"], summary="Return whether requests are answered (KIP-1017)")
    async def get_health(request: Request) -> Any:
        # Not in a thread: an answer must not wait for requests that wait for brokers and destinations.
        status, found = health()
        shown = found if is_authorized(request.scope) else {"status": found["status"]}
        return Safe(shown, status, {"Cache-Control": "no-store"})

    for part in (connectors, offsets, plugins, pipelines, statements):
        app.include_router(part.router(worker))
    app.include_router(loggers.router())
    return app


class _Cluster:
    """The id of the Kafka cluster: that of the ledgers, else that of the brokers.

    Args:
        home: KPIPE_HOME.
        brokers: of configs that name none.
    """

    def __init__(self, home: Home, brokers: str | None) -> None:
        self._home, self._brokers, self._lock = home, brokers, threading.Lock()
        self._name, self._until = "", 0.0

    def name(self) -> str:
        """Return the ids, sorted and separated by commas; empty while no broker answers."""
        if time.monotonic() >= self._until and self._lock.acquire(blocking=False):  # destinations may take long to answer
            try:
                self._name = ",".join(sorted(self._recorded() or self._answered()))
                self._until = time.monotonic() + (_CLUSTER_S if self._name else _UNKNOWN_S)
            finally:
                self._lock.release()
        return self._name

    def _pipelines(self) -> Iterator[Pipeline]:
        for name in self._home.names():
            with suppress(KpipeError):  # unreadable
                yield self._home.pipeline(name)

    def _recorded(self) -> set[str]:
        found: set[str] = set()
        for pipeline in self._pipelines():
            with suppress(KpipeError):  # busy: others may name it
                if may_open(self._home, pipeline):
                    _, ledger = open_destination(pipeline, self._home).ledger()
                    found |= {source.topic.cluster for source in ledger.sources() if source.topic.cluster}
        return found

    def _answered(self) -> set[str]:
        """Query the first brokers, before there is a commit. No file and no command with credentials is read."""
        sources = {} if self._brokers is None else {self._brokers: Source(brokers=self._brokers, topic="kpipe")}
        for pipeline in self._pipelines():
            if not rotates(pipeline.source.credentials.values()):
                sources.setdefault(pipeline.source.bootstrap, pipeline.source)
        for source in list(sources.values())[:_QUERIED]:
            from resources.kafka.topic_metadata import KafkaTopics

            with suppress(KpipeError):
                return {KafkaTopics(source, timeout_s=_ANSWER_S).cluster()}
        return set()
