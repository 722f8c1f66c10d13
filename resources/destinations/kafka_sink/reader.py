"""Read the topics of a pipeline: ledger, history, views, published commits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from kpipe.batch.batch import Batch
from kpipe.errors import LedgerMismatch
from kpipe.interfaces import Publication
from kpipe.ledger.ledger import Ledger
from kpipe.verification.verify import Entry, Recount
from resources.destinations.kafka_sink import recount as counting
from resources.destinations.kafka_sink.cluster import Cluster
from resources.destinations.kafka_sink.ledger_topic import Journal, JournalState
from resources.destinations.lakehouse import ledger_tables as tables
from resources.destinations.lakehouse.folder import LocalFolder
from resources.destinations.lakehouse.ledger_file import Item
from resources.destinations.lakehouse.pipeline_state import Notes
from resources.destinations.ledger_rows import entry

__all__ = ["KafkaSinkReader"]


class KafkaSinkReader:
    """The read side of a Kafka destination.

    Args:
        cluster: the topics' cluster.
        table: topic of the rows.
        dead_letters: topic of the dead letters.
        journal: the ledger topic.
        pipeline: name of the pipeline.
        notes: folder for what is not part of the ledger: state, errors that stopped runs, published commits.
    """

    def __init__(self, cluster: Cluster, table: str, dead_letters: str, journal: Journal, pipeline: str, notes: Path) -> None:
        self.cluster, self.table, self.dead_letters, self.journal, self.pipeline = cluster, table, dead_letters, journal, pipeline
        self._folder, self._notes = notes, Notes(LocalFolder(notes), pipeline)

    def describe(self) -> str:
        """Describe type, brokers and topic."""
        return f"Kafka {self.cluster.place}, topic {self.table}"

    def ledger(self) -> tuple[str, Ledger]:
        """Return registration id and ledger."""
        state = self._look().state
        return (state.record.uid, state.record.ledger) if state is not None else ("", Ledger(self.pipeline))

    def _look(self) -> JournalState:
        """Read the current ledger.

        Raises:
            LedgerMismatch: the ledger is missing, or was not written by commits.
        """
        look = self.journal.look()
        if look.state is None and self._notes.registered():
            raise LedgerMismatch(
                f"pipeline {self.pipeline}: {self.describe()}: ledger topic {self.journal.topic}"
                f" {'is missing' if look.topic is None else 'contains no ledger'}, but commits were made there",
                f"restore it; or delete {self._folder}, too, and start with another pipeline name",
            )
        return look

    def history(self) -> Sequence[Entry]:
        """Return every committed range of the pipeline, in order of commit."""
        return [entry(row) for item in self.journal.all(self._look()) for row in _sorted(item)]

    def recount(self) -> Recount:
        """Read topics and dead letters again from their starts."""
        look = self._look()
        if look.state is None:
            return Recount()
        items = self.journal.all(look)
        letters = self._letters(items)
        self._folder.mkdir(parents=True, exist_ok=True)
        return counting.recount(self._folder, self.cluster, self.table, look.state, items, letters)

    def _letters(self, items: Sequence[Item]) -> Iterator[Mapping[str, Any]]:
        """Yield the dead letters in the topic of the definition, and in those that earlier definitions named."""
        named = {item.get("letters") or f"{item['commit']['target_table']}.dead-letters" for item in items if item["dead"]}
        for topic in (self.dead_letters, *sorted(named - {self.dead_letters})):
            yield from counting.kept_letters(self.cluster, topic, self.pipeline)

    def view(self, name: str, limit: int | None = None) -> Sequence[Mapping[str, Any]]:
        """Return the pipeline's rows of the view `kpipe_<name>`, newest first; times are aware, UTC."""
        look = self._look()
        if look.state is None:
            return []
        events = self._notes.events() if name in ("errors", "pipelines") else []
        with tables.desk(LocalFolder(self._folder)) as (connection, _):
            tables.lay_pipeline(connection, look.state.record, self._notes.state(), self.cluster.place, len(events))
            if name in ("batches", "batches_summary"):
                found = (item for item in reversed(self.journal.all(look)) if item["ranges"])
                tables.lay_commits(connection, islice(found, limit), self.table)
            if name == "errors":
                tables.lay_events(connection, events)
                counting.lay_letters(connection, self.journal.all(look), self._letters(self.journal.all(look)))
            return tables.shown(connection, name, self.pipeline, limit)

    def record_state(self, state: str, error: str = "", kind: str = "", batch: Batch | None = None, stderr: str = "") -> None:
        """Record the pipeline's state and, if passed, an error event. No decision depends on it."""
        if self._look().state is not None:
            self._notes.note(state, error, kind, batch, stderr, self.cluster.place)

    def clear_errors(self) -> int:
        """Delete the pipeline's error events and its last error; see `ErrorLog`."""
        return self._notes.clear() if self._look().state is not None else 0

    def unpublished(self, limit: int = 1000) -> Sequence[Publication]:
        """Return metadata of commits that this home has not published, oldest first."""
        return [
            Publication(item["commit"]["batch_id"], item["commit"]["seq"], json.loads(item["commit"]["metadata"]))
            for item in islice(self._waiting(), limit)
        ]

    def published(self, publications: Sequence[Publication]) -> Sequence[str]:
        """Mark commits as published; return those that this call marked."""
        asked = dict.fromkeys(item.batch for item in publications)
        waiting = ((item["commit"]["batch_id"], item) for item in self._waiting()) if asked else ()
        known = {batch: item for batch, item in waiting if batch in asked}
        return [batch for batch in asked if batch in known and self._notes.publish(known[batch])]

    def _waiting(self) -> Iterator[Item]:
        """Return commits with unpublished metadata. Commits before the first of them are not read again."""
        look, after, all_before = self._look(), self._notes.published_before(), True
        for offset, item in self.journal.items(look, after):
            if item["commit"]["metadata"] and not self._notes.is_published(item):
                all_before = False
                yield item
            elif all_before:
                self._notes.set_published_before(offset + 1)


def _sorted(item: Item) -> list[Mapping[str, Any]]:
    names = ("cluster_id", "topic_id", "topic", "batch_source_partition_id", "batch_earliest_offset")
    return sorted(item["ranges"], key=lambda row: tuple(row[name] for name in names))
