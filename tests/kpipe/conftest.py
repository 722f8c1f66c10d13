"""Hypothesis profiles, and a small world: topics, a stager and a table in memory, with an oracle that counts rows.

`HYPOTHESIS_PROFILE=thorough` makes long runs.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from kpipe.audit import Audit, Entry, Recount, audit
from kpipe.batch import Batch, Commit, Committed, StagedFile
from kpipe.errors import Fenced, StagingFailed
from kpipe.ingest import Event, Ingest, Seen
from kpipe.ledger import Ledger
from kpipe.pipeline import Pipeline
from kpipe.plan import Idle
from kpipe.ports import Publication
from kpipe.schema import Columns
from kpipe.testing.stager import FakeStager
from kpipe.testing.topics import RECORD, FakeTopics

# No deadline: two shared cores make single examples slow now and then, and that is no failure.
_calm = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]}
settings.register_profile("quick", max_examples=150, stateful_step_count=50, **_calm)
settings.register_profile("thorough", max_examples=5000, stateful_step_count=100, **_calm)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


class Table:
    """A destination on `Ledger.apply`, the reference of every destination. All or nothing, and read back by batch id."""

    def __init__(self, pipeline: str = "tweets") -> None:
        self.uid = ""
        self.held = Ledger(pipeline)
        self.rows: list[dict[str, Any]] = []
        self.dead: list[dict[str, Any]] = []
        self.entries: list[Entry] = []
        self.commits: dict[str, Committed] = {}
        self.made: Columns | None = None

    def describe(self) -> str:
        return "memory: table tweets"

    def columns(self) -> Columns | None:
        return self.made

    def ledger(self) -> tuple[str, Ledger]:
        return self.uid, self.held

    def commit(self, commit: Commit) -> Committed:
        if commit.id in self.commits:
            return self.commits[commit.id]
        after = self.held.apply(commit.changes)
        rows = [row for file in commit.files for row in _lines(file)]
        dead = [row for file in commit.dead_letters for row in _lines(file)]
        if len(rows) != commit.totals.rows or len(dead) != commit.totals.dead_letters:
            raise StagingFailed(f"batch {commit.id}: files hold other numbers of rows than were reported")
        # From here on nothing can fail.
        self.uid = self.uid or "uid-1"
        self.held = replace(after, dead_letters=self.held.dead_letters + len(dead))
        self.rows += rows
        self.dead += dead
        self.entries += [Entry(commit.id, step.source, step.range, commit.counts[step.lane.key]) for step in commit.steps]
        if commit.steps:
            self.made = commit.columns if self.made is None else self.made.merged(commit.columns)
        self.commits[commit.id] = Committed(commit, self.held.seq)
        return self.commits[commit.id]

    def history(self) -> Sequence[Entry]:
        return tuple(self.entries)

    def recount(self) -> Recount:
        keys = Counter((row["_kafka_partition"], row["_kafka_offset"]) for row in self.rows)
        return Recount(
            rows=Counter(row["_kafka_partition"] for row in self.rows),
            dead_letters=Counter(row["_kafka_partition"] for row in self.dead),
            duplicates=Counter(partition for (partition, _), times in keys.items() if times > 1),
        )

    def record_state(self, state: str, error: str = "", kind: str = "", batch: Batch | None = None, stderr: str = "") -> None:
        pass

    def unpublished(self, limit: int = 1000) -> Sequence[Publication]:
        return ()

    def published(self, batches: Sequence[str]) -> Sequence[str]:
        return ()


def _lines(file: StagedFile) -> list[dict[str, Any]]:
    data = Path(file.path).read_bytes()
    assert len(data) == file.size
    return [json.loads(line) for line in data.splitlines()]


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
        return Ingest(define(**(pipeline or {})), **{"wait": self.waits.append, "tell": self.events.append, **edges, **more})

    def run(self, pipeline: dict[str, Any] | None = None, max_batches: int | None = None, **more: Any) -> list[Committed]:
        return list(self.ingest(pipeline, **more).run(max_batches))

    def kinds(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    def state(self) -> tuple[object, ...]:
        """All that anyone can see of the table: to prove that nothing changed."""
        return self.table.held, list(self.table.rows), list(self.table.dead), list(self.table.entries), dict(self.table.commits)

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


__all__ = ["Fenced", "Idle", "Table", "World", "define"]
