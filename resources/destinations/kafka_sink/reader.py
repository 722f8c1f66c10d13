"""What the topics of a pipeline hold, for whoever asks: the ledger, its history, views, what was mirrored."""

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
from resources.destinations.kafka_sink.ledger_topic import Journal, Look
from resources.destinations.lakehouse import ledger_tables as tables
from resources.destinations.lakehouse.folder import LocalFolder
from resources.destinations.lakehouse.ledger_file import Item
from resources.destinations.lakehouse.pipeline_state import Notes
from resources.destinations.ledger_rows import entry

__all__ = ["Told"]


class Told:
    """The side of a topic's destination that changes nothing.

    Args:
        cluster: that holds the topics.
        table: topic of the rows.
        dead_letters: topic of the dead letters.
        journal: of the ledger.
        pipeline: name of the pipeline.
        notes: folder of the home for what decides nothing: state, errors that stopped runs, what was mirrored.
    """

    def __init__(self, cluster: Cluster, table: str, dead_letters: str, journal: Journal, pipeline: str, notes: Path) -> None:
        self.cluster, self.table, self.dead_letters, self.journal, self.pipeline = cluster, table, dead_letters, journal, pipeline
        self._folder, self._notes = notes, Notes(LocalFolder(notes), pipeline)

    def describe(self) -> str:
        """Kind, place and topic."""
        return f"Kafka {self.cluster.place}, topic {self.table}"

    def ledger(self) -> tuple[str, Ledger]:
        """Registration id and ledger."""
        state = self._look().state
        return (state.record.uid, state.record.ledger) if state is not None else ("", Ledger(self.pipeline))

    def _look(self) -> Look:
        """The ledger as it is now.

        Raises:
            LedgerMismatch: it is gone, or is not what commits have left.
        """
        look = self.journal.look()
        if look.state is None and self._notes.registered():
            raise LedgerMismatch(
                f"pipeline {self.pipeline}: {self.describe()}: ledger topic {self.journal.topic}"
                f" {'is gone' if look.topic is None else 'holds no ledger'}, and commits had landed there",
                f"restore it; or remove {self._folder} too, and begin anew with another pipeline name",
            )
        return look

    def history(self) -> Sequence[Entry]:
        """Every committed range of the pipeline, in order of commit."""
        return [entry(row) for item in self.journal.all(self._look()) for row in _sorted(item)]

    def recount(self) -> Recount:
        """Topics and dead letters read again from their starts."""
        look = self._look()
        if look.state is None:
            return Recount()
        items = self.journal.all(look)
        letters = self._letters(items)
        self._folder.mkdir(parents=True, exist_ok=True)
        return counting.recount(self._folder, self.cluster, self.table, look.state, items, letters)

    def _letters(self, items: Sequence[Item]) -> Sequence[Mapping[str, Any]]:
        left = {f"{item['commit']['target_table']}.dead-letters" for item in items if item["dead"]} - {self.dead_letters}
        topics = (self.dead_letters, *sorted(left))  # an edited definition may name another topic
        return [letter for topic in topics for letter in counting.kept_letters(self.cluster, topic, self.pipeline)]

    def view(self, name: str, limit: int | None = None) -> Sequence[Mapping[str, Any]]:
        """Rows of the view `kpipe_<name>` that belong to this pipeline, newest first; times are aware, UTC."""
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
        """Note the pipeline's state and, when given, an error event. Nothing reads it back to decide."""
        if self._look().state is not None:
            self._notes.note(state, error, kind, batch, stderr, self.cluster.place)

    def clear_errors(self) -> int:
        """Remove the pipeline's error events, and its last error; see `ErrorLog`."""
        return self._notes.clear() if self._look().state is not None else 0

    def unpublished(self, limit: int = 1000) -> Sequence[Publication]:
        """Metadata of commits that have not been mirrored by this home, oldest first."""
        return [
            Publication(item["commit"]["batch_id"], item["commit"]["seq"], json.loads(item["commit"]["metadata"]))
            for item in islice(self._waiting(), limit)
        ]

    def published(self, batches: Sequence[str]) -> Sequence[str]:
        """Mark them as mirrored; gives those that this very call marked."""
        asked = set(batches)
        waiting = ((item["commit"]["batch_id"], item) for item in self._waiting()) if asked else ()
        known = {batch: item for batch, item in waiting if batch in asked}
        return [batch for batch in dict.fromkeys(batches) if batch in known and self._notes.publish(known[batch])]

    def _waiting(self) -> Iterator[Item]:
        """Commits with metadata that was not given out. Those before the first of them are not looked at again."""
        look, after, all_before = self._look(), self._notes.mirrored(), True
        for offset, item in self.journal.items(look, after):
            if item["commit"]["metadata"] and not self._notes.is_published(item):
                all_before = False
                yield item
            elif all_before:
                self._notes.set_mirrored(offset + 1)


def _sorted(item: Item) -> list[Mapping[str, Any]]:
    names = ("cluster_id", "topic_id", "topic", "batch_source_partition_id", "batch_earliest_offset")
    return sorted(item["ranges"], key=lambda row: tuple(row[name] for name in names))
