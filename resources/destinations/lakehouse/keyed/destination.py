"""Lakehouse destination of rows with a key: each commit adds rows and deletes the positions of the rows that they replace."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from kpipe.batch.batch import Commit, Committed, Counts
from kpipe.ledger.ledger import Ledger
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from kpipe.topics import Part
from kpipe.verification.recount import adopted
from kpipe.verification.verify import Holding
from resources.destinations.lakehouse import balance, commit_log
from resources.destinations.lakehouse import ledger_file as records
from resources.destinations.lakehouse.destination import LakeDestination
from resources.destinations.lakehouse.keyed.merge_session import MergeSession, is_damage
from resources.destinations.lakehouse.ledger_file import Item, Record
from resources.destinations.lakehouse.live_files import Deleting
from resources.destinations.lakehouse.table_format import State, Written, is_keyed
from resources.destinations.sql.column_matching import spelled, unkeyed
from resources.destinations.sql.ledger.adopted import is_alone
from resources.destinations.sql.ledger.opening_balance import opening
from resources.destinations.sql.ledger.row_balance import named
from resources.destinations.sql.merge.keyed_batch import KeyedBatch
from resources.destinations.sql.row_rejections import check_limit
from resources.destinations.staged_file_check import Writes

__all__ = ["KeyedLakes"]


class KeyedLakes(LakeDestination):
    """One pipeline's table with a key; see `LakeDestination` and `Keyed`.

    Args:
        arguments: of `LakeDestination`.
        rule: of the key.
        cache: folder of the index of keys.
    """

    lake: Any  # a `Table` that is `Deleting`
    _session: MergeSession | None = None
    _brought: Sequence[Any] = ()

    def __init__(self, *arguments: Any, rule: KeyRule, cache: Path) -> None:
        super().__init__(*arguments)
        self.rule, self.cache = rule, cache
        self._landed: list[tuple[State, Item]] = []

    def key(self) -> tuple[str, ...]:
        """Return the key columns; see `Keyed`.

        Raises:
            InvalidPipeline: the definition names no key. These formats have no primary keys that kpipe could use.
        """
        if not self.rule.columns:
            raise unkeyed(self.table)
        return self.rule.columns

    def _key(self) -> Sequence[str]:
        return self.rule.columns or ()

    def commit(self, commit: Commit) -> Committed:
        """Make everything in the commit visible at once, or nothing; see `Destination.commit`."""
        self._landed.clear()
        try:
            done = super().commit(commit)
            state, item = self._landed[-1]
            self._advance(state)
            return replace(done, commit=_settled(commit, item))
        finally:
            self._close()

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _next(self, state: State | None, record: Record | None, ledger: Ledger, commit: Commit) -> Record:
        new = super()._next(state, record, ledger, commit)
        before, totals = record.rows if record is not None else 0, commit.totals
        return replace(new, rows=before + totals.inserted - totals.deleted) if commit.steps else new

    def _write(self, state: State | None, record: Record | None, schema: Any, commit: Commit, writes: Writes) -> Written:
        if not commit.steps or not (writes.rows or writes.deletes):
            return super()._write(state, record, schema, commit, writes)
        ledger = record.ledger if record is not None else Ledger(self.pipeline)
        key = spelled(self.key(), schema.columns, self.table)
        others = partial(self._others, state)
        batch = KeyedBatch(self.table, self.rule, key, schema.columns, commit, ledger, writes, others)
        try:
            return self._merge(state, record, schema, batch)
        except duckdb.Error as error:
            if self._session is None or not is_damage(error):
                raise
            self._session.discard()
            return self._merge(state, record, schema, batch)

    def _others(self, state: State | None) -> list[str]:
        """Return the other pipelines that have rows in the table."""
        found = [] if state is None else records.read_all(self.lake.ledger, state.pointer, self.describe())
        return [other.pipeline for other in found if other.pipeline != self.pipeline and other.rows > 0]

    def _merge(self, state: State | None, record: Record | None, schema: Any, batch: KeyedBatch) -> Written:
        lake: Deleting = self.lake
        self._close()
        self._sent = ""
        session = self._session = MergeSession(self.cache, self.staging)
        session.begin(lake, state, state.columns if state is not None else Columns(), batch)
        begun, baseline = self._begun(session, state, record)
        merged = session.merge(batch)
        limited = replace(batch.ledger, dead_letters=batch.ledger.dead_letters + self.letters_elsewhere)
        check_limit(self.pipeline, [self.rule], limited, batch.commit, merged.commit)
        rows = lake.bring_rows(schema, batch.commit, session.added(batch))
        self._brought = [*rows, *lake.bring_deletes(state, schema, session.removed(), session.emptied())]
        letters = [merged.duplicates] if merged.duplicates is not None else []
        return Written(merged.commit, self._brought, letters, balance.moved(begun, merged.delta), baseline)

    def _begun(self, session: MergeSession, state: State | None, record: Record | None) -> tuple[balance.Balance, int]:
        """Return balance and baseline of the pipeline before the commit. The first commit with a key counts the table."""
        if record is not None and record.balance is not None:
            return record.balance, record.baseline
        if state is None or is_keyed(state):
            return (), 0
        found: dict[Part, Holding] = {named(topic, number): item for topic, number, item in session.counted()}
        writers = list(records.read_all(self.lake.ledger, state.pointer, self.describe()))
        rows, sums = balance.written(commit_log.items(self.lake.ledger, other) for other in writers)
        placed = {"_kafka_partition", "_kafka_offset"} <= {*state.columns.names()}
        before = adopted([other.ledger for other in writers])
        others = session.foreign(before, is_alone(before, rows)) if placed else {}
        exact = placed and not session.has_unplaced()
        held, baseline = opening(found, rows, "_kafka_partition" in state.columns, sums if exact else {}, others)
        return balance.moved((), held), baseline

    def _found(self, state: State | None, record: Record, commit: Commit) -> int | None:
        seq = super()._found(state, record, commit)
        if self.landed is not None and state is not None:
            self._landed.append((state, self.landed))
        return seq

    def _advance(self, state: State) -> None:
        """Bring the index up to date. Best effort, the commit has landed: the next one compares the index with the table.

        A commit can land after the next attempt has prepared other files. Only the ledger file shows which attempt has landed.
        """
        if self._session is not None and self._sent == self._before(state):
            with suppress(Exception):
                self._session.advance(self.lake, state, self._brought)


def _settled(commit: Commit, item: Item) -> Commit:
    """Return a landed commit with the outcome of its rows, as the ledger records it."""
    names = ("cluster_id", "topic_id", "topic", "batch_source_partition_id", "batch_earliest_offset")
    found = {
        tuple(row[name] for name in names): Counts(*(row.get(field.name, 0) for field in fields(Counts)))
        for row in item["ranges"]
    }
    counts = dict(commit.counts)
    for step in commit.steps:
        topic = step.source.topic
        key = (topic.cluster, topic.topic_id, topic.name, step.source.partition, step.range.start)
        counts[step.lane.key] = found.get(key, counts.get(step.lane.key, Counts()))
    return commit.stored(counts)


def keyed(base: type[LakeDestination]) -> type[KeyedLakes]:
    """Return the class of a destination with keys whose other methods are those of `base`."""
    if base is LakeDestination:
        return KeyedLakes
    return type(f"Keyed{base.__name__}", (KeyedLakes, base), {})
