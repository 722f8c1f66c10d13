"""Let a process wait for the next run, so that the run starts without importing Dagster and starting Spark (ADR 41).

Dagster's code server starts a process for each run. It can stop the run there, and notices within a second that the process
has died. All of that remains: only the process is started earlier, as the code server's child like that of any other run.
KPIPE_WARM_RUNS=0 turns it off.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any

from dagster._grpc.server import DagsterApiServer

from kpipe_assets.dagster_server.spare_process import PING, READY, wait_for_run

__all__ = ["SWITCH", "RunProcesses", "Spare", "WarmCodeServer", "is_on"]

SWITCH = "KPIPE_WARM_RUNS"
# A spare answers at once if it has a core. On a busy machine, waiting costs less than starting another process.
_ANSWER_S = 5.0
_LOOK_S = 0.5
# A spare takes some seconds of CPU to start. It must not take them from the UI's start or from a short run.
_AFTER_START_S, _AFTER_RUN_S, _DURING_RUN_S = 5.0, 1.0, 30.0
_AFTER_DEATH_S = 60.0


def is_on(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether a process waits for the next run."""
    return (os.environ if environ is None else environ).get(SWITCH) != "0"


class Spare:
    """A process that waits for a run (spare_process.py).

    Args:
        context: starts it.
        module: module with the definitions.
    """

    def __init__(self, context: SpawnContext, module: str | None) -> None:
        self.queue, self.stop = context.Queue(), context.Event()
        self._connection, other = context.Pipe()
        self.process: BaseProcess = context.Process(target=wait_for_run, args=(other, module, self.queue, self.stop))
        self.process.start()
        other.close()
        self._ready = False

    def take(self, run: Sequence[Any]) -> bool:
        """Hand over the run. If this returns False, the process has not received it, and ends.

        A process that still imports is as good as a new one. A process that is ready must answer at once.
        """
        try:
            if self._is_ready():
                self._connection.send(PING)
                if not self._connection.poll(_ANSWER_S) or self._connection.recv_bytes() != PING:
                    self.discard()
                    return False
            self._connection.send(run)
        except (EOFError, OSError):  # it has ended before it had read all of it
            self.discard()
            return False
        return True

    def _is_ready(self) -> bool:
        if not self._ready and self._connection.poll(0):
            self._ready = self._connection.recv_bytes() == READY
        return self._ready

    def discard(self) -> None:
        """End the process."""
        self._connection.close()
        self.process.kill()
        self.process.join(_ANSWER_S)  # reap it


class RunProcesses:
    """Take the place of multiprocessing's context in Dagster's code server, which creates a queue, an event and a process.

    Args:
        context: multiprocessing's own.
        make: starts a spare.
    """

    def __init__(self, context: SpawnContext, make: Callable[[], Spare]) -> None:
        self._context, self._make = context, make
        self._lock = threading.Lock()
        self._spare: Spare | None = None
        self._runs: list[tuple[BaseProcess, Spare | None]] = []  # keeps a pipe open: the process may write to it once more
        self._due, self._ended = time.monotonic() + _AFTER_START_S, threading.Event()
        atexit.register(self.close)  # runs before multiprocessing waits for its children
        threading.Thread(target=self._keep, name="spare for the next run", daemon=True).start()

    def Queue(self) -> _Later:
        """Return the queue of the process that starts next in this thread."""
        return _Later()

    def Event(self) -> _Later:
        """Return the event of that process."""
        return _Later()

    def Process(self, target: Callable[..., None], args: Sequence[Any]) -> _RunProcess:
        """Return the process of a run, which is not started yet."""
        return _RunProcess(self, target, args)

    def start(self, target: Callable[..., None], run: Sequence[Any]) -> tuple[Any, Any, BaseProcess]:
        """Return queue, event and process of the run: those of the spare, if there is one, else new ones."""
        with self._lock:
            spare, self._spare = self._spare, None
            if spare is not None and not spare.take(run):
                spare = None
            if spare is not None:
                queue, stop, process = spare.queue, spare.stop, spare.process
            else:
                queue, stop = self._context.Queue(), self._context.Event()
                process = self._context.Process(target=target, args=(*run, queue, stop))
                process.start()
            self._runs.append((process, spare))
            self._due = time.monotonic() + _DURING_RUN_S
        return queue, stop, process

    def close(self) -> None:
        """End the spare, and make no other."""
        self._ended.set()
        with self._lock:
            if self._spare is not None:
                self._spare.discard()
                self._spare = None

    def _keep(self) -> None:
        while not self._ended.wait(_LOOK_S):
            with self._lock:
                self._look(time.monotonic())

    def _look(self, now: float) -> None:
        runs, self._runs = self._runs, [run for run in self._runs if run[0].is_alive()]
        if runs and not self._runs:
            self._due = min(self._due, now + _AFTER_RUN_S)
        if self._spare is not None and not self._spare.process.is_alive():
            self._spare.discard()
            self._spare, self._due = None, now + _AFTER_DEATH_S
        if self._spare is None and now >= self._due and not self._ended.is_set():
            self._spare = self._make()


class _Later:
    """Delegate to an object that exists when the process is chosen."""

    actual: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.actual, name)


class _RunProcess:
    """The process of a run, as Dagster's code server uses it."""

    def __init__(self, processes: RunProcesses, target: Callable[..., None], args: Sequence[Any]) -> None:
        self._processes, self._target = processes, target
        *self._run, self._queue, self._stop = args
        self._actual: BaseProcess | None = None

    def start(self) -> None:
        """Start the run, in the spare if possible."""
        self._queue.actual, self._stop.actual, self._actual = self._processes.start(self._target, self._run)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._actual, name)


class WarmCodeServer(DagsterApiServer):
    """Dagster's code server, whose runs take the process that waits."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        context, origin = self._mp_ctx, options.get("loadable_target_origin")
        module = origin.module_name if origin is not None else None
        self._mp_ctx: Any = RunProcesses(context, lambda: Spare(context, module))

    def _clear_run(self, run_id: str) -> None:
        """Forget a run that has ended.

        StartRun and the thread that removes dead processes both do it if the process dies at once. In Dagster 1.13, the
        second of the two raises a KeyError, which the launcher gets in place of the reason.
        """
        if run_id in self._executions:
            super()._clear_run(run_id)

    def ShutdownServer(self, request: Any, context: Any) -> Any:
        """End the spare as soon as no more runs are started here: another code server has taken over."""
        self._mp_ctx.close()
        return super().ShutdownServer(request, context)
