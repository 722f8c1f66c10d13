"""Read the metrics of one pipeline from its ledger and its brokers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError
from kpipe.interfaces import Destination, Topics
from kpipe.ledger.ledger import Ledger
from kpipe.ledger.totals import Totaling, Totals, of_views
from kpipe.planning.planner import lag
from kpipe.topics import PartitionId
from kpipe_assets.runs.retries import retries
from kpipe_assets.runs.status import state_of
from resources.home import Home
from resources.kafka.record_times import RecordTimes

__all__ = ["Reader", "Reading"]


@runtime_checkable
class _Timed(Protocol):
    def times(self, positions: Mapping[PartitionId, int]) -> Mapping[PartitionId, RecordTimes]: ...


@dataclass(frozen=True)
class Reading:
    """Values of one pipeline at one scrape.

    Attributes:
        pipeline: its name.
        errors: classes of the errors, by `ledger` and `brokers`.
        state: see `state_of`; empty if the definition cannot be read.
        totals: sums of the history; None if the ledger cannot be read.
        seq: number of the newest commit.
        positions: next offsets, by topic and partition.
        row: of `kpipe_pipelines`.
        lag: unread offsets, by topic and partition; None if the brokers did not answer.
        times: of records, for the partitions with the largest lag.
        retries: of this home's runs.
        now: time of the reading, in seconds since 1970.
        seconds: that it took.
    """

    pipeline: str
    errors: Mapping[str, str] = field(default_factory=dict)
    state: str = ""
    totals: Totals | None = None
    seq: int = 0
    positions: Mapping[tuple[str, int], int] = field(default_factory=dict)
    row: Mapping[str, Any] = field(default_factory=dict)
    lag: Mapping[tuple[str, int], int] | None = None
    times: Mapping[tuple[str, int], RecordTimes] = field(default_factory=dict)
    retries: int = 0
    now: float = 0.0
    seconds: float = 0.0


class Reader:
    """Read one pipeline, one call at a time. Sums are read again only after a commit.

    Args:
        home: KPIPE_HOME.
        name: the pipeline's name.
        destinations: opens the destination of a definition.
        topics: makes the client of its brokers.
        most: most partitions whose record times are looked up.
    """

    def __init__(
        self,
        home: Home,
        name: str,
        destinations: Callable[[Pipeline], Destination],
        topics: Callable[[Pipeline], Topics],
        most: int,
    ) -> None:
        self._home, self._name, self._most = home, name, most
        self._destinations, self._make_topics = destinations, topics
        self._known: tuple[str, str, int, Totals] = "", "", 0, Totals()
        self._topics: tuple[str, Topics] | None = None

    def read(self, on: bool, served: bool) -> Reading:
        """Return the pipeline's values; errors are part of them.

        Args:
            on: whether the pipeline's sensor is running.
            served: whether something runs the pipeline when its sensor is running.
        """
        began, errors, values = time.monotonic(), dict[str, str](), dict[str, Any]()
        try:
            pipeline = self._home.pipeline(self._name)
            values["state"] = state_of(self._home, self._name, on, served)
            values["retries"] = retries(self._home, self._name)
            ledger = self._ledger(pipeline, values)
        except Exception as error:  # one pipeline must not hide the others; its error is a metric
            errors["ledger"] = _class_of(error)
        else:
            try:
                self._brokers(pipeline, ledger, values)
            except Exception as error:
                errors["brokers"] = _class_of(error)
                self._topics = None
        return Reading(self._name, errors, **values, now=time.time(), seconds=time.monotonic() - began)

    def _ledger(self, pipeline: Pipeline, values: dict[str, Any]) -> Ledger:
        destination = self._destinations(pipeline)
        uid, ledger = destination.ledger()
        known = destination.describe(), uid, ledger.seq
        if known != self._known[:3]:
            self._known = (*known, _totals(destination, ledger.seq))
        values["totals"], values["seq"] = self._known[3], ledger.seq
        values["row"] = next(iter(destination.view("pipelines")), {})
        values["positions"] = _by_key(ledger.current_positions())
        return ledger

    def _brokers(self, pipeline: Pipeline, ledger: Ledger, values: dict[str, Any]) -> None:
        settings = pipeline.source.model_dump_json()
        if self._topics is None or self._topics[0] != settings:
            self._topics = settings, self._make_topics(pipeline)
        topics = self._topics[1]
        snapshot = topics.snapshot()
        behind, positions = lag(ledger, snapshot), ledger.positions()
        values["lag"] = {_key(source): unread for source, unread in behind.items()}
        values["positions"] = _by_key(ledger.current_positions(snapshot.partitions))
        if isinstance(topics, _Timed):
            chosen = sorted((source for source in behind if source in positions), key=lambda source: -behind[source])
            found = topics.times({source: positions[source] for source in chosen[: self._most]})
            values["times"] = {_key(source): times for source, times in found.items()}


def _key(source: PartitionId) -> tuple[str, int]:
    return source.topic.name, source.partition


def _by_key(positions: Mapping[PartitionId, int]) -> dict[tuple[str, int], int]:
    return {_key(source): offset for source, offset in positions.items()}


def _totals(destination: Destination, seq: int) -> Totals:
    if isinstance(destination, Totaling):
        return destination.totals(seq)
    return of_views(destination.view("batches"), destination.view("batches_summary"), seq)


def _class_of(error: Exception) -> str:
    """Return the error's class: its message may contain addresses, and would make a series for each wording."""
    return type(error).__name__ if isinstance(error, KpipeError) else "UnexpectedError"
