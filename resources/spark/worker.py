"""What runs inside a Spark task: read a range to its proven end, pass it through the program, decode, stage.

Imported by Spark's Python workers: nothing here imports Dagster or pyspark at the top.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterable, Iterator
from typing import cast

from kpipe.batch import Piece, RangeReport
from kpipe.errors import KpipeError, TransformFailed
from kpipe.faults import reach
from resources.decode.block import Payloads
from resources.decode.json_format import JsonDecoder
from resources.decode.raw_format import decode_raw
from resources.kafka.held import Held
from resources.kafka.reader import RangeReader
from resources.spark.job import Failure, Job
from resources.spark.output import RangeOutput
from resources.spark.program import program_for
from transforms.blocks import line_blocks
from transforms.counts import check_counts
from transforms.framing import NewlineInValue, json_envelopes, length_prefixed, lines
from transforms.runner import TransformRun

__all__ = ["run", "sample", "stage"]

# A block is decoded when it holds this much. Records: measured best between 20,000 (more calls) and 200,000 (no gain).
# Bytes: what bounds a worker's memory when records are large.
_BLOCK_RECORDS = 60_000
_BLOCK_BYTES = 16 << 20
# Records are held until the program has answered them (mode map), so that a bad answer can be dead-lettered whole.
_MOST_HELD_BYTES = 256 << 20


def run(job: Job, pieces: Iterable[Piece], attempt: int = 0) -> Iterator[RangeReport | Failure]:
    """Stage each piece in turn; ends at the first that fails. A failure is a result, never an exception."""
    for piece in pieces:
        try:
            yield stage(job, piece, attempt)
            reach("collect.partial")
        except KpipeError as error:
            yield Failure(type(error).__name__, error.what, error.hint, traceback.format_exc())
            return
        except Exception as error:
            what = f"{piece.source} {piece.range}: {type(error).__name__}: {error}"
            yield Failure("KpipeError", what, "this is a defect of kpipe; --debug shows where", traceback.format_exc())
            return


def stage(job: Job, piece: Piece, attempt: int = 0) -> RangeReport:
    """Read one range, decode it, and leave its rows and dead letters in finished files.

    Raises:
        SourceError: the range could not be read to its end.
        TransformFailed: the program broke its contract.
        RecordRejected: the policy is `fail`.
        StagingFailed: a file could not be written.
    """
    began = time.monotonic()
    output = RangeOutput(job, piece)
    try:
        with RangeReader(job.config, piece.source.topic.name, piece.source.partition, piece.range) as reader:
            if job.program is None:
                _plain(job, reader, output)
                return output.finish(reader.count, reader.bytes, time.monotonic() - began)
            given, before = _transformed(job, piece, reader, output, attempt)
            return output.finish(reader.count, reader.bytes, time.monotonic() - began, given, before)
    except BaseException:
        output.abandon()
        raise


def _plain(job: Job, reader: RangeReader, output: RangeOutput) -> None:
    decoder = JsonDecoder(job.columns)

    def emit(held: Held) -> None:
        if job.format == "raw":
            output.decoded(decode_raw(held.values, held.keys()), held)
            return
        held, tombstones = held.split_tombstones()
        output.filtered += tombstones
        values = cast("list[bytes]", held.values)  # no tombstone is left
        output.decoded(decoder.decode(Payloads(values)), held)

    held, size = Held(), 0
    for block, block_bytes in reader.blocks():
        held.extend(block)
        size += block_bytes
        if len(held) >= _BLOCK_RECORDS or size >= _BLOCK_BYTES:
            emit(held)
            held, size = Held(), 0
    if len(held):
        emit(held)


class _Feed:
    """Frames records for the program and keeps those that it has not answered yet."""

    def __init__(self, job: Job, piece: Piece, reader: RangeReader, output: RangeOutput) -> None:
        assert job.program is not None
        self._job, self._piece, self._reader, self._output = job, piece, reader, output
        self._stdin, self._keep = job.program.stdin, job.program.mode == "map"
        self.waiting = Held()
        self.given = self.set_aside = self._waiting_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        for block, size in self._reader.blocks():
            held, framed = self._framed(block)
            self.given += len(held)
            if self._keep:
                self.waiting.extend(held)
                self._waiting_bytes += size
                if self._waiting_bytes > _MOST_HELD_BYTES:
                    raise TransformFailed(
                        f"{self._piece.source} {self._piece.range}: the program has taken {self._waiting_bytes:,} bytes"
                        " of records and answered none of them",
                        "let it answer as it reads, lower batch.max_offsets_per_partition, or use mode: flatmap",
                    )
            if framed:
                yield framed

    def answered(self, count: int) -> Held:
        """The records that the next `count` answers belong to."""
        if count > len(self.waiting):
            check_counts("map", self.given, self.given - len(self.waiting) + count, f"{self._piece.source} {self._piece.range}")
        share = count / max(1, len(self.waiting))
        self._waiting_bytes -= int(self._waiting_bytes * share)
        return self.waiting.take(count)

    def _framed(self, held: Held) -> tuple[Held, bytes]:
        if self._stdin == "json":
            topic, partition = self._piece.source.topic.name, self._piece.source.partition
            return held, json_envelopes(
                topic=topic,
                partition=partition,
                offsets=held.offsets,
                timestamps=held.timestamps,
                keys=held.keys(),
                values=held.values,
                headers=held.headers(),
            )
        held, tombstones = held.split_tombstones()
        self._output.filtered += tombstones
        values = [value for value in held.values if value is not None]
        if self._stdin == "length-prefixed":
            return held, length_prefixed(values)
        try:
            return held, lines(values, json=self._job.format == "json")
        except NewlineInValue as error:
            return self._without(held, error.indices)

    def _without(self, held: Held, indices: tuple[int, ...]) -> tuple[Held, bytes]:
        reason = "holds a newline, so it cannot be a line of the program's input (stdin: length-prefixed takes any record)"
        before = self._output.dead_letters
        self._output.reject(held.pick(indices), "transform", [reason] * len(indices))
        self.set_aside += self._output.dead_letters - before
        drop = set(indices)
        kept = held.pick([at for at in range(len(held)) if at not in drop])
        return kept, lines([value for value in kept.values if value is not None])


def _transformed(job: Job, piece: Piece, reader: RangeReader, output: RangeOutput, attempt: int) -> tuple[int, int]:
    spec = job.program
    assert spec is not None
    where = f"{piece.source} {piece.range}"
    feed = _Feed(job, piece, reader, output)
    decoder = JsonDecoder(job.columns)
    blocks = iter(feed)
    first = next(blocks, None)
    if first is None:  # nothing to give: the program is not started
        return 0, feed.set_aside
    written = 0
    with TransformRun(program_for(job, spec, piece, attempt), _chain(first, blocks), where=where) as process:
        for block in line_blocks(process, block_bytes=_BLOCK_BYTES // 2, where=where):
            count = block.count(b"\n")
            payloads = Payloads(joined=block[:-1], count=count)
            written += count
            if spec.mode == "map":
                held = feed.answered(count)
                if job.format == "raw":
                    output.decoded(decode_raw(payloads, held.keys()), held)
                else:
                    output.decoded(decoder.decode(payloads), held)
            else:
                decoded = decode_raw(payloads, [None] * count) if job.format == "raw" else decoder.decode(payloads)
                output.loose(decoded, payloads.values if decoded.rejects else ())
    check_counts(spec.mode, feed.given, written, where)
    if spec.mode == "filter":
        output.filtered += feed.given - output.rows - (output.dead_letters - feed.set_aside)
    return (feed.given, feed.set_aside) if spec.mode == "flatmap" else (0, 0)


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def sample(job: Job, piece: Piece, limit: int) -> list[bytes]:
    """Payloads that the first records of a range give, after the program: what columns are inferred from."""
    with RangeReader(job.config, piece.source.topic.name, piece.source.partition, piece.range) as reader:
        if job.program is None:
            values: list[bytes] = []
            for block, _ in reader.blocks():
                values += [value for value in block.values if value is not None]
                if len(values) >= limit:
                    break
            return values[:limit]
        output = RangeOutput(job, piece)
        feed = iter(_Feed(job, piece, reader, output))
        first = next(feed, None)
        if first is None:
            return []
        program = program_for(job, job.program, piece, 0)
        with TransformRun(program, _chain(first, feed), where=f"{piece.source} {piece.range}") as process:
            return [line for block in line_blocks(process) for line in block.splitlines()][:limit]
