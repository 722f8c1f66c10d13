"""Execute requests on a home: statements, one change of a pipeline at a time, and slow work with a limit."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError
from kpipe.sql import statements as s
from kpipe_assets.rest.problems import Problem
from kpipe_assets.runs.status import FAILED, note_state, state_of
from kpipe_assets.sensors.sensor_state import SensorStates
from kpipe_assets.statements.execute import Session
from kpipe_assets.statements.result import Result
from resources.home import Home

__all__ = ["Worker"]

_LOG = logging.getLogger("kpipe.rest")
_LOCKS = 64
_CHANGE_S = 20.0  # longest wait for another change of the same pipeline
_STOP_S = 5.0  # longest wait for the end of a batch before the response
_SLOW_AT_ONCE = 2
_SLOW_WAITING = 8

_Made = TypeVar("_Made")


@dataclass
class Worker:
    """Access to a home for all resources.

    Attributes:
        home: KPIPE_HOME.
        address: HOST:PORT, which Connect calls the worker's id.
        brokers: brokers of configs that name none; None: each config names its own.
    """

    home: Home
    address: str = "127.0.0.1:8083"
    brokers: str | None = None
    _locks: Sequence[threading.Lock] = field(default_factory=lambda: tuple(threading.Lock() for _ in range(_LOCKS)))
    _slow: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_SLOW_AT_ONCE))
    _waiting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_SLOW_WAITING))
    _stops: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8, "kpipe-stop"))

    def close(self) -> None:
        """Stop waiting for batches to end: the requests to end are in the home already."""
        self._stops.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def changing(self, name: str) -> Iterator[None]:
        """Make the only change of a pipeline by this process.

        Raises:
            Problem: another change takes too long.
        """
        lock = self._locks[hash(name) % _LOCKS]
        if not lock.acquire(timeout=_CHANGE_S):
            raise Problem(409, f"Cannot complete request momentarily: another change of {name} has not ended -> try again")
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def slow(self) -> Iterator[None]:
        """Do work that may take minutes, a few at a time.

        Raises:
            Problem: too many requests wait already.
        """
        if not self._waiting.acquire(blocking=False):
            raise Problem(429, "too many requests for slow work -> wait for some of them to end")
        try:
            with self._slow:
                yield
        finally:
            self._waiting.release()

    def execute(self, statement: s.Statement) -> Result:
        """Execute a statement that returns no rows, and return its message."""
        return self.using(statement, lambda result: Result(result.message))

    def using(self, statement: s.Statement, use: Callable[[Result], _Made]) -> _Made:
        """Execute a statement, and return what `use` makes of its result while the session is open."""
        with Session(self.home) as session:
            made = [use(result) for result in session.execute(statement)]
        return made[-1]

    def stop(self, name: str, clear: bool = False) -> None:
        """Stop a pipeline. A batch that takes longer goes on to its end after the response, as in Connect.

        Args:
            name: the pipeline's name.
            clear: whether a failed pipeline becomes a stopped one; its errors stay in its history.

        Raises:
            KpipeError: it cannot be stopped.
        """

        def work() -> None:
            with self.changing(name):
                self.execute(s.Stop(name, if_running=True))
                if clear and self.state(name) in FAILED:
                    note_state(self.home, name, "stopped")

        done = self._stops.submit(work)
        try:
            done.result(_STOP_S)
        except NotYet:
            done.add_done_callback(lambda future: _report(name, future.exception()))

    def states(self) -> dict[str, str]:
        """Return the state of each pipeline; see `state_of`."""
        return dict(self._states(self.home.names()))

    def state(self, name: str) -> str:
        """Return the state of one pipeline."""
        return dict(self._states((name,)))[name]

    def _states(self, names: Sequence[str]) -> Iterator[tuple[str, str]]:
        with SensorStates(self.home) as sensor_states:
            on, served = sensor_states.on(), sensor_states.is_served()
        for name in names:
            yield name, state_of(self.home, name, name in on, served)

    def exists(self, name: str) -> bool:
        """Return whether the home defines the pipeline."""
        return name in self.home.names()

    def definition(self, name: str) -> Pipeline:
        """Return a definition.

        Raises:
            Problem: there is no such pipeline.
            KpipeError: the definition is unreadable.
        """
        if not self.exists(name):
            raise Problem(404, f"Connector {name} not found")
        return self.home.pipeline(name)


def _report(name: str, error: BaseException | None) -> None:
    if isinstance(error, KpipeError | Problem):
        _LOG.warning("stop of %s: %s", name, error)
    elif error is not None:
        _LOG.error("stop of %s failed", name, exc_info=error)
