"""The service: run what is started, notice changes within a second, and end in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from kpipe.batch.batch import Committed
from kpipe.errors import KpipeError
from kpipe_assets.sensors.sensor_state import SensorStates
from kpipe_assets.service.admission import Admission
from kpipe_assets.service.keeper import Keeper, Version
from kpipe_assets.service.pipeline_thread import PipelineThread
from kpipe_assets.service.shared_spark import SharedSpark
from kpipe_assets.wording import count
from resources.home import Home
from resources.spark.service.server import SparkServer

__all__ = ["RESTART", "PipelineService"]

#: Exit status of a service process that its supervisor starts again (EX_TEMPFAIL of sysexits.h).
RESTART = 75
_LOOK_S = 0.25
# After Spark has ended, runs in their commit may finish it for so long.
_GRACE_S = 30.0


class Report(Protocol):
    """Prints a line."""

    def __call__(self, text: str, pipeline: str = "", level: str = "info", /) -> None:
        """Print a line about the service, or about a pipeline."""
        ...


class PipelineService:
    """All started pipelines of a home, each in a thread.

    Args:
        home: KPIPE_HOME.
        report: prints a line, and the name of the pipeline that it is about.
        spark: shared by all pipelines.
        committed: called with the pipeline's name after each batch, by the pipeline's thread.
    """

    def __init__(
        self,
        home: Home,
        report: Report,
        spark: SharedSpark | None = None,
        committed: Callable[[str, Committed], None] = lambda _, __: None,
    ) -> None:
        self._home, self._report, self._committed = home, report, committed
        self.spark = spark or SharedSpark(home)
        self._admission = Admission()
        self._runs = SparkServer(home, self.spark.context, self.spark.has_ended, report)
        self._stop = threading.Event()
        self._keepers: dict[str, Keeper] = {}
        self._trouble = ""

    def stop(self) -> None:
        """Request that every pipeline ends after its batch. May be called by a signal handler."""
        self._stop.set()

    def run(self) -> int:
        """Run until a stop is requested, and return the exit status: 0, or `RESTART` if Spark has ended."""
        self._runs.start()
        with SensorStates(self._home) as switches:
            while not self._stop.wait(_LOOK_S):
                self.look(switches)
                if self.spark.has_ended():
                    self._report("Spark has ended: the service starts again")
                    self._runs.close()
                    self._end_all(_GRACE_S)
                    return RESTART
        self._runs.close()
        pipelines, runs = sum(keeper.thread is not None for keeper in self._keepers.values()), self._runs.busy()
        others = f" pipelines, and of {count(runs, 'run')} of other processes" if runs else ""
        self._report(f"ending after the current batches of {pipelines}{others}")
        self._end_all()
        self.spark.stop()
        return 0

    def look(self, switches: SensorStates) -> None:
        """Compare what runs with switches and definitions, and start and end threads accordingly."""
        try:
            on, trouble = switches.on(), ""
            versions = {name: version for name in on if (version := self._version(name)) is not None}
        except KpipeError as error:
            trouble = str(error)
            versions = None  # leave everything as it is
        if trouble and trouble != self._trouble:
            self._report(f"the switches cannot be read: {trouble}")
        self._trouble = trouble
        if versions is not None:
            for name in sorted(versions.keys() - self._keepers.keys()):
                self._keepers[name] = Keeper(self._home, name, self._thread, self._line(name))
            self._look_at(versions)

    def pipelines(self) -> dict[str, dict[str, Any]]:
        """Return the state of each pipeline, for the service's health page."""
        found: dict[str, dict[str, Any]] = {}
        for name, keeper in sorted(dict(self._keepers).items()):
            thread = keeper.thread
            found[name] = {
                "running": thread is not None,
                "silent_s": round(thread.silent_s(), 1) if thread is not None else None,
                "next_run_in_s": round(keeper.waits_s, 1),
            }
        return found

    def _look_at(self, versions: Mapping[str, Version]) -> None:
        for name, keeper in list(self._keepers.items()):
            if not keeper.look(versions.get(name)):
                del self._keepers[name]

    def _end_all(self, patience_s: float = float("inf")) -> None:
        deadline = time.monotonic() + patience_s
        while self._is_busy() and time.monotonic() < deadline:
            self._look_at({})
            time.sleep(0.05)

    def _is_busy(self) -> bool:
        return self._runs.busy() > 0 or any(keeper.thread is not None for keeper in self._keepers.values())

    def _thread(self, name: str) -> PipelineThread:
        return PipelineThread(self._home, name, self.spark, self._admission, self._line(name), partial(self._committed, name))

    def _line(self, name: str) -> Callable[..., None]:
        return lambda text, level="info": self._report(text, name, level)

    def _version(self, name: str) -> Version | None:
        """Return what changes when the definition is edited or replaced; None if there is no definition."""
        try:
            found = (self._home.pipelines / f"{name}.yaml").stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size
