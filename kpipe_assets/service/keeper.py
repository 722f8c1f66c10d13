"""Keep one pipeline running: start its thread, end it for a change, and start it again after an error."""

from __future__ import annotations

import time
from collections.abc import Callable

from kpipe.errors import KpipeError, NeedsOperator
from kpipe_assets.runs.backoff import Backoff
from kpipe_assets.runs.status import FAILED
from kpipe_assets.runs.stop_requests import request
from kpipe_assets.service.pipeline_thread import PipelineThread
from kpipe_assets.telemetry.run_log import shown
from resources.home import Home

__all__ = ["Keeper", "Version"]

# A thread without any progress for so long is reported: longer than a client waits for its server, shorter than a night.
_SILENT_S = 300.0

Version = tuple[int, int, int]


class Keeper:
    """One pipeline of the service. Used by the service's main thread.

    Args:
        home: KPIPE_HOME.
        name: the pipeline's name.
        make: returns a new thread for the pipeline.
        report: prints a line about the pipeline, at a level (`info` if omitted).
        backoff: waits after failures.
    """

    def __init__(
        self,
        home: Home,
        name: str,
        make: Callable[[str], PipelineThread],
        report: Callable[..., None],
        backoff: Backoff = Backoff(),  # noqa: B008
    ) -> None:
        self._home, self._name, self._make, self._report, self._backoff = home, name, make, report, backoff
        self._thread: PipelineThread | None = None
        self._version: Version | None = None
        self._cancel = ""
        self._failures, self._next, self._noted, self._silent = 0, 0.0, False, False

    @property
    def thread(self) -> PipelineThread | None:
        """The pipeline's thread; None if none runs."""
        return self._thread

    @property
    def waits_s(self) -> float:
        """Seconds until the next run after a failure; 0 if it runs."""
        return max(0.0, self._next - time.monotonic()) if self._thread is None else 0.0

    def look(self, version: Version | None) -> bool:
        """Start or end the thread where that is due. Return whether there is anything left to keep.

        Args:
            version: identity of the definition's file; None if the pipeline is stopped, or has no definition.
        """
        thread = self._thread
        if thread is not None and not thread.is_alive():
            self._ended(thread, stopped=version is None)
        elif thread is not None:
            self._watch(thread, version)
        if self._thread is None and version is not None and self._is_due(version):
            self._begin(version)
        return version is not None or self._thread is not None

    def end(self) -> None:
        """Request that the thread ends after its batch."""
        if self._thread is not None:
            self._thread.end()

    def _begin(self, version: Version) -> None:
        self._version, self._noted, self._silent = version, False, False
        self._cancel = request(self._home, self._name, "cancel")
        self._thread = self._make(self._name)
        self._thread.start()
        self._report("started" if not self._failures else f"started again after {self._failures} failures in a row")

    def _watch(self, thread: PipelineThread, version: Version | None) -> None:
        if version != self._version:
            thread.end()
            if version is None and request(self._home, self._name, "cancel") != self._cancel:
                thread.cancel()
        silent = thread.silent_s() > _SILENT_S
        if silent and not self._silent:
            self._report(f"no progress for {_SILENT_S:g} s; the other pipelines are not affected. It is here:\n{thread.stack()}")
        elif self._silent and not silent:
            self._report("makes progress again")
        self._silent = silent

    def _ended(self, thread: PipelineThread, stopped: bool) -> None:
        """Record how the thread ended, and when the next one starts.

        A batch that fails after its pipeline was stopped leaves it stopped: START FAILED PIPELINES must not start it.
        """
        self._thread, error = None, thread.error
        if error is None:
            self._failures = 0
            self._report(f"ended after {thread.batches} batches")
            return
        if stopped:
            self._failures = 0
            self._note("stopped", error)
            self._report(f"stopped; its last batch failed: {shown(error)}", "error")
            return
        lasted = time.monotonic() - thread.began
        self._failures = 1 if lasted > self._backoff.longest_s else self._failures + 1
        wait = self._backoff.wait_s(self._failures)
        self._next = time.monotonic() + wait
        if isinstance(error, NeedsOperator):
            state = "needs_operator"
        else:
            state = "error"
        if self._home.noted(self._name).get("state") in FAILED:
            self._noted = True
        else:  # it failed before the run began, or by a defect
            self._note(state, error)
        self._report(f"failed: {shown(error)}; the next run starts in {wait:.0f} s", "error")

    def _note(self, state: str, error: BaseException) -> None:
        try:
            self._home.note(self._name, state, str(error) or type(error).__name__)
            self._noted = True
        except KpipeError as full:
            self._report(f"its state cannot be recorded: {full}", "error")

    def _is_due(self, version: Version) -> bool:
        """Return whether a run may start: the wait is over, the definition was edited, or START PIPELINE cleared the error."""
        if not self._failures or time.monotonic() >= self._next:
            return True
        if version != self._version or (self._noted and self._home.noted(self._name).get("state") not in FAILED):
            self._failures = 0
            return True
        return False
