"""What a task writes of one range: rows with Kafka's coordinates, dead letters with the whole record, and the counts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from kpipe.batch import Counts, Piece, RangeReport
from kpipe.errors import RecordRejected
from kpipe.keys import ORIGINAL
from kpipe.schema import Columns
from resources.decode.block import Decoded
from resources.decode.keys import KeyReader
from resources.kafka.held import Held
from resources.spark.files import StagingWriter
from resources.spark.job import Job
from resources.spark.keyed import with_keys
from resources.spark.select import selector

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
    """

    def __init__(self, job: Job, piece: Piece) -> None:
        self._job, self._piece = job, piece
        folder = Path(job.staging) / job.batch
        self._rows, self._dead, self._deletes = StagingWriter(folder), StagingWriter(folder), StagingWriter(folder)
        self._keys = KeyReader(job.unique, job.key, job.access) if job.deletes else None
        self.filtered = 0
        self._answered = 0  # records that gave rows
        self._select = selector(job)
        self.new_columns = self._select.new_columns if self._select is not None else Columns()
        self.first_reason = ""

    @property
    def rows(self) -> int:
        """Rows written so far."""
        return self._rows.rows

    @property
    def dead_letters(self) -> int:
        """Dead letters written so far."""
        return self._dead.rows

    def decoded(self, decoded: Decoded, held: Held) -> None:
        """Rows of records; `held` are the records of the block in order. One that gave neither a row nor a reject is filtered.

        Raises:
            RecordRejected: a payload cannot become a row and the policy is `fail`.
        """
        if self._select is not None:
            decoded = self._select.apply(
                decoded, lambda name, places: self._coordinate(name, held.pick(places.tolist()), len(places))
            )
        self.new_columns = self.new_columns.joined(decoded.new_columns)
        if self._job.unique:
            decoded = with_keys(decoded, self._job.unique)
        if decoded.rows:
            records = held if decoded.kept is None else held.pick(decoded.kept)
            table = self._with_coordinates(decoded.table, records)
            self._rows.write(table.append_column(ORIGINAL, _originals(records)) if self._job.originals else table)
        answered = len(held) if decoded.kept is None else len(set(decoded.kept))
        self._answered += answered
        self.filtered += len(held) - answered - len(decoded.rejects) - len(decoded.refused)
        if decoded.rejects:
            self.reject(held.pick([at for at, _ in decoded.rejects]), "parse", [why for _, why in decoded.rejects])
        if decoded.refused:
            self.reject(held.pick([at for at, _ in decoded.refused]), "constraint", [why for _, why in decoded.refused])

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

    def loose(self, decoded: Decoded, payloads: Sequence[bytes]) -> None:
        """Rows of a program that does not answer record by record: their offset is not known.

        Raises:
            RecordRejected: an output row cannot be read and the policy is `fail`.
        """
        if self._select is not None:
            decoded = self._select.apply(decoded, lambda name, places: self._coordinate(name, None, len(places)))
        self.new_columns = self.new_columns.joined(decoded.new_columns)
        if decoded.rows:
            self._rows.write(self._with_coordinates(decoded.table, None, decoded.rows))
        where = f"{self._piece.source} {self._piece.range}: a row that the program wrote"
        for stage, found in (("parse", decoded.rejects), ("constraint", decoded.refused)):
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
        self._note(reasons[0], f"{self._piece.source} offset {held.offsets[0]}", stage, policy)
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
        if self._job.format.several and not given:
            given, before = self._answered, self.dead_letters
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
        return RangeReport(
            self._piece.source,
            self._piece.range,
            counts,
            self._rows.finish(),
            self._dead.finish(),
            self._deletes.finish(),
            self.new_columns,
            seconds,
            self.first_reason,
        )

    def abandon(self) -> None:
        """Close what is open; nothing will be reported."""
        self._rows.abandon()
        self._dead.abandon()
        self._deletes.abandon()

    def _policy(self, stage: str) -> str:
        return {"transform": self._job.transform, "constraint": self._job.constraint}.get(stage, self._job.parse)

    def _note(self, reason: str, where: str, stage: str, policy: str) -> None:
        self.first_reason = self.first_reason or f"{where}: {reason}"
        if policy == "fail":
            raise RecordRejected(
                f"{where}: {reason}",
                f"mend {'the records or the expression' if stage == 'constraint' else 'the producer'}, or set errors.{stage}:"
                " dead_letter to keep such records aside",
            )

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
            return _instants(held.column("timestamp")) if held is not None else pa.nulls(count, INSTANT)
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
                    _instants(held.column("timestamp")),
                    held.column("key"),
                    held.value_array(),
                    _headers(held),
                    pa.repeat(pa.scalar(stage, pa.string()), count),
                    pa.array(list(reasons), pa.string()),
                ],
                schema=DEAD_LETTERS,
            )
        )


def _instants(timestamps: pa.Array) -> pa.Array:
    """Kafka's milliseconds as microseconds UTC; those before 1970 (-1: no timestamp, KIP-32) and beyond 64 bits are null.

    A producer that stamps nanoseconds is enough for the latter: the batch must not fail for ever for that.
    """
    ends = pc.min_max(timestamps).as_py() if len(timestamps) else {"min": 0, "max": 0}
    if ends["min"] < 0 or ends["max"] > _LAST_MS:
        timestamps = pc.if_else(pc.and_(pc.greater_equal(timestamps, 0), pc.less_equal(timestamps, _LAST_MS)), timestamps, None)
    return timestamps.cast(pa.timestamp("ms", "UTC")).cast(INSTANT)


def _originals(held: Held) -> pa.Array:
    arrays = [held.column("key"), held.value_array(), _headers(held)]
    return pa.StructArray.from_arrays(arrays, names=["key", "value", "headers"])


def _headers(held: Held) -> pa.Array:
    if held.table.column("headers").null_count == len(held):
        return pa.nulls(len(held), HEADERS)
    rows = [None if items is None else [{"name": name, "value": value} for name, value in items] for items in held.headers()]
    return pa.array(rows, HEADERS)
