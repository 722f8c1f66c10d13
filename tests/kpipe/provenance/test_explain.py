"""Decisions about an offset, from facts that a fake destination might have recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kpipe.batch.counts import Counts
from kpipe.ledger.ledger import LOST, SKIPPED, Lane, Ledger
from kpipe.offsets import Range
from kpipe.provenance.explain import (
    DEAD_LETTER,
    DELETE,
    FILTERED,
    GAP,
    PROCESSED,
    ROW,
    Evidence,
    Fate,
    decide,
    explain,
    sources,
)
from kpipe.provenance.facts import CommitInfo, Facts, Letter, Reading, TableRows
from kpipe.topics import PartitionId, TopicId
from kpipe.verification.recount import Entry

WEB = PartitionId(TopicId("c", "id", "web"), 0)
OFFSET = 4
LETTER = Letter("b1", "parse", "not JSON", "v1")
HERE = Evidence(0, 100, 100, True, False)
ABSENT = replace(HERE, present=False)


def reading(counts: Counts, *tables: TableRows, letters: tuple[Letter, ...] = (), located: int = 0, **more: Any) -> Reading:
    entry = Entry("b1", WEB, Range(0, 10), counts, table="t", seq=3)
    return Reading(entry, CommitInfo("b1", 3, version="v1"), tables, letters, located, **more)


def table(at: int | None = 0, within: int | None = 0, written: int = 0, records: int | None = None, **more: Any) -> TableRows:
    return TableRows("t", written, True, at, within, within if records is None else records, **more)


def fate(found: Reading, evidence: Evidence | None = None, **more: Any) -> Fate:
    return decide(found, more.pop("cleared", False), [found], more.pop("retries", ()), evidence, **more)


ALL = Counts(10, 7, 1, 1, 1)  # 7 rows, a dead letter, a filtered record, a gap


@pytest.mark.parametrize(
    ("counts", "tables", "expected"),
    [
        (Counts(10, 10), (table(1, 10, 10),), {ROW}),
        (Counts(10, 10), (), {ROW}),
        (Counts(10, 10), (table(0, 9, 10),), {ROW}),  # the row was deleted by another client
        (Counts(10, 9, 0, 1), (table(0, 9, 9),), {FILTERED}),
        (Counts(10, 9, 0, 1), (table(0, 8, 9),), {ROW, FILTERED}),
        (Counts(10, 9, 0, 1), (table(0, 9, 9, records=8),), {ROW, FILTERED}),  # a row was deleted, and another one doubled
        (Counts(10, 9, 0, 1), (table(0, 9, 9, shared_range=True),), {ROW, FILTERED}),
        (Counts(10, 9, 0, 1), (table(0, 9, 9, keyed=True),), {ROW, FILTERED}),
        (Counts(10, 9, 0, 1), (table(None, None, 9),), {ROW, FILTERED}),  # rows without coordinates
        (Counts(10, 9, 0, 1), (replace(table(0, 9, 9), exists=False),), {ROW, FILTERED}),
        (Counts(10, 9, 0, 1), (table(1, 9, 9, shared_offset=True),), {ROW, FILTERED}),
        (Counts(10, 9, 0, 1), (table(1, 9, 9),), {ROW}),
        (Counts(10, 9, 0, 0, 1), (table(0, 9, 9),), {GAP}),
        (Counts(10, 8, 0, 1, 1), (table(0, 8, 8),), {FILTERED, GAP}),
        (Counts(0, 0, 0, 0, 10), (table(0, 0, 0),), {GAP}),
        (Counts(10, 0, 0, 10), (table(1, 1, 0),), {ROW}),  # contradicts the counts, and is there
        (Counts(10, 8, 2), (table(0, 8, 8),), {DEAD_LETTER}),  # dead letters without an offset
        (Counts(10, 9, deletes=1), (table(0, 9, 9, keyed=True),), {ROW, DELETE}),
        (Counts(10, 0, deletes=10), (table(0, 0, 0, keyed=True),), {DELETE}),
        (Counts(10, 30, given=9, filtered=1), (table(0, 30, 30, records=9),), {FILTERED}),
        (Counts(10, 30, given=9, filtered=1), (table(0, 30, 30, records=8),), {PROCESSED, FILTERED}),
        (Counts(10, 30, given=9, filtered=1), (table(0, 30, 30, records=7, gave=7),), {PROCESSED, FILTERED}),
        (Counts(10, 30, given=9, filtered=1), (table(0, 30, 30, records=7, gave=8),), {PROCESSED, FILTERED}),
        (Counts(10, 30, given=9, filtered=1), (table(0, 30, 30, records=8, gave=9),), {ROW, FILTERED}),
        (Counts(10, 30, given=9, filtered=1), (table(0, 0, 30, records=0),), {PROCESSED, FILTERED}),  # no coordinates
        (Counts(10, 30, given=10), (table(0, 29, 30, records=9),), {PROCESSED}),
        (Counts(10, 30, given=10), (table(0, 29, 30, records=9, gave=10),), {ROW}),
        (Counts(10, 30, given=10), (table(3, 30, 30, records=10),), {ROW}),
        (Counts(10, 5, 3, given=9, set_aside_before=1), (table(0, 5, 5, records=5),), {PROCESSED, DEAD_LETTER}),
    ],
)
def test_possible_decisions(counts: Counts, tables: tuple[TableRows, ...], expected: set[str]) -> None:
    records = tables[0].records if tables else None
    assert set(fate(reading(counts, *tables, records=records)).possible) == expected


def test_a_dead_letter_of_the_batch_decides() -> None:
    found = fate(reading(ALL, table(0, 7, 7), letters=(LETTER,), located=1))
    assert (found.decision, found.retried, found.rows) == (DEAD_LETTER, "no", {})
    both = fate(reading(Counts(10, 7, 1, given=10), table(2, 7, 7), letters=(LETTER,), located=1))
    assert (both.decision, both.rows) == (DEAD_LETTER, {"t": 2}), "a program may give rows and dead letters"
    elsewhere = fate(reading(Counts(10, 9, 1), table(0, 9, 9), located=1))
    assert elsewhere.possible == (), "a contradiction is no decision"


@pytest.mark.parametrize(
    ("version", "retried_at", "expected"),
    [("v1", (), "no"), ("v1", (2,), "no"), ("v1", (5,), "unknown"), ("v2", (5,), "failed_again")],
)
def test_retries_of_a_dead_letter(version: str, retried_at: tuple[int, ...], expected: str) -> None:
    retries = [CommitInfo(f"r{seq}", seq, "replay") for seq in retried_at]
    letter = replace(LETTER, version=version)
    assert fate(reading(ALL, letters=(letter,), located=1), retries=retries).retried == expected
    row = fate(reading(Counts(10, 10), table(1, 10, 10)), retries=retries)
    assert row.retried == ("unknown" if 5 in retried_at else "no")


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        (HERE, {FILTERED}),
        (ABSENT, {GAP}),
        (replace(ABSENT, compacted=True), {FILTERED, GAP}),
        (replace(HERE, present=None), {FILTERED, GAP}),
    ],
)
def test_the_brokers_distinguish_gaps(evidence: Evidence, expected: set[str]) -> None:
    assert set(fate(reading(Counts(10, 8, 0, 1, 1), table(0, 8, 8)), evidence).possible) == expected
    assert fate(reading(Counts(10, 9, 0, 1), table(0, 9, 9)), ABSENT).decision == FILTERED, "the counts have no gap"


def test_a_record_that_kafka_has_is_no_gap_whatever_rows_another_client_has_moved() -> None:
    """The row of the offset was deleted, and one inserted at the gap: as many rows as the batch has written."""
    moved = reading(Counts(10, 9, 0, 0, 1), table(0, 9, 9))
    assert fate(moved).decision == fate(moved, ABSENT).decision == GAP
    found = fate(moved, HERE)
    assert (found.decision, found.outcome) == (ROW, "missing")
    mixed = reading(Counts(10, 8, 0, 0, 1, given=8), table(0, 8, 8, records=8), records=8)
    assert fate(mixed).decision == GAP and fate(mixed, HERE).decision == PROCESSED


def test_a_range_of_gaps_only_contradicts_a_record_that_kafka_has() -> None:
    gaps = reading(Counts(gaps=10), table(0, 0, 0))
    assert fate(gaps).decision == fate(gaps, ABSENT).decision == GAP
    found = fate(gaps, HERE)
    assert (found.possible, found.decision) == ((), "")


@pytest.mark.parametrize(
    ("counts", "more", "outcome"),
    [
        (Counts(10, 10, inserted=10), {}, "superseded"),
        (Counts(10, 10, ignored=10), {}, "ignored"),
        (Counts(10, 10, inserted=9, ignored=1), {}, "unknown"),
        (Counts(10, 10, inserted=10), {"keyed": False}, "missing"),
    ],
)
def test_rows_that_are_not_in_the_table(counts: Counts, more: dict[str, bool], outcome: str) -> None:
    found = fate(reading(counts, table(0, 3, 10, **{"keyed": True, **more})))
    assert (found.decision, found.outcome) == (ROW, outcome)
    assert fate(reading(counts, table(None, None, 10))).outcome == "unknown"
    assert fate(reading(counts)).outcome == "unknown"
    assert fate(reading(counts, table(0, 0, 10)), cleared=True).outcome == ""


def test_a_destination_that_cannot_search_decides_by_counts_only() -> None:
    assert fate(reading(Counts(10, 10)), searched=False).decision == ROW
    assert set(fate(reading(ALL), searched=False).possible) == {ROW, DEAD_LETTER, FILTERED, GAP}
    assert fate(reading(Counts(0, gaps=10)), searched=False).decision == GAP


def lanes(*items: Lane) -> Ledger:
    return Ledger("p", 9, {lane.key: lane for lane in items})


def test_states_without_a_reading() -> None:
    ledger = lanes(
        Lane(WEB, 10, 10, 20, SKIPPED), Lane(WEB, 20, 30, 30, SKIPPED), Lane(WEB, 30, 30, 40, LOST), Lane(WEB, 40, 42, 50),
        Lane(WEB, 60, 61),
    )  # fmt: skip
    states = {
        offset: explain(Facts(ledger), WEB, offset).state for offset in (0, 9, 10, 19, 20, 29, 30, 39, 41, 42, 55, 60, 61, 10**18)
    }
    assert states == {
        0: "before_start", 9: "before_start", 10: "skipped", 19: "skipped", 20: "tried", 29: "tried", 30: "lost", 39: "lost",
        41: "read", 42: "not_read", 55: "no_lane", 60: "read", 61: "not_read", 10**18: "not_read",
    }  # fmt: skip
    assert explain(Facts(ledger), WEB, 45).behind == 3 and explain(Facts(ledger), WEB, 70).behind == 9
    ended = lanes(Lane(WEB, 3, 5, 5))
    assert explain(Facts(ended), WEB, 2).state == "no_lane", "a retired partition may have lost its first lane"
    assert explain(Facts(ended), WEB, 5).state == "after_end" and explain(Facts(Ledger("p")), WEB, 5).state == "no_lane"
    assert not explain(Facts(ledger), WEB, 41).fates


def test_readings_of_several_batches_and_sources() -> None:
    ledger = lanes(Lane(WEB, 0, 10))
    first = reading(Counts(10, 9, 0, 1), table(1, 9, 9))
    order = replace(first, entry=replace(first.entry, reread=True, batch="d", counts=Counts()))
    abandoned = replace(first, entry=replace(first.entry, reread=True, given_up=True, batch="g", counts=Counts()))
    second = replace(first, entry=replace(first.entry, batch="b2", seq=7))
    found = explain(Facts(ledger, [first, order, abandoned, second]), WEB, OFFSET)
    assert [item.reading.entry.batch for item in found.fates] == ["b1", "b2"]
    assert (len(found.rereads), len(found.given_up), found.state) == (1, 1, "read")
    assert [set(item.possible) for item in found.fates] == [{ROW, FILTERED}] * 2, "one row, two readings"
    cleared = replace(first, entry=replace(first.entry, cleared=True, batch="c", range=Range(8, 9), table="T", counts=Counts()))
    after = explain(Facts(ledger, [first, cleared, second]), WEB, OFFSET)
    assert [(item.cleared, item.decision) for item in after.fates] == [(True, ""), (False, ROW)]
    before = explain(Facts(lanes(Lane(WEB, 0, 10, 10, SKIPPED), Lane(WEB, 10, 10)), [first, cleared]), WEB, OFFSET)
    assert (before.state, before.fates[0].cleared) == ("tried", True)
    other = PartitionId(TopicId("c", "id2", "web"), 0)
    theirs = replace(first, entry=replace(first.entry, source=other))
    facts = Facts(ledger, [first, theirs])
    assert sources(facts, "web", 0) == [WEB, other]
    assert len(explain(facts, WEB, OFFSET).fates) == len(explain(facts, other, OFFSET).fates) == 1
