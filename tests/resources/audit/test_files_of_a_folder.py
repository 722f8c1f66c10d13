"""Folders whose files readers take for more, or for fewer, than an audit must: each row of the table counts once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpipe.audit.coordinates import find_coordinates
from kpipe.errors import DestinationError, InvalidPipeline
from resources.audit.sources import open_table
from resources.audit.table_address import TableAddress


def write(path: Path, *offsets: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    block = pa.table({"partition": pa.array([0] * len(offsets), pa.int32()), "offset": pa.array(offsets, pa.int64())})
    with path.open("wb") as file:  # PyArrow would decode the name
        pq.write_table(block, file)


def offsets(place: Path) -> list[int]:
    with open_table(TableAddress("parquet", str(place))) as table:
        found = list(table.batches(find_coordinates(table.fields())))
    return sorted(offset for batch in found for offset in batch[1].to_pylist())


@pytest.mark.parametrize(
    "name", ["y[1].parquet", "y*.parquet", "y?.parquet", "**.parquet", "y[!2].parquet", "it's.parquet", "y\\1.parquet"]
)
def test_a_name_that_is_a_pattern_reads_that_file_only(tmp_path: Path, name: str) -> None:
    write(tmp_path / "table" / name, 7)
    write(tmp_path / "table" / "y1.parquet", 1)
    assert offsets(tmp_path / "table" / name) == [7]
    assert offsets(tmp_path / "table") == [1, 7]


def test_a_folder_whose_name_is_a_pattern_is_not_another_folder(tmp_path: Path) -> None:
    write(tmp_path / "orders[1]" / "x.parquet", 7)
    write(tmp_path / "orders1" / "x.parquet", 1)
    assert offsets(tmp_path / "orders[1]") == [7]


def test_a_pattern_that_cannot_be_escaped_is_rejected(tmp_path: Path) -> None:
    write(tmp_path / "a\\[1].parquet", 7)
    with pytest.raises(InvalidPipeline, match="backslash"):
        offsets(tmp_path)


def test_files_behind_a_link_to_a_folder_are_read(tmp_path: Path) -> None:
    write(tmp_path / "table" / "x.parquet", 1, 2)
    write(tmp_path / "elsewhere" / "z.parquet", 2)
    (tmp_path / "table" / "more").symlink_to(tmp_path / "elsewhere")
    assert offsets(tmp_path / "table") == [1, 2, 2]


def test_a_folder_that_is_reached_twice_is_rejected(tmp_path: Path) -> None:
    write(tmp_path / "table" / "x.parquet", 1)
    (tmp_path / "table" / "loop").symlink_to(tmp_path / "table")
    with pytest.raises(DestinationError, match="was read before"):
        offsets(tmp_path / "table")


def test_a_parquet_file_without_the_suffix_is_read_and_another_file_is_not(tmp_path: Path) -> None:
    write(tmp_path / "part-00001", 1)
    write(tmp_path / "x.PARQUET", 2)
    write(tmp_path / "_temporary" / "y.parquet", 3)
    write(tmp_path / ".hidden", 4)
    (tmp_path / "README.txt").write_text("PAR1 is how Parquet begins")
    (tmp_path / "empty").touch()
    assert offsets(tmp_path) == [1, 2]


def test_a_folder_that_cannot_be_listed_is_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "x.parquet", 1)
    write(tmp_path / "closed" / "y.parquet", 2)
    listed = os.scandir

    def denied(place: str) -> object:
        if Path(place).name == "closed":
            raise PermissionError(13, "Permission denied", place)
        return listed(place)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(DestinationError, match="closed: cannot be listed: Permission denied"):
        offsets(tmp_path)


def test_names_in_the_log_of_a_streaming_query_are_decoded(tmp_path: Path) -> None:
    folder = tmp_path / "my table"
    write(folder / "day=a%2Fb" / "part-0.parquet", 1)
    write(folder / "day=a%2Fb" / "part-1.parquet", 1)  # of an attempt that failed
    log = folder / "_spark_metadata"
    log.mkdir()
    name = (folder / "day=a%2Fb" / "part-0.parquet").as_uri()
    (log / "0").write_text("v1\n" + json.dumps({"path": name, "size": 1, "isDir": False, "action": "add"}))
    assert offsets(folder) == [1]
    (log / "1").write_text("v1\nnot JSON")
    with pytest.raises(DestinationError, match="not a list of files"):
        offsets(folder)
    (log / "1").write_text("v1\n" + json.dumps({"path": "file:///elsewhere/part-0.parquet", "action": "add"}))
    with pytest.raises(DestinationError, match="not a list of files"):
        offsets(folder)
