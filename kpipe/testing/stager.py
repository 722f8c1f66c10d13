"""A stager without Spark: reads fake topics, writes JSON lines, and fails or reports wrongly on request."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kpipe.batch.batch import Batch, Counts, Piece, RangeReport, StagedFile, TableReport
from kpipe.column_growth import Closed
from kpipe.errors import LogTruncated
from kpipe.ledger.tail import Tail
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.schema.inference import infer
from kpipe.testing.topics import FakeTopics
from kpipe.topics import PartitionId

__all__ = ["FakeStager", "Lie", "extra_column", "miscount", "overlapping_piece", "without_piece", "wrong_piece"]

#: A function that changes the reports of one call before the driver gets them.
Lie = Callable[[Sequence[RangeReport]], Sequence[RangeReport]]


class FakeStager:
    """The `Stager` protocol over `FakeTopics`.

    A record becomes a row of the given columns, a bad one a dead letter. A tombstone is filtered, and an offset without
    a record is a gap. Files are JSON lines: rows have `_kafka_partition`, `_kafka_offset` (with several topics also
    `_kafka_topic`) and the payload; dead letters have these, `reason` and `value`.

    Args:
        topics: topics to read.
        folder: folder of the files; every call writes new files, none is ever removed.
        pieces: number of pieces of a range with as many offsets or more.
    """

    def __init__(self, topics: FakeTopics, folder: Path, pieces: int = 1) -> None:
        self.topics = topics
        self.folder = folder
        self.pieces = pieces
        #: Version of definition and program; table assets store it with every commit.
        self.version = "v1"
        #: Calls of `stage` so far, including failed ones.
        self.calls = 0
        #: Arguments of each call.
        self.given: list[tuple[Batch, Columns]] = []
        #: Called before each read, so that a test can change the topics.
        self.before: Callable[[Batch], None] = lambda _: None
        #: Called after each read, before the reports are returned.
        self.after: Callable[[Batch], None] = lambda _: None
        self._errors: dict[int, BaseException] = {}
        self._lies: dict[int, Lie] = {}

    def fail(self, error: BaseException, call: int | None = None) -> None:
        """Make the n-th call of `stage` (from 1; None: the next one) raise that error after its files were written."""
        self._errors[call or self.calls + 1] = error

    def lie(self, lie: Lie, call: int | None = None) -> None:
        """Change the reports of the n-th call of `stage` (from 1; None: the next one) with that function."""
        self._lies[call or self.calls + 1] = lie

    def columns(self, batch: Batch, table: int) -> Columns:
        """Infer columns from the records of the batch."""
        return infer(value for step in batch.steps for value in self._values(step.source, step.range))

    def stage(self, batch: Batch, tables: Sequence[Columns], closed: Sequence[Closed] = ()) -> Sequence[RangeReport]:
        """Stage every range, in the configured number of pieces."""
        (columns,) = tables
        self.calls += 1
        self.given.append((batch, columns))
        self.before(batch)
        pieces = [Piece.of(step, part) for step in batch.steps for part in step.range.split(self.pieces)]
        reports: Sequence[RangeReport] = [
            replace(self._piece(piece.source, piece.range, columns, bool(closed)), tail=tail)
            for piece, tail in zip(pieces, self._tails(pieces), strict=True)
        ]
        if self.calls in self._errors:
            raise self._errors[self.calls]
        self.after(batch)
        lie = self._lies.get(self.calls)
        return reports if lie is None else lie(reports)

    def give_up(self) -> None:
        """Do nothing: a fake `stage` call ends by itself."""

    def _tails(self, pieces: Sequence[Piece]) -> list[Tail | None]:
        """Return the fingerprint of each piece's last records.

        Raises:
            LogTruncated: the log of some partitions was cut.
        """
        tails, cut = list[Tail | None](), list[LogTruncated]()
        for piece in pieces:
            try:
                tails.append(self.topics.tail(piece.source, piece.range, piece.after, piece.epoch))
            except LogTruncated as error:
                cut.append(error)
        if cut:
            cut[0].others = tuple(cut[1:])
            raise cut[0]
        return tails

    def _values(self, source: PartitionId, within: Range) -> list[Mapping[str, Any]]:
        return [slot.value for _, slot in self.topics.read(source, within) if slot.value is not None and not slot.bad]

    def _piece(self, source: PartitionId, within: Range, columns: Columns, closed: bool) -> RangeReport:
        rows: list[dict[str, Any]] = []
        dead: list[dict[str, Any]] = []
        size = 0
        records = self.topics.read(source, within)
        for offset, slot in records:
            where: dict[str, Any] = {"_kafka_partition": source.partition, "_kafka_offset": offset}
            if self.topics.multi_topic:
                where["_kafka_topic"] = source.topic.name
            size += len(json.dumps(slot.value)) if slot.value is not None else 0
            if slot.bad:
                dead.append({**where, "reason": "not JSON", "value": slot.value})
            elif slot.value is not None and closed and infer([slot.value]).without(columns.names()):
                dead.append({**where, "reason": "new columns", "value": slot.value})
            elif slot.value is not None:
                rows.append({**where, **{name: value for name, value in slot.value.items() if name in columns}})
        return RangeReport(
            source=source,
            range=within,
            records=Counts(
                messages=len(records),
                dead_letters=len(dead),
                filtered=len(records) - len(rows) - len(dead),
                gaps=len(within) - len(records),
                bytes=size,
            ),
            tables=(
                TableReport(
                    Counts(rows=len(rows)),
                    (file,) if (file := self._file(rows)) is not None else (),
                    new_columns=Columns() if closed else infer(self._values(source, within)).without(columns.names()),
                ),
            ),
            dead_letters=self._file(dead),
            sample_dead_letter="not JSON" if dead else "",
        )

    def _file(self, lines: Sequence[Mapping[str, Any]]) -> StagedFile | None:
        if not lines:
            return None
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        path = self.folder / f"{uuid.uuid4().hex}.jsonl"
        path.write_bytes(data)
        return StagedFile(str(path), len(data), len(lines), hashlib.sha256(data).hexdigest())


def without_piece(reports: Sequence[RangeReport]) -> Sequence[RangeReport]:
    """Remove the report of the last piece."""
    return reports[:-1]


def overlapping_piece(reports: Sequence[RangeReport]) -> Sequence[RangeReport]:
    """Repeat the report of the last piece, as when two attempts of one task both succeed."""
    return [*reports, reports[-1]]


def wrong_piece(reports: Sequence[RangeReport]) -> Sequence[RangeReport]:
    """Add the report of an unplanned piece after the last one."""
    last = reports[-1]
    beyond = Range(last.range.end, last.range.end + len(last.range))
    return [*reports, replace(last, range=beyond)]


def miscount(**more: int) -> Lie:
    """Change the counts of the last piece by these numbers."""

    def lie(reports: Sequence[RangeReport]) -> Sequence[RangeReport]:
        last = reports[-1]
        off, (table,) = Counts(**more), last.tables
        table = replace(table, counts=table.counts + off.of_rows)
        return [*reports[:-1], replace(last, records=last.records + off.of_records, tables=(table,))]

    return lie


def extra_column(columns: Columns) -> Lie:
    """Report these new columns for the last piece."""

    def lie(reports: Sequence[RangeReport]) -> Sequence[RangeReport]:
        tables = tuple(replace(table, new_columns=columns) for table in reports[-1].tables)
        return [*reports[:-1], replace(reports[-1], tables=tables)]

    return lie
