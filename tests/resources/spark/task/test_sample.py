"""The records from which columns are inferred: the first ones, bounded by number and bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kpipe.batch.batch import Piece
from kpipe.definition.formats import Format
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, TopicId
from resources.kafka.record_block import RecordBlock
from resources.spark.task import range_task
from resources.spark.task.task_spec import JobSpec, ProgramSpec, TableSpec
from transforms import resolve

SOURCE = PartitionId(TopicId("c", "i", "t"), 0)
LARGE = [b'{"id": %d, "text": "%s"}' % (number, b"x" * 1000) for number in range(40)]


def job(folder: Path, program: str = "") -> JobSpec:
    spec = None
    for name in ("programs", "batch"):
        (folder / name).mkdir()
    if program:
        path = folder / "program.sh"
        path.write_text(f"#!/bin/sh\n{program}\n")
        path.chmod(0o755)
        found = resolve(path)
        spec = ProgramSpec(str(found.file), None, found.sha256, stdin="lines", mode="flatmap", idle_timeout_s=300)
    return JobSpec(
        batch="batch",
        config={},
        staging=str(folder),
        format=Format(type="json"),
        tables=(TableSpec(Columns.of({"id": "BIGINT"})),),
        programs=str(folder / "programs"),
        held={SOURCE: RecordBlock.of(range(40), [0] * 40, LARGE)},
        program=spec,
    )


@pytest.mark.parametrize("program", ["", "exec cat"])
def test_large_records_are_sampled_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(range_task, "SAMPLE_BYTES", 9_500)
    payloads, poison = range_task.sample(job(tmp_path, program), Piece(SOURCE, Range(0, 40)), 500)
    assert (payloads, poison) == (LARGE[:10], {})


@pytest.mark.parametrize("program", ["", "exec cat"])
def test_a_record_larger_than_the_size_is_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(range_task, "SAMPLE_BYTES", 10)
    assert range_task.sample(job(tmp_path, program), Piece(SOURCE, Range(0, 40)), 500) == (LARGE[:1], {})


@pytest.mark.parametrize("program", ["", "exec cat"])
def test_records_are_sampled_up_to_a_number(tmp_path: Path, program: str) -> None:
    """Records with a value: offsets without a record, and tombstones, do not count."""
    values: list[bytes | None] = [*LARGE[:3], None, None, *LARGE[3:]]
    given = job(tmp_path, program)
    given = replace(given, held={SOURCE: RecordBlock.of([1000 + 2 * at for at in range(42)], [0] * 42, values)})
    piece = Piece(SOURCE, Range(0, 2000))
    assert range_task.sample(given, piece, 7) == (LARGE[:7], {})
    given = replace(given, refused={SOURCE: {1000: "", 1002: ""}})
    assert range_task.sample(given, piece, 7) == (LARGE[2:9], {})
    assert range_task.sample(given, Piece(SOURCE, Range(0, 1000)), 7) == ([], {})
