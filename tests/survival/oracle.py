"""Decides whether a home holds exactly what was written to its topic. Shares no code with what it judges.

It knows two things by itself: what the writer was told (truth.py), and what a consumer that reads only committed records
finds in the topic. The destination is read with SQL. Each finding is a sentence that begins with the rule it breaks:

    O1  rows, dead letters and tombstones are those of the topic up to the ledger's offsets, as multisets
    O2  nothing of an aborted transaction is there; an acknowledged record is; an unknown one as its whole transaction is
    O3  the ledger's history is a chain without gap or overlap, one row for each batch and partition, numbered 1, 2, 3 ...
    O4  the ledger is nowhere beyond the last stable offset
    O5  staged files: those of landed batches are gone after a run, those of others are not (they are collected by age)
    O6  what was stored for Dagster says what the ledger says
    O9  the canary is in no file of the home
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.survival.landings import DuckDBFile, Landing
from tests.survival.truth import Truth

ROW, TOMBSTONE, BROKEN = "row", "tombstone", "broken"
Place = tuple[int, int]  # partition, offset


class Observer:
    """A consumer of its own: everything committed in the topic, read on from where it was.

    Attributes:
        seen: id and kind of each committed record, by partition and offset.
        stable: last stable offset of each partition, at the last look.
    """

    def __init__(self, brokers: str, topic: str, partitions: int) -> None:
        self.seen: dict[Place, tuple[int, str]] = {}
        self.stable: dict[int, int] = {}
        self.topic, self._partitions = topic, partitions
        # Otherwise the broker waits 0.5 s before it answers that a partition has ended.
        quiet = {"bootstrap.servers": brokers, "log_level": 0, "error_cb": lambda _: None, "fetch.wait.max.ms": 10}
        self._settings = {**quiet, "group.id": "oracle", "enable.auto.commit": False, "isolation.level": "read_committed",
                          "enable.partition.eof": True, "auto.offset.reset": "error"}  # fmt: skip
        self._quiet = quiet
        self._next = dict.fromkeys(range(partitions), 0)

    def look(self) -> None:
        """Read on to the last stable offsets of this moment."""
        self.stable = self._stable()
        behind = {n for n in self._next if self._next[n] < self.stable[n]}
        consumer = Consumer(self._settings)
        try:
            consumer.assign([TopicPartition(self.topic, n, self._next[n]) for n in sorted(behind)])
            while behind:
                message = consumer.poll(300)
                assert message is not None, f"the observer hears nothing of {behind}"
                error, number = message.error(), message.partition()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    # The end may have moved on since it was asked for: what lies behind that is for the next look.
                    self._next[number] = max(self._next[number], min(message.offset(), self.stable[number]))
                elif message.offset() < self.stable[number]:
                    self.seen[number, message.offset()] = (int(message.key()), kind(message.value()))
                    self._next[number] = message.offset() + 1
                else:
                    self._next[number] = self.stable[number]
                if self._next[number] >= self.stable[number]:
                    behind.discard(number)
        finally:
            consumer.close()

    def _stable(self) -> dict[int, int]:
        """Asked afresh, and again for a while: a broker that has just come back answers with errors first."""
        until = time.monotonic() + 300
        while True:
            admin = AdminClient(self._quiet)
            places = {TopicPartition(self.topic, n): OffsetSpec.latest() for n in range(self._partitions)}
            # Soon told when it waits for a leader that was killed, and that brokers still took for alive when this client asked.
            asked = admin.list_offsets(places, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=10)
            try:
                return {place.partition: future.result(300).offset for place, future in asked.items()}
            except KafkaException:
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)


def kind(value: bytes | None) -> str:
    """What must become of a record."""
    if value is None:
        return TOMBSTONE
    try:
        json.loads(value)
    except ValueError:
        return BROKEN
    return ROW


@dataclass
class Oracle:
    """Judges one pipeline of one home.

    Attributes:
        home: KPIPE_HOME.
        name: the pipeline, which writes the table of its own name.
        observer: of its topic.
        truth: what was written.
        canary: a secret that must be nowhere.
        landing: where the rows are.
    """

    home: Path
    name: str
    observer: Observer
    truth: Truth
    canary: str = ""
    landing: Landing = field(default_factory=DuckDBFile)
    _database: Any = field(default=None, repr=False)
    _waiting: set[str] = field(default_factory=set, repr=False)

    @property
    def path(self) -> Path:
        return self.home / "data" / "kpipe.duckdb"

    def problems(self, ended: bool = True, quiet: bool = True) -> list[str]:
        """What is wrong; nothing else of this home may have the database open meanwhile.

        Args:
            ended: a run has just ended by itself, caught up; else one was killed, and may have left things to do.
            quiet: nobody has written since.
        """
        self.observer.look()
        found = self._written()
        with self.landing.reading(self.home, self.name) as self._database:
            if self._database is None:
                return found + (["O1 there is no ledger"] if ended and self.observer.seen else [])
            positions = dict(
                self._sql("SELECT partition, max(next_offset) FROM kpipe_ledger WHERE pipeline_name = $n GROUP BY ALL")
            )
            found += self._rows(positions) + self._chain(positions) + self._events() + self._staged(ended)
            if ended and quiet:
                found += [f"O1 partition {n}: stands at {positions.get(n)}, the topic ends at {end}"
                          for n, end in self.observer.stable.items() if positions.get(n) != end]  # fmt: skip
        return found + self._secrets()

    def staging_was_lost(self) -> None:
        """Forget the staged files of batches that have not landed: a power cut may take them."""
        self._waiting.clear()

    def _written(self) -> list[str]:
        """O2, about the topic: what the writer knows, and what the consumer sees."""
        where = {number: place for place, (number, _) in self.observer.seen.items()}
        found = [] if len(where) == len(self.observer.seen) else ["O2 the topic holds an id twice"]
        stable = self.observer.stable
        lost = [n for n, (p, o) in self.truth.committed.items() if o < stable[p] and where.get(n) != (p, o)]
        alive = sorted(self.truth.aborted & where.keys())
        torn = [some for some in self.truth.unknown if some & where.keys() and not some <= where.keys()]
        found += [f"O2 acknowledged and not in the topic: {_few(lost)}"] * bool(lost)
        found += [f"O2 aborted and in the topic: {_few(alive)}"] * bool(alive)
        return found + [f"O2 half of a transaction is in the topic: {_few(sorted(some))}" for some in torn]

    def _rows(self, positions: dict[int, int]) -> list[str]:
        """O1 and O2, about the table."""
        due = {place: item for place, item in self.observer.seen.items() if place[1] < positions.get(place[0], 0)}
        want = Counter((*place, number) for place, (number, sort) in due.items() if sort == ROW)
        have: Counter[tuple[int, int, int]] = Counter()
        if self._sql(f"SELECT count(*) FROM duckdb_columns() WHERE table_name = '{self.name}' AND column_name = 'id'") == [(1,)]:
            have.update(self._sql(f'SELECT _kafka_partition, _kafka_offset, id FROM "{self.name}"'))
        found = _differ("rows", want, have)
        ids = Counter(number for *_, number in have.elements())
        again = [number for number, times in ids.items() if times > 1]
        found += [f"O1 ids more than once in the table: {_few(again)}"] * bool(again)
        alive = sorted(self.truth.aborted & ids.keys())
        found += [f"O2 aborted and in the table: {_few(alive)}"] * bool(alive)
        dead = Counter(place for place, (_, sort) in due.items() if sort == BROKEN)
        kept = Counter(self._sql('SELECT "partition", "offset" FROM kpipe_errors WHERE pipeline_name = $n AND dead_letter'))
        found += _differ("dead letters", dead, kept)
        sums = self._sql(
            "SELECT batch_source_partition_id, sum(messages)::BIGINT, sum(rows)::BIGINT, sum(dead_letters)::BIGINT,"
            " sum(filtered)::BIGINT, sum(gaps)::BIGINT FROM kpipe_batches WHERE pipeline_name = $n GROUP BY ALL"
        )
        for number, *told in sums:
            here = Counter(sort for (partition, _), (_, sort) in due.items() if partition == number)
            true = [here.total(), here[ROW], here[BROKEN], here[TOMBSTONE], positions[number] - here.total()]
            if told != true:
                found.append(f"O1 partition {number}: counted {told}, there are {true} (records, rows, dead, filtered, gaps)")
        return found

    def _chain(self, positions: dict[int, int]) -> list[str]:
        """O3 and O4."""
        found: list[str] = []
        reached = dict.fromkeys(positions, 0)
        batches = self._sql(
            "SELECT batch_id, seq, batch_source_partition_id, batch_earliest_offset, batch_latest_offset"
            " FROM kpipe_batches WHERE pipeline_name = $n ORDER BY seq, batch_source_partition_id"
        )
        for batch, seq, number, start, end in batches:
            if reached[number] != start or end < start:
                found.append(f"O3 partition {number}: commit {seq} holds [{start}, {end}) after {reached[number]}")
            reached[number] = end
            del batch
        found += [f"O3 partition {n}: the ledger stands at {at}, its history ends at {reached[n]}"
                  for n, at in positions.items() if reached[n] != at]  # fmt: skip
        twice = [key for key, times in Counter((batch, number) for batch, _, number, *_ in batches).items() if times > 1]
        found += [f"O3 batch {batch}: committed twice in partition {number}" for batch, number in twice]
        commits = self._sql("SELECT batch_id, seq FROM kpipe_commits WHERE pipeline_name = $n ORDER BY seq")
        if [seq for _, seq in commits] != list(range(1, len(commits) + 1)):
            found.append(f"O3 commits are numbered {[seq for _, seq in commits]}")
        if len({batch for batch, _ in commits}) != len(commits) or {b for b, *_ in batches} - {b for b, _ in commits}:
            found.append("O3 a batch has no commit of its own")
        last = self._sql("SELECT seq FROM kpipe_pipelines WHERE pipeline_name = $n")
        if last != [(len(commits),)]:
            found.append(f"O3 the pipeline stands at commit {last}, there are {len(commits)}")
        return found + [f"O4 partition {n}: the ledger stands at {at}, the last stable offset is {self.observer.stable[n]}"
                        for n, at in positions.items() if at > self.observer.stable[n]]  # fmt: skip

    def _events(self) -> list[str]:
        """O6."""
        stored = self._sql(
            "SELECT c.seq, c.metadata, b.batch_source_partition_id, b.batch_latest_offset, b.rows FROM kpipe_commits AS c"
            " JOIN kpipe_batches AS b USING (batch_id, pipeline_name) WHERE pipeline_name = $n"
        )
        found = []
        for seq, text, number, end, rows in stored:
            told = json.loads(text).get(str(number), {})
            if (told.get("end_offset"), told.get("rows")) != (end, rows):
                found.append(f"O6 commit {seq}, partition {number}: stored {told}, the ledger says end {end}, {rows} rows")
        return found

    def _staged(self, ended: bool) -> list[str]:
        """O5."""
        landed = {batch for (batch,) in self._sql("SELECT batch_id FROM kpipe_commits")}
        staging = self.home / "staging"
        folders = {entry.name for entry in staging.iterdir()} if staging.exists() else set()
        found = [f"O5 staged files of batch {name} are left, which has landed" for name in folders & landed] if ended else []
        found += [
            f"O5 staged files of batch {name} are gone, which nobody has committed" for name in self._waiting - landed - folders
        ]
        self._waiting |= folders - landed
        odd = [name for name in folders if len(name) != 32 or set(name) - set("0123456789abcdef")]
        return found + [f"O5 {name} lies in staging, where nothing will collect it" for name in odd]

    def _secrets(self) -> list[str]:
        """O9."""
        word = self.canary.encode()
        files = [path for path in self.home.rglob("*") if path.is_file()] if word else []
        return [f"O9 the canary is in {path.relative_to(self.home)}" for path in files if word in path.read_bytes()]

    def _sql(self, query: str) -> list[tuple[Any, ...]]:
        return self._database.execute(query, {"n": self.name} if "$n" in query else None).fetchall()  # type: ignore[no-any-return]


def _differ(what: str, want: Counter[Any], have: Counter[Any]) -> list[str]:
    missing, surplus = sorted((want - have).elements()), sorted((have - want).elements())
    found = [f"O1 {what} that are missing: {_few(missing)}"] * bool(missing)
    return found + [f"O1 {what} that are too many: {_few(surplus)}"] * bool(surplus)


def _few(items: Sequence[Any]) -> str:
    return f"{len(items)}: {', '.join(map(str, items[:5]))}{' ...' if len(items) > 5 else ''}"
