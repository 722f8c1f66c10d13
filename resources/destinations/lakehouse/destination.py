"""Lakehouse destination: rows, dead letters and ledger become visible with one commit of the table format."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from kpipe.batch.batch import Batch, Commit, Committed
from kpipe.errors import DestinationError, KpipeError, LedgerMismatch
from kpipe.failpoints import failpoint
from kpipe.interfaces import Publication
from kpipe.ledger.ledger import Ledger
from kpipe.schema.columns import Columns
from kpipe.verification.evidence import Evidence
from kpipe.verification.verify import Entry, Recount
from resources.destinations.commit_protocol import Failure, Steps, land
from resources.destinations.lakehouse import balance, commit_log
from resources.destinations.lakehouse import ledger_file as records
from resources.destinations.lakehouse import ledger_tables as tables
from resources.destinations.lakehouse.current_reads import READS, at_one_version
from resources.destinations.lakehouse.dead_letter_pages import PagedLetters
from resources.destinations.lakehouse.ledger_file import Item, Record
from resources.destinations.lakehouse.maintenance.destination import Maintaining
from resources.destinations.lakehouse.pipeline_state import Notes, marker, partitions_by_batch, partitions_of
from resources.destinations.lakehouse.provenance import Tracing
from resources.destinations.lakehouse.row_count import count_again
from resources.destinations.lakehouse.table_format import Overtaken, State, Table, Written, is_keyed
from resources.destinations.ledger_rows import commit_row, range_rows
from resources.destinations.sql.ledger.history_tables import check_letters
from resources.destinations.staged_file_check import Proven, Writes, check_totals, verify
from resources.type_compatibility import COORDINATES, carried

__all__ = ["LakeDestination"]

_TRIED = 8  # commits that retry deleting a superseded file


class LakeDestination(Tracing, Maintaining, PagedLetters):
    """One pipeline's table in a table format.

    Args:
        lake: the table.
        table: its name.
        pipeline: name of the pipeline.
        config_json: the pipeline's definition for display, without secrets.
        staging: folders of staged files.
    """

    def __init__(
        self,
        lake: Table,
        table: str,
        pipeline: str,
        config_json: Mapping[str, Any] | None = None,
        staging: Sequence[Path | str] = (),
    ) -> None:
        self.lake, self.table, self.pipeline, self.staging = lake, table, pipeline, tuple(staging)
        self.config = dict(config_json or {})
        self._notes, self._own = Notes(lake.ledger, pipeline), records.folder_of(pipeline)
        self.by_topic = False  # whether the pipeline has tables by topic (topics/destination.py)
        self.number = 0  # then: number of its next commit
        self.letters_elsewhere = 0  # then: dead letters of the other tables, with those of the batch
        self.landed: Item | None = None  # the commit that was read back last
        self._search = commit_log.BatchSearch()
        self._sent = ""  # name of the ledger file of the last attempt

    def describe(self) -> str:
        """Describe format, location and table."""
        return f"{self.lake.kind} {self.lake.place}, table {self.table}"

    def columns(self) -> Columns | None:
        """Return the payload columns of the table; None if it has none yet.

        Raises:
            SchemaConflict: a column has a type that kpipe cannot write.
            LedgerMismatch: the table is missing although rows were written to it.
        """
        state, _ = self._look()
        return (state.columns.without(COORDINATES.names()) or None) if state is not None else None

    def ledger(self) -> tuple[str, Ledger]:
        """Return registration id and ledger."""
        _, record = self._look()
        return (record.uid, record.ledger) if record is not None else ("", Ledger(self.pipeline))

    def commit(self, commit: Commit) -> Committed:
        """Make everything in the commit visible at once, or nothing; see `Destination.commit`."""
        done = land(commit, self.describe(), lambda: self._attempt(commit), lambda: self._read_back(commit))
        with suppress(KpipeError):  # the commit is done; cleaning up is best effort
            self._tidy()
        return done

    def _attempt(self, commit: Commit) -> Failure | None:
        """Make one commit of the table. Its result is verified by reading back."""
        steps = Steps()
        try:
            steps.enter("verify")  # 1: each staged file matches its report
            write = commit.only
            writes = Writes(*(verify(files, self.staging) for files in (write.files, write.deletes)))
            dead = verify(commit.dead_letters, self.staging)
            check_totals(commit)
            check_letters(dead)
            steps.enter("open")  # 2: the state to validate against, and the base of the commit
            state, record = self._look()
            steps.enter("begin")
            steps.enter("ledger")  # 3
            if record and (record.reread or not commit.changes) and self._found(state, record, commit) is not None:
                return None  # already committed; lanes alone would not show it
            ledger = (record.ledger if record else Ledger(self.pipeline)).after(commit.changes, commit.id)
            steps.enter("register")  # 4
            steps.enter("table")  # 5: create or widen the table, as part of the commit
            staged = (*writes.rows, *writes.deletes)
            wanted = carried(commit, [name for file in staged for name in file.names]) if write.columns or staged else Columns()
            schema = self.lake.prepare(state, wanted)
            steps.enter("data")  # 6: write files that no commit references yet
            written = self._write(state, record, schema, commit, writes)
            new = self._next(state, record, ledger, written.commit)
            new = replace(new, balance=written.balance, baseline=written.baseline)
            steps.enter("dead_letters")  # 7: also not referenced yet
            letters = self._bring([*dead, *written.letters], new.seq)
            steps.enter("history")  # 8: write the ledger file, which is not referenced yet
            pointer = records.write(self.lake.ledger, self._told(new, written.commit, letters))
            self._sent = pointer.name
            steps.enter("before")  # 9: commit: one new version of the table
            self.lake.land(state, schema, written.brought, new, pointer)
            steps.enter("after")
        except Overtaken as error:
            text = f"{self.describe()}: batch {commit.id}: every attempt was overtaken by another commit: {error}"
            return Failure(DestinationError(text, "nothing was written; run it again"), sent=True, again=True)
        except Exception as error:
            sent = steps.current in ("before", "after")
            if isinstance(error, KpipeError):
                return Failure(error, sent)
            what = f"{self.describe()}: batch {commit.id}, step {steps.current}: {error}"
            return Failure(DestinationError(what, "nothing was written; run it again"), sent)
        return None

    def _write(self, state: State | None, record: Record | None, schema: Any, commit: Commit, writes: Writes) -> Written:
        """Write the files of a batch, and return them with the outcome of its rows."""
        brought = self.lake.bring(schema, commit, writes.rows) if writes.rows else ()
        if state is None or not is_keyed(state):
            return Written(commit, brought)
        had = record or Record(self.pipeline, "")
        return Written(commit, brought, (), balance.moved(had.balance, balance.added(writes.rows)), had.baseline)

    def _key(self) -> Sequence[str]:
        """Return the key columns; none if rows are only added."""
        return ()

    def _next(self, state: State | None, record: Record | None, ledger: Ledger, commit: Commit) -> Record:
        now = time.time()
        last = record or Record(self.pipeline, str(uuid.uuid4()), created=now)
        return replace(
            last.after(commit, ledger, self.table, self.config, now),
            base=state.version if state else -1,
            number=max(self.number, last.number + 1) if self.by_topic else 0,
            gone=(*last.gone, (ledger.seq, self._before(state))) if record else (),
        )

    def _before(self, state: State | None) -> str:
        pointer = state.pointer(self.pipeline) if state else None
        return pointer.name if pointer else ""

    def _told(self, record: Record, commit: Commit, letters: Sequence[Mapping[str, Any]]) -> Record:
        """Append the commit to the record's history."""
        item: dict[str, Any] = {
            "commit": commit_row(commit, self.table, record.seq),
            "ranges": range_rows(commit, self.table, record.seq, self.lake.place),
            "dead": letters,
        }
        if record.number:
            item["number"] = record.number
        if marks := tables.marks(commit):
            item["marks"] = marks
        longer = commit_log.extended(self.lake.ledger, record, item)
        done = self._newly_published(record, spilled=longer.segments != record.segments)
        published = done[-1]["commit"]["seq"] if done else record.published
        passed = ((record.seq, marker(known)) for known in done if known["commit"]["metadata"])
        gone = tuple(item for item in (*longer.gone, *passed) if item[0] > record.seq - self.lake.kept - _TRIED)
        return replace(longer, published=published, gone=gone)

    def _newly_published(self, record: Record, spilled: bool) -> list[Item]:
        """Return the next commits in order that were published meanwhile, or have nothing to publish.

        Segments are read only when one is written: a commit must not cost more when commits are not published.
        """
        found: list[Item] = []
        if spilled or not record.segments or record.segments[-1].last <= record.published:
            for known in commit_log.items(self.lake.ledger, record, after=record.published):
                if known["commit"]["metadata"] and not self._notes.is_published(known):
                    break
                found.append(known)
        return found

    def _bring(self, dead: Sequence[Proven], seq: int) -> list[dict[str, Any]]:
        """Write files of dead letters, durably; only the ledger file references them."""
        files = []
        for proven in dead:
            name = f"{self._own}/dead/{seq:012}-{uuid.uuid4().hex}.parquet"
            self.lake.ledger.take(proven.path, name)
            files.append({"name": name, "rows": proven.rows})
        if files:
            self.lake.ledger.settle(f"{self._own}/dead")
        return files

    @at_one_version
    def _read_back(self, commit: Commit) -> tuple[int | None, Ledger]:
        """Return the commit's sequence number if it is in the ledger, and the ledger, from a new read of the table."""
        failpoint("readback")
        state, record = self._look()
        if record is None:
            return None, Ledger(self.pipeline)
        return self._found(state, record, commit), record.ledger

    def _found(self, state: State | None, record: Record, commit: Commit) -> int | None:
        """Return the commit's sequence number if it has landed."""
        self.landed = self._search.find(self.lake.ledger, record, commit.id)
        return self.landed["commit"]["seq"] if self.landed is not None else None

    def _tidy(self) -> None:
        """Note that a ledger exists, delete superseded files, and run the table's maintenance."""
        state, record = self._look()
        if record is not None:
            self._notes.register()
            for seq, name in record.gone:
                if seq <= record.seq - self.lake.kept:
                    self.lake.ledger.remove(f"{self._own}/{name}")
        self.lake.upkeep(state)

    def _look(self) -> tuple[State | None, Record | None]:
        """Read the current table and the pipeline's ledger file.

        Raises:
            LedgerMismatch: the ledger is missing, or was not written by commits.
        """
        pointer = None
        for _ in range(READS):
            state = self.lake.load()
            pointer = state.pointer(self.pipeline) if state is not None else None
            if state is None or pointer is None:
                if self._notes.registered():
                    what = (
                        f"table {self.table} is missing"
                        if state is None
                        else f"table {self.table} has lost its reference to the ledger"
                    )
                    raise self._gone(what)
                return state, None
            record = records.read(self.lake.ledger, self.pipeline, pointer, self.describe())
            if record is not None:
                records.check_by_topic(record, self.by_topic, self.describe())
                state.check(record)
                return state, record
        raise self._gone(f"ledger file {pointer.name if pointer else ''} is missing in {self.lake.ledger.place}")

    def _gone(self, what: str) -> LedgerMismatch:
        return LedgerMismatch(
            f"pipeline {self.pipeline}: {self.describe()}: {what}, but commits were made there",
            f"restore a backup; or delete {self.lake.ledger.place}, too, and start with another pipeline name",
        )

    def _items(self, record: Record, **how: Any) -> Iterator[Item]:
        return commit_log.items(self.lake.ledger, record, **how)

    @at_one_version
    def history(self) -> Sequence[Entry]:
        """Return every committed range of the pipeline, in order of commit."""
        _, record = self._look()
        return commit_log.entries(self.lake.ledger, record) if record is not None else []

    def recount(self) -> Recount:
        """Count rows and dead letters again, at one version of the table."""
        return self.evidence().recount

    @at_one_version
    def evidence(self) -> Evidence:
        """Read ledger and history, and count rows and dead letters, at one version of the table."""
        state, record = self._look()
        if state is None or record is None:
            return Evidence("", Ledger(self.pipeline))
        found = count_again(self.lake, self.table, self.pipeline, state, record, self._key(), self.describe())
        return Evidence(record.uid, record.ledger, commit_log.entries(self.lake.ledger, record), found)

    @at_one_version
    def view(self, name: str, limit: int | None = None) -> Sequence[Mapping[str, Any]]:
        """Return the pipeline's rows of the view `kpipe_<name>`, newest first; times are aware, UTC."""
        _, record = self._look()
        if record is None:
            return []
        events = self._notes.events() if name in ("errors", "pipelines") else []
        newest = list(commit_log.with_letters(self._items(record, newest_first=True), limit)) if name == "errors" else []
        with tables.desk(self.lake.ledger, newest) as (connection, files):
            tables.lay_pipeline(connection, record, self._notes.state(), self.lake.place, len(events))
            if name in ("batches", "batches_summary"):
                found = (item for item in self._items(record, newest_first=True) if item["ranges"])
                tables.lay_commits(connection, islice(found, limit), self.table)
            if name == "errors":
                tables.lay_events(connection, events)
                tables.lay_dead_letters(connection, newest, files, self.lake.place)
            return tables.shown(connection, name, self.pipeline, limit)

    def record_state(self, state: str, error: str = "", kind: str = "", batch: Batch | None = None, stderr: str = "") -> None:
        """Record the pipeline's state and, if passed, an error event. No decision depends on it."""
        found, record = self._look()
        if state == "running":
            self.lake.upkeep(found)  # finish the maintenance of a killed run
        if record is not None:
            self._notes.note(state, error, kind, batch, stderr, self.lake.place)

    def clear_errors(self) -> int:
        """Delete the pipeline's error events and its last error; see `ErrorLog`."""
        return self._notes.clear() if self._look()[1] is not None else 0

    @at_one_version
    def unpublished(self, limit: int = 1000) -> Sequence[Publication]:
        """Return metadata of commits that are not published yet, oldest first."""
        return [
            Publication(item["commit"]["batch_id"], item["commit"]["seq"], json.loads(item["commit"]["metadata"]))
            for item in islice(self.waiting(), limit)
        ]

    @at_one_version
    def published(self, publications: Sequence[Publication]) -> Sequence[str]:
        """Mark commits all of whose partitions were read as published; return the batches that this call marked."""
        read = partitions_by_batch(publications)
        known = {item["commit"]["batch_id"]: item for item in self.waiting(set(read))} if read else {}
        mine = [batch for batch in read if batch in known and partitions_of(known[batch]) <= read[batch]]
        return [batch for batch in mine if self._notes.publish(known[batch])]

    def waiting(self, asked: set[str] | None = None) -> Iterator[Item]:
        """Read the commits that are not published yet, oldest first; only those of the batches `asked`, if passed."""
        _, record = self._look()
        left = len(asked) if asked else -1
        for item in self._items(record, after=record.published) if record is not None else ():
            if asked and item["commit"]["batch_id"] not in asked:
                continue
            if item["commit"]["metadata"] and not self._notes.is_published(item):
                yield item
            left -= 1
            if left == 0:
                return
