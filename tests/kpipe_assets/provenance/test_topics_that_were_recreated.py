"""What `kpipe trace` promises about offsets that a run will never read, and when it asks the brokers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kpipe.batch.counts import Counts
from kpipe.definition.pipeline import Pipeline
from kpipe.ledger.ledger import SKIPPED, Lane, Ledger
from kpipe.offsets import Range
from kpipe.provenance.explain import Evidence
from kpipe.provenance.facts import CommitInfo, Facts, Reading, TableRows
from kpipe.topics import PartitionId, TopicId
from kpipe.verification.recount import Entry
from kpipe_assets.provenance import tracing
from kpipe_assets.provenance.trace_report import lines, to_dict

PIPELINE = Pipeline.model_validate({"name": "p", "source": {"brokers": "127.0.0.1:1", "topic": "web"}, "into": {"table": "t"}})
OLD, NEW = (PartitionId(TopicId("c", name, "web"), 0) for name in ("old", "new"))


def traced(patch: pytest.MonkeyPatch, facts: Facts, offset: int, evidence: Evidence | None) -> tuple[tracing.Traced, bool]:
    """The answer about the old topic, and whether the brokers were asked."""
    asked: list[int] = []

    def answer(*_: object) -> Evidence | None:
        asked.append(offset)
        return evidence

    patch.setattr(tracing, "_evidence", answer)
    return tracing._traced(PIPELINE, facts, OLD, offset, len(facts.ledger.sources()) > 1), bool(asked)


def ledger(*lanes: Lane) -> Ledger:
    return Ledger("p", 9, {lane.key: lane for lane in lanes})


def test_no_run_will_read_a_topic_that_does_not_exist_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = Facts(ledger(Lane(OLD, 0, 5), Lane(NEW, 0, 0)))
    found, _ = traced(monkeypatch, facts, 7, None)
    text = "\n".join(lines(found))
    assert "p: web:0:7: not read: the topic with this id does not exist any more" in text
    assert "waiting" not in text and "not read yet" not in text
    assert {key: to_dict(found)[key] for key in ("state", "pending", "behind", "recreated")} == {
        "state": "not_read", "pending": False, "behind": None, "recreated": True,
    }  # fmt: skip
    found, _ = traced(monkeypatch, facts, 7, Evidence(0, 9, 9))
    assert "waiting in live reading at 5: 2 offsets before it" in "\n".join(lines(found))


@pytest.mark.parametrize("lane", [Lane(OLD, 0, 0, 10, SKIPPED), Lane(OLD, 0, 10, 10, SKIPPED)])
def test_a_backfill_is_not_promised_for_a_topic_that_was_recreated(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = Facts(ledger(lane, Lane(NEW, 0, 0)))
    found, asked = traced(monkeypatch, facts, 7, None)
    assert asked and "BACKFILL" not in "\n".join(lines(found))
    found, _ = traced(monkeypatch, facts, 7, Evidence(0, 9, 9))
    assert "BACKFILL PIPELINE reads it" in "\n".join(lines(found))
    found, asked = traced(monkeypatch, Facts(ledger(lane)), 7, None)
    assert not asked and "BACKFILL PIPELINE reads it" in "\n".join(lines(found)), "one topic of that name: nothing to ask"


def reading(seq: int, counts: Counts, *tables: TableRows) -> Reading:
    return Reading(Entry(f"b{seq}", OLD, Range(0, 10), counts, table="t", seq=seq), CommitInfo(f"b{seq}", seq), tables)


def test_a_reread_is_ahead_done_or_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (reading(seq, Counts(10, 10), TableRows("t", 10, True, 1, 10, 10)) for seq in (2, 5))
    order = replace(first, entry=replace(first.entry, reread=True, seq=3), commit=CommitInfo("o", 3, "reread"))
    for lane, readings, words in (
        (Lane(OLD, 0, 0), [first, order], "  to be read again, by commit 3"),
        (Lane(OLD, 0, 10), [first, order, second], "  read again, by commit 3"),
        (Lane(OLD, 0, 0, 10, SKIPPED), [first, order], "  was to be read again, by commit 3"),
    ):
        found, _ = traced(monkeypatch, Facts(ledger(lane), readings), 4, Evidence(0, 10, 10))
        assert any(line.startswith(words) for line in lines(found)), words


def test_the_brokers_confirm_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = Facts(ledger(Lane(OLD, 0, 10)), [reading(2, Counts(10, 9, 0, 0, 1), TableRows("t", 9, True, 0, 9, 9))])
    found, asked = traced(monkeypatch, facts, 4, Evidence(0, 10, 10, True, False))
    assert asked and [fate.decision for fate in found.answer.fates] == ["row"]
    assert "the row was written, and is not in the table any more" in "\n".join(lines(found))
    found, _ = traced(monkeypatch, facts, 4, Evidence(0, 10, 10, False, False))
    assert [fate.decision for fate in found.answer.fates] == ["gap"]
