"""/connectors of Kafka Connect's REST API: create, configure, start, stop and inspect pipelines."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from kpipe.errors import KpipeError
from kpipe.sql import statements as s
from kpipe_assets.rest import records
from kpipe_assets.rest.definitions import Parsed, parse
from kpipe_assets.rest.problems import Problem, Safe
from kpipe_assets.rest.status import config_of, info, status, task_status
from kpipe_assets.rest.worker import Worker
from kpipe_assets.runs.status import FAILED
from kpipe_assets.runs.stop_requests import ask
from resources.destinations import open_destination

__all__ = ["router"]


class NewConnector(BaseModel):
    """The body of POST /connectors.

    Attributes:
        name: the connector's name, which is the pipeline's.
        config: kpipe's definition, flat or nested, or the config of a sink that is translated.
        initial_state: the connector's first state.
    """

    model_config = ConfigDict(extra="forbid")

    name: str | None = None
    config: dict[str, Any]
    initial_state: Literal["RUNNING", "PAUSED", "STOPPED"] = Field(default="RUNNING")


def _save(worker: Worker, name: str, parsed: Parsed, created: bool, state: str = "RUNNING") -> Safe:
    """Create or replace the pipeline by a statement, and answer as Connect does."""
    pipeline = parsed.required(parsed.config["connector.class"])
    try:
        worker.execute(s.Create(pipeline, or_replace=not created, based_on=parsed.before))
    except KpipeError as error:
        raise parsed.at_its_key(error) from error.__cause__
    stored = records.digest(worker.home.pipeline(name))
    if created:
        records.forget(worker.home, name)
        records.write(worker.home, name, target="STOPPED" if state == "RUNNING" else state)
    records.write(worker.home, name, config=parsed.config, definition=stored)
    if created and state == "RUNNING":
        worker.execute(s.Start(name, if_not_running=True))
    return Safe(info(worker, name), 201 if created else 200, {"Location": f"/connectors/{name}"} if created else None)


def router(worker: Worker) -> APIRouter:
    """Return the resources of a home's connectors."""
    routes = APIRouter(prefix="/connectors", tags=["Kafka Connect: connectors"])

    @routes.get("", summary="List connectors")
    def connectors(expand: Annotated[list[str] | None, Query(description="`status`, `info`")] = None) -> Any:
        if expand is None:
            return Safe(list(worker.home.names()))
        states, found = worker.states() if "status" in expand else {}, {}
        for name in worker.home.names():
            try:
                entry: dict[str, Any] = {}
                if "status" in expand:
                    entry["status"] = status(worker, name, states.get(name))
                if "info" in expand:
                    entry["info"] = info(worker, name, lenient=True)
                found[name] = entry
            except Problem:  # dropped meanwhile
                continue
        return Safe(found)

    @routes.post("", status_code=201, summary="Create a connector and start it")
    def create(body: NewConnector) -> Any:
        name = (body.name or "").strip()
        with worker.changing(name):
            if worker.exists(name):
                raise Problem(409, f"Connector {name} already exists")
            return _save(worker, name, parse(worker, name, body.config), True, body.initial_state)

    @routes.get("/{connector}", summary="Get a connector")
    def connector_info(connector: str) -> Any:
        return Safe(info(worker, connector))

    @routes.delete("/{connector}", status_code=204, summary="Stop and delete a connector; its rows and its ledger stay")
    def delete(connector: str) -> Response:
        worker.check_exists(connector)
        with worker.changing(connector):
            worker.check_exists(connector)
            worker.execute(s.Drop(connector, if_exists=True))
        return Response(status_code=204)

    @routes.get("/{connector}/config", summary="Get a connector's config")
    def config(connector: str) -> Any:
        return Safe(config_of(worker, connector))

    @routes.put("/{connector}/config", summary="Create a connector, or replace its config")
    def put_config(connector: str, body: dict[str, Any]) -> Any:
        with worker.changing(connector):
            created = not worker.exists(connector)
            return _save(worker, connector, parse(worker, connector, body), created)

    @routes.patch("/{connector}/config", summary="Change keys of a connector's config; null removes a key")
    def patch_config(connector: str, body: dict[str, Any]) -> Any:
        worker.check_exists(connector)
        with worker.changing(connector):
            before = worker.definition(connector)
            merged: dict[str, Any] = {**config_of(worker, connector, before), **body}
            return _save(worker, connector, parse(worker, connector, merged, before=before), False)

    @routes.get("/{connector}/status", summary="Get the states of a connector and its task")
    def connector_status(connector: str) -> Any:
        return Safe(status(worker, connector))

    @routes.get("/{connector}/tasks", summary="List a connector's tasks: one, number 0")
    def tasks(connector: str) -> Any:
        found = info(worker, connector)
        return Safe([{"id": task, "config": found["config"]} for task in found["tasks"]])

    @routes.get("/{connector}/tasks-config", summary="Get the configs of a connector's tasks", deprecated=True)
    def tasks_config(connector: str) -> Any:
        found = info(worker, connector)
        return Safe({f"{connector}-{task['task']}": found["config"] for task in found["tasks"]})

    @routes.get("/{connector}/tasks/{task}/status", summary="Get the state of a task")
    def state_of_task(connector: str, task: int) -> Any:
        return Safe(task_status(worker, connector, task))

    @routes.post("/{connector}/tasks/{task}/restart", status_code=204, summary="Restart a task")
    def restart_task(connector: str, task: int) -> Response:
        worker.check_exists(connector)
        if task != 0 or not status(worker, connector)["tasks"]:
            raise Problem(404, f"Task {connector}-{task} not found")
        _restart(worker, connector, False)
        return Response(status_code=204)

    @routes.post("/{connector}/restart", status_code=204, summary="Restart a connector", responses={202: {}})
    def restart(connector: str, includeTasks: bool = False, onlyFailed: bool = False) -> Response:
        worker.check_exists(connector)
        restarted = _restart(worker, connector, onlyFailed)
        if not includeTasks and not onlyFailed:
            return Response(status_code=204)
        return Safe(status(worker, connector, restarting=restarted), 202)

    @routes.put("/{connector}/pause", status_code=202, summary="Stop a connector and keep its task")
    def pause(connector: str) -> Response:
        _stop(worker, connector, "PAUSED")
        return Response(status_code=202)

    @routes.put("/{connector}/stop", status_code=204, summary="Stop a connector, so that its offsets can be changed")
    def stop(connector: str) -> Response:
        _stop(worker, connector, "STOPPED")
        return Response(status_code=204)

    @routes.put("/{connector}/resume", status_code=202, summary="Start a connector")
    def resume(connector: str) -> Response:
        worker.check_exists(connector)
        with worker.changing(connector):
            worker.definition(connector)
            worker.execute(s.Start(connector, if_not_running=True))
        return Response(status_code=202)

    @routes.get("/{connector}/topics", summary="List topics with committed offsets since the last reset")
    def topics(connector: str) -> Any:
        before = records.read(worker.home, connector).topics if worker.exists(connector) else {}
        moved = {item.rpartition("/")[0] for item, offset in _positions(worker, connector).items() if before.get(item) != offset}
        return Safe({connector: {"topics": sorted(moved)}})

    @routes.put("/{connector}/topics/reset", status_code=202, summary="Empty the list of active topics")
    def reset_topics(connector: str) -> Response:
        with worker.changing(connector):
            records.write(worker.home, connector, topics=_positions(worker, connector))
        return Response(status_code=202)

    return routes


def _positions(worker: Worker, name: str) -> dict[str, int]:
    """Return the next offset of each partition that the ledger contains, to compare with an earlier one.

    Of a recreated topic, the sum over all its ids: reading any of them changes it.
    """
    _, ledger = open_destination(worker.definition(name), worker.home).ledger()
    sums = Counter[str]()
    for source, offset in ledger.positions().items():
        sums[str(source)] += offset
    return dict(sums)


def _stop(worker: Worker, name: str, target: str) -> None:
    """Stop a pipeline, and record which of Connect's two states that is."""
    worker.check_exists(name)  # an invalid definition can be stopped, too
    records.write(worker.home, name, target=target)
    worker.stop(name, clear=target == "STOPPED")


def _restart(worker: Worker, name: str, only_failed: bool) -> bool:
    """Restart a pipeline that is started: a failed one at once, a running one after its batch. Return whether it was."""
    try:
        state = worker.state(name)
    except KpipeError:
        return False
    if state in FAILED:
        with worker.changing(name):
            worker.execute(s.Start(name, if_not_running=True))
        return True
    if state == "running" and not only_failed:
        ask(worker.home, name, "restart")
        return True
    return False
