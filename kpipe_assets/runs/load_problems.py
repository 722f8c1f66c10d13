"""Keep the reason why Dagster has not loaded a pipeline.

Its sensor does not exist there, so only `kpipe serve` or `kpipe run` runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from kpipe.errors import KpipeError
from resources.home import Home

__all__ = ["load_problem", "note_load_problems"]

_PART = "unloaded"  # of the home's files about a pipeline; removed with the definition


def note_load_problems(home: Home, problems: Mapping[str, Exception]) -> None:
    """Record for every pipeline of the home whether Dagster has loaded it, and why not. Best effort: it is for display.

    Args:
        home: KPIPE_HOME.
        problems: errors by pipeline; the others are loaded.
    """
    for name in home.names():
        why = str(problems[name]) if name in problems else ""
        with suppress(OSError, KpipeError):  # a home that only others may write to
            if load_problem(home, name) != why:
                home.keep(name, _PART, {"why": why} if why else None)


def load_problem(home: Home, name: str) -> str:
    """Return why Dagster has not loaded the pipeline; empty if it has, or has not been started since it was created."""
    try:
        return str((home.kept(name, _PART) or {}).get("why", ""))
    except (OSError, ValueError):
        return ""
