"""Staged files: written once, hashed, durable, and collected only when nobody can want them any more."""

from __future__ import annotations

import gc
import hashlib
import os
import shutil
import uuid
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpipe.batch.batch import Counts, Piece, RangeReport, TableReport
from kpipe.definition.formats import Format
from kpipe.definition.lakehouse_options import Part
from kpipe.errors import StagingFailed
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, TopicId
from resources.decode.block import Payloads
from resources.spark.staging.partitioned_writer import Divided
from resources.spark.staging.shared_writer import Shared
from resources.spark.staging.staged_files import HORIZON_S, StagingWriter, collect_garbage, discard
from resources.spark.staging.waiting_rows import WaitingRows
from resources.spark.task.range_writer import RangeOutput
from resources.spark.task.task_spec import JobSpec, ProgramSpec, TableSpec


def written(folder: Path) -> StagingWriter:
    writer = StagingWriter(folder)
    writer.write(pa.table({"a": [1, 2]}))
    writer.write(pa.table({"a": [3]}))
    return writer


def test_a_finished_file_is_what_was_reported(tmp_path: Path) -> None:
    file = written(tmp_path / "b").finish()
    assert file is not None
    data = Path(file.path).read_bytes()
    assert (file.size, file.rows, file.sha256) == (len(data), 3, hashlib.sha256(data).hexdigest())
    assert pq.read_table(file.path).column("a").to_pylist() == [1, 2, 3]
    assert Path(file.path).stat().st_mode & 0o777 == 0o600


def test_without_rows_there_is_no_file(tmp_path: Path) -> None:
    writer = StagingWriter(tmp_path / "b")
    writer.write(pa.table({"a": pa.array([], pa.int64())}))
    assert writer.finish() is None and not (tmp_path / "b").exists()


def test_the_folder_of_a_batch_that_has_landed_is_not_made_again(tmp_path: Path) -> None:
    """By a task on another machine that comes after all is done."""
    for writer in (StagingWriter(tmp_path / "b", make=False), StagingWriter(str(tmp_path / "b"), make=False)):
        writer.write(pa.table({"a": [1]}))
        with pytest.raises(StagingFailed, match="No such file"):
            writer.finish()
    assert not (tmp_path / "b").exists()
    (tmp_path / "c").mkdir()
    opened = StagingWriter(tmp_path / "c", make=False)
    opened.write(pa.table({"a": [1]}))
    opened.flush()
    shutil.rmtree(tmp_path / "c")
    with pytest.raises(StagingFailed, match="No such file"):
        opened.finish()
    opened.abandon()
    assert not (tmp_path / "c").exists()


def test_file_and_folders_are_synced_before_anybody_hears_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    file = written(tmp_path / "b").finish()
    assert file is not None
    assert synced == [file.path, str(tmp_path / "b"), str(tmp_path)]


def test_a_full_disk_is_a_clear_error(tmp_path: Path) -> None:
    writer = written(tmp_path / "b")
    writer.flush()
    assert writer._file is not None
    writer._file._file.close()
    with open("/dev/full", "wb", buffering=0) as full:  # noqa: PTH123
        writer._file._file = full  # type: ignore[assignment]
        with pytest.raises(StagingFailed, match="No space left"):
            writer.finish()


def test_giving_up_on_a_full_disk_hides_no_error(tmp_path: Path) -> None:
    writer = written(tmp_path / "b")
    writer.flush()
    assert writer._file is not None
    with open("/dev/full", "wb", buffering=1 << 20) as full:  # noqa: PTH123
        full.write(b"what no disk has taken yet")
        writer._file._file.close()
        writer._file._file = full  # type: ignore[assignment]
        writer.abandon()
    del writer
    gc.collect()  # Parquet's writer must not try to end its file now: a warning would fail this test


def test_garbage_is_what_has_landed_and_what_is_old_and_unknown(tmp_path: Path) -> None:
    landed, fresh, old = (uuid.uuid4().hex for _ in range(3))
    for name in (landed, fresh, old, "not-a-batch"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
    elsewhere = tmp_path.parent / f"{uuid.uuid4().hex}-outside"
    elsewhere.mkdir()
    (elsewhere / "keep").write_text("x")
    link = tmp_path / uuid.uuid4().hex
    link.symlink_to(elsewhere)
    past = 1_000_000.0
    for path in (tmp_path / old, tmp_path / old / "file"):
        os.utime(path, (past, past))
    now = (tmp_path / fresh / "file").stat().st_mtime + HORIZON_S / 2
    assert set(collect_garbage(tmp_path, {landed}.__contains__, now)) == {landed, old}
    assert {entry.name for entry in tmp_path.iterdir()} == {fresh, "not-a-batch", link.name}
    assert (elsewhere / "keep").exists()


@pytest.mark.parametrize("name", ["..", "", "a/b", "x" * 32])
def test_only_a_batch_id_is_ever_discarded(tmp_path: Path, name: str) -> None:
    (tmp_path / "staging").mkdir()
    (tmp_path / "keep").write_text("x")
    discard(tmp_path / "staging", name)
    assert (tmp_path / "keep").exists() and (tmp_path / "staging").exists()


def test_a_divided_table_has_a_file_for_each_division(tmp_path: Path) -> None:
    """Also where the task's files are shared, and where memory is short: nothing is lost, and no file holds two."""
    rows = pa.table({"c": ["a", "b", None, "a"] * 50_000, "n": list(range(200_000))})
    for made in (lambda of: StagingWriter(tmp_path / "b"), partial(_sharing, Shared(str(tmp_path / "c")))):
        divided = Divided((Part("c"),), made)
        divided.write(rows)
        divided.write(rows.slice(0, 3))
        assert divided.rows == 200_003
        files = divided.finish()
        if made.__class__ is partial:
            report = RangeReport(PartitionId(TopicId("c", "i", "t"), 0), Range(0, 1), Counts(), (TableReport(files=files),))
            files = made.args[0].finish([report])[0].tables[0].files
        read = {tuple(set(table["c"].to_pylist())): table.num_rows for table in (pq.read_table(file.path) for file in files)}
        assert read == {("a",): 100_001, ("b",): 50_001, (None,): 50_001}
        assert sum(file.own for file in files) == 200_003
    fine = Divided((Part("n"),), lambda of: StagingWriter(tmp_path / "d"))
    with pytest.raises(StagingFailed, match="more than 1,000 divisions by n"):
        fine.write(rows.slice(0, 2000))
    fine.abandon()


def test_the_rows_in_memory_are_bounded_over_all_writers_of_a_task(tmp_path: Path) -> None:
    """300 tables by topic had 346 MiB in 300 shared files, each of which was bounded alone."""
    shared, rows = Shared(str(tmp_path / "b")), pa.table({"n": list(range(1000))})
    shared.waiting = waiting = WaitingRows(20 * rows.nbytes)
    reports, most = [], 0
    for topic in range(30):
        writer = StagingWriter(tmp_path / "b", partial(shared.take, f"rows {topic}"), waiting)
        for _ in range(topic % 7):
            writer.write(rows)
            most = max(most, waiting._total)
        file = writer.finish()
        tables = (TableReport(files=(file,) if file is not None else ()),)
        reports.append(RangeReport(PartitionId(TopicId("c", "i", str(topic)), 0), Range(0, 1), Counts(), tables))
    files = [file for report in shared.finish(reports) for file in report.tables[0].files]
    assert 10 * rows.nbytes < most <= 21 * rows.nbytes and waiting._total == 0
    assert sum(pq.read_table(file.path).num_rows for file in files) == 1000 * sum(topic % 7 for topic in range(30))


@pytest.mark.parametrize(
    ("mode", "ordered", "files"), [("flatmap", True, 2), ("filter", True, 2), ("map", True, 1), ("flatmap", False, 1)]
)
def test_rows_without_an_offset_share_no_file_where_their_order_counts(
    tmp_path: Path, mode: str, ordered: bool, files: int
) -> None:
    """Their file is all that says where they belong: a task reads `[0, 5)` and `[10, 15)`, another one what lies between."""
    source, program = PartitionId(TopicId("c", "i", "t"), 0), ProgramSpec("p", None, "", mode=mode)
    config: dict[str, object] = {}
    job = JobSpec(
        "b", config, str(tmp_path), Format(), (TableSpec(Columns.of({"n": "BIGINT"})),), program=program, ordered=ordered
    )
    shared, reports = Shared(f"{tmp_path}/b"), []
    for start in (0, 10):
        output = RangeOutput(job, Piece(source, Range(start, start + 5)), shared)
        lines = Payloads.of([b'{"n":1}'] * 5)
        output.loose([reads.decode(lines) for reads in job.decoders], lines)
        reports.append(output.finish(5, 0, 0, given=5))
    done = [file for report in shared.finish(reports) for file in report.tables[0].files]
    assert len({file.path for file in done}) == files


def _sharing(shared: Shared, of: str) -> StagingWriter:
    return StagingWriter(str(shared._folder), partial(shared.take, of))
