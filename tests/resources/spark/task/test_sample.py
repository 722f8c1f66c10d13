"""The records from which columns are inferred: the first ones, bounded by number and bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kpipe.batch.batch import Piece
from kpipe.definition.formats import Format
from kpipe.errors import TransformFailed
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, TopicId
from resources.kafka.record_block import RecordBlock
from resources.spark.task import range_task
from resources.spark.task.task_spec import JobSpec, ProgramSpec, TableSpec
from transforms import resolve

SOURCE = PartitionId(TopicId("c", "i", "t"), 0)
LARGE = [b'{"id": %d, "text": "%s"}' % (number, b"x" * 1000) for number in range(40)]


#: Writes 20 MB of lines for the record with id 3, as a loop without an end would: the test must not fill the machine.
FLOOD = """while read -r line; do
    echo "$line"
    case $line in *'"id": 3,'*) yes '{}' | head -c 20000001;; esac
done"""


def job(folder: Path, program: str = "", mode: str = "flatmap", **more: Any) -> JobSpec:
    spec = None
    for name in ("programs", "batch"):
        (folder / name).mkdir(exist_ok=True)
    if program:
        path = folder / "program.sh"
        path.write_text(f"#!/bin/sh\n{program}\n")
        path.chmod(0o755)
        found = resolve(path)
        spec = ProgramSpec(str(found.file), None, found.sha256, stdin="lines", mode=mode, idle_timeout_s=300, **more)
    return JobSpec(
        batch="batch",
        config={},
        staging=str(folder),
        format=Format(type="json"),
        tables=(TableSpec(Columns.of({"id": "BIGINT"})),),
        programs=str(folder / "programs"),
        held={SOURCE: RecordBlock.of(range(40), [0] * 40, LARGE)},
        program=spec,
        transform="dead_letter",
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


def test_only_newlines_end_a_line_of_the_program(tmp_path: Path) -> None:
    """JSON may contain carriage returns between its members."""
    program, line = r"""while read -r line; do printf '{"a": 1,\r"b": 2}\r\n'; done""", b'{"a": 1,\r"b": 2}\r'
    assert range_task.sample(job(tmp_path, program, "map"), Piece(SOURCE, Range(0, 3)), 500) == ([line] * 3, {})
    assert range_task.sample(job(tmp_path, program, "map"), Piece(SOURCE, Range(0, 3)), 2) == ([line] * 2, {})


@pytest.mark.parametrize("mode", ["map", "filter", "flatmap"])
@pytest.mark.parametrize("program", [FLOOD, f"{FLOOD} # read(8)"], ids=["lines", "perhaps framed"])
def test_a_record_for_which_the_program_writes_without_end_is_a_poison_record(tmp_path: Path, mode: str, program: str) -> None:
    more = {"max_output_bytes": 1_000_000} if mode == "flatmap" else {}
    payloads, poison = range_task.sample(job(tmp_path, program, mode, **more), Piece(SOURCE, Range(0, 20)), 500)
    assert [json.loads(line)["id"] for line in payloads] == [number for number in range(20) if number != 3]
    assert list(poison) == [3]


def test_output_beyond_a_sample_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flatmap program may write many lines for a record; it runs to its end, since it may still fail."""
    monkeypatch.setattr(range_task, "SAMPLE_BYTES", 20_000)
    assert range_task.sample(job(tmp_path, FLOOD), Piece(SOURCE, Range(0, 20)), 13) == ([*LARGE[:4], *[b"{}"] * 9], {})
    with pytest.raises(TransformFailed, match="exited with status 3"):
        range_task.sample(job(tmp_path, f"{FLOOD}\nexit 3"), Piece(SOURCE, Range(0, 20)), 13)


def test_no_more_than_a_block_of_output_is_kept_beyond_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_task, "SAMPLE_BYTES", 20_000)
    lines, _ = range_task.sample(job(tmp_path, FLOOD), Piece(SOURCE, Range(0, 20)), 10**9)
    assert len(lines) < 3_000_000
