"""`kpipe trace` and `kpipe as-of` over destinations that neither search rows nor keep snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, NotAvailable
from kpipe.interfaces import Destination
from kpipe_assets.provenance import tables_as_of, tracing
from kpipe_assets.provenance.positions import Position
from kpipe_assets.provenance.tables_as_of import as_of
from kpipe_assets.provenance.trace_report import lines
from kpipe_assets.provenance.tracing import trace, trace_rows
from resources.home import Home
from resources.testing.place import batch
from resources.testing.state import begun
from tests.resources.destinations.place import MemoryPlace

PIPELINE = Pipeline.model_validate(
    {"name": "tweets", "source": {"brokers": "127.0.0.1:1", "topic": "tweets"}, "into": {"table": "tweets"}}
)
NOW = datetime.now(timezone.utc)


@pytest.fixture
def destination(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Destination:
    place = MemoryPlace(tmp_path)
    made = begun(place, 1)
    made.commit(batch(place, made.ledger()[1], {0: 3}))
    made.commit(batch(place, made.ledger()[1], {0: 6}, dead=[(0, 4)]))
    for module in (tracing, tables_as_of):
        monkeypatch.setattr(module, "open_destination", lambda *_: made)
    return made


def test_decisions_follow_from_counts_only(destination: Destination, tmp_path: Path) -> None:
    home = Home.at(tmp_path / "home")
    (sure,) = trace(PIPELINE, home, Position("tweets", 0, 1))
    (fate,) = sure.answer.fates
    assert (fate.decision, fate.outcome, fate.reading.commit.seq, sure.answer.searched) == ("row", "unknown", 2, False)
    (unsure,) = trace(PIPELINE, home, Position("tweets", 0, 4))
    assert set(unsure.answer.fates[0].possible) == {"row", "dead_letter"}
    text = "\n".join(lines(unsure))
    assert "not determined: row or dead letter" in text and "cannot be searched by offset" in text
    with pytest.raises(NotAvailable, match="cannot be searched"):
        trace_rows(PIPELINE, home, None, {"id": "1"})


def test_offsets_have_a_commit_and_times_are_refused(
    destination: Destination, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home.at(tmp_path / "home")
    kafka = PIPELINE.model_copy(update={"into": PIPELINE.into.model_copy(update={"type": "kafka"})})
    state = as_of(kafka, home, "tweets:0=3", None)
    assert (state.match.exact, state.match.content.seq, state.next_seq) == (True, 2, 3)
    assert [table.statement for table in state.tables] == ["kafka keeps no snapshots"]
    with pytest.raises(NotAvailable, match="times"):
        as_of(kafka, home, None, NOW)
    history = destination.history()
    unnumbered: Sequence[Any] = [replace(entry, seq=0) for entry in history]
    monkeypatch.setattr(destination, "history", lambda: unnumbered)
    with pytest.raises(NotAvailable, match="numbers of commits"):
        as_of(kafka, home, "0=3", None)


def test_a_pipeline_without_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = MemoryPlace(tmp_path).open()
    monkeypatch.setattr(tables_as_of, "open_destination", lambda *_: made)
    with pytest.raises(InvalidPipeline, match="nothing committed yet"):
        as_of(PIPELINE, Home.at(tmp_path / "home"), "0=3", None)
