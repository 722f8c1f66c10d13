"""Plan batches that end where the source committed (`batch.cut: transaction`, docs/adr/0065-transactions.md).

The plan reads the transaction topic, and of each table's topic to which transactions its records belong. It remembers both, so
that each record is read once more than without a cut, not once for each plan. The ledger alone has the position.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from kpipe.batch.batch import Batch
from kpipe.definition.pipeline import Pipeline
from kpipe.definition.transaction_topic import prefix_of
from kpipe.errors import InvalidPipeline, NotAvailable
from kpipe.interfaces import Topics
from kpipe.ledger.ledger import Lane, Ledger
from kpipe.offsets import Range
from kpipe.planning.planner import Idle, Limits, plan, step_of
from kpipe.planning.transaction_cut import Cut, History, Table, choose
from kpipe.topics import Part, PartitionId, TopicSnapshot
from kpipe.transaction_log import Run, TransactionLog, Transactions, joined

__all__ = ["TransactionPlanner", "planner_of"]

#: Records of the transaction topic that one plan reads: memory of a plan, and most transactions of a batch.
_MOST_ENTRIES = 50_000
#: Records of the transaction topic before the next one in which a transaction that Debezium has written again is recognized.
_HISTORY = 20_000
#: Offsets of a table's topic in one read; then it is decided whether more are needed.
_CHUNK = 20_000
#: Most changes of transaction in what is remembered of a partition.
_MOST_RUNS = 100_000


@dataclass
class _Ahead:
    """Records of one partition from the next offset on."""

    next: int
    read: int
    runs: list[Run] = field(default_factory=list)

    def begin(self, at: int, end: int) -> None:
        """Forget records before an offset; all of them if the log now ends before some."""
        if not self.next <= at <= self.read <= end:
            self.next, self.read, self.runs = at, at, []
            return
        self.next = at
        kept = [run for run in self.runs if run.end > at]
        self.runs = [replace(run, start=max(run.start, at)) for run in kept]


def planner_of(pipeline: Pipeline, topics: Topics) -> Callable[..., Batch | Idle]:
    """Return `plan` for a run of a pipeline, with the arguments of `kpipe.planning.planner.plan`."""
    if pipeline.batch.cut != "transaction":
        return plan
    assert isinstance(topics, TransactionLog)  # validated with the definition
    return TransactionPlanner(pipeline.name, topics).plan


class TransactionPlanner:
    """Plans the batches of one run.

    Args:
        name: the pipeline's name, for messages.
        log: reads transactions.
    """

    def __init__(self, name: str, log: TransactionLog) -> None:
        self._name, self._log = name, log
        self._known: dict[PartitionId, Transactions] = {}
        self._ahead: dict[PartitionId, _Ahead] = {}

    def plan(
        self,
        ledger: Ledger,
        snapshot: TopicSnapshot,
        limits: Limits,
        batch_id: str,
        only: Collection[Part] | None = None,
        turn: int | None = None,
    ) -> Batch | Idle:
        """Plan the next batch, as `kpipe.planning.planner.plan` does.

        Raises:
            InvalidPipeline, NotAvailable: the definition, or what the ledger has to read, does not allow a cut.
            SourceError: a topic could not be read, or has no transaction metadata.
        """
        del turn
        if only is not None:
            raise NotAvailable(f"{self._where}: a batch has all partitions: expected none selected", "run all partitions")
        lanes = self._lanes(ledger, snapshot)
        source, transactions = self._transactions_of(lanes, snapshot)
        state = snapshot.partitions[source]
        self._read_entries(source, transactions, min(state.end, transactions.next + _MOST_ENTRIES))
        history = _history(transactions)
        tables = {other: lane for other, lane in lanes.items() if other != source}
        for other in [other for other in self._ahead if other not in tables]:
            del self._ahead[other]
        ends = {other: lane.next + limits.of(other)[0] for other, lane in tables.items()}
        for other, lane in tables.items():
            self._ahead.setdefault(other, _Ahead(lane.next, lane.next)).begin(lane.next, snapshot.partitions[other].end)
            self._read_changes(other, min(ends[other], snapshot.partitions[other].end))
        # Records of the transaction topic alone count with the first table, which some batch has to create.
        bare = bool(ledger.committed(min(tables, key=lambda one: one.topic.name)))
        while True:
            known = [self._table(ledger, other, lane, snapshot, history) for other, lane in tables.items()]
            cut = choose(known, history, list(ends.values()), state.high > 0, bare)
            found = dict(zip(tables, cut.ends, strict=True))
            found[source] = transactions.end_of(history.ranks, cut.rank) if not cut.partial else transactions.next
            grown = [other for other, end in found.items() if end > lanes[other].next]
            if grown and (grown != [source] or bare):
                return self._batch(ledger, snapshot, batch_id, found)
            if grown and transactions.read < state.end:  # the first event of a table is behind all these transactions
                self._read_entries(source, transactions, min(state.end, transactions.read + _MOST_ENTRIES))
                history = _history(transactions)
                continue
            short = [other for other, table in zip(tables, known, strict=True) if not table.whole]
            if not short:
                return self._idle(lanes, snapshot, cut)
            for other in short:
                self._read_changes(other, min(self._ahead[other].read + _CHUNK, snapshot.partitions[other].end), True)

    @property
    def _where(self) -> str:
        return f"pipeline {self._name}: batch.cut: transaction"

    def _lanes(self, ledger: Ledger, snapshot: TopicSnapshot) -> dict[PartitionId, Lane]:
        """Return the live lane of each partition.

        Raises:
            NotAvailable: a topic has several partitions, or other offsets than the next ones are to be read.
        """
        found: dict[PartitionId, Lane] = {}
        for source in sorted(snapshot.partitions):
            if source.partition:
                raise NotAvailable(
                    f"{self._where}: topic {source.topic.name}: expected one partition, found several",
                    "create the topics with one partition (topic.creation.default.partitions), or remove batch.cut",
                ).about("batch", "cut")
            unfinished = [lane for lane in ledger.of(source) if not lane.finished]
            if len(unfinished) != 1 or not unfinished[0].open:
                raise NotAvailable(
                    f"{self._where}: {source}: skipped or bounded offsets are to be read; batches of them are not states",
                    "finish the backfill without batch.cut, then set it again",
                ).about("batch", "cut")
            found[source] = unfinished[0]
        return found

    def _transactions_of(self, lanes: Mapping[PartitionId, Lane], snapshot: TopicSnapshot) -> tuple[PartitionId, Transactions]:
        """Return the partition of the transaction topic, and what is known of it."""
        names = {source.topic.name: source for source in lanes}
        prefix = prefix_of(names)
        if prefix is None:
            raise InvalidPipeline(
                f"{self._where}: no transaction topic among {', '.join(sorted(names))}",
                "add PREFIX.transaction to source.topics, with Debezium's topic.prefix",
            ).about("source", "topics")
        source = names[f"{prefix}.transaction"]
        next, known = lanes[source].next, self._known.get(source)
        first = max(snapshot.partitions[source].log_start, next - _HISTORY)
        if known is None or not known.first <= next <= known.read <= snapshot.partitions[source].end:
            known = Transactions(prefix, min(first, next), next, next)
            if first < next:
                known.entries = list(self._log.entries(source, Range(first, next)))
            self._known = {source: known}
        known.move(next, first)
        return source, known

    def _read_entries(self, source: PartitionId, transactions: Transactions, to: int) -> None:
        if to > transactions.read:
            found = list(self._log.entries(source, Range(transactions.read, to)))  # a read that fails leaves nothing
            transactions.entries += found
            transactions.read = to

    def _read_changes(self, source: PartitionId, to: int, further: bool = False) -> None:
        """Read the records of a partition up to an offset; fewer if they have too many transactions, unless more are needed."""
        ahead = self._ahead[source]
        while ahead.read < to and (further or len(ahead.runs) < _MOST_RUNS):
            end = min(to, ahead.read + _CHUNK)
            found = list(self._log.changes(source, Range(ahead.read, end)))
            joined(ahead.runs, found)
            ahead.read = end

    def _table(self, ledger: Ledger, source: PartitionId, lane: Lane, snapshot: TopicSnapshot, history: History) -> Table:
        ahead, begun = self._ahead[source], bool(ledger.committed(source))
        return Table(source.topic.name, lane.next, ahead.runs, ahead.read, snapshot.partitions[source].end, history, begun)

    def _batch(self, ledger: Ledger, snapshot: TopicSnapshot, batch_id: str, ends: dict[PartitionId, int]) -> Batch:
        steps = []
        for source, end in sorted(ends.items()):
            lane, state = ledger.live(source), snapshot.partitions[source]
            if lane is not None and end > lane.next:
                steps.append(step_of(ledger, lane, end, state, "caught_up" if end == state.end else "transaction"))
        return Batch(batch_id, ledger.pipeline, tuple(steps))

    def _idle(self, lanes: dict[PartitionId, Lane], snapshot: TopicSnapshot, cut: Cut) -> Idle:
        states = {source: snapshot.partitions[source] for source in lanes}
        if unread := sum(state.end - lanes[source].next for source, state in states.items()):
            last = "the end of the newest transaction of the source" if cut.rank < 0 else "the first event of a table"
            waits = cut.waits or last
            return Idle("source_transaction", unread, waits)
        waiting = sum(state.high - max(lanes[source].next, state.end) for source, state in states.items())
        return Idle("open_transaction" if waiting else "caught_up", waiting)


def _history(transactions: Transactions) -> History:
    return History(*transactions.ended(), whole=transactions.first == 0)
