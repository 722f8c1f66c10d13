"""What a task writes of one range: rows with Kafka's coordinates, dead letters with the whole record, and the counts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.batch.batch import Counts, Piece, RangeReport
from kpipe.errors import RecordRejected
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import ORIGINAL
from resources.decode.block import Decoded, Payloads
from resources.decode.key_decoder import KeyReader
from resources.kafka.record_block import Held
from resources.spark.staging.partitioned_writer import Divided
from resources.spark.staging.shared_writer import Shared
from resources.spark.staging.staged_files import StagingWriter
from resources.spark.task.projection import Coordinate
from resources.spark.task.table_writer import Sink, agreed, answered
from resources.spark.task.task_spec import Job

__all__ = ["DEAD_LETTERS", "RangeOutput"]

INSTANT = pa.timestamp("us", "UTC")
_LAST_MS = (2**63 - 1) // 1000  # as microseconds it still is a number of 64 bits
HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
DEAD_LETTERS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", INSTANT),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("stage", pa.string()),
        ("reason", pa.string()),
    ]
)


class RangeOutput:
    """Collects one range's rows and dead letters in staged files.

    Args:
        job: what the batch's tasks share.
        piece: the range.
        shared: files for what fills none; None: every range has its own.
    """

    def __init__(self, job: Job, piece: Piece, shared: Shared | None = None) -> None:
        self._job, self._piece = job, piece

        def file(kind: str, apart: bool = False) -> StagingWriter:
            share = partial(shared.take, kind) if shared is not None and not apart else None
            return StagingWriter(f"{job.staging}/{job.batch}", share, make=not job.remote)

        # Rows without an offset keep their order by the order of their files alone, so each file holds one range of them.
        untraced = job.ordered and job.program is not None and job.program.mode != "map"
        self._dead, self._deletes = file("dead letters"), file("deletes")

        def rows(part: Job, kind: str) -> StagingWriter | Divided:
            return Divided(part.divided, lambda of: file(f"{kind} {of}")) if part.divided else file(kind, untraced)

        self._sinks = [Sink(part, rows(part, f"rows {at}")) for at, part in enumerate((job, *job.also))]
        self._keys = KeyReader(job.unique, job.key, job.access) if job.deletes else None
        self._last = min(_LAST_MS, job.limits.instants[1] // 1000) if job.limits is not None else _LAST_MS
        self._refused = job.refused.get(piece.source, {})
        self.filtered = 0
        self.answered = 0  # records that gave rows, or lines of a program
        self.first_reason = ""

    @property
    def rows(self) -> int:
        """Rows written to the first table so far."""
        return self._sinks[0].file.rows

    @property
    def new_columns(self) -> Columns:
        """Columns that the records hold and the first table lacks."""
        return self._sinks[0].new_columns

    @property
    def dead_letters(self) -> int:
        """Dead letters written so far."""
        return self._dead.rows

    def spared(self, block: Held) -> Held:
        """Set records aside whose rows the table has refused, and return the others.

        Before they are decoded: what such a record holds beside its row, as new columns, is not for the table either.
        """
        found = (
            {at: self._refused[offset] for at, offset in enumerate(block.offsets) if offset in self._refused}
            if self._refused
            else {}
        )
        if not found:
            return block
        self.reject(block.pick(list(found)), "constraint", list(found.values()))
        return block.pick([at for at in range(len(block)) if at not in found])

    def decoded(self, decoded: Decoded, held: Held, *also: Decoded) -> None:
        """Rows of records; `held` are the records of the block in order. One that gave neither a row nor a reject is filtered.

        Args:
            decoded: what the block is to the first table.
            held: the records.
            also: what it is to each further table.

        Raises:
            RecordRejected: a payload cannot become a row and the policy is `fail`.
        """

        def coordinate(name: str, places: np.ndarray[Any, Any]) -> pa.Array:
            return self._coordinate(name, held.pick(places.tolist()), len(places))

        made = self._made((decoded, *also), coordinate, len(held))
        for sink, mine in zip(self._sinks, made, strict=True):
            if mine.rows:
                records = held if mine.kept is None else held.pick(mine.kept)
                table = self._with_coordinates(mine.table, records)
                whole = table.append_column(ORIGINAL, _originals(records)) if sink.job.originals else table
                sink.write(whole, answered([mine], len(held)) if self._job.several else None)
        gave = answered(made, len(held))
        self.answered += gave
        self.filtered += len(held) - gave - len(made[0].rejects) - len(made[0].refused)
        for stage, found in (("parse", made[0].rejects), ("constraint", made[0].refused)):
            if found:
                self.reject(held.pick([at for at, _ in found]), stage, [why for _, why in found])

    def _made(self, blocks: Sequence[Decoded], coordinate: Coordinate, count: int) -> list[Decoded]:
        """What each table gets of a block; whatever stands in the way of one of them is told by the first."""
        made = [sink.made(decoded, coordinate) for sink, decoded in zip(self._sinks, blocks, strict=True)]
        return made if len(made) == 1 else agreed(made, count)

    def tombstones(self, block: Held) -> None:
        """Records of a block that have no value: they delete the row of their key, or are filtered.

        Raises:
            RecordRejected: a key names no row and the policy is `fail`.
        """
        held = block.tombstones()
        if self._keys is None:
            self.filtered += len(held)
            return
        table, reasons = self._keys.read(held.column("key"))
        if reasons:
            bad = sorted(reasons)
            self.reject(held.pick(bad), "parse", [reasons[at] for at in bad])
            good = [at for at in range(len(held)) if at not in reasons]
            held, table = held.pick(good), table.take(pa.array(good, pa.int64()))
        self._deletes.write(self._with_coordinates(table, held))

    def loose(self, decoded: Decoded, payloads: Payloads, *also: Decoded) -> None:
        """Rows of a program that does not answer record by record: their offset is not known.

        Args:
            decoded: what the program's lines are to the first table.
            payloads: the lines.
            also: what they are to each further table.

        Raises:
            RecordRejected: an output row cannot be read and the policy is `fail`.
        """

        def coordinate(name: str, places: np.ndarray[Any, Any]) -> pa.Array:
            return self._coordinate(name, None, len(places))

        made = self._made((decoded, *also), coordinate, len(payloads))
        for sink, mine in zip(self._sinks, made, strict=True):
            if mine.rows:
                sink.write(self._with_coordinates(mine.table, None, mine.rows), None)
        self.answered += answered(made, len(payloads))
        where = f"{self._piece.source} {self._piece.range}: a row that the program wrote"
        for stage, found in (("parse", made[0].rejects), ("constraint", made[0].refused)):
            for at, reason in found:
                self._note(reason, where, stage, self._policy(stage))
                if self._policy(stage) == "dead_letter":
                    self._write_dead(Held.of([-1], [-1], [payloads[at]]), stage, [reason])

    def reject(self, held: Held, stage: str, reasons: Sequence[str]) -> None:
        """Set records aside as the policy says.

        Raises:
            RecordRejected: the policy is `fail`; names topic, partition and offset.
        """
        policy = self._policy(stage)
        self._note(reasons[0], f"{self._piece.source} offset {held.offsets[0]}", stage, policy, held.offsets[0])
        if policy == "skip":
            self.filtered += len(held)
        else:
            self._write_dead(held, stage, reasons)

    def finish(self, messages: int, size: int, seconds: float, given: int = 0, before: int = 0) -> RangeReport:
        """Close the files and report.

        Where a record may give several rows, rows do not tell how many records there were: these are reported beside them.

        Args:
            messages: records read.
            size: bytes of their keys and values.
            seconds: time taken.
            given: records given to a `flatmap` program.
            before: dead letters that were never given to it.
        """
        if (self._job.several or self._job.format.several) and not given:
            given, before = self.answered, self.dead_letters
        counts = Counts(
            messages=messages,
            rows=self.rows,
            dead_letters=self.dead_letters,
            filtered=self.filtered,
            gaps=len(self._piece.range) - messages,
            given=given,
            set_aside_before=before,
            bytes=size,
            deletes=self._deletes.rows,
        )
        first, *also = (sink.share() for sink in self._sinks)
        return RangeReport(
            self._piece.source,
            self._piece.range,
            counts,
            first.rows,
            self._dead.finish(),
            self._deletes.finish(),
            first.new_columns,
            seconds,
            self.first_reason,
            lookups={name: held.value.version for name, held in self._job.lookups.items()},
            mark=first.mark,
            also=tuple(also),
            parts=first.parts,
        )

    def abandon(self) -> None:
        """Close what is open; nothing will be reported."""
        for sink in self._sinks:
            sink.file.abandon()
        self._dead.abandon()
        self._deletes.abandon()

    def _policy(self, stage: str) -> str:
        return {"transform": self._job.transform, "constraint": self._job.constraint}.get(stage, self._job.parse)

    def _note(self, reason: str, where: str, stage: str, policy: str, offset: int | None = None) -> None:
        self.first_reason = self.first_reason or f"{where}: {reason}"
        if policy == "fail":
            error = RecordRejected(
                f"{where}: {reason}",
                f"mend {'the records or the expression' if stage == 'constraint' else 'the producer'}, or set errors.{stage}:"
                " dead_letter to keep such records aside",
            )
            error.record = None if offset is None else (self._piece.source, int(offset))
            raise error

    def _with_coordinates(self, table: pa.Table, held: Held | None, count: int = 0) -> pa.Table:
        count = len(held) if held is not None else count
        always = ("_kafka_partition", "_kafka_offset", "_kafka_timestamp")
        coordinates = [*always, *(f"_kafka_{name}" for name in ("topic", "key", "headers") if name in self._job.extras)]
        columns = [(name, self._coordinate(name, held, count)) for name in coordinates]
        names = [*table.column_names, *(name for name, _ in columns)]
        return pa.table([*table.columns, *(array for _, array in columns)], names=names)

    def _coordinate(self, name: str, held: Held | None, count: int) -> pa.Array:
        """One of Kafka's coordinates for so many rows; None: it is not known which records they come from."""
        if name == "_kafka_partition":
            return pa.repeat(pa.scalar(self._piece.source.partition, pa.int32()), count)
        if name == "_kafka_topic":
            return pa.repeat(pa.scalar(self._piece.source.topic.name, pa.string()), count)
        if name == "_kafka_offset":
            return held.column("offset") if held is not None else pa.nulls(count, pa.int64())
        if name == "_kafka_timestamp":
            return _instants(held.column("timestamp"), self._last) if held is not None else pa.nulls(count, INSTANT)
        if name == "_kafka_key":
            return held.column("key") if held is not None else pa.nulls(count, pa.binary())
        return _headers(held) if held is not None else pa.nulls(count, HEADERS)

    def _write_dead(self, held: Held, stage: str, reasons: Sequence[str]) -> None:
        count = len(held)
        self._dead.write(
            pa.table(
                [
                    pa.repeat(pa.scalar(self._piece.source.topic.name, pa.string()), count),
                    pa.repeat(pa.scalar(self._piece.source.partition, pa.int32()), count),
                    pa.array([offset if offset >= 0 else None for offset in held.offsets], pa.int64()),
                    _instants(held.column("timestamp"), self._last),
                    held.column("key"),
                    held.value_array(),
                    _headers(held),
                    pa.repeat(pa.scalar(stage, pa.string()), count),
                    pa.array(list(reasons), pa.string()),
                ],
                schema=DEAD_LETTERS,
            )
        )


def _instants(timestamps: pa.Array, last: int) -> pa.Array:
    """Kafka's milliseconds as microseconds UTC; those before 1970 (-1: no timestamp, KIP-32) and behind the last are null.

    A producer that stamps microseconds or nanoseconds is enough for the latter: the batch must not fail for ever for that.
    """
    ends = pc.min_max(timestamps).as_py() if len(timestamps) else {"min": 0, "max": 0}
    if ends["min"] < 0 or ends["max"] > last:
        timestamps = pc.if_else(pc.and_(pc.greater_equal(timestamps, 0), pc.less_equal(timestamps, last)), timestamps, None)
    return timestamps.cast(pa.timestamp("ms", "UTC")).cast(INSTANT)


def _originals(held: Held) -> pa.Array:
    arrays = [held.column("key"), held.value_array(), _headers(held)]
    return pa.StructArray.from_arrays(arrays, names=["key", "value", "headers"])


def _headers(held: Held) -> pa.Array:
    if held.table.column("headers").null_count == len(held):
        return pa.nulls(len(held), HEADERS)
    rows = [None if items is None else [{"name": name, "value": value} for name, value in items] for items in held.headers()]
    return pa.array(rows, HEADERS)
