"""What programs by Arrow cost beside programs by lines: tweets made flat, and records unchanged.

`python -m bench.arrow_programs [--records N] [--rounds N]`. CPU time of the task and of the program together, per record; the
contenders alternate, and the ratio is the median of the rounds' ratios. No Kafka: records are held in memory, and go through
the same program runner, decoder and files as in a task.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.transform_runner import tweet
from kpipe.batch.batch import Piece
from kpipe.definition.formats import Format
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, TopicId
from resources.kafka.range_reader import BLOCK_RECORDS, RangeReader, ReadReport
from resources.kafka.record_block import RecordBlock
from resources.spark.task import range_task
from resources.spark.task.task_spec import JobSpec, ProgramSpec, TableSpec
from transforms import resolve

ROOT = Path(__file__).resolve().parent.parent
SOURCE = PartitionId(TopicId("c", "i", "tweets"), 0)
FLAT = Columns.of(
    {
        "id": "BIGINT", "created_at": "TIMESTAMP WITH TIME ZONE", "lang": "VARCHAR", "text": "VARCHAR", "user_id": "BIGINT",
        "user_name": "VARCHAR", "followers": "BIGINT", "verified": "BOOLEAN", "location": "VARCHAR", "hashtags": "VARCHAR[]",
        "mentions": "BIGINT", "lat": "DOUBLE", "lon": "DOUBLE", "retweets": "BIGINT", "favorites": "BIGINT", "reply_to": "BIGINT",
    }
)  # fmt: skip
RAW = Columns.of({"key": "BLOB", "value": "BLOB"})
#: Program, framing, format of its rows, and columns of the table.
CONTENDERS: dict[str, tuple[str, str, str, Columns]] = {
    "flatten, lines": ("transforms/programs/flatten_tweet.py", "lines", "json", FLAT),
    "flatten, arrow": ("transforms/programs/arrow_flatten_tweet.py", "arrow", "arrow", FLAT),
    "identity, lines": ("bench/programs/echo.py", "lines", "raw", RAW),
    "identity, arrow": ("transforms/programs/arrow_identity.py", "arrow", "arrow", RAW),
    "no program": ("", "", "raw", RAW),
}
RATIOS = (
    ("flatten, lines", "flatten, arrow"), ("no program", "identity, arrow"), ("identity, lines", "identity, arrow"),
)  # fmt: skip


class _Memory(RangeReader):
    """A reader of records in memory, in blocks as from a broker."""

    def __init__(self, held: RecordBlock, span: Range) -> None:
        super().__init__({}, SOURCE.topic.name, SOURCE.partition, span)
        self._records = held

    def _blocks(self, began: float) -> Iterator[tuple[RecordBlock, int]]:
        whole = self._records.table
        for start in range(0, whole.num_rows, BLOCK_RECORDS):
            part = whole.slice(start, BLOCK_RECORDS)
            self.count += part.num_rows
            self.bytes += part.nbytes
            yield RecordBlock(part), part.nbytes
        self.report = ReadReport(self.count, self.bytes, 0, self.count - 1, "held", time.monotonic() - began)


@dataclass(frozen=True)
class _FromMemory(JobSpec):
    def reader(self, piece: Piece) -> RangeReader:
        assert self.held is not None
        return _Memory(self.held[piece.source], piece.range)


def _cpu_s() -> float:
    parts = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(part.ru_utime + part.ru_stime for part in parts)


def measured(name: str, held: RecordBlock, folder: Path) -> float:
    """CPU time in microseconds for each record."""
    path, stdin, kind, columns = CONTENDERS[name]
    found = resolve(ROOT / path) if path else None
    spec = ProgramSpec(str(found.file), None, found.sha256, stdin=stdin) if found is not None else None
    (folder / "batch").mkdir(exist_ok=True)
    job = _FromMemory(
        batch="batch", config={}, staging=str(folder), format=Format.model_validate({"type": kind}), tables=(TableSpec(columns),),
        programs=str(folder / "programs"), held={SOURCE: held}, program=spec,
    )  # fmt: skip
    before = _cpu_s()
    report = range_task.stage(job, Piece(SOURCE, Range(0, len(held))))
    taken = _cpu_s() - before
    assert report.counts.rows == len(held), report.sample_dead_letter
    for file in report.tables[0].files:
        Path(file.path).unlink()
    return taken * 1e6 / len(held)


def main() -> None:
    """Print a line for each contender and ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=7)
    chosen = parser.parse_args()
    held = RecordBlock.of(
        range(chosen.records), [1_700_000_000_000] * chosen.records, [tweet(at) for at in range(chosen.records)]
    )
    taken: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(chosen.rounds + 1):
            for name in CONTENDERS:
                spent = measured(name, held, Path(folder))
                if turn:  # the first round warms up
                    taken[name].append(spent)
    for name, each in taken.items():
        print(f"{name:<16} {statistics.median(each):6.2f} µs of CPU time a record  ({min(each):.2f} to {max(each):.2f})")
    for slow, fast in RATIOS:
        ratios = [one / other for one, other in zip(taken[slow], taken[fast], strict=True)]
        print(f"{slow} / {fast}: {statistics.median(ratios):.2f}  ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
