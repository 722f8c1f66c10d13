"""Lakehouse destination with a table for each topic. Each table has its rows and its topic's part of the ledger in one commit.

No commit of these formats changes several tables, so a batch is a commit of each table, one after the other. After a kill
between two of them the first tables are ahead of the others; the ledger is that of all tables together, so the next run
continues each topic from its own offset. Nothing has to be undone or finished (docs/adr/0067-tables-by-topic-in-lakes.md).
First lanes depend on each other: `source.start` applies to the topics that are found first. So they are decided together in the
list of topics (first_lanes.py). A topic has these lanes until its table has a commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from kpipe.batch.batch import Batch, Commit, Committed
from kpipe.definition.table_template import fill
from kpipe.errors import InvalidPipeline, KpipeError
from kpipe.failpoints import failpoint
from kpipe.interfaces import Publication
from kpipe.ledger.ledger import Ledger
from kpipe.maintenance.facts import Maintained
from kpipe.maintenance.plan import Limits
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from kpipe.topics import Part
from kpipe.verification.verify import Entry, Recount, TableRecount
from resources.destinations.lakehouse.current_reads import at_one_version
from resources.destinations.lakehouse.destination import LakeDestination
from resources.destinations.lakehouse.ledger_file import Record
from resources.destinations.lakehouse.pipeline_state import Notes
from resources.destinations.lakehouse.topics.first_lanes import FirstLanes
from resources.destinations.lakehouse.topics.provenance import TopicTracing
from resources.destinations.lakehouse.topics.registry import TopicRegistry
from resources.destinations.lakehouse.topics.seen import Seen, merged
from resources.destinations.lakehouse.topics.split_commit import letters_by_topic, split, topics_of
from resources.destinations.lakehouse.topics.views import shown
from resources.destinations.ledger_rows import entry
from resources.destinations.staged_file_check import check_totals, verify

__all__ = ["KeyedTopicLakes", "TopicLakes"]


class TopicLakes(TopicTracing):
    """One pipeline's tables by topic in a table format; see `Destination` and `TopicTables`.

    Args:
        opened: opens the destination of a table, by its name. Connects to nothing.
        registry: of the pipeline's topics.
        template: `into.table`.
        pipeline: name of the pipeline.
        staging: folders of staged files.
    """

    def __init__(
        self,
        opened: Callable[[str], LakeDestination],
        registry: TopicRegistry,
        template: str,
        pipeline: str,
        staging: Sequence[Path | str],
    ) -> None:
        self._open, self.registry, self.template, self.pipeline = opened, registry, template, pipeline
        self.staging = tuple(staging)
        self._places: dict[str, LakeDestination] = {}
        self._notes = Notes(registry.folder, pipeline)
        self._seq: int | None = None  # of the ledger that was read last
        self._numbers: dict[str, int] = {}  # each table's own, as they were read or committed last
        self._letters: dict[str, int] = {}  # dead letters of each table, as they were read last

    def describe(self) -> str:
        """Describe format, location and template of the tables."""
        return self.place(self.template).describe()

    def place(self, table: str) -> LakeDestination:
        """Return the destination of a table, which is kept: formats remember the state that they read last."""
        if table not in self._places:
            self._places[table] = self._open(table)
            self._places[table].by_topic = True
        return self._places[table]

    # -- tables

    def columns(self) -> Columns | None:
        """Return None: a template does not name one table."""
        return None

    def columns_of(self, tables: Sequence[str]) -> Sequence[Columns | None]:
        """Return the payload columns of tables; see `TopicTables`."""
        return [self.place(table).columns() for table in tables]

    def rows_of_tables(self) -> Mapping[str, int]:
        """Return the number of rows of each table that was written; see `TopicTables`."""
        return {seen.place.table: seen.record.rows for seen in self.seen() if _was_read(seen.record)}

    def topics_written(self) -> Mapping[str, str]:
        """Return the table of each topic that was read; see `TopicTables`."""
        return {seen.topic: seen.place.table for seen in self.seen() if _was_read(seen.record)}

    def topics_of_tables(self) -> Mapping[str, Sequence[str]]:
        """Return the topic of each table, also before its first commit; see `TopicTables`."""
        return {table: [topic] for topic, table in self.registry.tables().items()}

    def seen(self, topic: str | None = None) -> list[Seen]:
        """Read the tables of all topics with commits, or of one topic, in order of the topics' names.

        Raises:
            InvalidPipeline: the template was edited.
            LedgerMismatch: a table or its ledger is missing, or was changed by hand.
        """
        found = []
        for name, table in sorted(self.registry.tables().items()):
            if topic is not None and name != topic:
                continue
            if fill(self.template, name) != table:
                raise InvalidPipeline(
                    f"pipeline {self.pipeline}: topic {name} was loaded into table {table}, which contains its offsets, and"
                    f" into.table {self.template} names another",
                    "undo the change of into.table, or use another pipeline name",
                ).about("into", "table")
            place = self.place(table)
            state, record = place._look()
            if state is None or record is None:
                if self.registry.is_committed(name):
                    raise place._gone(f"table {table} of topic {name} is missing")
                continue
            found.append(Seen(name, place, state, record))
        return found

    # -- the ledger

    def ledger(self) -> tuple[str, Ledger]:
        """Return registration id and ledger: the lanes of all tables. Each table is read by itself."""
        found = self.seen()
        waiting = self._waiting(found)
        record = self._merged(found, waiting)
        self._seq, self._numbers = record.seq, {seen.topic: seen.record.seq for seen in found} | dict.fromkeys(waiting, 1)
        self._letters = {seen.topic: seen.record.dead_letters for seen in found}
        uid = record.uid if found or waiting else ""
        return uid, replace(record.ledger, of_tables=sum(self._numbers.values()))

    def _merged(self, found: Sequence[Seen], waiting: Mapping[str, FirstLanes]) -> Record:
        return merged(self.pipeline, self.registry.uid(), self.template, found, waiting)

    def _waiting(self, found: Sequence[Seen]) -> dict[str, FirstLanes]:
        """Return the first lanes of topics whose tables have no commit yet, by topic, if all others were found."""
        committed = {seen.topic for seen in found}
        return {topic: first for topic, first in self.registry.decided().items() if topic not in committed}

    def commit(self, commit: Commit) -> Committed:
        """Commit each table's part of the batch, in order of the topics' names; each is visible at once, or not at all.

        Committing the same commit again adds the parts that are missing. All parts have the same number, unless another
        run commits at the same time. First lanes of topics are decided for all of them before the first part.

        Raises:
            KpipeError: see `Destination.commit`; parts of tables before may be committed, with their offsets.
        """
        dead = letters_by_topic(commit.dead_letters) if verify(commit.dead_letters, self.staging) else {}
        check_totals(commit)
        if self._seq is None:
            self.ledger()
        assert self._seq is not None
        tables = {topic: fill(self.template, topic) for topic in topics_of(commit)}
        self.registry.add(tables, self._first_lanes(commit, self._seq + 1))
        parts = split(commit, tables, dead) or self._of_first(commit)
        done: list[Committed] = []
        aside = {topic: part.totals.dead_letters for topic, part in parts.items()}  # dead letters of the batch
        for topic, part in parts.items():
            if done:
                failpoint("commit.next_table")
            elsewhere = sum(count for other, count in (*self._letters.items(), *aside.items()) if other != topic)
            try:
                landed, number = self._land(topic, part, elsewhere)
            except KpipeError as error:
                if done:
                    error.what += f"; {len(done)} of {len(parts)} tables of the batch are committed, with their offsets"
                raise
            self._numbers[topic] = landed.seq
            aside[topic] = landed.commit.totals.dead_letters  # a key may have given more
            done.append(replace(landed, seq=number))
        self._seq = None
        number, age = max((item.seq for item in done), default=0), sum(self._numbers.values())
        return Committed(_settled(commit, done), number, age=age)

    def _first_lanes(self, commit: Commit, number: int) -> FirstLanes | None:
        """Return the commit's decision about topics whose tables have no commit yet and that are not decided yet, if it has one.

        Raises:
            Fenced: another run has decided otherwise.
        """
        new = {topic for topic in topics_of(commit) if self._is_new(topic)}
        decided = {topic: first for topic, first in self.registry.decided().items() if topic in new}
        others = {topic: first for topic, first in decided.items() if first.commit.id != commit.id}
        waiting = Ledger(self.pipeline, lanes={lane.key: lane for topic in others for lane in others[topic].lanes(topic)})
        waiting.after([change for change in commit.changes if change.key[0].topic.name in others], commit.id)
        changes = tuple(change for change in commit.changes if change.key[0].topic.name in new - decided.keys())
        if not changes or commit.steps or any(change.expect is not None for change in changes):
            return None
        return FirstLanes(replace(commit, changes=changes), number)

    def _is_new(self, topic: str) -> bool:
        """Return whether the topic's table has no commit yet."""
        return not self.registry.is_committed(topic) and self.place(fill(self.template, topic))._look()[1] is None

    def _land(self, topic: str, part: Commit, letters_elsewhere: int) -> tuple[Committed, int]:
        """Commit the part of a topic, after its first lanes if they are not in its table yet, and return its number, too."""
        assert self._seq is not None
        place, first = self.place(fill(self.template, topic)), self.registry.decided().get(topic)
        own = first is not None and first.commit.id == part.id
        if first is not None and not own and self._is_new(topic):
            place.number = first.number
            place.commit(first.part(topic))
        place.number = first.number if first is not None and own else self._seq + 1
        place.letters_elsewhere = letters_elsewhere
        landed = place.commit(part)
        with suppress(KpipeError):  # the commit is done; the next run marks it
            self.registry.mark(topic)
        assert place.landed is not None
        return landed, place.landed["number"]

    def _of_first(self, commit: Commit) -> dict[str, Commit]:
        """Return a decision without lanes as the part of the first topic."""
        found = self.seen()
        return {found[0].topic: commit} if found else {}

    @at_one_version
    def history(self) -> Sequence[Entry]:
        """Return every committed range of the pipeline, in order of commit."""
        entries = [
            replace(entry(row), table=seen.place.table) for seen in self.seen() for item in seen.items() for row in item["ranges"]
        ]
        return sorted(entries, key=lambda made: (made.seq, made.batch, made.source, made.range))

    def recount(self) -> Recount:
        """Count rows and dead letters of each table again, each at one version of its table."""
        tables: dict[str, TableRecount] = {}
        dead: dict[Part, int] = {}
        for seen in self.seen():
            if not _was_read(seen.record):
                continue
            found = seen.place.recount()
            tables |= found.tables
            for name, count in found.dead_letters.items():
                dead[name] = dead.get(name, 0) + count
        return Recount(tables, dead, by_topic=True)

    @at_one_version
    def view(self, name: str, limit: int | None = None) -> Sequence[Mapping[str, Any]]:
        """Return the pipeline's rows of the view `kpipe_<name>`, newest first; times are aware, UTC."""
        found = self.seen()
        if not found:
            return []
        record = self._merged(found, self._waiting(found))
        return shown(name, limit, found, record, self._notes, self.registry.folder)

    def maintain(
        self,
        limits: Limits,
        scratch: Path,
        dry_run: bool = False,
        note: Callable[[str], None] = lambda _: None,
        retention_s: float | None = None,
    ) -> Maintained:
        """Maintain each table, in order of the topics' names; see `Maintainable`. The result is that of all tables together."""
        done = [
            seen.place.maintain(limits, scratch, dry_run, partial(_noted, note, seen.place.table), retention_s)
            for seen in self.seen()
        ]
        if not done:
            raise InvalidPipeline(f"pipeline {self.pipeline}: nothing committed yet", f"kpipe run {self.pipeline}")
        return sum(done[1:], done[0])

    # -- state, errors and publications

    def record_state(self, state: str, error: str = "", kind: str = "", batch: Batch | None = None, stderr: str = "") -> None:
        """Record the pipeline's state and, if passed, an error event. No decision depends on it."""
        found = self.seen()
        for seen in found if state == "running" else ():
            seen.place.lake.upkeep(seen.state)  # finish the maintenance of a killed run
            self.registry.mark(seen.topic)
        if found:
            self._notes.note(state, error, kind, batch, stderr, self.registry.folder.place)

    def clear_errors(self) -> int:
        """Delete the pipeline's error events and its last error; see `ErrorLog`."""
        return self._notes.clear() if self.seen() else 0

    @at_one_version
    def unpublished(self, limit: int = 1000) -> Sequence[Publication]:
        """Return metadata of commits that are not published yet, oldest first: of each batch the parts that are committed."""
        waiting: dict[tuple[int, str], dict[str, Any]] = {}
        for seen in self.seen():
            for at, item in enumerate(seen.place.waiting()):
                if at == limit:
                    break
                key = item["number"], item["commit"]["batch_id"]
                waiting.setdefault(key, {}).update(json.loads(item["commit"]["metadata"]))
        return [Publication(batch, seq, waiting[seq, batch]) for seq, batch in sorted(waiting)[:limit]]

    def published(self, publications: Sequence[Publication]) -> Sequence[str]:
        """Mark the parts that were read as published; return the batches of which this call marked a part.

        Parts that were committed after they were read stay unpublished: a batch of many tables lands over a longer time.
        """
        marked = {batch for seen in self.seen() for batch in seen.place.published(publications)} if publications else set()
        return [batch for batch in dict.fromkeys(item.batch for item in publications) if batch in marked]


class KeyedTopicLakes(TopicLakes):
    """Tables by topic whose rows have a key: the same columns in each table; see `Keyed`.

    Args:
        arguments: of `TopicLakes`.
        rule: of the key.
    """

    def __init__(self, *arguments: Any, rule: KeyRule) -> None:
        super().__init__(*arguments)
        self._rule = rule

    def key(self) -> tuple[str, ...]:
        """Return the key columns of the definition; see `Keyed`."""
        return tuple(self._rule.columns or ())


def _was_read(record: Record) -> bool:
    """Return whether a commit has recorded a range of the topic."""
    return bool(record.segments) or any(item["ranges"] for item in record.tail)


def _settled(commit: Commit, done: Sequence[Committed]) -> Commit:
    """Return the commit with the outcome of its rows in each table."""
    outcomes = {write.table: write.counts for item in done for write in item.commit.tables}
    if not commit.tables:
        return commit
    return commit.settled([outcomes.get(write.table, write.counts) for write in commit.tables])


def _noted(note: Callable[[str], None], table: str, line: str) -> None:
    note(f"{table}: {line}")
