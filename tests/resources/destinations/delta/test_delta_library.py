"""What the deltalake library does where kpipe goes around it: one test for each fact, so that an upgrade tells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_deltalake(str(tmp_path / "t"), ROWS)
    return tmp_path / "t"


def add(name: str, rows: int = 3, size: int = 500) -> AddAction:
    return AddAction(name, size, {}, 0, True, json.dumps({"numRecords": rows}))


def commit(table: DeltaTable, actions: list[AddAction], app: str = "a", version: int = 1, **more: int) -> None:
    said = CommitProperties(app_transactions=[Transaction(app, version)], **more)
    table.create_write_transaction(actions, mode="append", schema=table.schema(), partition_by=[], commit_properties=said)


def test_stale_handle_of_one_application_is_refused_and_of_another_is_not(folder: Path) -> None:
    """Finding 3: the library compares applications, so a conflict of two pipelines would be tried again without asking us."""
    stale = DeltaTable(str(folder))
    commit(DeltaTable(str(folder)), [], "a", 1)
    with pytest.raises(CommitFailedError):
        commit(stale, [], "a", 2)
    commit(stale, [], "b", 1)
    assert DeltaTable(str(folder)).transaction_version("b") == 1


def test_versions_of_an_application_may_go_down(folder: Path) -> None:
    """Finding 3: nothing but our own comparison keeps an older ledger from being written over a newer one."""
    commit(DeltaTable(str(folder)), [], "a", 100)
    commit(DeltaTable(str(folder)), [], "a", 50)
    assert DeltaTable(str(folder)).transaction_version("a") == 50


@pytest.mark.parametrize("name", ["missing.parquet", "../outside.parquet", "other.parquet"])
def test_files_are_not_looked_at(folder: Path, name: str) -> None:
    """Finding 4: a file that is not there, lies outside, or has other columns is taken."""
    pq.write_table(pa.table({"strange": ["x"]}), folder / "other.parquet")
    commit(DeltaTable(str(folder)), [add(name, 1)])
    assert DeltaTable(str(folder)).version() == 1


def test_restore_leaves_transactions_as_they_are(folder: Path) -> None:
    """Finding 6: rows go back, the ledger would not. That it happened stands in the log, with the version."""
    pq.write_table(ROWS, folder / "more.parquet")
    commit(DeltaTable(str(folder)), [add("more.parquet", size=os.path.getsize(folder / "more.parquet"))], "a", 7)
    DeltaTable(str(folder)).restore(0)
    table = DeltaTable(str(folder))
    assert (table.transaction_version("a"), table.to_pyarrow_table().num_rows) == (7, 3)
    newest = table.history(1)[0]
    assert newest["operation"] == "RESTORE" and int(newest["operationParameters"]["version"]) == 0


def test_the_same_path_twice_is_one_file(folder: Path) -> None:
    """The second net: names are made of the batch, so a batch that was added twice would be there once."""
    pq.write_table(ROWS, folder / "more.parquet")
    for version in (1, 2):
        commit(DeltaTable(str(folder)), [add("more.parquet", size=os.path.getsize(folder / "more.parquet"))], "a", version)
    assert DeltaTable(str(folder)).to_pyarrow_table().num_rows == 6


def test_transactions_survive_checkpoints_and_compaction(folder: Path) -> None:
    """Finding 7: without a retention they stay for ever."""
    commit(DeltaTable(str(folder)), [], "a", 2**62)
    table = DeltaTable(str(folder))
    table.optimize.compact()
    DeltaTable(str(folder)).create_checkpoint()
    DeltaTable(str(folder)).cleanup_metadata()
    assert DeltaTable(str(folder)).transaction_version("a") == 2**62


def test_the_library_syncs_nothing(tmp_path: Path) -> None:
    """Finding 10: what it writes is not on the disk when it answers."""
    trace = tmp_path / "trace"
    work = "import sys, pyarrow as pa; from deltalake import write_deltalake; write_deltalake(sys.argv[1], pa.table({'id': [1]}))"
    try:
        command = ["strace", "-f", "-e", "trace=fsync,fdatasync,sync_file_range", "-o", str(trace)]
        done = subprocess.run(
            [*command, sys.executable, "-c", work, str(tmp_path / "t")], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("strace is not installed")
    if done.returncode:
        pytest.skip(f"strace cannot be used here: {done.stderr[-200:]}")
    assert not [line for line in trace.read_text().splitlines() if "sync" in line]


def test_datasets_lie_about_columns_that_a_file_lacks(folder: Path) -> None:
    """Why rows are counted from a table: asked for rows in which a column is not null, rows without the column come along."""
    rows = pa.table({"id": pa.array([4], pa.int64()), "more": pa.array([5], pa.int32())})
    write_deltalake(str(folder), rows, mode="append", schema_mode="merge")
    found = DeltaTable(str(folder)).to_pyarrow_dataset().to_table(filter=pc.field("more").is_valid())
    assert found.num_rows == 4
    assert DeltaTable(str(folder)).to_pyarrow_dataset().to_table(columns=["more"]).column("more").null_count == 3
