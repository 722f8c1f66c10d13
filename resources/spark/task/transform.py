"""Run the pipeline's program in a task: over one range, or over parts of it to find poison records."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from kpipe.batch.batch import Piece
from kpipe.errors import TransformFailed
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.terminal import plain_lines
from resources.decode.block import Decoded, Decoder, Payloads, in_parts
from resources.decode.convert import beyond
from resources.kafka.range_reader import RangeReader
from resources.kafka.record_block import RecordBlock
from resources.secrets import secrets_in
from resources.spark.task.arrow_answers import Answers
from resources.spark.task.bisect import Bounds, Search, Trial
from resources.spark.task.range_writer import RangeOutput
from resources.spark.task.task_spec import JobSpec, ProgramSpec
from resources.spark.task.transform_input import Feed
from transforms.blocks import line_blocks
from transforms.copies import keep
from transforms.counts import check_counts
from transforms.environment import environment
from transforms.program import Limits, Program
from transforms.runner import TransformRun

__all__ = ["columns", "payloads", "poison_records", "program_for", "transformed"]

_LOG = logging.getLogger("kpipe.transform")

# Output is decoded in blocks of this size, which bounds a worker's memory when rows are large.
_OUTPUT_BYTES = 8 << 20
# A search may take the time of this many trials that reach the idle timeout, and at least 20 minutes.
_SILENT_TRIES = 20
_SEARCH_SECONDS = 1200.0


def program_for(job: JobSpec, spec: ProgramSpec, piece: Piece, attempt: int) -> Program:
    """Return the program as it runs for one range on this worker.

    Raises:
        TransformFailed: the file on this worker differs from the file that the driver checked.
    """
    file = Path(spec.file)
    if not file.is_absolute():
        from pyspark import SparkFiles

        file = Path(SparkFiles.get(spec.file))
    programs = Path(job.programs).absolute()
    copy = keep(file, spec.sha256, programs, archive=spec.member is not None, where=str(piece.source))
    path = copy if spec.member is None else copy / spec.member
    return Program(
        argv=(str(path), *spec.args),
        env=environment(
            piece.source.topic.name,
            piece.source.partition,
            piece.range.start,
            piece.range.end,
            job.batch,
            attempt,
            tuple(spec.env),
            spec.env,
        ),
        idle_timeout_s=spec.idle_timeout_s,
        max_output_bytes=spec.max_output_bytes if spec.mode == "flatmap" or spec.arrow else None,
        limits=Limits(tree_bytes=spec.memory_bytes),
        scratch=programs,
        line_output=not spec.arrow,
        counted=spec.mode == "map",
        cancelled=job.cancelled,
        secrets=(*spec.secrets, *secrets_in(job.config), *(job.access.secrets if job.access is not None else ())),
    )


def transformed(
    job: JobSpec, piece: Piece, reader: RangeReader, output: RangeOutput, attempt: int, without: Mapping[int, str]
) -> tuple[int, int]:
    """Pass a range through the program, and its rows to the output.

    Args:
        job: what the batch's tasks share.
        piece: the range.
        reader: of the range.
        output: of the range.
        attempt: number of Spark's attempt.
        without: reasons by offset of records that are set aside instead of being passed to the program.

    Returns:
        Records passed to a `flatmap` program (0 in other modes), and dead letters that were not passed to it.

    Raises:
        TransformFailed: the program broke its contract.
        RecordRejected: the policy is `fail`.
    """
    spec = job.program
    assert spec is not None
    where = f"{piece.source} {piece.range}"
    feed = Feed(job, piece, reader, output, without, keep=spec.traced)
    blocks = iter(feed)
    first = next(blocks, None)
    if first is None:  # without records, the program is not started
        return 0, feed.set_aside
    try:
        with TransformRun(program_for(job, spec, piece, attempt), _chain(first, blocks), where=where) as process:
            if spec.arrow:
                _typed(job, process, feed, output, where)
            else:
                _lines(job, process, feed, output, where)
    except TransformFailed as error:
        if spec.traced and error.phase == "work" and len(feed.waiting):
            error.unanswered = feed.waiting.offsets[0]
        raise
    if spec.mode == "filter" and not spec.arrow:
        output.filtered += feed.given - output.answered - (output.dead_letters - feed.set_aside)
    return (feed.given, feed.set_aside) if spec.mode == "flatmap" and not spec.arrow else (0, 0)


def _typed(job: JobSpec, process: TransformRun, feed: Feed, output: RangeOutput, where: str) -> None:
    """Pass the rows of an Arrow program to the output; records without a row are filtered."""
    assert job.program is not None
    decoders = job.arrow_decoders(where)
    for rows, held in Answers(process, feed, job.program.mode, where):
        with output.decoding():
            blocks = [reads.decode(rows) for reads in decoders]
        output.decoded(blocks, held)
    output.filtered += len(feed.waiting)


def _lines(job: JobSpec, process: TransformRun, feed: Feed, output: RangeOutput, where: str) -> None:
    """Pass the lines of a program to the output."""
    spec, decoders, written = job.program, job.decoders, 0
    assert spec is not None
    for block in line_blocks(process, block_bytes=_OUTPUT_BYTES, where=where):
        data = Payloads.of_lines(block)
        count = len(data)
        written += count
        if spec.mode == "map":
            held = feed.answered(count)
            for start, end, blocks in in_parts(count, partial(_decoded, output, decoders, data, held.column("key"))):
                output.decoded(blocks, held.part(start, end))
        else:
            if spec.mode == "filter" and written > feed.given:  # checked now: the program may never end
                check_counts("filter", feed.given, written, where)
            for start, end, blocks in in_parts(count, partial(_decoded, output, decoders, data, None)):
                output.loose(blocks, data.part(start, end))
    check_counts(spec.mode, feed.given, written, where)


def _decoded(
    output: RangeOutput, decoders: Sequence[Decoder], data: Payloads, keys: pa.Array | None, start: int, end: int
) -> list[Decoded]:
    """Decode some lines for each table, and count the time."""
    some = None if keys is None else keys.slice(start, end - start)
    with output.decoding():
        return [reads.decode(data.part(start, end), some) for reads in decoders]


def payloads(
    job: JobSpec,
    piece: Piece,
    reader: RangeReader,
    without: Mapping[int, str],
    limit: int,
    size: int,
    seconds: float | None = None,
) -> list[bytes]:
    """Return the first lines that the program writes for a range. The other ones are read, too, since it may still fail.

    Args:
        job: what the batch's tasks share.
        piece: the range.
        reader: of the range.
        without: reasons by offset of records that are not passed to the program.
        limit: maximum number of lines.
        size: bytes of lines after which no further block of them is kept.
        seconds: maximum time of the run; None: it may take any time while it reads or writes.

    Raises:
        TransformFailed: the program failed, or wrote more lines than its mode allows. Fewer lines are accepted.
    """
    assert job.program is not None
    where, feed = f"{piece.source} {piece.range}", Feed(job, piece, reader, _Nowhere(), without)
    blocks = iter(feed)
    first = next(blocks, None)
    if first is None:
        return []
    program = replace(program_for(job, job.program, piece, 0), total_timeout_s=seconds)
    found, kept, written, mode = list[bytes](), 0, 0, job.program.mode
    with TransformRun(program, _chain(first, blocks), where=where) as process:
        for block in line_blocks(process, where=where):
            written += block.count(b"\n")
            if mode != "flatmap" and written > feed.given:  # checked now: the program may never end
                check_counts(mode, feed.given, written, where)
            if len(found) < limit and kept < size:
                found += Payloads.of_lines(block).values[: limit - len(found)]
                kept += len(block)
    return found


def columns(job: JobSpec, piece: Piece, reader: RangeReader, without: Mapping[int, str]) -> Columns:
    """Return the columns that an Arrow program writes for a range; none without records.

    Raises:
        TransformFailed: the program failed.
    """
    spec, where = job.program, f"{piece.source} {piece.range}"
    assert spec is not None
    feed = Feed(job, piece, reader, _Nowhere(), without, keep=True)
    blocks = iter(feed)
    first = next(blocks, None)
    found = Columns()
    if first is not None:
        with TransformRun(program_for(job, spec, piece, 0), _chain(first, blocks), where=where) as process:
            for rows, _ in Answers(process, feed, spec.mode, where):
                found = beyond(rows.columns, Columns())
    return found


def poison_records(job: JobSpec, piece: Piece, failed: TransformFailed, attempt: int, known: Mapping[int, str]) -> dict[int, str]:
    """Find after a failure the records of the range on which the program fails alone, with the reasons.

    Reads the range again, in parts, and stages nothing. Logs its progress and its time limit.

    Args:
        job: what the batch's tasks share.
        piece: the range.
        failed: the failure.
        attempt: number of Spark's attempt.
        known: poison records found before, which were not passed to the program.

    Raises:
        TransformFailed: the policy is `fail` and a record was found; or no record is the cause, or too many are.
        TransformFailed: the policy is `fail`, and here is the record; or no record is to blame, or too many are.
        SourceError: the range could not be read.
    """
    spec = job.program
    assert spec is not None
    if not failed.phase:
        raise failed
    idle = min(spec.trial_timeout_s or spec.idle_timeout_s, spec.idle_timeout_s)
    bounds = Bounds(seconds=max(_SEARCH_SECONDS, _SILENT_TRIES * idle))

    def trial(part: Range, alone: bool) -> Trial:
        patience = spec.idle_timeout_s if alone else idle
        limited = replace(spec, idle_timeout_s=patience)
        return _trial(job, limited, Piece(piece.source, part), attempt, known, bounds.seconds)

    def log(text: str) -> None:
        _LOG.warning("%s", plain_lines(text), extra={"pipeline": job.pipeline, "batch": job.batch})

    search = Search(
        str(piece.source), piece.range, failed, trial, idle, bounds, first_only=job.transform == "fail", on_progress=log
    )
    poison = search.run()
    if job.transform == "fail":
        offset, reason = next(iter(poison.items()))
        error = TransformFailed(
            f"{piece.source} offset {offset}: this record makes the program fail: {reason}",
            "fix the program or the producer, or set errors.transform: dead_letter to keep such records as dead letters",
            "work",
        )
        error.record = (piece.source, offset)
        raise error
    return poison


def _trial(job: JobSpec, spec: ProgramSpec, piece: Piece, attempt: int, without: Mapping[int, str], seconds: float) -> Trial:
    """Run the program over a part of a range, and discard its output."""
    where = f"{piece.source} {piece.range}"
    given: list[int] = []
    with job.reader(piece) as reader:
        feed = Feed(job, piece, reader, _Nowhere(), without, keep=spec.arrow, seen=given)
        blocks = iter(feed)
        first = next(blocks, None)
        if first is None and len(piece.range):
            return Trial()
        program = replace(program_for(job, spec, piece, attempt), total_timeout_s=seconds)
        written = 0
        try:
            with TransformRun(program, _chain(first or feed.nothing, blocks), where=where) as process:
                if spec.arrow:
                    decoders = job.arrow_decoders(where)
                    for rows, _ in Answers(process, feed, spec.mode, where):
                        for reads in decoders:
                            reads.decode(rows)
                    return Trial(None, given)
                for chunk in line_blocks(process, where=where):
                    written += chunk.count(b"\n")
                    if spec.mode != "flatmap" and written > feed.given:
                        break
            check_counts(spec.mode, feed.given, written, where)
        except TransformFailed as error:
            if not error.phase:
                raise
            return Trial(error, given)
    return Trial(None, given)


class _Nowhere:
    """Output that discards the records of a trial."""

    def __init__(self) -> None:
        self.filtered = self.dead_letters = 0

    def tombstones(self, block: RecordBlock) -> None:
        """Discard them."""

    def spared(self, block: RecordBlock) -> RecordBlock:
        """See `Aside`."""
        return block

    def reject(self, held: RecordBlock, stage: str, reasons: Sequence[str]) -> None:
        """Discard them."""


def _chain(first: bytes | memoryview, rest: Iterator[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    yield first
    yield from rest
