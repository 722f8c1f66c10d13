"""One pipeline's run in a thread of the service."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress

from kpipe.batch.batch import Committed
from kpipe.errors import KpipeError
from kpipe.run_events import Event
from kpipe_assets.runs.handover import Turn
from kpipe_assets.runs.run_locks import SERVED
from kpipe_assets.runs.runner import Run
from kpipe_assets.sensors.sensor_state import SensorStates
from kpipe_assets.service.admission import Admission
from kpipe_assets.service.shared_spark import SharedSpark
from kpipe_assets.terminal import logs_json, trace_of
from resources.home import Home

__all__ = ["PipelineThread"]

# After this time a run ends, and the next one begins in a new thread. It reads the definition, the program and its files
# again, and deletes staged files of killed runs. In Dagster, a continuous run lasts as long.
_RUN_S = 900.0
_SHOWN = ("retry", "restaged", "resumed", "narrowed", "decided")
_numbers = itertools.count(1)


class PipelineThread(threading.Thread):
    """Commit batch after batch until a stop is requested.

    Args:
        home: KPIPE_HOME.
        name: the pipeline's name.
        spark: shared by all pipelines.
        admission: of all pipelines.
        report: prints a line about the pipeline.
        committed: called after each batch.

    Attributes:
        error: the error that ended the run; None while it runs, and after a stop.
        began: start on the monotonic clock, in seconds.
        batches: number of committed batches.
    """

    def __init__(
        self,
        home: Home,
        name: str,
        spark: SharedSpark,
        admission: Admission,
        report: Callable[[str], None],
        committed: Callable[[Committed], None] = lambda _: None,
    ) -> None:
        super().__init__(name=f"kpipe {name}", daemon=True)  # a thread that hangs must not keep the process from exiting
        self._home, self._pipeline, self._spark, self._report = home, name, spark, report
        self._admission, self._committed = admission, committed
        self._run_id = f"{SERVED}{os.getpid()}-{next(_numbers)}"
        self._ending, self._cancelled = threading.Event(), False
        self._run: Run | None = None
        self.error: BaseException | None = None
        self.began = self._progress = time.monotonic()
        self.batches = 0

    def run(self) -> None:
        """Run the pipeline. Errors end this thread only; `error` contains them."""
        try:
            self._follow()
        except KpipeError as error:
            self.error = None if self._cancelled else error
        except BaseException as error:  # a defect, which must not end the service
            self.error = error
            self._report(f"unexpected {type(error).__name__}: {trace_of(error)}")

    def end(self) -> None:
        """Request that the run ends after its batch."""
        self._ending.set()

    def cancel(self) -> None:
        """Request that the run discards its batch, and ends."""
        self._cancelled = True
        self._ending.set()
        run = self._run
        if run is not None:
            run.loop.stager.give_up()

    def silent_s(self) -> float:
        """Return the seconds since the run last made progress: a pass, an event, or a wait for records."""
        return time.monotonic() - self._progress

    def stack(self) -> str:
        """Return where the thread is, as a traceback."""
        frame = sys._current_frames().get(self.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame is not None else ""

    def _follow(self) -> None:
        pipeline = self._home.pipeline(self._pipeline)
        self._run = run = Run.real(
            pipeline,
            self._home,
            self._spark.context,
            run_id=self._run_id,
            contend=True,
            wait=self._wait,
            stopped=self._is_over,
            on_event=self._on_event,
            admission=lambda: self._admission.turn(self._is_over),
        )
        run.ready = self._ready
        for result in run.passes(follow=True):
            self._progress = time.monotonic()
            if isinstance(result, Committed):
                self.batches += 1
                self._committed(result)

    def _ready(self) -> None:
        """Let a run of Dagster's end after its batch, and end this run if the pipeline is stopped.

        STOP PIPELINE turns the switch off, then checks for marked runs. This run is marked, then reads the switch. So one of
        them notices the other.
        """
        Turn(self._home, self._pipeline, self._run_id).take()
        with suppress(KpipeError), SensorStates(self._home) as switches:  # a switch that cannot be read changes nothing
            if self._pipeline not in switches.on():
                self._ending.set()

    def _is_over(self) -> bool:
        return self._ending.is_set() or time.monotonic() - self.began > _RUN_S

    def _wait(self, seconds: float) -> None:
        self._progress = time.monotonic()
        self._ending.wait(seconds)
        self._progress = time.monotonic()

    def _on_event(self, event: Event) -> None:
        self._progress = time.monotonic()
        if event.kind in _SHOWN and not logs_json():  # the log of the run contains them
            self._report(event.text)
