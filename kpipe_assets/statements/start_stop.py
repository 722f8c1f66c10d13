"""Execute START, STOP and DETACH PIPELINE: change the sensor, end current runs, record the state."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from kpipe.errors import InvalidStatement, KpipeError
from kpipe.sql.statements import Detach, Start, StartMany, Stop, StopAll
from kpipe_assets.runs.rebuilt import is_replaced
from kpipe_assets.runs.run_locks import SERVED, is_running, runs
from kpipe_assets.runs.status import note_state, state_of
from kpipe_assets.runs.stop_requests import ask, stop_at_once
from kpipe_assets.sensors.sensor_state import SensorStates
from kpipe_assets.statements.result import Result
from kpipe_assets.wording import count
from resources.home import Home

__all__ = ["detach", "foreground", "is_stopped", "start", "start_again", "start_many", "stop", "stop_all"]

# Longest time that STOP waits for the end of a batch.
_PATIENCE_S = 120.0
_POLL_S = 0.2


def start(home: Home, sensor_states: SensorStates, statement: Start) -> Result:
    """Execute START PIPELINE: start the sensor, which `kpipe serve` or Dagster's daemon obeys.

    Raises:
        InvalidStatement: the pipeline is running already.
    """
    name = statement.pipeline
    home.pipeline(name)  # also if it is running
    on = name in sensor_states.on()
    if state_of(home, name, on, name not in sensor_states.unserved(name)) != "running" or (not on and _is_ending(home, name)):
        return Result(start_again(home, sensor_states, name))
    if statement.if_not_running:
        return Result(f"pipeline {name} is running already")
    raise InvalidStatement(f"pipeline {name} is running already", "use START PIPELINE IF NOT RUNNING to ignore this")


def _is_ending(home: Home, name: str) -> bool:
    """Return whether all runs are those of `kpipe serve`, which end while the sensor is stopped."""
    found = [run_id for run_id, _ in runs(home, name)]
    return bool(found) and all(run_id.startswith(SERVED) for run_id in found)


def start_again(home: Home, sensor_states: SensorStates, name: str) -> str:
    """Start the sensor, also after an error, and return a message.

    Raises:
        InvalidPipeline: the definition is missing or invalid.
    """
    home.pipeline(name)
    note_state(home, name, "stopped")  # clear the error state of the last run
    sensor_states.turn(name, on=True)
    why = sensor_states.unserved(name).get(name)
    return f"pipeline {name} started" + (f", but {why}, or use kpipe run {name} --follow instead" if why else "")


def start_many(home: Home, sensor_states: SensorStates, statement: StartMany) -> Result:
    """Execute START ALL PIPELINES, or START FAILED PIPELINES for those that an error has stopped.

    A pipeline whose table was replaced by a rebuilt one stays as it is: its topic is loaded into that one.
    """
    on, unserved = sensor_states.on(), sensor_states.unserved()
    results: dict[str, str | KpipeError] = {}
    for name in home.names():
        try:
            state = state_of(home, name, name in on, name not in unserved)
            if is_replaced(home, name):
                results[name] = f"has a replaced table: only START PIPELINE {name} starts it"
            elif state == "needs_operator":
                results[name] = "needs an operator first: see kpipe status"
            elif state == "error" or not statement.failed:
                results[name] = "is running already" if state == "running" else start_again(home, sensor_states, name)
        except KpipeError as error:
            results[name] = error
    return _of_each(results, "started")


def _of_each(results: Mapping[str, str | KpipeError], done: str) -> Result:
    """Return a row for each pipeline, with its result or error; the statement fails at the end if there was an error."""
    failed = [name for name, result in results.items() if isinstance(result, KpipeError)]
    rows = [(name, f"not {done}: {result}" if name in failed else result) for name, result in results.items()]
    what = f"{count(len(failed), 'pipeline')} not {done}: {', '.join(failed)}"
    failure = KpipeError(what, "follow the hint of each, and repeat the statement") if failed else None
    return Result(columns=("pipeline", "result"), rows=rows, failure=failure)


def foreground(home: Home, statement: Start, as_json: bool) -> Result:
    """Execute START PIPELINE ... FOREGROUND: ingest in this process until caught up or until LIMIT batches are committed.

    Raises:
        InvalidStatement: the pipeline is running.
        KpipeError: the run failed.
    """
    from kpipe_assets.runs.foreground import run_pipeline

    pipeline = home.pipeline(statement.pipeline)
    if is_running(home, pipeline.name):
        if statement.if_not_running:
            return Result(f"pipeline {pipeline.name} is running already")
        raise InvalidStatement(f"pipeline {pipeline.name} is running", f"STOP PIPELINE {pipeline.name} first")
    run_pipeline(pipeline, home, max_batches=statement.limit, as_json=as_json)
    return Result()


def stop(home: Home, sensor_states: SensorStates, statement: Stop, report: Callable[[str], None]) -> Result:
    """Execute STOP PIPELINE: stop the sensor, and let current runs finish their batch or, with CANCEL, discard it.

    Args:
        home: KPIPE_HOME.
        sensor_states: sensor states of the home.
        statement: the statement.
        report: called with a message while it waits.

    Raises:
        InvalidPipeline: the pipeline does not exist.
        InvalidStatement: the pipeline is not running.
    """
    name = statement.pipeline
    _check_exists(home, name)
    was_on, was_running = sensor_states.turn(name, on=False), _has_runs(home, sensor_states, name)
    if not was_on and not was_running:
        if statement.if_running:
            return Result(f"pipeline {name} is not running")
        raise InvalidStatement(f"pipeline {name} is not running", "use STOP PIPELINE IF RUNNING to ignore this")
    _end(home, sensor_states, name, statement.cancel, report)
    return Result(f"pipeline {name} stopped")


def stop_all(home: Home, sensor_states: SensorStates, statement: StopAll, report: Callable[[str], None]) -> Result:
    """Execute STOP ALL PIPELINES: stop the sensors of those that are running, then wait for all batches together."""
    results: dict[str, str | KpipeError] = {}
    for name in home.names():
        try:
            if sensor_states.turn(name, on=False) or _has_runs(home, sensor_states, name):
                results[name] = "stopped"
        except KpipeError as error:
            results[name] = error
    return _of_each({**results, **_end_all(home, sensor_states, list(results), statement.cancel, report)}, "stopped")


def detach(home: Home, sensor_states: SensorStates, statement: Detach, report: Callable[[str], None]) -> Result:
    """Execute DETACH PIPELINE: stop it and record the state `detached`. START PIPELINE attaches it again."""
    name = statement.pipeline
    if statement.if_exists and name not in home.names():
        return Result(f"pipeline {name} does not exist")
    _check_exists(home, name)
    if sensor_states.turn(name, on=False) or _has_runs(home, sensor_states, name):
        _end(home, sensor_states, name, cancel=False, report=report)
    note_state(home, name, "detached")
    return Result(f"pipeline {name} detached: you can change its table; START PIPELINE {name} continues")


def is_stopped(home: Home, sensor_states: SensorStates, name: str) -> bool:
    """Return whether the pipeline has no current run and its sensor is stopped."""
    return name not in sensor_states.on() and not _has_runs(home, sensor_states, name)


def _check_exists(home: Home, name: str) -> None:
    """Check that a pipeline exists. One with an invalid definition can be stopped, too.

    Raises:
        InvalidPipeline: the home has no definition of this name.
    """
    if name not in home.names():
        home.pipeline(name)  # raises with the existing names


def _has_runs(home: Home, sensor_states: SensorStates, name: str) -> bool:
    """Return whether a run is at work, or waits in Dagster's queue, or is starting there, or will be created for a backfill."""
    return is_running(home, name) or sensor_states.has_runs(name)


def _end(home: Home, sensor_states: SensorStates, name: str, cancel: bool, report: Callable[[str], None]) -> None:
    """Request the end of all runs of a pipeline and wait for it.

    Raises:
        KpipeError: a run has not ended in time.
    """
    for error in _end_all(home, sensor_states, [name], cancel, report).values():
        raise error


def _end_all(
    home: Home, sensor_states: SensorStates, names: Sequence[str], cancel: bool, report: Callable[[str], None]
) -> dict[str, KpipeError]:
    """Request the end of all runs of pipelines and wait for it. Repeat the request for runs that were starting or not created.

    Returns:
        An error for each pipeline whose runs have not ended in time.
    """
    announced, deadline = set[str](), time.monotonic() + _PATIENCE_S
    while names := [name for name in names if _is_unended(home, sensor_states, name)]:
        for name in names:
            _request_end(home, sensor_states, name, cancel)
            if name not in announced and not cancel:
                report(f"{name} finishes its batch ...")
                announced.add(name)
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL_S)
    return {
        name: KpipeError(
            f"pipeline {name}: its sensor is stopped, but its batch has not ended within {_PATIENCE_S:g} s",
            f"wait (kpipe status {name}), or discard the batch: STOP PIPELINE {name} CANCEL",
        )
        for name in names
    }


def _is_unended(home: Home, sensor_states: SensorStates, name: str) -> bool:
    """Cancel what waits in Dagster, and return whether a run is left."""
    sensor_states.cancel(name)
    return _has_runs(home, sensor_states, name)


def _request_end(home: Home, sensor_states: SensorStates, name: str, cancel: bool) -> None:
    ask(home, name, "stop")
    for run_id, pid in runs(home, name) if cancel else ():
        if run_id.startswith(SERVED):
            ask(home, name, "cancel")
        elif run_id.isdigit():
            stop_at_once(pid)
        else:
            sensor_states.cancel(name, run_id)
