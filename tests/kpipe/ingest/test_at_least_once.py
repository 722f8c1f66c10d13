"""`delivery: at_least_once`: rows first, the ledger afterwards; never a loss, and what came more than once is said."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kpipe import failpoints
from kpipe.errors import Fenced, KpipeError
from kpipe.planning.seek import set_offsets
from kpipe.tables.upsert import rows_first
from kpipe.verification.verify import audit
from tests.cases import each_case
from tests.kpipe.conftest import define

World = Any
MODE = {"delivery": "at_least_once", "batch": {"max_offsets_per_partition": 4, "max_retries": 0}}


class Killed(BaseException):
    """Stands for SIGKILL."""


def killed(world: World, number: int) -> None:
    """A run that is killed when it begins its n-th commit of the ledger."""
    loop, left = world.ingest(MODE), number
    advance = loop.survey.commit_only

    def commit_only(kind: str, *more: Any) -> None:
        nonlocal left
        left -= kind == "advance"
        if not left:
            raise Killed
        advance(kind, *more)

    loop.survey.commit_only = commit_only
    with pytest.raises(Killed):
        list(loop.run())


def repeated(world: World) -> list[str]:
    return list(world.audit().repeated)


def prove(world: World, twice: set[int]) -> None:
    """Everything is there, and of partition 0 these offsets twice."""
    want = world.expected() + Counter((0, at) for at in twice)
    assert world.coordinates() == want
    report = world.audit()
    assert report.ok, report.problems


def test_unless_it_is_killed_everything_comes_once(world: World) -> None:
    world.topics.numbered(0, 10)
    world.topics.numbered(1, 3)
    assert len(world.run(MODE)) == 3
    world.prove_exactly_once()
    assert not repeated(world) and world.run(MODE) == []
    assert [commit.kind for commit in world.table.commits] == ["begin", *["rows", "advance"] * 3]


@pytest.mark.parametrize(("number", "again"), [(1, range(4)), (2, range(4, 8)), (3, range(8, 10))])
def test_killed_between_rows_and_ledger_that_batch_comes_twice(world: World, number: int, again: range) -> None:
    world.topics.numbered(0, 10)
    killed(world, number)
    words = f"tweets/0 [{again.start}, {again.stop})"
    assert repeated(world) == [words] and world.audit().ok, "said before it is read again, too"
    world.run(MODE)
    prove(world, set(again))
    assert repeated(world) == [words]
    assert world.audit().span == 10 + len(again)


def test_killed_again_and_again(world: World) -> None:
    world.topics.numbered(0, 10)
    for _ in range(3):
        killed(world, 1)
    world.run(MODE)
    assert world.coordinates() == world.expected() + Counter({(0, at): 3 for at in range(4)})
    assert world.audit().ok and repeated(world) == ["tweets/0 [0, 4)"]


@pytest.mark.parametrize("point", ["plan.ledger", "plan.offsets", "plan.frozen", "collect.all", "publish.before"])
def test_killed_anywhere_else_nothing_comes_twice(world: World, point: str) -> None:
    world.topics.numbered(0, 10)

    def die(reached: str) -> None:
        if reached == point:
            raise Killed

    failpoints.arm(die)
    try:
        with pytest.raises(Killed):
            world.run(MODE)
    finally:
        failpoints.arm(None)
    world.run(MODE)
    world.prove_exactly_once()
    assert not repeated(world)


@pytest.mark.parametrize("fault", ["before", "unknown"])
@pytest.mark.parametrize("commits_before", [0, 1])
def test_a_commit_that_fails_never_loses(world: World, fault: str, commits_before: int) -> None:
    world.topics.numbered(0, 10)
    world.begin()
    world.table.store.faults += [None] * commits_before + [fault]
    with pytest.raises(KpipeError):
        world.run(MODE)
    assert world.audit().ok
    world.run(MODE)
    # Only rows without their ledger come again.
    prove(world, set(range(4)) if (fault, commits_before) in {("unknown", 0), ("before", 1)} else set())


def test_two_runs_at_once_double_and_do_not_lose(world: World) -> None:
    """The other one commits between the rows and the ledger of this one."""
    world.topics.numbered(0, 10)
    loop, other = world.ingest(MODE), world.ingest(MODE)
    advance = loop.survey.commit_only

    def commit_only(kind: str, *more: Any) -> None:
        if kind == "advance":
            loop.survey.commit_only = advance
            other.step()
        advance(kind, *more)

    loop.survey.commit_only = commit_only
    with pytest.raises(Fenced):
        list(loop.run())
    world.run(MODE)
    prove(world, set(range(4)))


KEY: dict[str, Any] = {"table": "tweets", "key": ["id"], "on_conflict": "replace"}
ORDERED = [
    {"into": KEY},
    {"into": {**KEY, "on_null": "delete"}},
    {"also": [{"table": "more", "key": ["id"], "on_conflict": "replace"}]},
    {"into": {"type": "kafka", "brokers": "localhost:9092", "topic": "out", "key": ["id"]}},
    {"into": {"type": "webhook", "url": "https://hooks.example.com/", "table": "sent"}},
]


@each_case("fields", ORDERED)
def test_where_the_order_of_commits_decides_rows_and_ledger_are_one_commit(fields: dict[str, Any]) -> None:
    """A commit that moves no lane fences nobody."""
    assert rows_first(define(delivery="at_least_once"))
    assert not rows_first(define(delivery="at_least_once", **fields))
    assert not rows_first(define())


def test_a_run_that_was_overtaken_writes_no_older_rows_over_newer_ones(world: World) -> None:
    world.topics.numbered(0, 2)
    mode = {**MODE, "into": KEY}
    late, other = world.ingest(mode), world.ingest(mode)
    stage = late.stage

    def stage_and_be_overtaken(*planned: Any) -> Any:
        staged = stage(*planned)
        world.topics.numbered(0, 2)
        other.step()
        return staged

    late.stage = stage_and_be_overtaken
    with pytest.raises(Fenced):
        late.step()
    assert [commit.kind for commit in world.table.commits] == ["begin", "batch"]
    world.prove_exactly_once()
    assert not repeated(world)


def test_offsets_that_are_demanded_again_between_rows_and_ledger(world: World) -> None:
    """From another home, where the run is not seen: the rows that had landed count as the second reading."""
    world.topics.numbered(0, 4)
    world.begin()
    first, second = world.ingest(MODE), world.ingest(MODE)
    advance = second.survey.commit_only

    def commit_only(kind: str, *more: Any) -> None:
        first.survey.commit_only("advance", *more)
        source = world.topics.source(0)
        snapshot, ledger = first.survey.look()
        for found in set_offsets(ledger, snapshot, {source: 0}, reread=True):
            first.survey.decide(found.kind, found.changes, found.note, found.steps)
        advance(kind, *more)

    first.survey.commit_only, moved = lambda *_: None, first.survey.commit_only
    first.step()
    first.survey.commit_only, second.survey.commit_only = moved, commit_only
    second.step()
    assert [commit.kind for commit in world.table.commits] == ["begin", "rows", "rows", "advance", "reread", "advance"]
    prove(world, set(range(4)))
    assert repeated(world) == ["tweets/0 [0, 4)"]


def test_exactly_once_goes_on_where_at_least_once_was_killed(world: World) -> None:
    world.topics.numbered(0, 10)
    killed(world, 2)
    world.run({**MODE, "delivery": "exactly_once"})
    prove(world, {4, 5, 6, 7})
    assert repeated(world) == ["tweets/0 [4, 8)"]


def test_what_exactly_once_has_read_twice_is_a_problem_still(world: World) -> None:
    world.topics.numbered(0, 10)
    world.run(MODE, max_batches=1)
    world.run({**MODE, "delivery": "exactly_once"})
    entries = list(world.table.history())
    report = audit(world.table.held, [*entries, entries[-1]], world.table.recount())
    assert any("committed twice" in problem for problem in report.problems)
    report = audit(world.table.held, entries[1:], world.table.recount())
    assert any("from the history" in problem for problem in report.problems)


def test_a_row_that_is_missing_or_too_many_is_found(world: World) -> None:
    world.topics.numbered(0, 10)
    killed(world, 1)
    world.run(MODE)
    world.table.rows.pop()
    assert any("expected 14 rows, found 13" in problem for problem in world.audit().problems)
