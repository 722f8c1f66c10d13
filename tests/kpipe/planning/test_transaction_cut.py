"""`batch.cut: transaction`: each commit is a state that the source had, whatever Debezium has written again."""

from __future__ import annotations

import random

import pytest

from kpipe.batch.batch import Batch
from kpipe.planning.planner import Idle
from tests.kpipe.planning.debezium_model import DebeziumModel, Follower

TABLES = ["a", "b", "c"]


class Course:
    """A random course: transactions, crashes of Debezium, records that arrive, runs of kpipe that are killed."""

    def __init__(self, seed: object, limit: int) -> None:
        self.chance = random.Random(str(seed))
        followed = self.chance.choice([["a"], ["a", "b"], TABLES])
        self.model = DebeziumModel(self.chance, TABLES, followed)
        self.follower = Follower(self.model, limit)
        self.small = limit < 20
        self.at = -1  # number of the state that the last commit gave
        self.waits = 0

    def run(self, transactions: int) -> Course:
        chance, model = self.chance, self.model
        model.snapshot()
        crashes = chance.choice([0, 1, 3])
        while len(model.transactions) < transactions or model.at < len(model.transactions) or model.arrive():
            what = chance.random()
            if what < 0.1 and len(model.transactions) < transactions:
                model.transaction(every=len(model.transactions) + 1 == transactions)
            elif what < 0.2:
                model.send()
            elif what < 0.22 and crashes and model.at < transactions:
                crashes -= 1
                model.crash()
            elif what < 0.8:
                model.arrive()
            else:
                self._look()
        while isinstance(batch := self.follower.plan(), Batch):
            self._commit(batch)
        assert self.follower.state == model.states[-1], f"the end: waits for {batch}"
        return self

    def _look(self) -> None:
        if self.chance.random() < 0.1:
            self.follower.restart()
        plan = self.follower.plan()
        if isinstance(plan, Idle):
            self.waits += plan.reason == "source_transaction"
        elif self.chance.random() < 0.8:  # else it is killed before the commit
            self._commit(plan)

    def _commit(self, batch: Batch) -> None:
        self.follower.commit(batch)
        states, found = self.model.states, self.follower.state
        if self.small and found not in states and self.at < 0:
            return  # part of a snapshot that is larger than a batch
        assert found in states[max(self.at, 0) :], f"no state of the source: {found}"
        self.at = max(self.at, 0) + states[max(self.at, 0) :].index(found)


@pytest.mark.parametrize("limit", [1, 5, 1000])
def test_each_commit_is_a_state_of_the_source_in_random_courses(limit: int) -> None:
    waits = commits = 0
    crashes: set[str] = set()
    for seed in range(60):
        found = Course(f"{limit}:{seed}", limit).run(12)
        waits += found.waits
        commits += len(found.follower.commits)
        crashes |= found.model.crashes.keys()
    assert waits and commits > 300 and crashes == {"again", "continued", "counted again"}
