"""A destination in memory with the whole protocol, for tests of pipelines without a database.

Several `MemoryDestination` objects may share one `MemoryStore`, as processes share a database. On request, a store fails
as a database does: before anything happened, after the commit (the response is lost), or with an unknown outcome.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kpipe.batch.batch import Batch, Commit, Committed, StagedFile
from kpipe.errors import (
    DestinationError,
    LedgerMismatch,
    OutcomeUnknown,
    SchemaConflict,
    StagingFailed,
)
from kpipe.interfaces import Publication
from kpipe.ledger.ledger import Ledger, checksum, verify_checksum
from kpipe.schema.columns import Columns
from kpipe.testing.memory_recount import check_ranges, named_rows, part_of
from kpipe.testing.memory_store import VIEWS, MemoryStore, MemoryTable, Registered, Row, entries
from kpipe.topics import Part, PartitionId, part
from kpipe.verification.recount import Adopted, adopted
from kpipe.verification.verify import Entry, Recount, TableRecount

__all__ = ["MemoryDestination", "MemoryStore", "MemoryTable", "Registered", "read_json_lines"]


def read_json_lines(file: StagedFile) -> list[Row]:
    """Read the rows of a staged file with one JSON object a line."""
    return [json.loads(line) for line in Path(file.path).read_text("utf-8").splitlines()]


class MemoryDestination:
    """The `Destination` protocol over a `MemoryStore`.

    Args:
        store: the store; destinations with the same store share one database.
        pipeline: name of the pipeline.
        table: name of its table.
        read_rows: reads a staged file; JSON lines by default.
    """

    def __init__(
        self,
        store: MemoryStore,
        pipeline: str,
        table: str,
        read_rows: Callable[[StagedFile], list[Row]] = read_json_lines,
    ) -> None:
        self.store, self.pipeline, self.table, self.read_rows = store, pipeline, table, read_rows

    def describe(self) -> str:
        """Return type and table."""
        return f"memory, table {self.table}"

    def columns(self) -> Columns | None:
        """Read the payload columns of the table; None if it does not exist."""
        with self.store.lock:
            self._check_gone()
            table = self.store.tables.get(self.table)
            return None if table is None else table.columns

    def ledger(self) -> tuple[str, Ledger]:
        """Read registration id and ledger."""
        with self.store.lock:
            known = self.store.pipelines.get(self.pipeline)
            if known is None:
                return "", Ledger(self.pipeline)
            verify_checksum(known.ledger, known.seal, self.describe())
            return known.uid, known.ledger

    def commit(self, commit: Commit) -> Committed:
        """Make everything in the commit visible at once, or nothing; see `Destination.commit`."""
        with self.store.lock:
            fault = self.store.faults.pop(0) if self.store.faults else None
            if fault == "before":
                raise DestinationError(f"{self.describe()}: batch {commit.id}: failed before anything was written")
            known = self.store.pipelines.get(self.pipeline)
            if known is None or commit.id not in known.commits:
                self._land(commit)
            if fault == "unknown":
                raise OutcomeUnknown(f"{self.describe()}: batch {commit.id} was sent and cannot be read back")
            seq = self.store.pipelines[self.pipeline].commits[commit.id][0].seq
            return Committed(commit, seq)

    def history(self) -> Sequence[Entry]:
        """Read every committed range of the pipeline, in order of commit."""
        with self.store.lock:
            known = self.store.pipelines.get(self.pipeline)
            return (
                [] if known is None else [entry for done, _ in known.commits.values() for entry in entries(done.commit, done.seq)]
            )

    def recount(self) -> Recount:
        """Count the rows and dead letters."""
        with self.store.lock:
            known = self.store.pipelines.get(self.pipeline)
            if known is None:
                return Recount()
            left = {table for done, table in known.commits.values() if done.commit.totals.rows} - {self.table}
            tables = (self.table, *sorted(left))  # the others are left over from an earlier definition
            return Recount({table: self._counted(table) for table in tables}, Counter(part_of(row) for row in known.dead_letters))

    def _counted(self, name: str) -> TableRecount:
        """Compare a table with the commits of all pipelines."""
        rows: Sequence[Row] = self.store.tables.get(name, MemoryTable()).rows
        writers = [
            (pipeline, entry)
            for pipeline, item in self.store.pipelines.items()
            for done, table in item.commits.values()
            if table == name
            for entry in entries(done.commit)
        ]
        expected: Counter[Part] = Counter()
        for _, entry in writers:
            expected[part(entry.source, True)] += entry.counts.rows
        told = {(pipeline, entry.source.topic) for pipeline, entry in writers}
        if len({pipeline for pipeline, _ in writers}) == 1:
            rows = named_rows(rows, [entry for _, entry in writers])
        wrong: list[tuple[Entry, int]] = []
        repeated: Counter[Part] = Counter()
        problems: list[str] = []
        with_topic = any("_kafka_topic" in row for row in rows) and len({topic.name for _, topic in told}) == len(told)
        if len(told) == 1 or with_topic:
            wrong, repeated, problems = check_ranges(rows, [entry for _, entry in writers], len(told) > 1)
        taken = (item for item in self.store.pipelines.values() if any(table == name for _, table in item.commits.values()))
        foreign = adopted(item.ledger for item in taken)
        mine = (row for row in rows if not _is_foreign(row, foreign))
        return TableRecount(Counter(part_of(row) for row in mine), expected, repeated, wrong, problems=problems)

    def view(self, name: str, limit: int | None = None) -> Sequence[Mapping[str, Any]]:
        """Read the rows of the view `kpipe_<name>`, newest first, with the columns that a fake supports."""
        with self.store.lock:
            known = self.store.pipelines.get(self.pipeline)
            return [] if known is None else VIEWS[name](self.pipeline, self.table, known)[:limit]

    def record_state(self, state: str, error: str = "", kind: str = "", batch: Batch | None = None, stderr: str = "") -> None:
        """Store the pipeline's state, and an error event if there is one."""
        with self.store.lock:
            known = self.store.pipelines.get(self.pipeline)
            if known is None:
                return
            known.state = state
            if error:
                event = {"error_type": "Error", "error_code": kind, "error_message": error, "std_error": stderr or None}
                known.errors.append({**event, "batch_id": batch.id if batch else None, "dead_letter": False})

    def clear_errors(self) -> int:
        """Delete the error events."""
        with self.store.lock:
            known = self.store.pipelines.get(self.pipeline)
            gone = len(known.errors) if known else 0
            if known is not None:
                known.errors.clear()
            return gone

    def unpublished(self, limit: int = 1000) -> Sequence[Publication]:
        """Read the metadata of commits that are not yet published, oldest first."""
        with self.store.lock:
            known = self.store.pipelines.get(self.pipeline)
            done = [] if known is None else [item for item, _ in known.commits.values() if item.commit.metadata]
            waiting = [item for item in done if known is not None and item.commit.id not in known.published]
            return [
                Publication(item.commit.id, item.seq, _keyed(item.commit.metadata, item.commit.multi_topic))
                for item in waiting[:limit]
            ]

    def published(self, publications: Sequence[Publication]) -> Sequence[str]:
        """Mark batches as published, and return those that this call marked."""
        with self.store.lock:
            known = self.store.pipelines.get(self.pipeline)
            batches = dict.fromkeys(item.batch for item in publications)
            mine = [b for b in batches if known and b in known.commits and b not in known.published]
            if known is not None:
                known.published.update(mine)
            return mine

    def _land(self, commit: Commit) -> None:
        """Prepare everything apart from the store, then apply it at once."""
        write = commit.only
        rows = [row for file in write.files for row in self._read(file)]
        dead = [row for file in commit.dead_letters for row in self._read(file)]
        if (len(rows), len(dead)) != (commit.totals.rows, commit.totals.dead_letters):
            raise StagingFailed(f"batch {commit.id}: {len(rows)} rows and {len(dead)} dead letters are staged, others counted")
        known = self.store.pipelines.get(self.pipeline)
        ledger = (known.ledger if known else Ledger(self.pipeline)).after(commit.changes, commit.id)
        self._check_gone()
        table = self.store.tables.get(self.table)
        if write.columns or rows:
            for row in rows:
                strange = [name for name in row if name not in write.columns and not name.startswith("_kafka_")]
                if strange:
                    raise StagingFailed(
                        f"batch {commit.id}: a staged file has column {strange[0]!r}, which is not a column of the batch"
                    )
            try:
                columns = (table or MemoryTable()).columns.merged(write.columns)
            except ValueError as error:
                raise SchemaConflict(str(error), "declare the column's type under `columns`, or change the table") from error
            table = MemoryTable(columns, [*(table.rows if table else []), *rows])
        known = known or Registered(uuid.uuid4().hex, ledger)
        if table is not None:
            self.store.tables[self.table] = table
        self.store.pipelines[self.pipeline] = known
        known.ledger = replace(ledger, dead_letters=ledger.dead_letters + len(dead))
        known.seal ^= checksum(lane for change in commit.changes for lane in (change.expect, change.become))
        known.written += len(rows)
        known.dead_letters += dead
        known.ends.update(commit.ends)
        known.commits[commit.id] = (Committed(commit, ledger.seq), self.table)

    def _read(self, file: StagedFile) -> list[Row]:
        try:
            data = Path(file.path).read_bytes()
        except OSError as error:
            raise StagingFailed(f"staged file {file.path!r} cannot be read: {error.strerror}") from error
        if len(data) != file.size or hashlib.sha256(data).hexdigest() != file.sha256:
            raise StagingFailed(f"staged file {file.path!r}: its bytes do not match the reported sha256")
        rows = self.read_rows(file)
        if len(rows) != file.rows:
            raise StagingFailed(f"staged file {file.path!r}: expected {file.rows} rows, found {len(rows)}")
        return rows

    def _check_gone(self) -> None:
        known = self.store.pipelines.get(self.pipeline)
        done = [] if known is None else [item.commit for item, table in known.commits.values() if table == self.table]
        if self.table not in self.store.tables and (written := sum(commit.totals.rows for commit in done)):
            raise LedgerMismatch(
                f"pipeline {self.pipeline}: table {self.table} is missing, the ledger records {written} rows in it"
            )


def _is_foreign(row: Row, foreign: Adopted) -> bool:
    """Return whether a row is at an offset that another loader had read before the pipeline began."""
    topics = {topic for topic, _ in foreign}
    topic = str(row.get("_kafka_topic", next(iter(topics)) if len(topics) == 1 else ""))
    offset = row.get("_kafka_offset")
    return offset is not None and offset < foreign.get((topic, int(row["_kafka_partition"])), 0)


def _keyed(metadata: Mapping[PartitionId, Mapping[str, object]], multi_topic: bool) -> dict[str, Mapping[str, Any]]:
    return {str(part(source, multi_topic)): dict(values) for source, values in metadata.items()}
