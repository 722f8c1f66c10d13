"""Checkpoints of Structured Streaming: recorded ones, and files in the formats of its newer versions."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kpipe.errors import DestinationError, InvalidPipeline
from resources.adoption.streaming_checkpoint import Checkpoint
from resources.destinations.lakehouse.folder import LocalFolder

RECORDED = Path(__file__).parent / "recorded"
META = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
COMMITTED = 'v1\n{"nextBatchWatermarkMs":0}'


def checkpoint(folder: Path, *topics: str) -> Checkpoint:
    return Checkpoint(LocalFolder(folder), topics or ("orders",))


def write(folder: Path, **files: str) -> Path:
    """Files by name, with `_` in place of `/`."""
    for name, text in files.items():
        path = folder / name.replace("_", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def offsets(*lines: str, version: str = "v1") -> str:
    return "\n".join([version, META, *lines])


def test_the_position_is_the_end_of_the_last_committed_batch() -> None:
    found = checkpoint(RECORDED / "finished")
    batches = found.batches()
    assert (batches.committed, batches.planned) == (3, None)
    assert found.positions(batches, None).offsets == {("orders", 0): 25, ("orders", 1): 25}
    assert not found.positions(batches, None).problems


def test_several_topics() -> None:
    found = checkpoint(RECORDED / "finished", "orders", "web")
    assert found.batches().ends == {("orders", 0): 25, ("orders", 1): 25, ("web", 0): 7, ("web", 1): 0}


def test_a_planned_batch_needs_a_decision() -> None:
    found = checkpoint(RECORDED / "interrupted")
    batches = found.batches()
    assert (batches.committed, batches.planned) == (0, 1)
    undecided = found.positions(batches, None)
    assert "batch 1 (orders/0 [8, 16), orders/1 [8, 16)): planned, not committed" in undecided.problems[0]
    assert found.positions(batches, True).offsets == {("orders", 0): 16, ("orders", 1): 16}
    excluded = found.positions(batches, False)
    assert excluded.offsets == {("orders", 0): 8, ("orders", 1): 8}
    assert not excluded.problems


def test_a_query_that_committed_nothing_begins_at_its_first_offsets(tmp_path: Path) -> None:
    folder = shutil.copytree(RECORDED / "interrupted", tmp_path / "c")
    shutil.rmtree(folder / "commits")
    (folder / "offsets" / "1").unlink()
    batches = checkpoint(folder).batches()
    assert (batches.committed, batches.planned) == (-1, 0)
    assert batches.ends == {("orders", 0): 0, ("orders", 1): 0}


def test_named_sources_of_the_second_version(tmp_path: Path) -> None:
    """Since Spark 4.2: a line is SOURCE:OFFSET; other sources and void ones are left out."""
    lines = ['files:{"logOffset":3}', "void:-", 'kafka:{"orders":{"0":5}}']
    write(tmp_path, offsets_0=offsets(*lines, version="v2"), commits_0="v3\n{}")
    assert checkpoint(tmp_path).batches().ends == {("orders", 0): 5}


def test_batches_that_asynchronous_progress_has_not_logged(tmp_path: Path) -> None:
    files = {f"offsets_{number}": offsets(json.dumps({"orders": {"0": at}})) for number, at in ((0, 3), (4, 9), (6, 12))}
    write(tmp_path, **files, commits_0=COMMITTED, commits_4=COMMITTED)
    found = checkpoint(tmp_path)
    batches = found.batches()
    assert (batches.committed, batches.ends, batches.planned) == (4, {("orders", 0): 9}, 6)
    assert "batches 5 to 6 (orders/0 [9, 12))" in found.positions(batches, None).problems[0]


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({}, "not a checkpoint of Structured Streaming"),
        ({"offsets_0": "", "commits_0": COMMITTED}, "offsets/0 is empty or missing"),
        ({"offsets_0": offsets('{"orders":{"0":1}}'), "commits_0": ""}, "commits/0 is empty or missing"),
        ({"offsets_0": offsets('{"orders":{"0":1}}', version="v9"), "commits_0": COMMITTED}, "expected v1 or v2, found 'v9'"),
        ({"offsets_0": offsets("{broken"), "commits_0": COMMITTED}, "invalid JSON"),
        ({"offsets_0": offsets('{"orders":{"0":"x"}}'), "commits_0": COMMITTED}, "expected offsets by partition"),
        ({"offsets_0": offsets('{"orders":{"0":true}}'), "commits_0": COMMITTED}, "expected offsets by partition"),
        ({"offsets_0": offsets('{"orders":{"\u0661":1}}'), "commits_0": COMMITTED}, "expected offsets by partition"),
        ({"offsets_0": offsets('{"orders":{"0":1,"0":2}}'), "commits_0": COMMITTED}, "a member is duplicated"),
        ({"offsets_0": offsets('{"orders":{"0":NaN}}'), "commits_0": COMMITTED}, "NaN is not JSON"),
        ({"offsets_0": offsets("[" * 100_000), "commits_0": COMMITTED}, "nested too deeply"),
        ({"offsets_0": offsets('{"orders":{"0":1}}'), "commits_3": COMMITTED}, "offsets/3 is empty or missing"),
        (
            {"offsets_0": offsets('{"orders":{"0":1}}', '{"orders":{"0":2}}'), "commits_0": COMMITTED},
            "two sources of the query read orders/0 to different offsets: 1 and 2",
        ),
    ],
)  # fmt: skip
def test_damaged_checkpoints(tmp_path: Path, files: dict[str, str], problem: str) -> None:
    write(tmp_path, **files)
    with pytest.raises(InvalidPipeline) as error:
        checkpoint(tmp_path).batches()
    assert problem in str(error.value)


def test_a_file_is_not_read_without_bound(tmp_path: Path) -> None:
    write(tmp_path, offsets_0="", commits_0=COMMITTED)
    with (tmp_path / "offsets" / "0").open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(InvalidPipeline, match="offsets/0 is larger than"):
        checkpoint(tmp_path).batches()


@pytest.mark.parametrize("made", [os.mkfifo, os.mkdir])
def test_a_pipe_or_a_folder_is_not_waited_for(tmp_path: Path, made: Callable[[Path], None]) -> None:
    write(tmp_path, offsets_0="", commits_0=COMMITTED)
    (tmp_path / "offsets" / "0").unlink()
    made(tmp_path / "offsets" / "0")
    with pytest.raises(DestinationError, match="offsets/0: not a regular file"):
        checkpoint(tmp_path).batches()


def test_other_files_and_damaged_metadata_are_left_out(tmp_path: Path) -> None:
    """A name of digits that are not ASCII is no batch; the query's id is optional."""
    found = offsets('{"orders":{"0":1}}')
    write(tmp_path, **{"offsets_0": found, "offsets_\u00b2": found, "commits_0": COMMITTED, "metadata": "[" * 100_000})
    batches = checkpoint(tmp_path).batches()
    assert (batches.committed, batches.planned, batches.query) == (0, None, "")


def test_a_commit_without_its_plan(tmp_path: Path) -> None:
    write(tmp_path, offsets_2=offsets('{"orders":{"0":1}}'), commits_5=COMMITTED)
    with pytest.raises(InvalidPipeline, match="offsets/5 is empty or missing"):
        checkpoint(tmp_path).batches()
