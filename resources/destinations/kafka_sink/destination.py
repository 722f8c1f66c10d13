"""Kafka destination: one Kafka transaction commits rows, dead letters and the ledger.

The compare-and-swap rests on `transactional.id`, one for each pipeline. A new producer with that id ends the transaction of the
older producer and fences it. So either the ledger that is read afterwards is unchanged when the transaction commits, or the
transaction fails (docs/adr/0022-topic-as-destination.md).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from kpipe.batch.batch import Commit, Committed
from kpipe.definition.pipeline import Into
from kpipe.errors import DestinationBusy, DestinationError, InvalidPipeline, KpipeError
from kpipe.failpoints import failpoint
from kpipe.ledger.ledger import Ledger
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from resources.destinations.commit_protocol import Failure, Steps, land
from resources.destinations.kafka_sink.cluster import Cluster, Topic
from resources.destinations.kafka_sink.header_check import check_headers
from resources.destinations.kafka_sink.ledger_topic import Journal, State, Written
from resources.destinations.kafka_sink.messages import Shape, letters
from resources.destinations.kafka_sink.ordered_rows import blocks, check, written
from resources.destinations.kafka_sink.producer import Overtaken, Writer
from resources.destinations.kafka_sink.reader import KafkaSinkReader
from resources.destinations.kafka_sink.registered_values import RegisteredValues
from resources.destinations.kafka_sink.rejected_rows import Misfits, misfits
from resources.destinations.kafka_sink.timestamp_check import Times, check_times
from resources.destinations.lakehouse import ledger_tables
from resources.destinations.lakehouse.ledger_file import Record
from resources.destinations.lakehouse.schema_evolution import grown
from resources.destinations.ledger_rows import commit_row, range_rows
from resources.destinations.sql.column_matching import missing, unkeyed, widening
from resources.destinations.sql.ledger.history_tables import check_letters
from resources.destinations.staged_file_check import Writes, check_totals, verify
from resources.type_compatibility import COORDINATES, carried

__all__ = ["KafkaDestination"]

#: Settings of a new dead-letter topic: no record is ever deleted.
_LETTERS = {"cleanup.policy": "delete", "retention.ms": "-1"}


class KafkaDestination(KafkaSinkReader):
    """One pipeline's topic.

    Args:
        into: cluster and topics.
        pipeline: name of the pipeline.
        config_json: the pipeline's definition for display, without secrets.
        staging: folders of staged files.
        notes: folder for what is not part of the ledger: state, errors that stopped runs, published commits.
        rule: the rule of the key; None: rows have no key.
        environ: variables for the templates of credentials; None: this process's environment.
    """

    def __init__(
        self,
        into: Into,
        pipeline: str,
        config_json: Mapping[str, Any] | None = None,
        staging: Sequence[Path] = (),
        notes: Path = Path(),
        rule: KeyRule | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        assert into.topic is not None
        cluster = Cluster(into, environ)
        where = f"Kafka {cluster.place}, topic {into.topic}"
        topics = into.topics(pipeline)
        journal = Journal(cluster, topics["ledger"], pipeline, where)
        super().__init__(cluster, into.topic, topics["dead_letters"], journal, pipeline, notes)
        self._into, self.staging, self.rule, self.config = into, tuple(staging), rule, dict(config_json or {})
        self._registered = RegisteredValues(into, cluster) if into.registry is not None else None
        self._writer: Writer | None = None
        self._times = Times()
        self._doubtful = False  # true after a commit without a response
        if len({self.table, self.dead_letters, self.journal.topic}) < 3:
            raise InvalidPipeline(
                f"pipeline {pipeline}: rows, dead letters and ledger: expected three different topics, found a shared one",
                "set into.dead_letters or into.ledger",
            )

    def columns(self) -> Columns | None:
        """Return the payload columns of all rows so far; None before the first.

        Raises:
            LedgerMismatch: the topic is missing or was recreated although rows were written to it.
        """
        state = self._look().state
        if state is None:
            return None
        self._target(state)
        return self._known(state).without(COORDINATES.names()) or None

    def key(self) -> tuple[str, ...]:
        """Return the key columns; see `Keyed`."""
        if not self._into.key:
            raise unkeyed(self.table)
        return tuple(self._into.key)

    def commit(self, commit: Commit) -> Committed:
        """Make everything in the commit visible at once, or nothing; see `Destination.commit`."""
        if self.rule is not None:  # every row is a record, and every delete a tombstone
            fates = [
                {key: replace(found, inserted=found.rows, deleted=found.deletes) for key, found in write.counts.items()}
                for write in commit.tables
            ]
            commit = commit.settled(fates)
        done = land(commit, self.describe(), lambda: self._attempt(commit), lambda: self._read_back(commit))
        with suppress(KpipeError):  # the commit is done; these notes are best effort
            self._notes.register()
        return done

    def _attempt(self, commit: Commit) -> Failure | None:
        """Run one transaction. Its result is verified by reading back."""
        steps, begun, began = Steps(), False, 0.0
        try:
            steps.enter("verify")  # 1: each staged file matches its report
            write = commit.only
            rows, dead, deletes = (verify(files, self.staging) for files in (write.files, commit.dead_letters, write.deletes))
            check_totals(commit)
            check_letters(dead)
            steps.enter("open")  # 2: take the transactional.id: ends the older producer's transaction
            writer = self._opened()
            steps.enter("begin")
            self._check_loop(commit)
            look = self._look()
            if look.ends.stable < look.ends.high:
                return Failure(self._waiting_for(), False)
            state = look.state
            steps.enter("ledger")  # 3
            record = state.record if state is not None else None
            if record and (record.reread or not commit.changes) and self.journal.find(look, commit.id) is not None:
                return None  # already committed; lanes alone would not show it
            ledger = (record.ledger if record else Ledger(self.pipeline)).after(commit.changes, commit.id)
            steps.enter("register")  # 4: assign the commit's sequence number
            new = self._next(state, ledger, commit)
            steps.enter("table")  # 5: check the topic, add new columns to the state
            target, known = self._target(state), self._known(state)
            files = (*rows, *deletes)
            wanted = carried(commit, [name for file in files for name in file.names]) if write.columns or files else Columns()
            known = grown(known, widening(known, wanted))
            check(commit, Writes(rows, deletes), self._into.key or (), known)
            payload = known.without(COORDINATES.names())
            encode = self._registered.encoder(payload) if self._registered is not None and rows else None
            shape = Shape(self.pipeline, self.table, target.partitions, self._into.format, self._into.key or (), encode)
            shape.check(write.columns)
            check_headers(commit, files, self.table)
            check_times(commit, files, self.table, self._times, time.time_ns() // 1_000_000)
            former = state.besides(self.table) if state is not None else {}
            said = State(new, known, target.id, self._starts(state, target), former)
            writer.begin()
            begun, began = True, time.monotonic()
            steps.enter("data")  # 6: not yet visible to readers of committed records
            try:
                for messages in written(commit, Writes(rows, deletes), shape, known) if files else ():
                    writer.write(messages)
            except Misfits:
                assert encode is not None
                raise misfits(commit, rows, encode, self.table) from None
            steps.enter("dead_letters")  # 7: also not visible yet
            for file in dead:
                for block in blocks(file):
                    writer.write(list(letters(block, self.dead_letters, self.pipeline, commit.id)))
            steps.enter("history")  # 8: the ledger
            item: dict[str, Any] = {
                "commit": commit_row(commit, self.table, new.seq),
                "ranges": range_rows(commit, self.table, new.seq, self.cluster.place),
                "dead": sum(file.rows for file in dead),
                "letters": self.dead_letters,
            }
            if marks := ledger_tables.marks(commit):
                item["marks"] = marks
            writer.write(self.journal.messages(item, said))
            writer.flush()
            steps.enter("before")  # 9: commit the transaction
            self._doubtful = True
            writer.commit()
            self._doubtful = False
            steps.enter("after")
        except Overtaken as error:
            self._leave()
            if begun and time.monotonic() - began >= self._into.transaction_timeout_s:
                return Failure(self._too_long(commit), steps.current == "before")  # another attempt would take as long
            text = f"{self.describe()}: batch {commit.id}: another run took the transactional.id: {error}"
            return Failure(DestinationError(text, "nothing was written; run it again"), steps.current == "before", again=True)
        except Exception as error:
            sent = steps.current in ("before", "after")
            if begun and steps.current != "after" and (self._doubtful or not self._writer or not self._writer.abort()):
                self._leave()
            if isinstance(error, KpipeError):
                return Failure(error, sent)
            what = f"{self.describe()}: batch {commit.id}, step {steps.current}: {error}"
            return Failure(DestinationError(what, "nothing was written; run it again"), sent)
        return None

    def _opened(self) -> Writer:
        """Return a producer that has taken the transactional.id; the older producer's transaction has ended then."""
        if self._writer is None:
            self.journal.prepare()
            if self.cluster.topic(self.dead_letters) is None:
                self.cluster.make(self.dead_letters, _LETTERS)
            topics = (self.table, self.dead_letters, self.journal.topic)
            there = [name for name in topics if self.cluster.topic(name) is not None]
            settings = {name: self.cluster.settings(name) for name in there}
            if "compact" in settings.get(self.table, {}).get("cleanup.policy", "") and not self._into.key:
                raise DestinationError(
                    f"{self.describe()} is compacted: expected records with a key, found none configured",
                    "set the key's columns: into.key",
                )
            self._times = Times.of(settings.get(self.table, {}))
            largest = {name: int(found.get("max.message.bytes", 1_048_588)) for name, found in settings.items()}
            timeout = self._into.transaction_timeout_s
            self._writer = Writer(self.cluster, self.journal.topic, timeout, largest)
        self._doubtful = False
        return self._writer

    def _check_loop(self, commit: Commit) -> None:
        """Check that the source does not read what this pipeline writes, also by other addresses of the same brokers.

        Raises:
            InvalidPipeline: it does: the records would be read and written without end.
        """
        own = {name: field for field, name in self._into.topics(self.pipeline).items()}
        read = {change.key[0].topic for change in commit.changes} | {step.source.topic for step in commit.steps}
        for source in (topic for topic in read if topic.name in own):
            topic = self.cluster.topic(source.name)
            if topic is not None and topic.id == source.topic_id:
                raise InvalidPipeline(
                    f"into.{own[source.name]}: expected a topic that the source does not read, found {source.name}: its records"
                    " would come back",
                    "write to another topic, or exclude it in source.topic_pattern",
                )

    def _leave(self) -> None:
        """Close the producer; the next one takes its transactional.id."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _next(self, state: State | None, ledger: Ledger, commit: Commit) -> Record:
        now, before = time.time(), self._written(state)
        last = state.record if state is not None else Record(self.pipeline, str(uuid.uuid4()), created=now)
        rows = (before.rows if before is not None else 0) + commit.totals.rows
        return replace(last.after(commit, ledger, self.table, self.config, now), rows=rows)

    def _target(self, state: State | None) -> Topic:
        """Return the topic's current state.

        Raises:
            LedgerMismatch: the topic is missing or was recreated although rows were written to it.
            DestinationError: the topic does not exist.
        """
        topic, before = self.cluster.topic(self.table), self._written(state)
        if before is not None and before.rows and (topic is None or before.id != topic.id):
            raise missing(self.pipeline, self.table, before.rows)
        if topic is None:
            raise DestinationError(
                f"{self.describe()}: the topic does not exist",
                f"create it with the partitions and the retention that its readers need: kafka-topics.sh --bootstrap-server"
                f" {self.cluster.place} --create --topic {self.table}",
            )
        return topic

    def _written(self, state: State | None) -> Written | None:
        """Return the current or former topic as commits recorded it; None: no commit wrote to it."""
        return state.written(self.table) if state is not None else None

    def _known(self, state: State | None) -> Columns:
        return state.columns if state is not None and state.record.table == self.table else Columns()

    def _starts(self, state: State | None, target: Topic) -> Mapping[int, int]:
        """Return the log start offsets at this pipeline's first write to the topic."""
        before = self._written(state)
        known = before.starts if before is not None and before.id == target.id else {}
        if len(known) == target.partitions:
            return known
        fresh = {number: ends.start for number, ends in enumerate(self.cluster.ends(target))}
        return {**fresh, **known}

    def _read_back(self, commit: Commit) -> tuple[int | None, Ledger]:
        """Return the commit's sequence number if it is in the ledger, and the ledger, through new connections.

        If the commit got no response, or is still in progress, the transactional.id is taken again: this ends it.
        """
        failpoint("readback")
        self.cluster.forget()
        look = self._look() if not self._doubtful else None
        if look is None or look.ends.stable < look.ends.high:
            self._leave()
            self._opened()
            look = self._look()
            if look.ends.stable < look.ends.high:
                raise self._waiting_for()
        if look.state is None:
            return None, Ledger(self.pipeline)
        return self.journal.find(look, commit.id), look.state.record.ledger

    def _too_long(self, commit: Commit) -> DestinationError:
        """Build the error of a transaction that the brokers timed out: the client sees it as fencing."""
        return DestinationError(
            f"{self.describe()}: batch {commit.id}: the brokers ended its transaction: expected a commit within"
            f" into.transaction_timeout_s ({self._into.transaction_timeout_s} s), writing it took longer",
            "raise into.transaction_timeout_s, up to the brokers' transaction.max.timeout.ms; or make batches smaller:"
            " batch.max_offsets_per_partition",
        )

    def _waiting_for(self) -> DestinationBusy:
        return DestinationBusy(
            f"{self.describe()}: ledger topic {self.journal.topic} has an open transaction of another producer",
            "find it: kafka-transactions.sh find-hanging; only this pipeline may write there",
        )
