"""Prefetch: plan and stage the next batch while one commits.

The batch is planned from the ledger as it will be after the commit. Before the batch is used, the ledger is read again:
unless the two are equal, the staged files are abandoned, as after any failure. The commit compares and swaps as usual.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, runtime_checkable

from kpipe.batch.batch import Batch
from kpipe.batch.coverage import with_tails
from kpipe.batch.table_write import BatchTables
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError
from kpipe.ingest.staging import StagedBatch, filled, staged
from kpipe.interfaces import Destination, Stager, Topics
from kpipe.ledger.ledger import Conflict, Ledger
from kpipe.planning.planner import Idle, arrivals, check_source
from kpipe.run_events import Event
from kpipe.schema.columns import Columns
from kpipe.tables.topic_tables import batch_columns, batch_tables
from kpipe.topics import TopicSnapshot

__all__ = ["Prefetch", "Releasing"]

# Maximum of useless prefetches in a row: more of them indicate a wrong assumption, so prefetching stops.
_MOST_MISSES = 3


@runtime_checkable
class Releasing(Protocol):
    """Optional interface of a stager: free what it keeps outside of this process for a run."""

    def release(self) -> None:
        """Free it. No `stage` call is at work; others may follow."""
        ...


class Prefetch:
    """The next batch of one run, at most one. Its thread uses the topics and the stager, never the destination.

    Args:
        pipeline: the definition. Only `exactly_once` prefetches, since it needs only one commit for a batch.
        topics, stager, destination: see kpipe/interfaces.py.
        read_ledger: returns the committed ledger.
        `on_event`: callback for every event.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        topics: Topics,
        stager: Stager,
        destination: Destination,
        read_ledger: Callable[[], Ledger],
        on_event: Callable[[Event], None],
    ) -> None:
        self._pipeline, self._topics, self._stager, self._destination = pipeline, topics, stager, destination
        self._read_ledger, self._on_event = read_ledger, on_event
        self._next: _Thread | None = None
        self._missed = 0

    @property
    def running(self) -> bool:
        """True while a batch is being prefetched, or is ready."""
        return self._next is not None

    def start(self, current: StagedBatch, plan: Callable[[Ledger, TopicSnapshot], Batch | Idle]) -> None:
        """Prefetch the batch after the current one, which is about to be committed.

        Args:
            current: the batch that is about to be committed.
            plan: returns the plan of the next batch.
        """
        if self._missed >= _MOST_MISSES or self._pipeline.delivery != "exactly_once" or self._pipeline.into.by_field:
            return  # tables by a field are those of the ledger after the commit
        ledger = current.ledger.apply(step.change for step in current.batch.steps)
        if not isinstance(ledger, Conflict):
            tables = batch_tables(self._pipeline, current.batch)
            self._next = _Thread(lambda on_event: self._extract(ledger, tables, current.columns, plan, on_event), ledger, current)

    def take(self) -> StagedBatch | None:
        """Return the prefetched batch if ledger and tables are as planned for; None if no such batch exists.

        Raises:
            KpipeError: the prefetch failed, or the ledger is not usable.
        """
        thread, self._next = self._next, None
        if thread is None:
            return None
        try:
            ledger = self._read_ledger()
            tables = batch_columns(self._pipeline, self._destination, thread.current.batch)
            if thread.foresaw(ledger, tuple(table and filled(part, table) for part, table in tables)):
                self._missed = 0
                result = thread.result(self._on_event)
                return result and replace(result, ledger=ledger)
        except BaseException:
            thread.drop(self._stager)
            raise
        thread.drop(self._stager)
        self._missed += 1
        return None

    def drop(self) -> None:
        """Abandon the prefetched batch, if it exists."""
        thread, self._next = self._next, None
        if thread is not None:
            thread.drop(self._stager)

    def end(self) -> None:
        """Abandon the prefetched batch, and free what the stager keeps outside of this process for the run."""
        self.drop()
        if isinstance(self._stager, Releasing):
            self._stager.release()

    def _extract(
        self,
        ledger: Ledger,
        tables: BatchTables,
        columns: tuple[Columns, ...],
        plan: Callable[[Ledger, TopicSnapshot], Batch | Idle],
        on_event: Callable[[Event], None],
    ) -> StagedBatch | None:
        """Plan and stage the next batch; None if no batch can be planned, or a decision or commit must come first."""
        began, started_ms = time.monotonic(), int(time.time() * 1000)
        try:
            snapshot = self._topics.snapshot()
            check_source(ledger, snapshot)
        except KpipeError:
            return None  # the next pass raises the same error
        batch = plan(ledger, snapshot) if not arrivals(ledger, snapshot) else None
        if batch is None or isinstance(batch, Idle):
            return None
        if tables.topics is not None:
            known = {part.into.table: found for part, found in zip(tables.parts, columns, strict=True)}
            names = [part.into.table for part in batch_tables(self._pipeline, batch).parts]
            if not known.keys() >= set(names):
                return None  # the columns of other topics' tables are not known here
            columns = tuple(known[name] for name in names)
        on_event(Event("planned", batch, snapshot=snapshot, ledger=ledger))
        found = staged(self._pipeline, self._stager, batch, columns, on_event)
        return StagedBatch(with_tails(batch, found[-1]), snapshot, ledger, *found, began, started_ms)


class _Thread:
    """One prefetch in a thread.

    Args:
        extract: returns the staged batch, or None; takes the callback for events.
        ledger: the expected ledger after the commit.
        current: the batch that is about to be committed, with the expected columns of its tables.
    """

    def __init__(
        self, extract: Callable[[Callable[[Event], None]], StagedBatch | None], ledger: Ledger, current: StagedBatch
    ) -> None:
        self._ledger, self.current = ledger, current
        self._result: StagedBatch | BaseException | None = None
        self._events: list[Event] = []

        def work() -> None:
            try:
                self._result = extract(self._events.append)
            except BaseException as error:  # raised again by `result`, in the caller's thread
                self._result = error

        self._thread = threading.Thread(target=work, name="kpipe-prefetch", daemon=True)
        self._thread.start()

    def foresaw(self, ledger: Ledger, tables: tuple[Columns | None, ...]) -> bool:
        """Return whether ledger and tables are as expected."""
        return (ledger.seq, ledger.lanes) == (self._ledger.seq, self._ledger.lanes) and tables == self.current.columns

    def result(self, on_event: Callable[[Event], None]) -> StagedBatch | None:
        """Wait for the result, and report the events of the thread.

        Raises:
            KpipeError: the error of the prefetch.
        """
        self._thread.join()
        for event in self._events:
            on_event(event)
        if isinstance(self._result, BaseException):
            raise self._result
        return self._result

    def drop(self, stager: Stager) -> None:
        """Cancel the prefetch, and wait until its thread has ended."""
        while self._thread.is_alive():
            stager.give_up()
            self._thread.join(0.1)
