"""A topic as a destination: rows, dead letters and the ledger are committed by one transaction of Kafka's.

The compare-and-swap rests on the producer's name (`transactional.id`, one for each pipeline): to take it ends what an older
producer of that name has begun, and from then on the brokers refuse that one. So what the ledger says once the name was taken
is what it says when the transaction commits, or else the transaction does not commit (docs/adr/0022-topic-as-destination.md).
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from kpipe.batch.batch import Commit, Committed
from kpipe.batch.conflicts import applied
from kpipe.definition.pipeline import Into
from kpipe.errors import DestinationBusy, DestinationError, InvalidPipeline, KpipeError
from kpipe.failpoints import reach
from kpipe.ledger.ledger import Ledger, seal
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from resources.destinations.commit_protocol import Failure, land
from resources.destinations.kafka_sink.cluster import Cluster, Topic
from resources.destinations.kafka_sink.ledger_topic import Journal, State, Written
from resources.destinations.kafka_sink.messages import Shape, letters
from resources.destinations.kafka_sink.ordered_rows import blocks, check, written
from resources.destinations.kafka_sink.producer import Overtaken, Writer
from resources.destinations.kafka_sink.reader import Told
from resources.destinations.kafka_sink.timestamp_check import Times, check_times
from resources.destinations.lakehouse.ledger_file import Record
from resources.destinations.lakehouse.type_widening import grown
from resources.destinations.ledger_rows import SKIPS, commit_row, end_rows, range_rows
from resources.destinations.sql.column_matching import missing, unkeyed, widening
from resources.destinations.sql.history_tables import check_letters
from resources.destinations.staged_file_check import Writes, check_totals, verify
from resources.type_compatibility import COORDINATES, carried

__all__ = ["KafkaDestination"]

#: What the topic of dead letters is made with: nothing in it goes away by itself.
_LETTERS = {"cleanup.policy": "delete", "retention.ms": "-1"}


class KafkaDestination(Told):
    """One pipeline's topic.

    Args:
        into: cluster and topics.
        pipeline: name of the pipeline.
        config_json: the pipeline's definition for people, without secrets.
        staging: folders that staged files lie in.
        notes: folder of the home for what decides nothing: state, errors that stopped runs, what was mirrored.
        rule: whether rows have a key.
        environ: where the templates of credentials find their variables; None: this process's environment.
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
        journal = Journal(cluster, into.ledger or f"kpipe-ledger-{pipeline}", pipeline, where)
        super().__init__(cluster, into.topic, into.dead_letters or f"{into.topic}.dead-letters", journal, pipeline, notes)
        self._into, self.staging, self.rule, self.config = into, tuple(staging), rule, dict(config_json or {})
        self._writer: Writer | None = None
        self._times = Times()
        self._doubtful = False  # whether a commit was sent and not answered
        if len({self.table, self.dead_letters, self.journal.topic}) < 3:
            raise InvalidPipeline(f"pipeline {pipeline}: rows, dead letters and ledger need topics of their own", "name others")

    def columns(self) -> Columns | None:
        """Payload columns of the rows so far; None when there are none yet.

        Raises:
            LedgerMismatch: the topic is gone although rows were written to it.
        """
        state = self._look().state
        if state is None:
            return None
        self._target(state)
        return self._known(state).without(COORDINATES.names()) or None

    def key(self) -> tuple[str, ...]:
        """Columns of the key; see `Keyed`."""
        if not self._into.key:
            raise unkeyed(self.table)
        return tuple(self._into.key)

    def commit(self, commit: Commit) -> Committed:
        """Make everything in the commit visible at once, or nothing; see `Destination.commit`."""
        if self.rule is not None:  # every row is a record, and every delete a tombstone
            counts = {key: replace(found, inserted=found.rows, deleted=found.deletes) for key, found in commit.counts.items()}
            commit = commit.settled(counts)
        done = land(commit, self.describe(), lambda: self._attempt(commit), lambda: self._read_back(commit))
        with suppress(KpipeError):  # the commit has landed, whatever becomes of notes
            self._notes.register()
        return done

    def _attempt(self, commit: Commit) -> Failure | None:
        """One transaction. Its own answer is never believed."""
        step, begun, began = "", False, 0.0

        def enter(name: str) -> None:
            nonlocal step
            step = name
            reach(f"commit.{name}")

        try:
            enter("verify")  # 1: every staged file is what was reported
            rows, dead, deletes = (verify(files, self.staging) for files in (commit.files, commit.dead_letters, commit.deletes))
            check_totals(commit)
            check_letters(dead)
            enter("open")  # 2: the producer's name: what an older one has begun is over from here on
            writer = self._opened()
            enter("begin")
            look = self._look()
            if look.ends.stable < look.ends.high:
                return Failure(self._waiting_for(), False)
            state = look.state
            enter("ledger")  # 3
            record = state.record if state is not None else None
            if record and (record.reread or not commit.changes) and self.journal.find(look, commit.id) is not None:
                return None  # it has landed before, and lanes would not tell
            ledger = applied(record.ledger if record else Ledger(self.pipeline), commit)
            enter("register")  # 4: the number of the commit
            new = self._next(state, ledger, commit)
            enter("table")  # 5: the topic, and what its rows had no column for before
            target, known = self._target(state), self._known(state)
            files = (*rows, *deletes)
            wanted = carried(commit, [name for file in files for name in file.names]) if commit.columns or files else Columns()
            known = grown(known, widening(known, wanted))
            check(commit, Writes(rows, deletes), self._into.key or (), known)
            shape = Shape(self.pipeline, self.table, target.partitions, self._into.format, self._into.key or ())
            shape.check(commit.columns)
            check_times(commit, files, self.table, self._times, time.time_ns() // 1_000_000)
            former = state.besides(self.table) if state is not None else {}
            said = State(new, known, target.id, self._starts(state, target), former)
            writer.begin()
            begun, began = True, time.monotonic()
            enter("data")  # 6: no reader of committed records sees it yet
            for messages in written(commit, Writes(rows, deletes), shape, known) if files else ():
                writer.write(messages)
            enter("dead_letters")  # 7: the same
            for file in dead:
                for block in blocks(file):
                    writer.write(list(letters(block, self.dead_letters, self.pipeline, commit.id)))
            enter("history")  # 8: and the ledger
            item = {
                "commit": commit_row(commit, self.table, new.seq),
                "ranges": range_rows(commit, self.table, new.seq, self.cluster.place),
                "dead": sum(file.rows for file in dead),
            }
            writer.write(self.journal.messages(item, said))
            writer.flush()
            enter("before")  # 9: all of it, or nothing
            self._doubtful = True
            writer.commit()
            self._doubtful = False
            enter("after")
        except Overtaken as error:
            self._leave()
            if begun and time.monotonic() - began >= self._into.transaction_timeout_s:
                return Failure(self._too_long(commit), step == "before")  # another try would take as long
            text = f"{self.describe()}: batch {commit.id}: another run took the producer's name: {error}"
            return Failure(DestinationError(text, "nothing was written; run it again"), step == "before", again=True)
        except Exception as error:
            sent = step in ("before", "after")
            if begun and step != "after" and (self._doubtful or not self._writer or not self._writer.abort()):
                self._leave()
            if isinstance(error, KpipeError):
                return Failure(error, sent)
            what = f"{self.describe()}: batch {commit.id}, step {step}: {error}"
            return Failure(DestinationError(what, "nothing was written; run it again"), sent)
        return None

    def _opened(self) -> Writer:
        """A producer that has the name; what an older one had begun has landed or not from then on."""
        if self._writer is None:
            self.journal.prepare()
            if self.cluster.topic(self.dead_letters) is None:
                self.cluster.make(self.dead_letters, _LETTERS)
            topics = (self.table, self.dead_letters, self.journal.topic)
            there = [name for name in topics if self.cluster.topic(name) is not None]
            settings = {name: self.cluster.settings(name) for name in there}
            if "compact" in settings.get(self.table, {}).get("cleanup.policy", "") and not self._into.key:
                raise DestinationError(
                    f"{self.describe()} is compacted: records without a key cannot be written", "name its columns: into.key"
                )
            self._times = Times.of(settings.get(self.table, {}))
            largest = {name: int(found.get("max.message.bytes", 1_048_588)) for name, found in settings.items()}
            timeout = self._into.transaction_timeout_s
            self._writer = Writer(self.cluster, self.journal.topic, timeout, largest)
        self._doubtful = False
        return self._writer

    def _leave(self) -> None:
        """Drop the producer; the next one takes its name."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _next(self, state: State | None, ledger: Ledger, commit: Commit) -> Record:
        now, before = time.time(), self._written(state)
        last = state.record if state is not None else Record(self.pipeline, str(uuid.uuid4()), created=now)
        moved = (lane for change in commit.changes for lane in (change.expect, change.become))
        ends = {json.dumps([row["cluster_id"], row["topic_id"], row["topic"], row["partition"]]): row for row in end_rows(commit)}
        return replace(
            last,
            seq=ledger.seq,
            seal=last.seal ^ seal(moved),
            lanes=ledger.lanes,
            table=self.table,
            rows=(before.rows if before is not None else 0) + commit.totals.rows,
            dead_letters=last.dead_letters + commit.totals.dead_letters,
            skipped=last.skipped + (commit.kind in SKIPS),
            reread=last.reread or commit.kind == "reread",
            last=commit.id,
            updated=now,
            config={"json": json.dumps(self.config)},
            ends={**last.ends, **ends},
        )

    def _target(self, state: State | None) -> Topic:
        """The topic as it is now.

        Raises:
            LedgerMismatch: it is gone, or another one, although rows were written to it.
            DestinationError: there is none.
        """
        topic, before = self.cluster.topic(self.table), self._written(state)
        if before is not None and before.rows and (topic is None or before.id != topic.id):
            raise missing(self.pipeline, self.table, before.rows)
        if topic is None:
            raise DestinationError(
                f"{self.describe()}: there is no such topic",
                f"create it with the partitions and the retention that its readers need: kafka-topics.sh --bootstrap-server"
                f" {self.cluster.place} --create --topic {self.table}",
            )
        return topic

    def _written(self, state: State | None) -> Written | None:
        """Return the topic as commits have noted it, present or former; None where none has."""
        return state.written(self.table) if state is not None else None

    def _known(self, state: State | None) -> Columns:
        return state.columns if state is not None and state.record.table == self.table else Columns()

    def _starts(self, state: State | None, target: Topic) -> Mapping[int, int]:
        """Where the partitions began when this pipeline first wrote there."""
        before = self._written(state)
        known = before.starts if before is not None and before.id == target.id else {}
        if len(known) == target.partitions:
            return known
        fresh = {number: ends.start for number, ends in enumerate(self.cluster.ends(target))}
        return {**fresh, **known}

    def _read_back(self, commit: Commit) -> tuple[int | None, Ledger]:
        """Sequence number of the commit if it is there, else the ledger, through fresh connections.

        Where the commit was not answered, or is still on its way, the producer's name is taken anew: then it has ended.
        """
        reach("readback")
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
        """Return the error of a transaction that the brokers have ended: to its producer they answer as if it was fenced."""
        return DestinationError(
            f"{self.describe()}: batch {commit.id}: the brokers ended its transaction: expected a commit within"
            f" into.transaction_timeout_s ({self._into.transaction_timeout_s} s), writing it took longer",
            "raise into.transaction_timeout_s, up to the brokers' transaction.max.timeout.ms; or make batches smaller:"
            " batch.max_offsets_per_partition",
        )

    def _waiting_for(self) -> DestinationBusy:
        return DestinationBusy(
            f"{self.describe()}: ledger topic {self.journal.topic} holds an open transaction that is not this pipeline's",
            "find it: kafka-transactions.sh find-hanging; nobody else may write there",
        )
