"""Records on their way into the program: framed, and kept until they are answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from kpipe.batch.batch import Piece
from kpipe.errors import TransformFailed
from resources.decode.block import Payloads, count_of
from resources.kafka.range_reader import RangeReader
from resources.kafka.record_block import Held
from resources.spark.task.task_spec import Job
from transforms.counts import check_counts
from transforms.framing import NewlineInValue, json_envelopes, length_prefixed, lines

__all__ = ["Aside", "Feed"]

# Records are held until the program has answered them (mode map), so that a bad answer can be dead-lettered whole.
_MOST_HELD_BYTES = 256 << 20


class Aside(Protocol):
    """Where records go that the program does not get; `RangeOutput` is one.

    Attributes:
        filtered: records that gave no row on purpose.
    """

    filtered: int

    @property
    def dead_letters(self) -> int:
        """Records written there."""
        ...

    def tombstones(self, block: Held) -> None:
        """The records of a block that have no value."""
        ...

    def spared(self, block: Held) -> Held:
        """The records of a block whose rows the table has not refused."""
        ...

    def reject(self, held: Held, stage: str, reasons: Sequence[str]) -> None:
        """Set records aside as the policy says."""
        ...


class Feed:
    """Frames the records of a range for the program, and keeps those that it has not answered yet.

    Args:
        job: what the batch's tasks share.
        piece: the range.
        reader: of the range.
        output: takes the records that are not given to the program.
        without: reasons by offset of records that are set aside instead of being given: they make the program fail.
        keep: whether records are kept until they are answered, as mode map needs it.
        seen: gets the offsets of the records that were given.

    Attributes:
        waiting: records that were given and not answered; only with `keep`.
        given: records given so far.
        set_aside: dead letters that were never given.
    """

    def __init__(
        self,
        job: Job,
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
        self.waiting = Held()
        self.given = self.set_aside = self._waiting_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        """Framed blocks; none is empty.

        Raises:
            TransformFailed: the program has taken more than may be held, and answered none of it.
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
        """The records that the next `count` answers belong to.

        Raises:
            TransformFailed: there are more answers than records.
        """
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
        whole = held
        held, tombstones = whole.split_tombstones()
        if tombstones:
            self._output.tombstones(whole)
        if self._stdin == "lines" and len(held):
            text = Payloads.of_array(held.column("line")).text  # each value and a newline, as it is held
            if count_of(b"\n", text, never=b"\r" if self._job.format.type == "json" else b"") == len(held):
                return held, text
        values = [value for value in held.values if value is not None]
        if self._stdin == "length-prefixed":
            return held, length_prefixed(values)
        try:
            return held, lines(values, json=self._job.format.type == "json")
        except NewlineInValue as error:
            reason = "holds a newline, so it cannot be a line of the program's input (stdin: length-prefixed takes any record)"
            kept = self._aside(held, dict.fromkeys(error.indices, reason))
            return kept, lines([value for value in kept.values if value is not None])

    def _spared(self, held: Held) -> Held:
        found = {at: self._without[offset] for at, offset in enumerate(held.offsets) if offset in self._without}
        return self._aside(held, found) if found else held

    def _aside(self, held: Held, reasons: Mapping[int, str]) -> Held:
        """The others, once those at these positions have been set aside."""
        before = self._output.dead_letters
        self._output.reject(held.pick(list(reasons)), "transform", list(reasons.values()))
        self.set_aside += self._output.dead_letters - before
        return held.pick([at for at in range(len(held)) if at not in reasons])
