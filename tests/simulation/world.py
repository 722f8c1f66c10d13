"""What all runs share: the logs, the destination with its ledger, the memory of the home. A value that is copied, not shared.

Logs, destination and stager are the fakes of kpipe/testing; what stands here is what they leave out: rows with a key, commits
that land after the client was told that nobody knows, and files that need no disk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kpipe.batch.batch import Commit, Committed, Counts, RangeReport, StagedFile
from kpipe.errors import DestinationBusy, DestinationError, ReadFailed, RecordRejected
from kpipe.ledger.ledger import Ledger
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.testing.memory import MemoryDestination, MemoryStore, MemoryTable
from kpipe.testing.memory_store import Registered, Row
from kpipe.testing.stager import FakeStager
from kpipe.topics import PartitionId, PartitionState, TopicSnapshot
from kpipe.verification.verify import Audit, Holding, Keeping, Recount, TableRecount, audit
from tests.simulation.logs import Cuts, Log

__all__ = ["MemoryStager", "Place", "World", "cut", "expire", "produce", "words"]


class MemoryStager(FakeStager):
    """The fake stager, whose files are lists, and whose tombstones delete where the pipeline says so."""

    def __init__(self, log: Log, deleting: bool) -> None:
        self._cuts: Cuts = tuple(() for _ in log.keys)
        super().__init__(log.topics(self._cuts), Path())
        self._log, self._deleting = log, deleting
        self.files: dict[str, list[Row]] = {}
        self._all = {self._cuts: self.topics}
        self._known: dict[tuple[Cuts, PartitionId, Range], RangeReport] = {}

    def behind(self, cuts: Cuts) -> MemoryStager:
        """The stager, which reads the logs after these cuts from now on."""
        if cuts not in self._all:
            self._all[cuts] = self._log.topics(cuts)
        self._cuts, self.topics = cuts, self._all[cuts]
        return self

    def _piece(self, source: PartitionId, within: Range, columns: Columns, closed: bool = False) -> RangeReport:
        known = self._known.get((self._cuts, source, within))
        if known is None:
            known = super()._piece(source, within, columns, closed)
            gone = [at for at in range(within.start, within.end) if (source.partition, at) in self._log.deletes]
            if self._deleting and gone:
                keys = self._log.keys[source.partition]
                lines = [{"_kafka_partition": source.partition, "_kafka_offset": at, "k": keys[at]} for at in gone]
                (table,), records = known.tables, known.records
                table = replace(table, counts=replace(table.counts, deletes=len(gone)), deletes=self._file(lines))
                known = replace(known, records=replace(records, filtered=records.filtered - len(gone)), tables=(table,))
            self._known[self._cuts, source, within] = known
        return known

    def _file(self, lines: Sequence[Mapping[str, Any]]) -> StagedFile | None:
        if not lines:
            return None
        data = json.dumps(lines).encode()
        name = hashlib.sha256(data).hexdigest()
        self.files[name] = [dict(line) for line in lines]
        return StagedFile(name, len(data), len(lines), name)


class Place(MemoryDestination):
    """The destination in memory; with a key, rows replace each other as kpipe/interfaces.py says.

    Args:
        store: of one world.
        files: of the stager.
        keyed: whether rows of the same key replace each other.
    """

    def __init__(self, store: MemoryStore, files: Mapping[str, list[Row]], keyed: bool) -> None:
        super().__init__(store, "tweets", "tweets")
        self._files, self._keyed = files, keyed

    def _read(self, file: StagedFile) -> list[Row]:
        return self._files[file.path]

    def _land(self, commit: Commit) -> None:
        known = self.store.pipelines.get(self.pipeline)
        before = known.ledger if known else Ledger(self.pipeline)
        rows = list(self.store.tables.get(self.table, MemoryTable()).rows)
        super()._land(commit)
        if self._keyed and (commit.only.files or commit.only.deletes):
            counts = self._apply(rows, commit, before)
            self.store.tables[self.table] = MemoryTable(self.store.tables[self.table].columns, rows)
            commits = self.store.pipelines[self.pipeline].commits
            done, table = commits[commit.id]
            commits[commit.id] = (replace(done, commit=commit.settled([counts])), table)

    def _apply(self, rows: list[Row], commit: Commit, before: Ledger) -> dict[tuple[PartitionId, int], Counts]:
        """Write by write, by partition and offset; writes of a range that is not the live one give way to later rows."""
        writes = [(row, False) for file in commit.only.files for row in self._read(file)]
        writes += [(row, True) for file in commit.only.deletes for row in self._read(file)]
        late = [step for step in commit.steps if before.overtaken(step.lane)]
        counts = dict(commit.only.counts)
        for row, gone in sorted(writes, key=lambda item: (item[0]["_kafka_partition"], item[0]["_kafka_offset"])):
            partition, offset = row["_kafka_partition"], row["_kafka_offset"]
            step = next(s for s in commit.steps if s.source.partition == partition and offset in s.range)
            there = next((old for old in rows if old["k"] == row["k"]), None)
            newer = there is not None and there["_kafka_partition"] == partition and there["_kafka_offset"] > offset
            if newer and step in late:
                fate = Counts() if gone else Counts(ignored=1)
            else:
                fate = Counts(deleted=there is not None) if gone else Counts(**{"updated" if there else "inserted": 1})
                if there is not None:
                    rows.remove(there)
                if not gone:
                    rows.append(row)
            counts[step.lane.key] += fate
        return counts

    def recount(self) -> Recount:
        found = super().recount()
        if not self._keyed:
            return found
        sums: dict[Any, Holding] = {}
        for row in self.store.tables.get(self.table, MemoryTable()).rows:
            old = sums.get(row["_kafka_partition"], Holding())
            sums[row["_kafka_partition"]] = Holding(old.rows + 1, old.offsets + row["_kafka_offset"])
        known = self.store.pipelines.get(self.pipeline)
        done = [item.commit.totals for item, _ in known.commits.values()] if known else []
        left = sum(item.rows for item in sums.values()) - sum(c.inserted - c.deleted for c in done)
        rows = {number: item.rows for number, item in sums.items()}
        # What commits have left by partition is the fake's own sum: only its balance can be compared.
        table = TableRecount(found.tables[self.table].rows, rows, keeping=Keeping(sums, sums, unbalanced=left))
        return replace(found, tables={**found.tables, self.table: table})


@dataclass
class World:
    """One moment of everything outside of the processes.

    Attributes:
        stager: shared by all worlds: what is in a log at an offset after the same cuts never changes.
        keyed: whether rows have a key.
        ends: by partition, log start and high watermark.
        cuts: by partition, where its log was cut.
        store: what the destination holds.
        home: id and sequence number that the home has seen.
        flying: commits of which the client was told that nobody knows, and that may still land.
        pending: batch that some process has begun to send.
        holder: the process that sends, or nobody.
        taken: what the receiver took: place, and the id of the batch, which is in the key of the request.
        journal: what landed, in words.
        books: of the oracle.
        id: of the world among those of a model.
    """

    stager: MemoryStager
    log: Log
    keyed: bool
    ends: tuple[tuple[int, int], ...]
    cuts: Cuts
    store: MemoryStore = field(default_factory=MemoryStore)
    home: tuple[str, int] = ("", 0)
    flying: tuple[Commit, ...] = ()
    pending: Commit | None = None
    holder: str = ""
    taken: frozenset[tuple[tuple[int, int], str]] = frozenset()
    journal: tuple[str, ...] = ()
    books: Any = None
    id: int = -1

    def copy(self) -> World:
        """Another world that is the same until something happens."""
        store = MemoryStore(dict(self.store.tables))
        for name, item in self.store.pipelines.items():
            store.pipelines[name] = Registered(
                item.uid, item.ledger, item.seal, item.state, item.written, dict(item.commits), list(item.dead_letters),
                [], set(), dict(item.ends),
            )  # fmt: skip
        return replace(self, store=store, id=-1)

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells worlds apart."""
        begun = None if self.pending is None else words(self.pending)
        return self.journal, self.ends, self.cuts, self.home, tuple(map(words, self.flying)), begun, self.holder, self.taken

    @property
    def place(self) -> Place:
        return Place(self.store, self.stager.files, self.keyed)

    # Effects of processes

    def snapshot(self) -> TopicSnapshot:
        topics = self.stager.topics
        states = {
            topics.source(number): PartitionState(start, high, high, len(self.cuts[number]))
            for number, (start, high) in enumerate(self.ends)
        }
        return TopicSnapshot(states)

    def stage(self, batch: Any, tables: Sequence[Columns]) -> Sequence[RangeReport]:
        for step in batch.steps:
            start, high = self.ends[step.source.partition]
            if step.range.start < start or step.range.end > high:
                raise ReadFailed(f"{step.source} {step.range}: the log holds [{start}, {high})")
            if any((step.source.partition, at) in self.log.poison for at in range(step.range.start, step.range.end)):
                raise RecordRejected(f"{step.source} {step.range}: holds a record that cannot become a row")
        found = self.stager.behind(self.cuts).stage(batch, tables)
        self.stager.given.clear()
        return found

    def land(self, commit: Commit) -> Committed:
        """Commit; the journal has what landed."""
        known = self.store.pipelines.get("tweets")
        new = known is None or commit.id not in known.commits
        done = self.place.commit(commit)
        if new:
            self.journal = (*self.journal, words(commit))
        return done

    # Effects of a destination that sends: each on a copy of the world

    def unfinished(self, who: str) -> Commit | None:
        """The batch that is on its way, but for one that has landed or was given up."""
        if self.pending is None:
            return None
        self._alone(who)
        self._clean()
        return self.pending

    def hold(self, who: str) -> Commit | None:
        self._alone(who)
        self.holder = who
        self._clean()
        return self.pending

    def release(self, who: str) -> None:
        if self.holder == who:
            self.holder = ""

    def pin(self, who: str, commit: Commit, found: bool) -> None:
        """Nothing is sent for a batch that cannot land; nothing is sent before the batch is kept."""
        assert self.holder == who
        self.place.ledger()[1].after(commit.changes, commit.id)
        self.pending = commit

    def send(self, who: str, commit: Commit, number: int) -> None:
        rows = sorted(
            (r["_kafka_partition"], r["_kafka_offset"]) for file in commit.only.files for r in self.stager.files[file.path]
        )
        self.taken |= {(rows[number], commit.id)}

    def clear(self, who: str, commit: Commit) -> None:
        self.pending = None

    def decide(self, who: str, commit: Commit) -> Committed:
        """An operator's decision: not while somebody sends, and not over what the receiver may have taken."""
        self._alone(who)
        self._clean()
        if self.pending is not None and self.pending.id != commit.id:
            before = self.place.ledger()[1]
            if _fits(before, self.pending) and not _fits(before.after(commit.changes, commit.id), self.pending):
                raise DestinationError(f"{commit.kind}: batch {self.pending.id} is not finished")
        done = self.land(commit)
        self._clean()
        return done

    def _alone(self, who: str) -> None:
        if self.holder not in ("", who):
            raise DestinationBusy("another process is sending")

    def _clean(self) -> None:
        known = self.store.pipelines.get("tweets")
        if self.pending is not None and known is not None and self.pending.id in known.commits:
            self.pending = None

    # What a judge looks at

    def lanes(self) -> tuple[tuple[int, int, int, int | None, str], ...]:
        """Plain tuples: partition, start, next, end, kind."""
        known = self.store.pipelines.get("tweets")
        found = [] if known is None else known.ledger.lanes.values()
        return tuple(sorted((x.source.partition, x.start, x.next, x.end, x.kind) for x in found))  # type: ignore[type-var]

    def tails(self) -> tuple[tuple[int, int, str], ...]:
        """Partition, next offset and fingerprint of each lane that has one."""
        known = self.store.pipelines.get("tweets")
        found = [] if known is None else known.ledger.lanes.values()
        return tuple(sorted((x.source.partition, x.next, x.tail.text) for x in found if x.tail is not None))

    def rows(self) -> tuple[tuple[int, int, int], ...]:
        """Partition, offset and key of each row, in the order in which they stand there."""
        rows = self.store.tables.get("tweets", MemoryTable()).rows
        return tuple((row["_kafka_partition"], row["_kafka_offset"], row["k"]) for row in rows)

    def verify(self) -> Audit:
        """What `kpipe verify` proves."""
        place = self.place
        return audit(place.ledger()[1], place.history(), place.recount())


def expire(world: World, partition: int, to: int) -> None:
    """Retention removes everything below that offset."""
    ends = list(world.ends)
    start, high = ends[partition]
    ends[partition] = (max(start, min(to, high)), high)
    world.ends = tuple(ends)


def produce(world: World, partition: int, number: int) -> None:
    """That many records more become visible."""
    ends = list(world.ends)
    start, high = ends[partition]
    ends[partition] = (start, min(high + number, len(world.log.keys[partition])))
    world.ends = tuple(ends)


def cut(world: World, partition: int, at: int) -> None:
    """The log is cut there, and grows again with other records to all that is ever produced."""
    ends, cuts = list(world.ends), list(world.cuts)
    ends[partition] = (min(ends[partition][0], at), len(world.log.keys[partition]))
    cuts[partition] = (*cuts[partition], at)
    world.ends, world.cuts = tuple(ends), tuple(cuts)


def _fits(ledger: Ledger, commit: Commit) -> bool:
    return isinstance(ledger.apply(commit.changes), Ledger)


def words(commit: Commit) -> str:
    """Everything that tells a commit from another one, in words."""
    changes = ", ".join(f"{_lane(change.expect)} -> {_lane(change.become)}" for change in commit.changes)
    steps = " ".join(f"{step.source.partition}{step.range}" for step in commit.steps)
    files = "".join(f" {file.path[:6]}" for write in commit.tables for file in write.files)  # named by their content
    return f"{commit.id} {commit.kind} {steps or '-'} ({changes}){files}"


def _lane(lane: Any) -> str:
    if lane is None:
        return "none"
    tail = "" if lane.tail is None else f" [{lane.tail.text}]"
    return f"{lane.kind} {lane.source.partition}:{lane.start}/{lane.next}/{lane.end}{tail}"
