"""Watch a run: log it, and if configured send lineage and traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from kpipe.definition.pipeline import Pipeline
from kpipe.run_events import Event
from kpipe_assets.telemetry import lineage, tracing
from kpipe_assets.telemetry.run_log import RunLog
from kpipe_assets.telemetry.sender import Once
from resources.home import Home

__all__ = ["Observer", "observed"]


class Observer(Protocol):
    """Something that watches one run. It must not block, and raise nothing."""

    def begin(self) -> None:
        """Note the start of the run."""
        ...

    def event(self, event: Event) -> None:
        """Note an event of the loop."""
        ...

    def end(self, error: BaseException | None) -> None:
        """Note the end of the run, and the error that caused it."""
        ...


@contextmanager
def observed(home: Home, pipeline: Pipeline, run: str, continuous: bool = False) -> Iterator[Callable[[Event], None]]:
    """Watch a run: yield the callback for its events, and note its start and its end.

    A consumer that closes the generator of a run ends it in order (GeneratorExit).

    Args:
        home: KPIPE_HOME.
        pipeline: the definition.
        run: id of the run, as in the ledger.
        continuous: whether the run waits for more records.
    """
    observers = _observers(home, pipeline, run, continuous)
    for observer in observers:
        observer.begin()

    def on_event(event: Event) -> None:
        for observer in observers:
            observer.event(event)

    error: BaseException | None = None
    try:
        yield on_event
    except GeneratorExit:
        raise
    except BaseException as raised:
        error = raised
        raise
    finally:
        for observer in observers:
            observer.end(error)


def _observers(home: Home, pipeline: Pipeline, run: str, continuous: bool) -> list[Observer]:
    log = RunLog(home, pipeline.name, run)
    observers: list[Observer] = [log]
    if lineage.is_configured():
        observers.append(lineage.LineageObserver(pipeline, home, run, continuous, log.warn))
    if tracing.is_configured():
        observers.append(tracing.TraceObserver(pipeline, run, Once(log.warn)))
    return observers
