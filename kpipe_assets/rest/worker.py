"""Execute requests on a home: statements, one change of a pipeline at a time, and slow work with a limit."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError
from kpipe.sql import statements as s
from kpipe_assets.rest.problems import Problem
from kpipe_assets.runs.status import FAILED, note_state, state_of
from kpipe_assets.sensors.sensor_state import SensorStates
from kpipe_assets.statements.execute import Session
from kpipe_assets.statements.isolated import IsolatedQueries
from kpipe_assets.statements.result import Result
from kpipe_assets.telemetry.run_log import shown
from resources.home import Home

__all__ = ["Worker"]

_LOG = logging.getLogger("kpipe.rest")
_CHANGE_S = 20.0  # longest wait for another change of the same pipeline
_QUERY_S = 20.0  # commits into a DuckDB file wait for its readers, and fail after 30 s
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
        queries: the process for queries, which starts with the first one.
    """

    home: Home
    address: str = "127.0.0.1:8083"
    brokers: str | None = None
    queries: IsolatedQueries = field(init=False)
    _changed: list[Collection[str] | None] = field(default_factory=list)  # by the changes in progress; None: all
    _ended: threading.Condition = field(default_factory=threading.Condition)
    _slow: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_SLOW_AT_ONCE))
    _waiting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_SLOW_WAITING))
    _stops: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8, "kpipe-stop"))

    def __post_init__(self) -> None:
        self.queries = IsolatedQueries(self.home)

    def close(self) -> None:
        """Stop waiting for batches to end: the requests to end are in the home already."""
        self.queries.close()
        self._stops.shutdown(wait=False, cancel_futures=True)

    def changing(self, name: str) -> AbstractContextManager[None]:
        """Make the only change of a pipeline by this process; see `changing_all`."""
        return self.changing_all((name,))

    @contextmanager
    def changing_all(self, names: Collection[str] | None) -> Iterator[None]:
        """Make the only change of some pipelines by this process; None: of all.

        Raises:
            Problem: another change takes too long.
        """
        if names is not None and not names:
            yield
            return
        with self._ended:
            if not self._ended.wait_for(lambda: not any(_overlap(names, other) for other in self._changed), _CHANGE_S):
                which = "a pipeline" if names is None else ", ".join(names)
                raise Problem(409, f"Cannot complete request momentarily: another change of {which} has not ended -> try again")
            self._changed.append(names)
        try:
            yield
        finally:
            with self._ended:
                self._changed.remove(names)
                self._ended.notify_all()

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

    def query(self, statement: str, rows: int) -> bytes:
        """Execute a query or CREATE TABLE in another process, and return its result as JSON."""
        return self.queries.query(statement, rows, _QUERY_S)

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
            on, unserved = sensor_states.on(), sensor_states.unserved()
        for name in names:
            yield name, state_of(self.home, name, name in on, name not in unserved)

    def exists(self, name: str) -> bool:
        """Return whether the home defines the pipeline."""
        return name in self.home.names()

    def check_exists(self, name: str) -> None:
        """Check that the home defines the pipeline; its definition may be invalid.

        Raises:
            Problem: there is no such pipeline.
        """
        if not self.exists(name):
            raise Problem(404, f"Connector {name} not found")

    def definition(self, name: str) -> Pipeline:
        """Return a definition.

        Raises:
            Problem: there is no such pipeline.
            KpipeError: the definition is unreadable.
        """
        self.check_exists(name)
        return self.home.pipeline(name)


def _overlap(names: Collection[str] | None, other: Collection[str] | None) -> bool:
    return names is None or other is None or not set(names).isdisjoint(other)


def _report(name: str, error: BaseException | None) -> None:
    if isinstance(error, KpipeError | Problem):
        _LOG.warning("stop of %s: %s", name, shown(error) if isinstance(error, KpipeError) else error)
    elif error is not None:
        _LOG.error("stop of %s failed", name, exc_info=error)
