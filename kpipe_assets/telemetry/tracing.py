"""Trace batches with OpenTelemetry, if it is configured: one trace for each batch, whose id is the batch's.

A run only notes times. The sender's thread makes spans, because that imports the SDK. Spans contain names, ids and numbers.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from kpipe.batch.batch import Committed
from kpipe.definition.pipeline import Pipeline
from kpipe.run_events import Event
from kpipe_assets.telemetry.batch_trace import BatchTrace
from kpipe_assets.telemetry.sender import Once, Sender

if TYPE_CHECKING:
    from kpipe_assets.telemetry.spans import Exporter

__all__ = ["TraceObserver", "is_configured", "sender"]

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def is_configured() -> bool:
    """Return whether traces are configured: by an endpoint of OTLP, or by OTEL_TRACES_EXPORTER."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    chosen = os.environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    return chosen != "none" if chosen else any(os.environ.get(name) for name in _ENDPOINTS)


@cache
def sender() -> Sender:
    """Return the sender of this process's spans."""
    return Sender("the trace", flush=lambda: _exporter().flush())


@dataclass
class TraceObserver:
    """Traces of the batches of one run.

    Attributes:
        pipeline: the definition.
        run: id of the run.
        failed: reports the first problem.
    """

    pipeline: Pipeline
    run: str
    failed: Once
    _open: dict[str, BatchTrace] = field(default_factory=dict, init=False)

    def begin(self) -> None:
        """Have the exporter created, which takes as long as a small batch."""
        sender().put(_create, self.failed)

    def event(self, event: Event) -> None:
        """Note the time of an event; queue the trace when the batch is committed or has failed."""
        if event.batch is None:
            return
        id = event.batch.id
        if event.kind in ("planned", "resumed"):
            for other in self._open.keys() - {id}:  # it failed while it was prefetched
                self._close(other, event.occurred, error="abandoned")
            self._open[id] = BatchTrace(event.batch, self.run, event.occurred)
        elif (trace := self._open.get(id)) is None:
            return
        elif event.kind == "staged":
            trace.staged, trace.reports, trace.batch = event.occurred, event.reports, event.batch
        elif event.kind == "committed":
            self._close(id, event.occurred, committed=event.committed)
        elif event.error is not None:
            self._close(id, event.occurred, error=type(event.error).__name__)

    def end(self, error: BaseException | None) -> None:
        """Queue the traces of batches that did not end."""
        for id in list(self._open):
            self._close(id, time.time(), error=type(error).__name__ if error is not None else "abandoned")

    def _close(self, id: str, ended: float, committed: Committed | None = None, error: str = "") -> None:
        trace = self._open.pop(id)
        trace.ended, trace.committed, trace.error = ended, committed, error
        pipeline, failed = self.pipeline, self.failed

        def deliver() -> None:
            exporter = _exporter()
            exporter.failed = failed
            exporter.export(pipeline, trace)

        sender().put(deliver, failed)


def _create() -> None:
    _exporter()


@cache
def _exporter() -> Exporter:
    """Create the exporter of this process.

    Raises:
        NotAvailable: the SDK or an exporter is not installed.
        InvalidPipeline: a variable has an unsupported value.
    """
    from kpipe_assets.telemetry.spans import Exporter

    return Exporter()
