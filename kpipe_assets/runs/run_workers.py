"""Run workers: detect that the process of a Dagster run has ended.

Dagster's code server notices within a second that one of its run workers was killed. If the code server was killed, too (a
power cut, a killed terminal), nothing notices it: the default launcher has no health check. Such a run stays "started"
until the time limit of run monitoring, a day. If the executor starts a process for each step, a step outlives its killed
run worker.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import dagster as dg
import psutil

__all__ = ["is_gone", "orphaned"]

# Tolerance between a process's start and its first event in the log.
_SLACK_S = 2.0


def is_gone(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Return whether the process of a started run is on this machine and has ended.

    The run's log contains its process id. The default launcher starts runs on the machine of the code server, which also
    evaluates sensors. Dagster itself checks the health of runs of other launchers.
    """
    if instance.run_launcher.supports_check_run_worker_health:
        return False
    worker = _worker(instance, run.run_id)
    return worker is not None and not _exists(*worker)


def orphaned(instance: dg.DagsterInstance, run_id: str) -> Callable[[], bool]:
    """Return a function that reports, to a step in a process of its own, whether its run worker has ended."""
    worker = _worker(instance, run_id)
    if (
        worker is None or worker[0] == os.getpid() or not _exists(*worker)
    ):  # this process is the run worker, or that is on another machine
        return lambda: False
    return lambda: not _exists(*worker)


def _worker(instance: dg.DagsterInstance, run_id: str) -> tuple[int, float] | None:
    """Return the run's process id from its log, and when it was logged (s since 1970); None if it is not in the log."""
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
        event = entry.dagster_event
        pid = event.engine_event_data.metadata.get("pid") if event is not None else None
        if pid is not None and str(pid.value).isdigit():
            return int(str(pid.value)), entry.timestamp
    return None


def _exists(pid: int, logged: float) -> bool:
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and process.create_time() <= logged + _SLACK_S
    except psutil.NoSuchProcess:
        return False
