"""Stage one range inside a Spark task: read it to its proven end, transform, decode, write files.

Spark's Python workers import this module, so nothing here imports Dagster or pyspark at the top.
"""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from kpipe.batch.batch import Piece, RangeReport
from kpipe.errors import KpipeError, LogTruncated, TransformFailed
from kpipe.failpoints import failpoint
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from resources.decode.block import Decoded, Payloads, in_parts
from resources.kafka.range_reader import RangeReader
from resources.spark.staging.shared_writer import Shared
from resources.spark.task.framing_check import check_framing
from resources.spark.task.host_check import arrived, here
from resources.spark.task.range_writer import RangeOutput
from resources.spark.task.routing import write_routed
from resources.spark.task.task_spec import Failure, JobSpec
from resources.spark.task.transform import columns, payloads, poison_records, transformed

_AHEAD, _SHORT = 16, 1000
"""Readers at once, and the length in offsets up to which a range is read ahead: limits the memory of these readers."""

_LONGER = 16
"""Factor of the length of the next offsets, where the first ones had too few records for a sample."""

SAMPLE_BYTES = 8 << 20
"""Bytes of a range's records from which columns are inferred, as the driver needs memory for all of them."""

__all__ = ["SAMPLE_BYTES", "run", "sample", "sample_columns", "sample_keys", "stage"]


def run(job: JobSpec, pieces: Iterable[Piece], attempt: int = 0) -> Iterator[RangeReport | Failure]:
    """Stage each piece in turn until one fails. A failure is returned as a result, never raised; so is each log that was cut."""
    shared, reports, where = Shared(f"{job.staging}/{job.batch}", make=not job.remote), list[RangeReport](), ""
    cut: list[Failure] = []
    host = here() if job.remote else ""
    try:
        if job.remote or job.store is not None:
            arrived(job)
        for piece, reader in _ahead(job, pieces):
            where = f"{piece.source} {piece.range}"
            try:
                reports.append(stage(job, piece, attempt, reader, shared))
            except LogTruncated as error:  # the others are read, so that one run finds all of them
                error.record = (piece.source, error.offset)
                cut.append(Failure.of(error, traceback.format_exc(), host))
            failpoint("collect.partial")
        if cut:
            shared.abandon()
            yield from cut
            return
        for report in shared.finish(reports):
            yield replace(report, host=host) if host else report
    except KpipeError as error:
        shared.abandon()
        yield Failure.of(error, traceback.format_exc(), host)
    except Exception as error:
        shared.abandon()
        what = f"{where}: {type(error).__name__}: {error}" + (f" (on {host})" if host else "")
        yield Failure("KpipeError", what, "this is a defect of kpipe; run with --debug for the traceback", traceback.format_exc())


def _ahead(job: JobSpec, pieces: Iterable[Piece]) -> Iterator[tuple[Piece, RangeReader]]:
    """Yield each piece with its reader, and start readers of the next short pieces meanwhile.

    Reading a short range is mostly waiting for the broker: one after the other, 1,000 partitions would take seconds.
    """
    waiting: deque[tuple[Piece, RangeReader]] = deque()
    coming = iter(pieces)
    try:
        while True:
            while len(waiting) < _AHEAD and (piece := next(coming, None)) is not None:
                waiting.append((piece, job.reader(piece)))
                if len(piece.range) <= _SHORT:
                    waiting[-1][1].start()
            if not waiting:
                return
            yield waiting.popleft()
    finally:
        for _, reader in waiting:
            reader.close()


def stage(
    job: JobSpec, piece: Piece, attempt: int = 0, reader: RangeReader | None = None, shared: Shared | None = None
) -> RangeReport:
    """Read one range, decode it, and stage its rows and dead letters; shared files are finished later.

    If the program fails, the range is read again to find the poison records; then it is staged without them.

    Raises:
        SourceError: the range could not be read to its end.
        TransformFailed: the program broke its contract.
        RecordRejected: the policy is `fail`.
        StagingFailed: a file could not be written.
    """
    job, known = job.of_piece(piece), job.poison_records.get(piece.source, {})
    try:
        return _stage(job, piece, attempt, known, reader or job.reader(piece), shared)
    except TransformFailed as error:
        check_framing(job, piece, known)
        found = poison_records(job, piece, error, attempt, known)
    try:
        return replace(_stage(job, piece, attempt, {**known, **found}, job.reader(piece), shared), poison_records=found)
    except TransformFailed as error:
        left_out = f"; it also fails without the {len(found)} poison record(s), the first at offset {min(found)}"
        raise TransformFailed(error.what + left_out, error.hint, error.phase) from error


def _stage(
    job: JobSpec, piece: Piece, attempt: int, without: Mapping[int, str], reader: RangeReader, shared: Shared | None
) -> RangeReport:
    began, clock = time.monotonic(), time.time()
    output = RangeOutput(job, piece, shared)
    try:
        with reader:
            given = before = 0
            found: dict[str, Columns] = {}
            if job.routes is not None:
                found = write_routed(job, reader, output)
            elif job.program is None:
                _plain(job, reader, output)
            else:
                given, before = transformed(job, piece, reader, output, attempt, without)
            report = output.finish(reader.count, reader.bytes, time.monotonic() - began, given, before)
            stages = _stages(time.monotonic() - began, reader.seconds, output, job.program is not None)
            return replace(report, began=clock, stages=stages, tail=reader.tail, found=found)
    except BaseException:
        output.abandon()
        raise


def _stages(seconds: float, read: float, output: RangeOutput, program: bool) -> dict[str, float]:
    """Return the seconds of each stage. A program, or else decoding, took what the others did not."""
    rest = max(0.0, seconds - read - output.seconds)
    if not program:
        return {"read": read, "decode": rest, "stage": output.seconds}
    decode = min(rest, output.decode_seconds)
    return {"read": read, "program": rest - decode, "decode": decode, "stage": output.seconds}


def _plain(job: JobSpec, reader: RangeReader, output: RangeOutput) -> None:
    decoders = job.decoders
    whole_records = all(reads.takes_nulls for reads in decoders) and not any(table.deletes for table in job.tables)
    for whole, _ in reader.blocks():
        block = output.spared(whole)
        held, tombstones = (block, 0) if whole_records else block.split_tombstones()
        if tombstones:
            output.tombstones(block)
        data, keys = Payloads.of_array(held.column("line")), held.column("key")

        def decode(start: int, end: int, data: Payloads = data, keys: pa.Array = keys) -> list[Decoded]:
            return [reads.decode(data.part(start, end), keys.slice(start, end - start)) for reads in decoders]

        for start, end, blocks in in_parts(len(data), decode):
            output.decoded(blocks, held.part(start, end))


def sample(job: JobSpec, piece: Piece, limit: int, *, framing: bool = True) -> tuple[list[bytes], Mapping[int, str]]:
    """Return payloads from the first records of a range, after the program, to infer columns from.

    Args:
        job: what the batch's tasks share.
        piece: the range.
        limit: maximum number of payloads.
        framing: whether to check first that the program reads lines; not needed where it has written lines for another range.

    Returns:
        At most `limit` payloads, of `SAMPLE_BYTES` of records and one more (of a program's output, one more block); the poison
        records with the reasons, by offset.
    """
    refused = job.refused.get(piece.source, {})  # these add no columns
    if job.program is None:
        return [value for _, value, _ in _first(job, piece, limit, refused, _valued) if value is not None], {}
    known = {**job.poison_records.get(piece.source, {}), **refused}
    if (part := _cut(job, piece, limit, known)) is None:
        return [], {}
    piece = part
    if framing:
        check_framing(job, piece, known)
    try:
        with job.reader(piece) as reader:
            return payloads(job, piece, reader, known, limit, SAMPLE_BYTES), {}
    except TransformFailed as error:
        poison = poison_records(job, piece, error, 0, known)
    with job.reader(piece) as reader:
        return payloads(job, piece, reader, {**known, **poison}, limit, SAMPLE_BYTES), poison


def sample_columns(job: JobSpec, piece: Piece, limit: int) -> tuple[Columns, Mapping[int, str]]:
    """Return the columns that a program with `stdin: arrow` writes for a range, and the poison records as in `sample`."""
    known = {**job.poison_records.get(piece.source, {}), **job.refused.get(piece.source, {})}
    if (part := _cut(job, piece, limit, known)) is None:
        return Columns(), {}
    piece = part
    try:
        with job.reader(piece) as reader:
            return columns(job, piece, reader, known), {}
    except TransformFailed as error:
        found = poison_records(job, piece, error, 0, known)
    with job.reader(piece) as reader:
        return columns(job, piece, reader, {**known, **found}), found


def sample_keys(job: JobSpec, piece: Piece, limit: int) -> list[bytes]:
    """Return the keys of the first records of a range, at most `limit`."""
    refused = job.refused.get(piece.source, {})
    return [key for _, _, key in _first(job, piece, limit, refused, _keyed) if key is not None]


_Record = tuple[int, bytes | None, bytes | None]  # offset, value, key


def _valued(record: _Record) -> bool:
    return record[1] is not None


def _keyed(record: _Record) -> bool:
    return record[2] is not None


def _any(_: _Record) -> bool:
    return True


def _first(
    job: JobSpec, piece: Piece, limit: int, without: Collection[int], wanted: Callable[[_Record], bool]
) -> Iterator[_Record]:
    """Yield the first `limit` records that are wanted, up to the one with which `SAMPLE_BYTES` are reached.

    The range is read until then: its first offsets may have no record, as in a compacted topic or a table.
    """
    left = SAMPLE_BYTES
    for part in _growing(piece.range, limit):
        with job.reader(Piece(piece.source, part)) as reader:
            for block, _ in reader.blocks():
                for record in zip(block.offsets, block.values, block.keys(), strict=True):
                    at, value, key = record
                    if at in without or not wanted(record):
                        continue
                    yield record
                    left, limit = left - len(value or b"") - len(key or b""), limit - 1
                    if left <= 0 or limit <= 0:
                        return


def _growing(span: Range, size: int) -> Iterator[Range]:
    """Divide a range: databases sort all rows of a part before they return the first, and its first offsets usually suffice."""
    start = span.start
    while start < span.end:
        end = min(start + size, span.end)
        yield Range(start, end)
        start, size = end, size * _LONGER


def _cut(job: JobSpec, piece: Piece, limit: int, without: Collection[int]) -> Piece | None:
    """Return the piece of these first records, as a program that fails may be given it several times; None: there are none."""
    assert job.program is not None
    wanted = _any if job.program.stdin in ("json", "arrow") else _valued  # other programs are not given tombstones
    offsets = [int(at) for at, _, _ in _first(job, piece, limit, without, wanted)]
    return replace(piece, range=Range(offsets[0], offsets[-1] + 1)) if offsets else None
