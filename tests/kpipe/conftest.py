"""A small world: topics, a stager and a table in memory, with an oracle that counts rows."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kpipe.batch.batch import Commit, Committed
from kpipe.definition.pipeline import Pipeline
from kpipe.ingest.loop import Ingest
from kpipe.ledger.ledger import Ledger
from kpipe.run_events import Event, Seen
from kpipe.testing.memory import MemoryDestination, MemoryStore, MemoryTable, Registered
from kpipe.testing.stager import FakeStager
from kpipe.testing.topics import RECORD, FakeTopics
from kpipe.verification.verify import Audit, Entry, audit


class Table(MemoryDestination):
    """The destination in memory, with a look at (and a hand in) what it holds."""

    def __init__(self, pipeline: str = "tweets") -> None:
        super().__init__(MemoryStore(), pipeline, "tweets")
        self._entries: list[Entry] | None = None

    @property
    def held(self) -> Ledger:
        return self.ledger()[1]

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self.store.tables.get(self.table, MemoryTable()).rows

    @property
    def dead(self) -> list[dict[str, Any]]:
        known = self.store.pipelines.get(self.pipeline)
        return known.dead_letters if known else []

    @property
    def commits(self) -> list[Commit]:
        known = self.store.pipelines.get(self.pipeline)
        return [done.commit for done, _ in known.commits.values()] if known else []

    @property
    def entries(self) -> list[Entry]:
        """The history; a test may change it from here on."""
        if self._entries is None:
            self._entries = list(super().history())
        return self._entries

    def history(self) -> Sequence[Entry]:
        return super().history() if self._entries is None else self._entries

    def saved(self) -> tuple[object, ...]:
        """All that anyone can see of it: to prove that nothing changed, or to restore it."""
        return copy.deepcopy(self.store.tables), copy.deepcopy(self.store.pipelines)

    def restore(self, saved: tuple[Any, ...]) -> None:
        self.store.tables, self.store.pipelines = copy.deepcopy(saved)

    def replace(self, uid: str) -> None:
        """Everything is gone; with a uid, another registration of the same name is there instead."""
        self.restore(({}, {self.pipeline: Registered(uid, Ledger(self.pipeline))} if uid else {}))


class World:
    """Everything around the loop. `run` makes a new process each time; topics, table and memory of the home stay."""

    def __init__(self, folder: Path, partitions: int = 2) -> None:
        self.topics = FakeTopics(partitions)
        self.stager = FakeStager(self.topics, folder)
        self.table = Table()
        self.seen = Seen()
        self.waits: list[float] = []
        self.events: list[Event] = []

    def ingest(self, pipeline: dict[str, Any] | None = None, **more: Any) -> Ingest:
        edges = {"topics": self.topics, "stager": self.stager, "destination": self.table, "seen": self.seen}
        return Ingest(define(**(pipeline or {})), **{"wait": self.waits.append, "on_event": self.events.append, **edges, **more})

    def run(self, pipeline: dict[str, Any] | None = None, max_batches: int | None = None, **more: Any) -> list[Committed]:
        return list(self.ingest(pipeline, **more).run(max_batches))

    def begin(self) -> None:
        """Partitions enter the ledger, nothing is read."""
        self.ingest().survey.look()

    def kinds(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    def state(self) -> tuple[object, ...]:
        return self.table.saved()

    def audit(self) -> Audit:
        return audit(self.table.held, self.table.history(), self.table.recount())

    def coordinates(self) -> Counter[tuple[int, int]]:
        return Counter((row["_kafka_partition"], row["_kafka_offset"]) for row in (*self.table.rows, *self.table.dead))

    def expected(self) -> Counter[tuple[int, int]]:
        """Every record with a value, once, as the logs hold them, the expired ones too."""
        logs = self.topics._topics["tweets"].logs
        return Counter(
            (partition, offset)
            for partition, log in enumerate(logs)
            for offset, slot in enumerate(log.slots)
            if slot.kind == RECORD and slot.value is not None
        )

    def prove_exactly_once(self) -> None:
        assert self.coordinates() == self.expected()
        report = self.audit()
        assert report.ok, report.problems


def define(**fields: Any) -> Pipeline:
    """The pipeline `tweets`, with these fields changed."""
    source = {"brokers": "localhost:9092", "topic": "tweets", **fields.pop("source", {})}
    return Pipeline.model_validate({"name": "tweets", "source": source, "into": {"table": "tweets"}, **fields})


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def worlds(tmp_path: Path) -> Callable[..., World]:
    return lambda partitions=2: World(tmp_path, partitions)


@pytest.fixture(name="define")
def _define() -> Callable[..., Pipeline]:
    return define
