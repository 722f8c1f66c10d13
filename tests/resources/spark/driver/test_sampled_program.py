"""How often a sample of several partitions checks the program's framing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kpipe.batch.batch import Batch, Piece
from kpipe.definition.pipeline import Pipeline
from kpipe.ledger.ledger import Lane, Step
from kpipe.topics import PartitionId, TopicId
from resources.home import Home
from resources.kafka.record_block import RecordBlock
from resources.spark.driver.sample_stager import LocalStager
from resources.spark.task import range_task
from resources.spark.task.framing_check import check_framing
from resources.spark.task.task_spec import JobSpec

SOURCES = [PartitionId(TopicId("c", "i", "t"), number) for number in range(3)]
HELD = {source: RecordBlock.of(range(2), [0, 0], [b'{"id": %d}' % source.partition] * 2) for source in SOURCES}


@pytest.mark.parametrize(("script", "checked"), [("exec cat", SOURCES[:1]), ("sed '/0/d'", SOURCES[:2])])
def test_framing_is_checked_until_the_program_has_written_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, checked: list[PartitionId]
) -> None:
    program = tmp_path / "program.sh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    pipeline = Pipeline.model_validate(
        {
            "name": "p", "source": {"brokers": "b", "topic": "t"}, "into": {"table": "t"},
            "transform": {"program": str(program), "mode": "filter"},
        }
    )  # fmt: skip
    stager, tried = LocalStager(pipeline, Home(tmp_path / "home").make()), []
    job = stager._job

    def counted(spec: JobSpec, piece: Piece, without: dict[int, str]) -> None:
        tried.append(piece.source)
        check_framing(spec, piece, without)

    monkeypatch.setattr(range_task, "check_framing", counted)
    monkeypatch.setattr(stager, "_job", lambda *given: replace(job(*given), held=HELD))
    columns = stager.sampled(Batch("b", "p", tuple(Step(Lane(source, 0, 0), 2) for source in SOURCES)))
    assert columns.names() == ("id",)
    assert tried == checked
