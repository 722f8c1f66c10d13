"""The state of a pipeline, from what is running now, what the last run left, and whether its switch is on."""

from __future__ import annotations

from kpipe.errors import KpipeError
from kpipe_assets.runs.run_locks import is_running
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["FAILED", "note_state", "state_of"]

#: States that an error left behind.
FAILED = ("error", "needs_operator")


def state_of(home: Home, name: str, on: bool, served: bool) -> str:
    """`running`, `waiting`, `stopped`, `error`, `needs_operator` or `detached`.

    A pipeline whose switch is on is running, also while it waits for records, unless its last run has failed, or nothing is there
    that would run it: then it is waiting. A run that was killed has not failed: its pipeline is stopped, or as its switch is.

    Args:
        home: where it keeps things.
        name: the pipeline's name.
        on: whether its switch is on.
        served: whether something runs what is switched on (`Switches.is_served`).
    """
    if is_running(home, name):
        return "running"
    left = _left(home, name)
    if left in FAILED:
        return left
    if on:
        return "running" if served else "waiting"
    return left if left == "detached" else "stopped"


def _left(home: Home, name: str) -> str:
    """The state that the last run, or statement, noted."""
    noted = home.noted(name).get("state")
    if noted is not None:
        return noted
    try:
        known = next(iter(open_destination(home.pipeline(name), home).view("pipelines")), {})
    except KpipeError:  # a definition or a file that cannot be read is told by whoever uses it
        return "stopped"
    return str(known.get("state") or "stopped").lower()


def note_state(home: Home, name: str, state: str) -> None:
    """Remember a state that a statement has brought about; the errors before it stay in `kpipe_errors`."""
    home.note(name, state)
    open_destination(home.pipeline(name), home).record_state(state)
