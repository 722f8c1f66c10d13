"""Write one range in a task: rows with Kafka's coordinates, dead letters with the whole record, and counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa

from kpipe.batch.batch import Counts, Piece, RangeReport, TableReport
from kpipe.errors import RecordRejected
from kpipe.schema.columns import INSTANT as MOMENT
from kpipe.tables.upsert import ORIGINAL
from resources.decode.block import Decoded, Payloads, in_parts
from resources.kafka.record_block import COLUMNS, RecordBlock
from resources.spark.staging.partitioned_writer import Divided
from resources.spark.staging.shared_writer import Shared
from resources.spark.staging.staged_files import StagingWriter
from resources.spark.staging.waiting_rows import WaitingRows
from resources.spark.task.record_columns import HEADERS, INSTANT, dead_letters, headers, instants, originals
from resources.spark.task.repeated_records import copied, parts, within
from resources.spark.task.table_writer import Agreed, Sink, agreed, answered
from resources.spark.task.task_spec import JobSpec, TableSpec

__all__ = ["RangeOutput"]

_LAST_MS = (2**63 - 1) // 1000  # the largest that fits 64 bits in microseconds

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _timed(method: _Method) -> _Method:
    """Add a method's time to the output's seconds."""

    @wraps(method)
    def timed(self: RangeOutput, *arguments: Any, **named: Any) -> Any:
        began = time.monotonic()
        try:
            return method(self, *arguments, **named)
        finally:
            self.seconds += time.monotonic() - began

    return cast(_Method, timed)


class RangeOutput:
    """Writer of one range's rows and dead letters to staged files.

    Args:
        job: what the batch's tasks share.
        piece: the range.
        shared: files for rows that fill no file; None: every range has its own.
    """

    def __init__(self, job: JobSpec, piece: Piece, shared: Shared | None = None) -> None:
        self._job, self._piece = job, piece
        waiting = shared.waiting if shared is not None else WaitingRows()

        def file(kind: str, apart: bool = False) -> StagingWriter:
            share = partial(shared.take, kind) if shared is not None and not apart else None
            return StagingWriter(f"{job.staging}/{job.batch}", share, waiting, make=not job.remote)

        # Rows without an offset are ordered only by their position in a file, so such a file contains one range only.
        untraced = job.ordered and job.program is not None and not job.program.traced
        # With tables by topic, a file has the dead letters of one table only: each may be committed by itself.
        self._dead = file(f"dead letters {[table.position for table in job.tables]}")

        def rows(table: TableSpec, kind: str) -> StagingWriter | Divided:
            return Divided(table.divided, lambda of: file(f"{kind} {of}")) if table.divided else file(kind, untraced)

        def sink(table: TableSpec) -> Sink:
            return Sink(job, table, rows(table, f"rows {table.position}"), file(f"deletes {table.position}"))

        self._sink = sink
        # Of tables by a field, a range has rows in a few: their writers are made when they are needed.
        self._made = {} if job.routes is not None else {at: sink(table) for at, table in enumerate(job.tables)}
        ends = job.limits.ends(str(MOMENT), "_kafka_timestamp") if job.limits is not None else None
        self._last = _LAST_MS if ends is None else min(_LAST_MS, ends[1] // 1000)
        self._refused = job.refused.get(piece.source, {})
        self.filtered = 0
        self.answered = 0  # records that gave rows, or lines of a program
        self.first_reason = ""
        self.seconds = self.decode_seconds = 0.0  # of this object's work, and of decoding a program's output

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Count the time of a block as decoding."""
        began = time.monotonic()
        yield
        self.decode_seconds += time.monotonic() - began

    @property
    def dead_letters(self) -> int:
        """Dead letters written so far."""
        return self._dead.rows

    def spared(self, block: RecordBlock) -> RecordBlock:
        """Set aside records whose rows the table has rejected, and return the others.

        This happens before decoding: such a record does not add new columns either.
        """
        offsets = block.offsets if self._refused else ()
        refused = {index: self._refused[offset] for index, offset in enumerate(offsets) if offset in self._refused}
        if not refused:
            return block
        self.reject(block.pick(list(refused)), "constraint", list(refused.values()))
        return block.pick([index for index in range(len(block)) if index not in refused])

    @_timed
    def decoded(self, blocks: Sequence[Decoded], held: RecordBlock, only: int | None = None) -> None:
        """Write rows of records. A record that gave neither a row nor a reject is filtered.

        Args:
            blocks: the block as decoded for each table.
            held: its records, in order.
            only: position of the only table that takes these records; None: all tables do.

        Raises:
            RecordRejected: a payload cannot become a row and the policy is `fail`.
        """
        sinks = self._sinks if only is None else [self._of(only)]
        for start, end, made in self._agreed(sinks, blocks, len(held), held):
            self._put(sinks, made, held.part(start, end))

    def _put(self, sinks: Sequence[Sink], made: Agreed, held: RecordBlock) -> None:
        """Write the rows of some records, their deletes and their dead letters."""
        for sink, mine in zip(sinks, made.tables, strict=True):
            if mine.rows:
                self._write(sink, mine, held)
        gone = self._deleted(sinks, made.tables, held)
        gave = answered(made.tables, len(held))
        self.answered += gave
        self.filtered += len(held) - gave - len(made.rejects) - len(made.refused) - gone
        for stage, rejected in (("parse", made.rejects), ("constraint", made.refused)):
            if rejected:
                self.reject(held.pick([index for index, _ in rejected]), stage, [why for _, why in rejected])

    @property
    def _sinks(self) -> list[Sink]:
        return list(self._made.values())

    def _of(self, table: int) -> Sink:
        if table not in self._made:
            self._made[table] = self._sink(self._job.tables[table])
        return self._made[table]

    def _write(self, sink: Sink, mine: Decoded, held: RecordBlock) -> None:
        """Write a table's rows of a block with the coordinates of their records."""
        gave = answered([mine], len(held)) if self._job.fan_out else mine.rows
        columns = self._copied(sink.table)
        for start, end in [(0, mine.rows)] if mine.kept is None else parts(mine.kept, held, columns):
            records = held if mine.kept is None else held.pick(mine.kept[start:end], columns)
            table = self._with_coordinates(mine.table.slice(start, end - start), records)
            whole = table.append_column(ORIGINAL, originals(records)) if sink.table.originals else table
            sink.write(whole, 0 if start else gave)

    def _copied(self, table: TableSpec) -> tuple[str, ...]:
        return copied([f"_kafka_{name}" for name in self._job.extras], table.originals)

    def _deleted(self, sinks: Sequence[Sink], tables: Sequence[Decoded], held: RecordBlock) -> int:
        """Write the keys that records with a value delete, and return the number of these records.

        Raises:
            RecordRejected: a record that no policy may pass over.
        """
        count = 0
        for sink, mine in zip(sinks, tables, strict=True):
            for index, reason, hint in mine.stops:
                error = RecordRejected(f"{self._piece.source} offset {held.offsets[index]}: {reason}", hint)
                error.record = (self._piece.source, int(held.offsets[index]))
                raise error
            if mine.keys is not None and len(mine.deleted):
                sink.delete(self._with_coordinates(mine.keys, held.pick(mine.deleted)))
                count += len(mine.deleted)
        return count

    def _agreed(
        self, sinks: Sequence[Sink], blocks: Sequence[Decoded], count: int, whole: RecordBlock | None
    ) -> Iterator[tuple[int, int, Agreed]]:
        """Yield each table's rows of parts of a block, mostly of all of it, and the records that one of them rejects."""

        def agree(start: int, end: int) -> Agreed:
            made, held = list[Decoded](), whole.part(start, end) if whole is not None else None

            def coordinate(name: str, places: np.ndarray[Any, Any]) -> pa.Array:
                column = name.removeprefix("_kafka_")
                some = held.pick(places.tolist(), [column]) if held is not None and column in COLUMNS.names else None
                return self._coordinate(name, some, len(places))

            for sink, block in zip(sinks, blocks, strict=True):
                decoded = block if end - start == count else block.part(start, end)
                if held is not None:
                    decoded = within(decoded, held, copied(sink.coordinates, False))
                mine = sink.made(decoded, coordinate)
                made.append(mine if held is None else within(mine, held, self._copied(sink.table)))
            return agreed(made)

        return in_parts(count, agree)

    def tombstones(self, block: RecordBlock) -> None:
        """Delete the rows of these tombstones' keys, or count the tombstones as filtered.

        Raises:
            RecordRejected: a key cannot be read, or the table cannot store it, and the policy is `fail`.
        """
        held = block.tombstones()
        # A tombstone names no table: it may be of another one, and the event of its delete comes before it.
        names_table = self._job.format.source_table is None
        read = [(sink, *sink.keys.read(held.column("key"))) for sink in self._sinks if sink.keys is not None and names_table]
        if not read:
            self.filtered += len(held)
            return
        reasons: dict[int, tuple[str, str]] = {}
        for sink, keys, errors in read:
            bad, refused = sink.unstorable(keys)
            for stage, found in (("parse", {**bad, **errors}), ("constraint", refused)):
                reasons = {**{at: (stage, why) for at, why in found.items()}, **reasons}
        for stage in ("parse", "constraint"):
            if places := sorted(at for at in reasons if reasons[at][0] == stage):
                self.reject(held.pick(places), stage, [reasons[at][1] for at in places])
        good = [index for index in range(len(held)) if index not in reasons]
        held = held.pick(good) if reasons else held
        for sink, keys, _ in read:
            sink.delete(self._with_coordinates(keys.take(pa.array(good, pa.int64())) if reasons else keys, held))

    @_timed
    def loose(self, blocks: Sequence[Decoded], payloads: Payloads) -> None:
        """Write rows of a program whose lines do not correspond to records; they have no offset.

        Args:
            blocks: the program's lines as decoded for each table.
            payloads: the lines.

        Raises:
            RecordRejected: an output row cannot be read and the policy is `fail`.
        """
        for start, end, made in self._agreed(self._sinks, blocks, len(payloads), None):
            self._put_loose(made, payloads.part(start, end))

    def _put_loose(self, made: Agreed, payloads: Payloads) -> None:
        """Write the rows of some lines, and their dead letters."""
        for sink, mine in zip(self._sinks, made.tables, strict=True):
            if mine.rows:
                sink.write(self._with_coordinates(mine.table, None, mine.rows), None)
        self.answered += answered(made.tables, len(payloads))
        where = f"{self._piece.source} {self._piece.range}: a row that the program wrote"
        for stage, rejected in (("parse", made.rejects), ("constraint", made.refused)):
            for index, reason in rejected:
                self._note(reason, where, stage, self._policy(stage))
                if self._policy(stage) == "dead_letter":
                    self._write_dead(RecordBlock.of([-1], [-1], [payloads[index]]), stage, [reason])

    def reject(self, held: RecordBlock, stage: str, reasons: Sequence[str]) -> None:
        """Write records as dead letters, or skip them, as the policy requires.

        Raises:
            RecordRejected: the policy is `fail`; the message contains topic, partition and offset.
        """
        policy = self._policy(stage)
        self._note(reasons[0], f"{self._piece.source} offset {held.offsets[0]}", stage, policy, held.offsets[0])
        if policy == "skip":
            self.filtered += len(held)
        else:
            self._write_dead(held, stage, reasons)

    @_timed
    def finish(self, messages: int, size: int, seconds: float, given: int = 0, before: int = 0) -> RangeReport:
        """Close the files and report.

        Where a record may give several rows, the number of records is reported in addition to the rows.

        Args:
            messages: records read.
            size: bytes of their keys and values.
            seconds: time taken.
            given: records passed to a `flatmap` program.
            before: dead letters that were not passed to it.
        """
        if (self._job.fan_out or self._job.format.fan_out) and not given:
            given, before = self.answered, self.dead_letters
        records = Counts(
            messages=messages,
            dead_letters=self.dead_letters,
            filtered=self.filtered,
            gaps=len(self._piece.range) - messages,
            given=given,
            set_aside_before=before,
            bytes=size,
        )
        return RangeReport(
            self._piece.source,
            self._piece.range,
            records,
            tuple(self._made[at].report() if at in self._made else TableReport() for at in range(len(self._job.tables))),
            self._dead.finish(),
            seconds,
            self.first_reason,
            lookups={name: held.value.version for name, held in self._job.lookups.items()},
        )

    def abandon(self) -> None:
        """Close open files; nothing is reported."""
        for sink in self._sinks:
            sink.abandon()
        self._dead.abandon()

    def _policy(self, stage: str) -> str:
        return {"transform": self._job.transform, "constraint": self._job.constraint}.get(stage, self._job.parse)

    def _note(self, reason: str, where: str, stage: str, policy: str, offset: int | None = None) -> None:
        self.first_reason = self.first_reason or f"{where}: {reason}"
        if policy == "fail":
            error = RecordRejected(
                f"{where}: {reason}",
                f"fix {'the records or the expression' if stage == 'constraint' else 'the producer'}, or set errors.{stage}:"
                " dead_letter to keep such records as dead letters",
            )
            error.record = None if offset is None else (self._piece.source, int(offset))
            raise error

    def _with_coordinates(self, table: pa.Table, held: RecordBlock | None, count: int = 0) -> pa.Table:
        count = len(held) if held is not None else count
        always = ("_kafka_partition", "_kafka_offset", "_kafka_timestamp")
        coordinates = [*always, *(f"_kafka_{name}" for name in ("topic", "key", "headers") if name in self._job.extras)]
        columns = [(name, self._coordinate(name, held, count)) for name in coordinates]
        names = [*table.column_names, *(name for name, _ in columns)]
        return pa.table([*table.columns, *(array for _, array in columns)], names=names)

    def _coordinate(self, name: str, held: RecordBlock | None, count: int) -> pa.Array:
        """Return one of Kafka's coordinates for `count` rows; without records, offsets and the like are NULL."""
        if name == "_kafka_partition":
            return pa.repeat(pa.scalar(self._piece.source.partition, pa.int32()), count)
        if name == "_kafka_topic":
            return pa.repeat(pa.scalar(self._piece.source.topic.name, pa.string()), count)
        if name == "_kafka_offset":
            return held.column("offset") if held is not None else pa.nulls(count, pa.int64())
        if name == "_kafka_timestamp":
            return instants(held.column("timestamp"), self._last) if held is not None else pa.nulls(count, INSTANT)
        if name == "_kafka_key":
            return held.column("key") if held is not None else pa.nulls(count, pa.binary())
        return headers(held) if held is not None else pa.nulls(count, HEADERS)

    def _write_dead(self, held: RecordBlock, stage: str, reasons: Sequence[str]) -> None:
        self._dead.write(dead_letters(self._piece.source, held, stage, reasons, self._last))
