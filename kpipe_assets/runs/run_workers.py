"""Run workers: the process that does a run, and whether it is still there.

Dagster's code server notices a run worker of its own that was killed, within a second. Nobody notices where the code
server died, too (a power cut, a killed terminal), and the default launcher cannot be asked: such a run stays "started"
until the time limit of run monitoring, a day. And where the executor gives each step a process of its own, a step
outlives its killed run worker.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import dagster as dg
import psutil

__all__ = ["is_gone", "orphaned"]

# Between a process's start and its first event in the log.
_SLACK_S = 2.0


def is_gone(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether the process of a run that Dagster takes for started, on this machine, is known to have ended.

    The run's log names the process by its number. The default launcher starts runs beside the code server, which is
    where sensors are evaluated; other launchers start them elsewhere, and are asked by Dagster itself.
    """
    if instance.run_launcher.supports_check_run_worker_health:
        return False
    worker = _worker(instance, run.run_id)
    return worker is not None and not _exists(*worker)


def orphaned(instance: dg.DagsterInstance, run_id: str) -> Callable[[], bool]:
    """Asked by a step that runs in a process of its own: whether its run worker has died since."""
    worker = _worker(instance, run_id)
    if worker is None or worker[0] == os.getpid() or not _exists(*worker):  # it is in there, or on another machine
        return lambda: False
    return lambda: not _exists(*worker)


def _worker(instance: dg.DagsterInstance, run_id: str) -> tuple[int, float] | None:
    """Number of the run's process, and when it was noted (s since 1970); None when the log does not say."""
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
        event = entry.dagster_event
        pid = event.engine_event_data.metadata.get("pid") if event is not None else None
        if pid is not None and str(pid.value).isdigit():
            return int(str(pid.value)), entry.timestamp
    return None


def _exists(pid: int, noted: float) -> bool:
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and process.create_time() <= noted + _SLACK_S
    except psutil.NoSuchProcess:
        return False
