"""A destination that was left with a batch that it had begun gets that one first, as it is."""

from __future__ import annotations

from typing import Any

import pytest

from kpipe.batch.batch import Commit, Committed
from kpipe.errors import DestinationBusy, OffsetsLost
from kpipe.run_events import Decisions
from kpipe.verification.verify import audit
from kpipe_assets.commands.verify import show
from tests.kpipe.conftest import Table, World


class Begun(Table):
    """Keeps a batch before it fails, as if some of it had been sent."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: Commit | None = None
        self.given: list[str] = []
        self.fails = 0

    def unfinished(self) -> Commit | None:
        return self.kept

    def commit(self, commit: Commit) -> Committed:
        if commit.kind == "batch":
            self.given.append(commit.id)
            self.kept = commit
            if self.fails:
                self.fails -= 1
                raise DestinationBusy("the receiver takes nothing")
        done = super().commit(commit)
        self.kept = None
        return done


@pytest.fixture
def begun(world: World) -> tuple[World, Begun]:
    world.table = place = Begun()
    world.topics.numbered(0, 6)
    return world, place


def test_the_next_run_finishes_it_before_it_plans(begun: tuple[World, Begun]) -> None:
    world, place = begun
    place.fails = 1
    with pytest.raises(DestinationBusy):
        world.run({"batch": {"max_offsets_per_partition": 4, "max_retries": 0}})
    world.topics.numbered(0, 9)
    done = world.run({"batch": {"max_offsets_per_partition": 7}})
    assert place.given[0] == place.given[1] and len(set(place.given)) == len(place.given) - 1
    assert [step.end for one in done for step in one.commit.steps if step.source.partition == 0][:2] == [4, 11]
    assert [event.batch.id for event in world.kinds("resumed")] == place.given[:1]
    assert [one.batch.id for one in done][:1] == place.given[:1]
    world.prove_exactly_once()


def test_a_retry_of_the_same_run_does_the_same(begun: tuple[World, Begun]) -> None:
    world, place = begun
    place.fails = 2
    done = world.run({"batch": {"max_offsets_per_partition": 4}})
    assert len(set(place.given[:3])) == 1 and [one.seq for one in done] == [2, 3]
    assert len(world.waits) == 2
    world.prove_exactly_once()


def test_it_needs_nothing_of_kafka_any_more(begun: tuple[World, Begun]) -> None:
    """Retention may have removed the records meanwhile: they were staged, and partly sent."""
    world, place = begun
    place.fails = 1
    with pytest.raises(DestinationBusy):
        world.run({"batch": {"max_offsets_per_partition": 4, "max_retries": 0}})
    world.topics.expire(0, 5)
    seen: list[Any] = []
    with pytest.raises(OffsetsLost):
        seen += world.run(on_event=lambda event: seen.append(event.kind))
    assert seen[:2] == ["resumed", "committed"] and world.table.held.seq == 2


def test_an_operator_may_give_it_up(begun: tuple[World, Begun]) -> None:
    """Its offsets are skipped, under its own id; the run goes on behind them."""
    world, place = begun
    place.fails = 1
    with pytest.raises(DestinationBusy):
        world.run({"batch": {"max_offsets_per_partition": 4, "max_retries": 0}})
    world.topics.numbered(0, 9)
    done = world.run(decisions=Decisions(on_unfinished_batch="skip", who="mia"))
    assert [(step.lane.next, step.end) for one in done for step in one.commit.steps if step.source.partition == 0] == [(4, 15)]
    (decided,) = world.kinds("decided")[-1:]
    batch = place.given[0]
    assert decided.text == f"give_up: batch {batch}: tweets/0 [0, 4); the receiver may have taken part of it; mia"
    result = audit(place.ledger()[1], place.history(), place.recount())
    assert result.ok and result.skipped == ["tweets/0 [0, 4)"] and result.given_up == [f"tweets/0 [0, 4), batch {batch}"]
    assert not world.run(decisions=Decisions(on_unfinished_batch="skip")), "where there is none, it does nothing"


def test_verify_says_that_nothing_is_proven_of_it(begun: tuple[World, Begun], capsys: pytest.CaptureFixture[str]) -> None:
    world, place = begun
    place.fails = 1
    with pytest.raises(DestinationBusy):
        world.run({"batch": {"max_offsets_per_partition": 4, "max_retries": 0}})
    world.run(decisions=Decisions(on_unfinished_batch="skip"))
    result = audit(place.ledger()[1], place.history(), place.recount())
    show(result)
    said = capsys.readouterr()
    assert "NOT proven: the receiver may have taken rows of batches that were given up; they are not" in said.err
    assert result.given_up[0] in said.err
    assert "no offset twice" not in said.out and "nothing is proven" in said.out
    assert result.to_dict()["given_up"] == list(result.given_up)
