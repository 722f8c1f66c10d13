"""The end of a table while transactions write it, as a new connector sees it: without it, LATEST meant the first row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kpipe.definition.source import SourceTable
from kpipe.errors import ReadStalled
from kpipe.planning.start_offsets import moments
from resources.sources.splits import SplitTopics
from resources.sources.tables import connector
from resources.sources.tables.connector import TableConnector
from resources.sources.tables.open_table import TableState


class Table:
    """A table whose states are given, one for each time that it is opened; the last one stays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *states: tuple[int, set[str]]) -> None:
        self.states = [TableState("", end, frozenset(writers)) for end, writers in states]
        self.clock = 0.0
        monkeypatch.setattr(TableConnector, "_open", lambda _: self.opened())
        monkeypatch.setattr(connector.time, "sleep", self.sleep)
        monkeypatch.setattr(connector.time, "monotonic", lambda: self.clock)
        self.topics = SplitTopics(TableConnector(SourceTable(type="postgres", database="d", name="t", column="id"), {}))

    def sleep(self, seconds: float) -> None:
        self.clock += seconds

    @contextmanager
    def opened(self) -> Iterator[Any]:
        yield self

    def state(self) -> TableState:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def latest(self) -> list[int]:
        snapshot = self.topics.snapshot()
        return list(moments("latest", self.topics, snapshot, list(snapshot.partitions), "OFFSETS").values())


def test_latest_waits_for_transactions_that_end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is always written, but by other transactions."""
    assert Table(monkeypatch, (5000, {"a"}), (5001, {"a", "b"}), (5002, {"b", "c"})).latest() == [5000]


def test_latest_is_the_end_without_open_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(monkeypatch, (5000, set()), (5010, {"a"}))
    assert (table.latest(), table.latest(), table.clock) == ([5000], [5000], 0)


def test_latest_is_refused_while_a_transaction_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(monkeypatch, (5000, {"a"}))
    with pytest.raises(ReadStalled, match=r"OFFSETS: postgres/t/0: open transactions may still add records below 5000"):
        table.latest()
    assert 1 < table.clock < 5
    (state,) = table.topics.snapshot().partitions.values()
    assert (state.end, state.high, state.settled) == (0, 5000, False)
    before = table.clock
    with pytest.raises(ReadStalled):
        table.latest()
    assert table.clock == before, "a run waits once"
