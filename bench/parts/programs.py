"""Measure what programs by Arrow cost beside programs by lines: tweets made flat, and records unchanged.

CPU time of the task and of the program together, for each record. No Kafka: records are held in memory, and go through the same
program runner, decoder and files as in a task.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.stage import Stage, say
from bench.studies.transform_runner import tweet
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

ROOT = Path(__file__).resolve().parents[2]
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


def _cpu_us(name: str, held: RecordBlock, folder: Path) -> float:
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


def measure(stage: Stage, records: int, rounds: int) -> dict[str, Any]:
    """Measure each of them so many times, in turns, after a round that does not count."""
    held = RecordBlock.of(range(records), [1_700_000_000_000] * records, [tweet(at) for at in range(records)])
    folder, runs = stage.folder("programs"), []
    folder.mkdir()
    for turn in range(-1, rounds):
        for name in CONTENDERS:
            cpu_us = _cpu_us(name, held, folder)
            if turn >= 0:
                runs.append({"name": name, "repeat": turn, "cpu_us": round(cpu_us, 3)})
                say(f"  {name:<16} {cpu_us:6.2f} CPU µs a record")
    stage.settle(folder)
    return {"records": records, "runs": runs}
