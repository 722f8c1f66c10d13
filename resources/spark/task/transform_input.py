"""Frame records for the program, and keep them until the program has answered them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from kpipe.batch.batch import Piece
from kpipe.errors import TransformFailed
from resources.decode.block import Payloads, count_of
from resources.kafka.range_reader import RangeReader
from resources.kafka.record_block import RecordBlock
from resources.spark.task.arrow_input import RecordStream
from resources.spark.task.task_spec import JobSpec
from transforms.counts import check_counts
from transforms.framing import NewlineInValue, json_envelopes, length_prefixed, lines

__all__ = ["Aside", "Feed"]

# In mode map, records are kept until the program has answered them, so that a bad answer gives a complete dead letter.
# Arrow programs may read all of a range first, or filter most of it: there, further records wait on disk.
_MOST_HELD_BYTES = 256 << 20


class Aside(Protocol):
    """Output for records that are not passed to the program; `RangeOutput` implements it.

    Attributes:
        filtered: records that gave no row on purpose.
    """

    filtered: int

    @property
    def dead_letters(self) -> int:
        """Number of dead letters written so far."""
        ...

    def tombstones(self, block: RecordBlock) -> None:
        """Handle the records of a block that have no value."""
        ...

    def spared(self, block: RecordBlock) -> RecordBlock:
        """Return the records of a block whose rows the table has not rejected."""
        ...

    def reject(self, held: RecordBlock, stage: str, reasons: Sequence[str]) -> None:
        """Set records aside as the policy requires."""
        ...


class Feed:
    """Framer of a range's records for the program; keeps those that it has not answered yet.

    Args:
        job: what the batch's tasks share.
        piece: the range.
        reader: of the range.
        output: receives the records that are not passed to the program.
        without: reasons by offset of poison records, which are set aside instead of being passed.
        keep: whether records are kept until they are answered, as mode map requires.
        seen: receives the offsets of the records that were passed.

    Attributes:
        waiting: records that were passed and not answered; only with `keep`.
        given: number of records passed so far.
        set_aside: dead letters that were not passed.
    """

    def __init__(
        self,
        job: JobSpec,
        piece: Piece,
        reader: RangeReader,
        output: Aside,
        without: Mapping[int, str],
        *,
        keep: bool = False,
        seen: list[int] | None = None,
    ) -> None:
        assert job.program is not None
        self._job, self._piece, self._reader, self._output = job, piece, reader, output
        self._stdin, self._without, self._keep, self._seen = job.program.stdin, without, keep, seen
        self._arrow = RecordStream(piece.source, job.program.several_topics) if job.program.arrow else None
        self._deletes = job.program.deletes or any(table.deletes for table in job.tables)
        self.waiting = RecordBlock()
        self.given = self.set_aside = self._waiting_bytes = 0

    def __iter__(self) -> Iterator[bytes | memoryview]:
        """Yield framed blocks; none is empty. Without records there is none, too.

        Raises:
            TransformFailed: the program has read more than kpipe keeps in memory, and answered none of it.
        """
        for whole, size in self._reader.blocks():
            before = self._output.dead_letters
            block = self._output.spared(whole)
            self.set_aside += self._output.dead_letters - before
            held, framed = self._framed(self._spared(block) if self._without else block)
            self.given += len(held)
            if self._seen is not None:
                self._seen += held.offsets
            if self._keep:
                full = self._waiting_bytes + size > _MOST_HELD_BYTES
                self.waiting.extend(_on_disk(held, self._job.programs) if full and self._arrow is not None else held)
                self._waiting_bytes += size
                if full and self._arrow is None:
                    raise TransformFailed(
                        f"{self._piece.source} {self._piece.range}: the program has read {self._waiting_bytes:,} bytes"
                        " of records and answered none of them",
                        "let it answer as it reads, lower batch.max_offsets_per_partition, or use mode: flatmap",
                    )
            if self._arrow is not None:
                yield from self._arrow.framed(held) if len(held) else ()
            elif framed:
                yield framed
        if self._arrow is not None and self.given:
            yield self._arrow.end()

    @property
    def nothing(self) -> bytes:
        """Input of a program without any record."""
        return b"" if self._arrow is None else self._arrow.end()

    def answered(self, count: int) -> RecordBlock:
        """Return the records to which the next `count` answers belong.

        Raises:
            TransformFailed: there are more answers than records.
        """
        if count > len(self.waiting):
            out, unit = self.given - len(self.waiting) + count, "line" if self._arrow is None else "row"
            check_counts("map", self.given, out, f"{self._piece.source} {self._piece.range}", unit)
        share = count / max(1, len(self.waiting))
        self._waiting_bytes -= int(self._waiting_bytes * share)
        return self.waiting.take(count)

    def _framed(self, held: RecordBlock) -> tuple[RecordBlock, bytes]:
        whole, takes_tombstones = held, self._stdin in ("json", "arrow") and not self._deletes
        if not takes_tombstones:
            held, tombstones = whole.split_tombstones()
            if tombstones:
                self._output.tombstones(whole)
        if self._arrow is not None:
            return held, b""
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
        if self._stdin == "lines" and len(held):
            text = Payloads.of_array(held.column("line")).text  # each value with a newline, as stored
            if count_of(b"\n", text, never=b"\r" if self._job.format.type == "json" else b"") == len(held):
                return held, text
        values = [value for value in held.values if value is not None]
        if self._stdin == "length-prefixed":
            return held, length_prefixed(values)
        is_json = self._job.format.type == "json"
        try:
            return held, lines(values, json=is_json)
        except NewlineInValue as error:
            reason = (
                "contains a newline, so it cannot be a line of the program's input (stdin: length-prefixed accepts any record)"
            )
            kept = self._aside(held, dict.fromkeys(error.indices, reason))
            return kept, lines([value for value in kept.values if value is not None], json=is_json)

    def _spared(self, held: RecordBlock) -> RecordBlock:
        reasons = {index: self._without[offset] for index, offset in enumerate(held.offsets) if offset in self._without}
        return self._aside(held, reasons) if reasons else held

    def _aside(self, held: RecordBlock, reasons: Mapping[int, str]) -> RecordBlock:
        """Set aside the records at these positions, and return the others."""
        before = self._output.dead_letters
        self._output.reject(held.pick(list(reasons)), "transform", list(reasons.values()))
        self.set_aside += self._output.dead_letters - before
        return held.pick([index for index in range(len(held)) if index not in reasons])


def _on_disk(held: RecordBlock, folder: str) -> RecordBlock:
    """Move records to a file without a name, which is mapped into memory."""
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        with pa.ipc.new_file(file.name, held.table.schema) as writer:
            writer.write_table(held.table)
        return RecordBlock(pa.ipc.open_file(pa.memory_map(file.name)).read_all())
