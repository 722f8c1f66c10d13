"""The state of a pipeline: from its current runs, the result of the last run, and the state of its sensor."""

from __future__ import annotations

from contextlib import suppress

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.references import rotates
from kpipe.errors import KpipeError, NeedsOperator
from kpipe_assets.runs.run_locks import SERVED, is_running, runs
from kpipe_assets.runs.service_lock import running_service
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["FAILED", "last_error", "may_open", "note_state", "note_waits", "run_by", "state_of", "waits_for"]

#: States that an error left behind.
FAILED = ("error", "needs_operator")
_WAITS = "waits"  # part of the home's files about a pipeline


def state_of(home: Home, name: str, on: bool, served: bool) -> str:
    """Return the state: `running`, `waiting`, `stopped`, `error`, `needs_operator` or `detached`.

    A pipeline with a started sensor is `running`, also while it waits for records. It is `waiting` if nothing runs it
    then, and in error if its last run failed. A killed run is not a failure: the sensor alone determines the state.

    Args:
        home: KPIPE_HOME.
        name: the pipeline's name.
        on: whether its sensor is running.
        served: whether something runs the pipeline when its sensor is running (`SensorStates.unserved`).
    """
    if is_running(home, name):
        return "running"
    last = _last_state(home, name)
    if last in FAILED:
        return last
    if on:
        return "running" if served else "waiting"
    return last if last == "detached" else "stopped"


def run_by(home: Home, name: str) -> list[str]:
    """Return what runs the pipeline now: `kpipe serve`, `kpipe run`, or `Dagster`, each with its process id."""
    service, found = running_service(home), []
    for run_id, pid in runs(home, name):
        if run_id.startswith(SERVED):
            found.append(str(service) if service is not None else f"kpipe serve (pid {pid})")
        else:
            found.append(f"{'kpipe run' if run_id.isdigit() else 'Dagster'} (pid {pid})")
    return found


def _last_state(home: Home, name: str) -> str:
    """Return the state that the last run or statement recorded."""
    state = home.noted(name).get("state")
    if state is not None:
        return state
    try:
        pipeline = home.pipeline(name)
        row = next(iter(open_destination(pipeline, home).view("pipelines")), {}) if may_open(home, pipeline) else {}
    except KpipeError:  # an unreadable definition or file is reported by the command that uses it
        return "stopped"
    return str(row.get("state") or "stopped").lower()


def last_error(home: Home, name: str) -> KpipeError | None:
    """Return the error with which the last run has ended, if it has and no other one has begun: states of `FAILED`.

    Looking at ledger and brokers finds only some of these: a read compares records, a commit the table.
    """
    last = home.noted(name)
    if last.get("state") not in FAILED:
        return None
    what = last["error"] or "the last run failed"
    return NeedsOperator(what) if last["state"] == "needs_operator" else KpipeError(what)


def note_state(home: Home, name: str, state: str) -> None:
    """Record a state that a statement has set. Earlier errors stay in `kpipe_errors`.

    Best effort in the destination, which only displays it: a statement does not fail because of a destination that is away, or
    a definition that is invalid.
    """
    home.note(name, state)
    with suppress(KpipeError):
        pipeline = home.pipeline(name)
        if may_open(home, pipeline):
            open_destination(pipeline, home).record_state(state)


def note_waits(home: Home, pipeline: Pipeline, what: str) -> None:
    """Record what a pipeline with `batch.cut: transaction` waits for, for display; empty: nothing."""
    if pipeline.batch.cut == "transaction":
        with suppress(OSError):
            home.keep(pipeline.name, _WAITS, {"for": what} if what else None)


def waits_for(home: Home, name: str) -> str:
    """Return what `note_waits` recorded; empty if nothing was recorded, or it cannot be read."""
    try:
        found = home.kept(name, _WAITS) if home.pipeline(name).batch.cut == "transaction" else None
        return str((found or {}).get("for", ""))
    except (OSError, ValueError, KpipeError):
        return ""


def may_open(home: Home, pipeline: Pipeline) -> bool:
    """Return whether the destination may be opened for its state, or for its ledger's display.

    Its files and commands with credentials are not read for a ledger that no run of this home has begun.
    """
    return home.has_run(pipeline.name) or not rotates(pipeline.into.credentials.values())
