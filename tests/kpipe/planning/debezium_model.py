"""A source and its Debezium, as a value: transactions, their records in topics, crashes after which records come again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kpipe.batch.batch import Batch
from kpipe.ledger import transitions
from kpipe.ledger.ledger import Ledger
from kpipe.offsets import Range
from kpipe.planning.planner import Idle, Limits
from kpipe.planning.transaction_planner import TransactionPlanner
from kpipe.testing.topics import FakeTopics
from kpipe.topics import PartitionId
from kpipe.transaction_log import Boundary, Change

PREFIX = "shop"
LOG = f"{PREFIX}.transaction"
State = dict[tuple[str, int], Any]
Record = tuple[str, Mapping[str, Any] | None]


class FakeLog:
    """The transactions of fake topics, whose values are what `DebeziumModel` writes."""

    def __init__(self, topics: FakeTopics) -> None:
        self.topics = topics
        self.reads = 0

    def entries(self, source: PartitionId, span: Range) -> Iterator[Boundary]:
        for offset, slot in self.topics.read(source, span):
            assert slot.value is not None
            yield Boundary(offset, slot.value["tx"], slot.value.get("counts"))

    def changes(self, source: PartitionId, span: Range) -> Iterator[Change]:
        for offset, slot in self.topics.read(source, span):
            self.reads += 1
            if slot.value is None or slot.value["op"] == "m":
                yield Change(offset, "other")
            elif slot.value["op"] == "r":
                yield Change(offset, slot.value["snapshot"])
            else:
                yield Change(offset, "event", slot.value["tx"], slot.value["order"])


class DebeziumModel:
    """A source with random transactions, and Debezium, which writes records of them and may be killed.

    It sends the records of one transaction after the other. Those of a topic arrive in order, those of different topics in any
    order. A crash loses what has not arrived; then Debezium continues at a position before everything that is lost.

    Args:
        chance: decides everything.
        tables: their names; those in `followed` have a topic in the pipeline.
        followed: tables of the pipeline.

    Attributes:
        states: of the followed tables after each transaction; the first is that of the snapshot.
        crashes: how it continued, by number.
    """

    def __init__(self, chance: random.Random, tables: list[str], followed: list[str]) -> None:
        self.chance, self.tables, self.followed = chance, tables, followed
        self.now: State = {}
        self.states: list[State] = []
        self.topics = FakeTopics(dict.fromkeys([*map(self.topic, followed), LOG], 1))
        self.transactions: list[list[list[Record]]] = []
        self.at = 0  # next transaction to send
        self.sent: list[tuple[Record, tuple[int, int]]] = []  # since the last crash, with the position behind which each is
        self.arrived: dict[str, int] = {}
        self.crashes: dict[str, int] = {}

    def topic(self, table: str) -> str:
        return f"{PREFIX}.public.{table}"

    def snapshot(self) -> None:
        """Make rows from before Debezium, and send its snapshot."""
        for table in self.tables:
            for key in range(self.chance.randint(0, 3)):
                self.now[table, key] = 0
        self._remember()
        records: list[Record] = []
        for table in self.tables:
            rows = sorted(key for name, key in self.now if name == table)
            kinds = {key: "table" if key == rows[-1] else "snapshot" for key in rows}
            records += [(table, {"op": "r", "key": key, "value": 0, "snapshot": kind}) for key, kind in kinds.items()]
        if records:
            records[-1] = (records[-1][0], {**(records[-1][1] or {}), "snapshot": "whole"})
        self.sent += [(record, (0, 0)) for record in records]

    def transaction(self, every: bool = False) -> None:
        """Commit a random transaction in the source; with `every`, one that changes each table."""
        number = len(self.transactions) + 1
        events: list[list[Record]] = []
        wanted = self.followed if every else self.chance.choices(self.tables, k=self.chance.choice([0, 1, 1, 2, 3, 6]))
        for table in wanted:
            key, value = self.chance.randint(0, 4), None if self.chance.random() < 0.3 else number
            if value is None:
                self.now.pop((table, key), None)
                events.append([(table, {"op": "d", "key": key, "value": None}), (table, None)])
            else:
                self.now[table, key] = value
                events.append([(table, {"op": "u", "key": key, "value": value})])
        self.transactions.append(events)
        self._remember()

    def _remember(self) -> None:
        self.states.append({place: value for place, value in self.now.items() if place[0] in self.followed})

    def send(self) -> None:
        """Send the next transaction."""
        if self.at < len(self.transactions):
            self._send(self.at, 0, 0, True)
            self.at += 1

    def _send(self, number: int, first: int, counted: int, begin: bool) -> None:
        """Send a transaction from an event on; orders begin behind those of the first `counted` events."""
        events, key, counts = self.transactions[number], f"t{number}", dict[str, int]()
        for records in events[:counted]:
            counts[records[0][0]] = counts.get(records[0][0], 0) + 1
        if begin:
            self.sent.append(((LOG, {"tx": key}), (number, first)))
        for at, records in enumerate(events[first:], first):
            table = records[0][0]
            counts[table] = counts.get(table, 0) + 1
            more = {"tx": key, "order": counts[table]}
            self.sent += [((name, value and {**value, **more}), (number, at)) for name, value in records]
        ended = {f"public.{table}": count for table, count in counts.items()}
        self.sent.append(((LOG, {"tx": key, "counts": ended}), (number, len(events))))

    def arrive(self) -> bool:
        """Let the next record of a random topic arrive, if there is one."""
        queues: dict[str, list[Mapping[str, Any] | None]] = {}
        for (table, value), _ in self.sent:
            queues.setdefault(table, []).append(value)
        waiting = sorted(table for table, queue in queues.items() if len(queue) > self.arrived.get(table, 0))
        if not waiting:
            return False
        # A table without a record counts as empty when the snapshot has ended (docs/how-to/change-streams.md).
        begun = {table for table in waiting if (queues[table][0] or {}).get("op") != "r" or self.arrived.get(table)}
        following = {table: queues[table][self.arrived.get(table, 0)] or {} for table in waiting}
        ends = {table for table, value in following.items() if value.get("snapshot", "whole") == "whole"}
        if begun < set(waiting):
            waiting = sorted(set(waiting) - ends) or sorted(set(waiting) - begun)
        table = self.chance.choice(waiting)
        value = queues[table][self.arrived.get(table, 0)]
        self.arrived[table] = self.arrived.get(table, 0) + 1
        if table == LOG or table in self.followed:
            self.topics.produce(0, value, topic=LOG if table == LOG else self.topic(table))
        return True

    def crash(self) -> None:
        """Kill Debezium, and start it at a position before everything that has not arrived."""
        counts, safe = dict[str, int](), 0
        for (table, _), _ in self.sent:
            counts[table] = counts.get(table, 0) + 1
            if counts[table] > self.arrived.get(table, 0):
                break
            safe += 1
        snapshots = sum(isinstance(record[1], dict) and record[1].get("op") == "r" for record, _ in self.sent)
        if safe < snapshots:
            return  # a snapshot begins again as a whole: not of interest here
        kept = self.chance.randint(max(snapshots, safe - 12), safe)
        number, event = self.sent[kept][1] if kept < len(self.sent) else (self.at, 0)
        self.sent, self.arrived = [], {}
        self.at = number
        how = self.chance.choice(["again", "continued", "counted again"]) if event else "again"
        self.crashes[how] = self.crashes.get(how, 0) + 1
        if event:
            arguments = {"again": (0, 0, True), "continued": (event, event, False), "counted again": (event, 0, True)}
            self._send(number, *arguments[how])
            self.at = number + 1


class Follower:
    """Tables that follow the topics of a model, by the plans of one run after the other."""

    def __init__(self, model: DebeziumModel, limit: int = 1_000_000, log: Callable[[FakeTopics], FakeLog] = FakeLog) -> None:
        self.model, self.limits, self._log = model, Limits(limit), log
        self.ledger, self.state = Ledger("p"), State()
        for source, state in model.topics.snapshot().partitions.items():
            self.ledger = self.ledger.after(transitions.begin(source, state.log_start, state.log_start))
        self.restart()
        self.commits: list[Batch] = []

    def restart(self) -> None:
        """Begin another run, which remembers nothing."""
        self.log = self._log(self.model.topics)
        self.planner = TransactionPlanner("p", self.log)

    def plan(self) -> Batch | Idle:
        return self.planner.plan(self.ledger, self.model.topics.snapshot(), self.limits, "b")

    def commit(self, batch: Batch) -> None:
        for step in batch.steps:
            table = step.source.topic.name.rpartition(".")[2]
            for _, slot in self.model.topics.read(step.source, step.range) if step.source.topic.name != LOG else ():
                value = slot.value
                if value is not None and value["op"] == "d":
                    self.state.pop((table, value["key"]), None)
                elif value is not None and value["op"] in "rcu":
                    self.state[table, value["key"]] = value["value"]
        self.ledger = self.ledger.after(step.change for step in batch.steps)
        self.commits.append(batch)
