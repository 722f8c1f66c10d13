"""States of a pipeline as Connect names them, and the entities of a connector."""

from __future__ import annotations

from typing import Any

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError
from kpipe_assets.rest import records
from kpipe_assets.rest.configs import flat, masked
from kpipe_assets.rest.problems import Problem
from kpipe_assets.rest.worker import Worker
from kpipe_assets.runs.status import FAILED
from resources.destinations import open_destination

__all__ = ["config_of", "info", "status", "task_status"]

_WAITS = "started, but no process runs it -> start `kpipe serve` or `kpipe ui`"


def _connect_state(worker: Worker, name: str, state: str) -> tuple[str, str]:
    """Return Connect's state and a trace; the trace is empty if there is nothing to report."""
    if state in FAILED:
        return "FAILED", _last_error(worker, name)
    if state == "running":
        return "RUNNING", ""
    if state == "waiting":
        return "UNASSIGNED", _WAITS
    return records.read(worker.home, name).target, ""


def _last_error(worker: Worker, name: str) -> str:
    """Return the error of the last run."""
    noted = worker.home.noted(name).get("error")
    if noted:
        return noted
    try:
        row = next(iter(open_destination(worker.home.pipeline(name), worker.home).view("pipelines")), {})
        return str(row.get("last_error") or "")
    except KpipeError as error:
        return str(error)


def status(worker: Worker, name: str, state: str | None = None, restarting: bool = False) -> dict[str, Any]:
    """Return Connect's ConnectorStateInfo. A pipeline has one task, number 0; a stopped one has none.

    Raises:
        Problem: there is no such pipeline.
    """
    if not worker.exists(name):
        raise Problem(404, f"No status found for connector {name}")
    try:
        worker.home.pipeline(name)
        shown, trace = _connect_state(worker, name, worker.state(name) if state is None else state)
    except KpipeError as error:  # an unreadable definition
        shown, trace = "FAILED", str(error)
    if restarting:
        shown, trace = "RESTARTING", ""
    entry = {"state": shown, "worker_id": worker.address, **({"trace": trace} if trace else {})}
    tasks = [] if shown == "STOPPED" else [{"id": 0, **entry}]
    return {"name": name, "connector": entry, "tasks": tasks, "type": "sink"}


def task_status(worker: Worker, name: str, task: int) -> dict[str, Any]:
    """Return Connect's TaskState.

    Raises:
        Problem: there is no such task.
    """
    found = status(worker, name)["tasks"] if worker.exists(name) else []
    for entry in found:
        if entry["id"] == task:
            return dict(entry)
    raise Problem(404, f"No status found for task {name}-{task}")


def config_of(worker: Worker, name: str, pipeline: Pipeline | None = None) -> dict[str, str]:
    """Return a connector's config: as it came, or that of the definition if that has changed since. Secrets are masked.

    Args:
        worker: the worker.
        name: the pipeline's name.
        pipeline: its definition, if it was read already.

    Raises:
        Problem: there is no such pipeline.
        KpipeError: the definition is unreadable.
    """
    pipeline = pipeline or worker.definition(name)
    record = records.read(worker.home, name)
    if record.definition == records.digest(pipeline):
        return dict(record.config)
    return flat(masked(pipeline.to_dict()))


def info(worker: Worker, name: str, lenient: bool = False) -> dict[str, Any]:
    """Return Connect's ConnectorInfo.

    Args:
        worker: the worker.
        name: the pipeline's name.
        lenient: whether an unreadable definition gives a config with its name only, as one must not hide all others.

    Raises:
        Problem: there is no such pipeline.
        KpipeError: the definition is unreadable.
    """
    try:
        config = config_of(worker, name)
    except KpipeError:
        if not lenient:
            raise
        config = {"connector.class": "kpipe", "name": name}
    tasks = [] if status(worker, name)["connector"]["state"] == "STOPPED" else [{"connector": name, "task": 0}]
    return {"name": name, "config": config, "tasks": tasks, "type": "sink"}
