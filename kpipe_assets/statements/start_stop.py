"""START and STOP, in all their forms: the switch, the runs at work, and what the state says afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable

from kpipe.errors import InvalidStatement, KpipeError
from kpipe.sql.statements import Detach, Start, StartMany, Stop, StopAll
from kpipe_assets.runs.run_locks import is_running, runs
from kpipe_assets.runs.status import note_state, state_of
from kpipe_assets.runs.stop_requests import ask, stop_at_once
from kpipe_assets.sensors.sensor_state import Switches
from kpipe_assets.statements.result import Result
from resources.home import Home

__all__ = ["detach", "foreground", "is_stopped", "start", "start_again", "start_many", "stop", "stop_all"]

# How long STOP waits for a batch to be finished before it says that it still is.
_PATIENCE_S = 120.0
_LOOK_S = 0.2


def start(home: Home, switches: Switches, statement: Start) -> Result:
    """START PIPELINE: the switch is turned on; Dagster's daemon does the rest.

    Raises:
        InvalidStatement: it is running already.
    """
    name = statement.pipeline
    home.pipeline(name)
    if state_of(home, name, name in switches.on(), switches.is_served()) != "running":
        return Result(start_again(home, switches, name))
    if statement.if_not_running:
        return Result(f"pipeline {name} is running already")
    raise InvalidStatement(f"pipeline {name} is running already", "START PIPELINE IF NOT RUNNING takes that for no error")


def start_again(home: Home, switches: Switches, name: str) -> str:
    """Turn the switch on, whatever the last run has left behind; what that means, in words."""
    note_state(home, name, "stopped")  # what the last run has left behind counts no longer
    switches.turn(name, on=True)
    if switches.is_served():
        return f"pipeline {name} started"
    return f"pipeline {name} is on, and waits: nothing is there that would run it; start `kpipe ui`, or kpipe run {name} --follow"


def start_many(home: Home, switches: Switches, statement: StartMany) -> Result:
    """START ALL, or FAILED, PIPELINES: each that is not running; with `failed` each that an error has stopped."""
    on, served = switches.on(), switches.is_served()
    rows = []
    for name in home.names():
        state = state_of(home, name, name in on, served)
        if state == "needs_operator":
            rows.append((name, "needs an operator first: see kpipe status"))
        elif state == "error" or not statement.failed:
            rows.append((name, "is running already" if state == "running" else start_again(home, switches, name)))
    return Result(columns=("pipeline", "result"), rows=rows)


def foreground(home: Home, statement: Start, as_json: bool) -> Result:
    """START PIPELINE ... FOREGROUND: ingest in this process, until caught up or so many batches are committed.

    Raises:
        InvalidStatement: it is running.
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


def stop(home: Home, switches: Switches, statement: Stop, tell: Callable[[str], None]) -> Result:
    """STOP PIPELINE: the switch is turned off, and the runs at work finish their batch, or give it up at once.

    Args:
        home: where it keeps things.
        switches: of the home.
        statement: which, and how.
        tell: called with what is being waited for.

    Raises:
        InvalidStatement: it is not running.
    """
    name = statement.pipeline
    home.pipeline(name)
    was_on, was_running = switches.turn(name, on=False), is_running(home, name)
    if not was_on and not was_running:
        if statement.if_running:
            return Result(f"pipeline {name} is not running")
        raise InvalidStatement(f"pipeline {name} is not running", "STOP PIPELINE IF RUNNING takes that for no error")
    _end(home, switches, name, statement.cancel, tell)
    return Result(f"pipeline {name} stopped")


def stop_all(home: Home, switches: Switches, statement: StopAll, tell: Callable[[str], None]) -> Result:
    """STOP ALL PIPELINES: those that are running."""
    rows = []
    for name in home.names():
        if switches.turn(name, on=False) or is_running(home, name):
            _end(home, switches, name, statement.cancel, tell)
            rows.append((name, "stopped"))
    return Result(columns=("pipeline", "result"), rows=rows)


def detach(home: Home, switches: Switches, statement: Detach, tell: Callable[[str], None]) -> Result:
    """DETACH PIPELINE: stopped, and seen to be so on purpose; START attaches it again."""
    name = statement.pipeline
    if statement.if_exists and name not in home.names():
        return Result(f"there is no pipeline {name}")
    home.pipeline(name)
    if switches.turn(name, on=False) or is_running(home, name):
        _end(home, switches, name, cancel=False, tell=tell)
    note_state(home, name, "detached")
    return Result(f"pipeline {name} detached: its table can be changed; START PIPELINE {name} goes on")


def is_stopped(home: Home, switches: Switches, name: str) -> bool:
    """Whether nothing reads the pipeline now, and nothing will by itself."""
    return name not in switches.on() and not is_running(home, name)


def _end(home: Home, switches: Switches, name: str, cancel: bool, tell: Callable[[str], None]) -> None:
    """Wait until no run is at work. Runs that were on their way when they were asked are asked again.

    Raises:
        KpipeError: one still is.
    """
    switches.cancel(name)  # what waits in Dagster's queue
    told, deadline = False, time.monotonic() + _PATIENCE_S
    while is_running(home, name) or switches.starting(name):
        ask(home, name, "stop")
        for run_id, pid in runs(home, name) if cancel else ():
            if run_id.isdigit():
                stop_at_once(pid)
            else:
                switches.cancel(name, run_id)
        if not told and not cancel:
            tell(f"{name} finishes its batch ...")
            told = True
        if time.monotonic() > deadline:
            raise KpipeError(
                f"pipeline {name} is off, but its batch has not ended within {_PATIENCE_S:g} s",
                f"wait (kpipe status {name}), or give the batch up: STOP PIPELINE {name} CANCEL",
            )
        time.sleep(_LOOK_S)
