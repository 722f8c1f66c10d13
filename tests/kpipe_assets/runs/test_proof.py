"""`kpipe verify` beside a run of the same home."""

from __future__ import annotations

from pathlib import Path

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.verification.evidence import Evidence, Readable, gather
from kpipe_assets.runs import proof as proofs
from resources.home import Home
from resources.testing.place import batch
from resources.testing.state import loaded
from tests.resources.destinations.place import DuckDBPlace


def test_a_commit_during_the_count_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run notes its commit in the home, which then has seen a later ledger than the one that was counted."""
    place, home = DuckDBPlace(tmp_path), Home.at(tmp_path / "home").make()
    destination = loaded(place)

    def note() -> None:
        uid, ledger = destination.ledger()
        home.seen("tweets").note(uid, ledger.age)

    def during(reader: Readable) -> Evidence:
        found = gather(reader)
        destination.commit(batch(place, destination.ledger()[1], {0: 20}))
        note()
        return found

    note()
    source = {"brokers": "b:9092", "topic": "tweets"}
    pipeline = Pipeline.model_validate({"name": "tweets", "source": source, "into": {"type": "duckdb", "table": "tweets"}})
    monkeypatch.setattr(proofs, "gather", during)
    found = proofs.proof(pipeline, home, place.open())
    assert found.result.ok and found.was_seen, found.result.problems
    monkeypatch.undo()
    later = proofs.proof(pipeline, home, place.open())
    assert later.result.ok and later.evidence.ledger.seq > found.evidence.ledger.seq
