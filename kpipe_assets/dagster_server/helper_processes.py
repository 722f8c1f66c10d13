"""Start the helper processes of Dagster and multiprocessing without credentials: they never load kpipe, and can be read.

Those are `tail` and its watcher, which copy a step's output, and multiprocessing's resource tracker. They live as long as a run.
"""

from __future__ import annotations

import os
import subprocess
from multiprocessing import resource_tracker, spawn
from types import SimpleNamespace
from typing import Any

from dagster._core.execution import compute_logs

from resources.spark.jvm.jvm_launch import environment

__all__ = ["close_runs", "scrub_output_helpers", "start_tracker"]

_FIRST = (
    "from kpipe.process_isolation import deny_tracing; deny_tracing();"
    " from kpipe_assets.dagster_server.helper_processes import scrub_output_helpers; scrub_output_helpers(); "
)


def scrub_output_helpers() -> None:
    """Start helpers that copy output with the same variables as Spark's processes (resources/spark/jvm/jvm_launch.py)."""

    def popen(command: list[str], **more: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, **{"env": environment(os.environ), **more})

    compute_logs.subprocess = SimpleNamespace(Popen=popen)  # type: ignore[assignment,attr-defined]


def start_tracker() -> None:
    """Start the resource tracker, which inherits the environment of this moment. Only while this process has one thread."""
    kept = dict(os.environ)
    needed = environment(kept)
    for name in kept.keys() - needed.keys():
        del os.environ[name]
    try:
        resource_tracker.ensure_running()
    finally:
        os.environ.update(kept)


def close_runs() -> None:
    """Make processes that multiprocessing spawns deny tracing first, and start their helpers without credentials."""
    command_line = spawn.get_command_line

    def closed(**given: Any) -> list[str]:
        command = command_line(**given)
        at = command.index("-c") + 1
        return [*command[:at], _FIRST + command[at], *command[at + 1 :]]

    spawn.get_command_line = closed
