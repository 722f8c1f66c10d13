"""A program that hangs while columns are inferred ends when the batch is given up."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from kpipe.batch.batch import Batch
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError, TransformFailed
from kpipe.ledger.ledger import Lane, Step
from kpipe.topics import PartitionId, TopicId
from resources.home import Home
from resources.kafka.record_block import RecordBlock
from resources.spark.driver.sample_stager import LocalStager

SOURCE = PartitionId(TopicId("c", "i", "t"), 0)
HELD = {SOURCE: RecordBlock.of(range(2), [0] * 2, [b'{"id": 1}', b'{"id": 2}'])}
BATCH = Batch("b", "p", (Step(Lane(SOURCE, 0, 0), 2),))


def stager(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> LocalStager:
    program = folder / "program.sh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    pipeline = Pipeline.model_validate(
        {
            "name": "p", "source": {"brokers": "b", "topic": "t"}, "into": {"table": "t"},
            "transform": {"program": str(program), "idle_timeout_s": 3600},
        }
    )  # fmt: skip
    made = LocalStager(pipeline, Home(folder / "home").make())
    job = made._job
    monkeypatch.setattr(made, "_job", lambda *given: replace(job(*given), held=HELD))
    return made


@pytest.mark.parametrize(
    "before", ["", "if [ ! -e once ]; then : > once; cat > /dev/null; exit 3; fi"], ids=["at once", "searching"]
)
def test_a_sample_that_hangs_ends(tmp_path: Path, before: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the program has failed, and hangs while the record that is to blame is searched for."""
    pid, go = tmp_path / "pid", tmp_path / "go"
    hang = f"if [ ! -e {go} ]; then echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 3600; fi"
    one = stager(tmp_path, f"{before.replace('once', str(tmp_path / 'once'))}\n{hang}\nexec cat", monkeypatch)
    errors: list[KpipeError] = []

    def work() -> None:
        try:
            one.sampled(BATCH)
        except KpipeError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while not pid.exists():
        assert thread.is_alive(), errors
        time.sleep(0.02)
    one.give_up()
    thread.join()
    (error,) = errors
    assert not isinstance(error, TransformFailed) and str(error) == "transform program.sh: cancelled"
    assert not psutil.pid_exists(int(pid.read_text()))
    go.touch()
    assert one.sampled(BATCH).names() == ("id",), "the next batch is not cancelled"
