"""Adopted offsets: no backfill reads them, going back over them needs a demand, and a trace and a proof name them."""

from __future__ import annotations

import pytest

from kpipe.adoption.judge import judge
from kpipe.adoption.positions import Positions
from kpipe.errors import InvalidStatement
from kpipe.ledger.ledger import ADOPTED, READ, Ledger
from kpipe.planning.seek import backfills, set_offsets
from kpipe.provenance.explain import explain
from kpipe.provenance.facts import CommitInfo, Facts
from kpipe.verification.recount import adopted
from tests.kpipe.conftest import World


@pytest.fixture
def taken(world: World) -> World:
    """Partition 0 is adopted at 4 of 10, partition 1 at 0."""
    for number in (0, 1):
        world.topics.numbered(number, 10)
    survey = world.ingest().survey
    adoption = judge(Positions("group old", {("tweets", 0): 4, ("tweets", 1): 0}), world.topics.snapshot())
    survey.decide("adopt", adoption.changes, adoption.note)
    return world


def lanes(ledger: Ledger, world: World) -> list[tuple[int, int, int | None, str]]:
    return [(lane.start, lane.next, lane.end, lane.kind) for lane in ledger.of(world.topics.source(0))]


def test_a_backfill_reads_nothing_of_the_other_loader(taken: World) -> None:
    assert backfills(taken.table.held, taken.topics.snapshot()) == ((), 0)


@pytest.mark.parametrize("batches", [0, None])
def test_going_back_over_adopted_offsets_needs_a_demand(taken: World, batches: int | None) -> None:
    taken.run(max_batches=batches)
    source = taken.topics.source(0)
    with pytest.raises(InvalidStatement, match=r"offsets \[2, \d+\) have been read"):
        set_offsets(taken.table.held, taken.topics.snapshot(), {source: 2})
    survey = taken.ingest().survey
    for decision in set_offsets(taken.table.held, taken.topics.snapshot(), {source: 2}, reread=True):
        assert "from 2" in decision.note and "(rows of the loader before, at [2, 4), stay unless" in decision.note
        survey.decide(decision.kind, decision.changes, decision.note, decision.steps)
    assert lanes(taken.table.held, taken) == [(0, 0, 2, ADOPTED), (2, 2, None, READ)]
    assert len(taken.run()) == 1
    assert taken.audit().ok


def test_the_proof_counts_only_what_the_pipeline_has_read(taken: World) -> None:
    taken.run()
    found = taken.audit()
    assert (found.ok, found.span, list(found.adopted), list(found.skipped)) == (True, 16, ["tweets/0 [0, 4)"], [])
    assert found.to_dict()["adopted"] == ["tweets/0 [0, 4)"]


def test_rows_of_the_other_loader_are_not_counted_and_all_others_are(taken: World) -> None:
    taken.run()
    rows = taken.table.rows
    rows += [{"_kafka_partition": 0, "_kafka_offset": at, "id": at} for at in range(4)]
    assert taken.audit().ok
    rows.append({"_kafka_partition": 0, "_kafka_offset": 4, "id": 4})
    assert any("expected 6 rows, found 7" in problem for problem in taken.audit().problems)
    rows.pop()
    rows.append({"_kafka_partition": 1, "_kafka_offset": 0, "id": 0})
    assert not taken.audit().ok


def test_a_partition_that_another_pipeline_has_read_is_counted(taken: World) -> None:
    other = World(taken.stager.folder, 2)
    for number in (0, 1):
        other.topics.numbered(number, 10)
    other.run()
    assert adopted([taken.table.held]) == {("tweets", 0): 4}
    assert adopted([taken.table.held, other.table.held]) == {}


def test_a_second_pipeline_adopts_the_position_of_the_first_one(taken: World) -> None:
    """The rows below 4 are the other loader's still, and those from 4 on are the first pipeline's."""
    taken.run()
    second = World(taken.stager.folder, 2)
    for number in (0, 1):
        second.topics.numbered(number, 10)
    adoption = judge(Positions("table", {("tweets", 0): 10, ("tweets", 1): 10}), second.topics.snapshot())
    second.ingest().survey.decide("adopt", adoption.changes, adoption.note)
    assert adopted([taken.table.held, second.table.held]) == {("tweets", 0): 4}


def test_a_trace_names_the_source(taken: World) -> None:
    note = "adopt: group old -> tweets/0 at 4"
    facts = Facts(taken.table.held, decisions=[CommitInfo("b", 1, "adopt", note=note)])
    answer = explain(facts, taken.topics.source(0), 3)
    assert (answer.state, answer.pending, [commit.note for commit in answer.decisions]) == ("adopted", False, [note])
    assert explain(facts, taken.topics.source(0), 4).state == "not_read"
