"""Which records of several partitions are the sample, and how often it checks the program's framing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kpipe.batch.batch import Batch, Piece
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import SchemaConflict
from kpipe.ledger.ledger import Lane, Step
from kpipe.topics import PartitionId, TopicId
from resources.home import Home
from resources.kafka.record_block import RecordBlock
from resources.spark.driver import stager
from resources.spark.driver.sample_stager import LocalStager
from resources.spark.task import range_task
from resources.spark.task.framing_check import check_framing
from resources.spark.task.task_spec import JobSpec
from tests.resources.sources.runs import Bench

PIPELINE = {"name": "p", "source": {"brokers": "b", "topic": "t"}, "into": {"table": "t"}}
SOURCES = [PartitionId(TopicId("c", "i", "t"), number) for number in range(3)]
HELD = {source: RecordBlock.of(range(2), [0, 0], [b'{"id": %d}' % source.partition] * 2) for source in SOURCES}


@pytest.mark.parametrize(("script", "checked"), [("exec cat", SOURCES[:1]), ("sed '/0/d'", SOURCES[:2])])
def test_framing_is_checked_until_the_program_has_written_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, checked: list[PartitionId]
) -> None:
    program = tmp_path / "program.sh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    pipeline = Pipeline.model_validate({**PIPELINE, "transform": {"program": str(program), "mode": "filter"}})
    reads, tried = LocalStager(pipeline, Home(tmp_path / "home").make()), []
    job = reads._job

    def counted(spec: JobSpec, piece: Piece, without: dict[int, str]) -> None:
        tried.append(piece.source)
        check_framing(spec, piece, without)

    monkeypatch.setattr(range_task, "check_framing", counted)
    monkeypatch.setattr(reads, "_job", lambda *given: replace(job(*given), held=HELD))
    columns = reads.sampled(Batch("b", "p", tuple(Step(Lane(source, 0, 0), 2) for source in SOURCES)))
    assert columns.names() == ("id",)
    assert tried == checked


def test_partitions_without_records_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction may have removed the first offsets of each; a sample without records is that of its batch only."""
    reads = LocalStager(Pipeline.model_validate(PIPELINE), Home(tmp_path / "home").make())
    sources = [PartitionId(TopicId("c", "i", "t"), number) for number in range(6)]
    block = RecordBlock.of([5000, 5001], [0, 0], [None, b'{"id": 1}'])
    job = reads._job
    monkeypatch.setattr(reads, "_job", lambda *given: replace(job(*given), held={sources[5]: block}))
    for number, (end, names) in enumerate([(5000, ()), (6000, ("id",)), (5000, ("id",))]):
        batch = Batch(str(number), "p", tuple(Step(Lane(source, 0, 0), end) for source in sources))
        assert reads.sampled(batch).names() == names


def test_rows_without_columns_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `ignore`, all members of all records would be left out."""
    monkeypatch.setattr(stager, "_SAMPLE_RECORDS", 1)
    bench = Bench(tmp_path, schema="ignore")
    bench.write("a", raw=b"junk\n")
    bench.run()
    bench.write("b", raw=b"junk\n")
    bench.write("b", {"id": 1})
    with pytest.raises(SchemaConflict, match="table t does not exist, and the first records have no columns"):
        bench.run()
    bench.pipeline = Pipeline.model_validate({**bench.pipeline.to_dict(), "columns": {"id": "BIGINT"}})
    bench.run()
    assert bench.destination().columns() is not None
    assert bench.audit().ok
