"""`batch.cut: transaction`: each commit is a state that the source had, whatever Debezium has written again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kpipe.batch.batch import Batch
from kpipe.errors import InvalidPipeline, NotAvailable, SourceError
from kpipe.ledger import transitions
from kpipe.offsets import Range
from kpipe.planning import transaction_planner
from kpipe.planning.planner import Idle
from kpipe.planning.transaction_cut import Table
from kpipe.planning.transaction_planner import TransactionPlanner
from kpipe.testing.topics import FakeTopics
from kpipe.transaction_log import Change, joined, key_of
from tests.kpipe.planning.debezium_model import LOG, DebeziumModel, FakeLog, Follower

TABLES = ["a", "b", "c"]


class Course:
    """A random course: transactions, crashes of Debezium, records that arrive, runs of kpipe that are killed."""

    def __init__(self, seed: object, limit: int, log: Callable[[FakeTopics], FakeLog] = FakeLog) -> None:
        self.chance = random.Random(str(seed))
        followed = self.chance.choice([["a"], ["a", "b"], TABLES])
        self.model = DebeziumModel(self.chance, TABLES, followed)
        self.follower = Follower(self.model, limit, log)
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
        if self.small and not self._has_snapshot():
            return  # part of a snapshot that is larger than a batch; by chance it may be a later state
        assert found in states[max(self.at, 0) :], f"no state of the source: {found}"
        self.at = max(self.at, 0) + states[max(self.at, 0) :].index(found)

    def _has_snapshot(self) -> bool:
        rows = Counter(self.model.topic(table) for table, _ in self.model.states[0])
        return all(
            self.follower.ledger.positions()[source] >= rows[source.topic.name] for source in self.follower.ledger.sources()
        )


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


def violated(limit: int) -> bool:
    """Whether one of some courses ends in a state that the source did not have."""
    for seed in range(60):
        try:
            Course(f"{limit}:{seed}", limit).run(12)
        except (AssertionError, SourceError):
            return True
    return False


BROKEN: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "every event counts as the last": lambda patch: patch.setattr(Table, "_complete", lambda *_: True),
    "what was committed is forgotten": lambda patch: patch.setattr(transaction_planner, "_HISTORY", 0),
    "a table waits for no other": lambda patch: patch.setattr(Table, "end", lambda self, _, most: (self._ends[-1][1], None)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BROKEN[name](monkeypatch)
    assert violated(1000)


@pytest.mark.chaos
@pytest.mark.parametrize("limit", [1, 3, 8, 1000])
def test_each_commit_is_a_state_of_the_source_in_many_courses(limit: int) -> None:
    for seed in range(2000):
        Course(f"long:{limit}:{seed}", limit).run(20)


class Script:
    """A follower of topics that a test writes record by record."""

    def __init__(self, *tables: str, limit: int = 1_000_000) -> None:
        self.model = DebeziumModel(random.Random(0), list(tables), list(tables))
        self.follower = Follower(self.model, limit)

    def log(self, key: str, **counts: int) -> None:
        self.model.topics.produce(0, {"tx": key, "counts": {f"public.{name}": n for name, n in counts.items()}}, topic=LOG)

    def begin(self, key: str) -> None:
        self.model.topics.produce(0, {"tx": key}, topic=LOG)

    def event(self, table: str, key: str, order: int) -> None:
        self.row(table, {"op": "u", "key": order, "value": key, "tx": key, "order": order})

    def row(self, table: str, value: Mapping[str, Any] | None) -> None:
        self.model.topics.produce(0, value, topic=self.model.topic(table))

    def snapshot(self, table: str, *kinds: str) -> None:
        for number, kind in enumerate(kinds):
            self.row(table, {"op": "r", "key": number, "value": 0, "snapshot": kind})

    def ranges(self) -> dict[str, tuple[int, int]]:
        """Commit the next batch; return its ranges by the last letter of the topic (n: transactions)."""
        batch = self.follower.plan()
        assert isinstance(batch, Batch), batch
        self.follower.commit(batch)
        return {step.source.topic.name[-1]: (step.range.start, step.range.end) for step in batch.steps}

    def waits(self) -> str:
        plan = self.follower.plan()
        assert isinstance(plan, Idle), plan
        return plan.detail if plan.reason == "source_transaction" else plan.reason


def test_a_transaction_waits_for_its_end_and_for_all_of_its_events() -> None:
    script = Script("a", "b")
    assert script.waits() == "caught_up"
    script.begin("1")
    script.event("a", "1", 1)
    assert script.waits() == "the end of the newest transaction of the source"
    script.log("1", a=2, b=1)
    assert script.waits() == "events of transaction 1 in topic shop.public.a"
    script.event("a", "1", 2)
    assert script.waits() == "events of transaction 1 in topic shop.public.b"
    script.event("b", "1", 1)
    assert script.ranges() == {"a": (0, 2), "b": (0, 1), "n": (0, 2)}
    assert script.waits() == "caught_up"


def test_a_later_transaction_proves_that_an_earlier_one_is_whole_whatever_its_counts_are() -> None:
    script = Script("a")
    script.begin("1")
    script.event("a", "1", 1)
    script.begin("1")  # Debezium was killed, and counts from here on
    script.log("1")
    assert script.waits() == "events of transaction 1 in topic shop.public.a"
    script.begin("2")
    script.event("a", "2", 1)
    assert script.ranges() == {"a": (0, 1), "n": (0, 3)}


def test_a_count_of_a_transaction_that_was_begun_twice_holds_for_events_that_count_again() -> None:
    script = Script("a")
    script.begin("1")
    script.event("a", "1", 1)
    script.begin("1")  # Debezium counts again, without the first event
    script.log("1", a=1)
    assert script.waits() == "events of transaction 1 in topic shop.public.a"
    script.event("a", "1", 1)
    assert script.ranges() == {"a": (0, 2), "n": (0, 3)}


def test_the_end_of_a_transaction_that_was_lost_is_that_of_the_next_one() -> None:
    script = Script("a")
    script.begin("1")
    script.event("a", "1", 1)
    assert script.waits() == "the end of the newest transaction of the source"
    script.begin("2")
    script.log("2", other=1)
    assert script.waits() == "events of transaction 1 in topic shop.public.a", "there may be more"
    script.begin("3")
    script.event("a", "3", 1)
    assert script.ranges() == {"a": (0, 1), "n": (0, 3)}
    script.log("3", a=1)
    assert script.ranges() == {"a": (1, 2), "n": (3, 5)}


def test_an_end_without_the_tables_events_means_other_names_of_topics() -> None:
    script = Script("a")
    script.begin("1")
    script.event("a", "1", 1)
    script.log("1", other=1)
    with pytest.raises(SourceError, match="counts no event in this table"):
        script.follower.plan()


def test_a_transaction_larger_than_the_limit_is_one_batch() -> None:
    script = Script("a", limit=3)
    for key, count in (("1", 2), ("2", 7), ("3", 1), ("4", 1)):
        script.begin(key)
        for order in range(1, count + 1):
            script.event("a", key, order)
        script.log(key, a=count)
    assert [script.ranges()["a"] for _ in range(3)] == [(0, 2), (2, 9), (9, 11)]


def test_repeated_events_are_never_the_end_of_a_batch() -> None:
    script = Script("a")
    for key in "12":
        script.begin(key)
        script.event("a", key, 1)
        script.log(key, a=1)
    assert script.ranges()["a"] == (0, 2)
    script.begin("1")
    script.event("a", "1", 1)
    script.log("1", a=1)
    script.follower.restart()
    assert script.ranges() == {"n": (4, 6)}, "the end of 1 is known; its event waits for that of 2"
    assert script.waits() == "the end of the newest transaction of the source"
    script.event("a", "2", 1)
    assert script.ranges() == {"a": (2, 4)}


def test_transactions_of_other_tables_alone_are_a_batch_once_a_table_exists() -> None:
    script = Script("a")
    script.begin("1")
    script.log("1", other=3)
    assert script.waits() == "the first event of a table"
    script.begin("2")
    script.event("a", "2", 1)
    script.log("2", a=1)
    assert script.ranges() == {"a": (0, 1), "n": (0, 4)}
    script.begin("3")
    script.log("3")
    assert script.ranges() == {"n": (4, 6)}


def test_a_snapshot_is_one_batch_with_that_of_other_tables() -> None:
    script = Script("a", "b")
    script.snapshot("a", "snapshot", "snapshot")
    assert script.waits() == "the end of the snapshot of topic shop.public.a"
    script.snapshot("a", "table")
    assert "the snapshot of topic shop.public.b" in script.waits()
    script.snapshot("b", "snapshot", "whole")
    assert script.ranges() == {"a": (0, 3), "b": (0, 2)}


def test_an_empty_table_is_known_when_the_snapshot_or_a_transaction_has_ended() -> None:
    for ends in (lambda script: script.snapshot("a", "whole"), lambda script: script.begin("1")):
        script = Script("a", "b")
        script.snapshot("a", "table")
        assert script.waits()
        ends(script)
        assert script.ranges()["a"][0] == 0


def test_a_snapshot_larger_than_the_limit_is_loaded_in_parts() -> None:
    script = Script("a", limit=2)
    script.snapshot("a", *["snapshot"] * 4, "whole")
    assert [script.ranges()["a"] for _ in range(3)] == [(0, 2), (2, 4), (4, 5)]


def test_the_memory_of_a_run_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_planner, "_MOST_ENTRIES", 4)
    monkeypatch.setattr(transaction_planner, "_MOST_RUNS", 3)
    monkeypatch.setattr(transaction_planner, "_CHUNK", 2)
    script = Script("a")
    for key in range(1, 20):
        script.begin(str(key))
        script.event("a", str(key), 1)
        script.log(str(key), a=1)
    found = [script.ranges()["a"] for _ in range(10)]
    assert found[0] == (0, 2) and found[-1][1] == 19
    assert script.waits() == "caught_up"


def test_each_record_is_read_once_for_many_plans() -> None:
    script = Script("a", limit=2)
    for key in range(1, 11):
        script.begin(str(key))
        script.event("a", str(key), 1)
        script.log(str(key), a=1)
    while isinstance(script.follower.plan(), Batch):
        script.ranges()
    assert script.follower.log.reads <= 12


def test_a_read_that_failed_is_repeated_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script("a")
    for key in "123":
        script.begin(key)
        script.event("a", key, 1)
        script.log(key, a=1)
    read, failures = script.model.topics.read, iter([3, 2])

    def failing(source: Any, span: Range) -> Any:
        for count, item in enumerate(read(source, span)):
            if count == failing.after:  # type: ignore[attr-defined]
                raise SourceError("the broker is away")
            yield item

    monkeypatch.setattr(script.model.topics, "read", failing)
    for after in failures:
        failing.after = after  # type: ignore[attr-defined]
        with pytest.raises(SourceError, match="away"):
            script.follower.plan()
    monkeypatch.undo()
    assert script.ranges() == {"a": (0, 3), "n": (0, 6)}


def test_records_that_a_log_has_lost_are_forgotten() -> None:
    script = Script("a")
    for key in "12":
        script.begin(key)
        script.event("a", key, 1)
        script.log(key, a=1)
    assert isinstance(script.follower.plan(), Batch)
    script.model.topics.truncate(0, 1, topic=script.model.topic("a"))
    script.model.topics.truncate(0, 2, topic=LOG)
    assert script.ranges() == {"a": (0, 1), "n": (0, 2)}


def test_a_transaction_that_was_written_three_times_is_not_forgotten() -> None:
    """Its last END counts only what was continued after a crash. Repeated events of older transactions must not come alone."""
    script = Script("a")
    for key in "12":
        script.begin(key)
        script.event("a", key, 1)
        script.log(key, a=1)
    assert script.ranges() == {"a": (0, 2), "n": (0, 4)}
    for key in "12":
        script.begin(key)
        script.event("a", key, 1) if key == "1" else None
        script.log(key, a=1)
    script.begin("2")
    script.log("2")
    assert "a" not in script.ranges(), "the repeated event of transaction 2 is missing, and a has its row"


def test_events_whose_end_was_deleted_come_before_all_others() -> None:
    """The transaction topic has a shorter retention than the tables' topics: no commit has one table without them."""
    script = Script("a", "b", limit=2)
    for number in range(5):
        script.begin(f"old{number}")
        script.event("a", f"old{number}", 1)
        script.log(f"old{number}", a=1)
    script.model.topics.expire(0, 10, topic=LOG)
    script.follower = Follower(script.model, 2)
    script.event("b", "new", 1)
    assert isinstance(script.follower.plan(), Idle), "b may be before, or after, what a has"
    script.begin("new")
    script.event("a", "new", 1)
    script.log("new", a=1, b=1)
    assert script.ranges() == {"a": (0, 6), "b": (0, 1), "n": (10, 12)}


def test_a_first_event_behind_many_transactions_of_other_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_planner, "_MOST_ENTRIES", 10)
    script = Script("a")
    for number in range(20):
        script.begin(f"other{number}")
        script.log(f"other{number}", z=1)
    script.begin("1")
    script.event("a", "1", 1)
    script.log("1", a=1)
    assert script.ranges()["a"] == (0, 1)


def test_what_cannot_hold_is_refused() -> None:
    script = Script("a")
    ledger, snapshot = script.follower.ledger, script.model.topics.snapshot()
    with pytest.raises(NotAvailable, match="all partitions"):
        script.follower.planner.plan(ledger, snapshot, script.follower.limits, "b", {0})
    source = next(source for source in snapshot.partitions if source.topic.name != LOG)
    script.model.topics.numbered(0, 5, topic=source.topic.name)
    skipped = ledger.after(transitions.jump(ledger, source, 3))
    waiting = skipped.after(transitions.backfill(skipped, source, Range(0, 2)))
    with pytest.raises(NotAvailable, match="skipped or bounded"):
        script.follower.planner.plan(waiting, script.model.topics.snapshot(), script.follower.limits, "b")
    script.model.topics.add_partitions(topic=source.topic.name)
    with pytest.raises(NotAvailable, match="expected one partition"):
        script.follower.planner.plan(ledger, script.model.topics.snapshot(), script.follower.limits, "b")
    model = DebeziumModel(random.Random(0), ["a"], ["a"])
    model.topics.name(model.topic("a"))
    with pytest.raises(InvalidPipeline, match="no transaction topic"):
        TransactionPlanner("p", Follower(model).log).plan(
            Follower(model).ledger, model.topics.snapshot(), script.follower.limits, "b"
        )


def test_records_are_joined_to_runs() -> None:
    runs: list[Any] = []
    joined(runs, [Change(0, "snapshot"), Change(1, "table"), Change(2, "event", "1", 1), Change(3, "other")])
    joined(runs, [Change(5, "event", "1", 2), Change(6, "event", "1", 1), Change(7, "event", "2", 1)])
    assert [(run.kind, run.start, run.end, run.first, run.last, run.done) for run in runs] == [
        ("snapshot", 0, 2, 0, 0, "table"), ("event", 2, 6, 1, 2, ""), ("event", 6, 7, 1, 1, ""), ("event", 7, 8, 1, 1, ""),
    ]  # fmt: skip


def test_events_of_postgresql_have_the_transactions_number_in_common() -> None:
    assert key_of("571:53195829") == key_of("571:53195832") == "571"
    for other in ("0-1-123", "6b9c-uuid:12", "file=binlog.000001,pos=4", "00000025:00000d98:00a2"):
        assert key_of(other) == other
