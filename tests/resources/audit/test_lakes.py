"""Tables whose files contain rows that were deleted: an audit must not count these."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path

import pyarrow as pa
import pytest

from kpipe.audit.coordinates import find_coordinates
from kpipe.errors import DestinationError
from resources.audit.sources import open_table
from resources.audit.table_address import TableAddress
from tests.servers.s3 import BUCKET, S3Server

deltalake = pytest.importorskip("deltalake")

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


def offsets(address: TableAddress) -> list[tuple[int, int]]:
    with open_table(address) as table:
        coordinates = find_coordinates(table.fields())
        found = list(table.batches(coordinates))
    return sorted((p, o) for batch in found for p, o in zip(batch[0].to_pylist(), batch[1].to_pylist(), strict=True))


def deletion_vector(rows: list[int]) -> dict[str, object]:
    """Delta's protocol, "Deletion Vector Format": one bitmap with one array container, inline."""
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16) + b"".join(struct.pack("<H", row) for row in rows)
    data = struct.pack("<IqI", 1681511377, 1, 0) + bitmap
    padded = data + b"\0" * (-len(data) % 4)
    text = base64.b85encode(padded).decode().translate(str.maketrans(_B85, _Z85))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": len(rows)}


def delta(folder: Path, feature: str) -> None:
    """A table of ten rows; the next version deletes three of them by a deletion vector."""
    block = pa.table({"partition": pa.array([0] * 10, pa.int32()), "offset": list(range(10))})
    deltalake.write_deltalake(str(folder), block)
    first = [json.loads(line) for line in (folder / "_delta_log" / f"{0:020}.json").read_text().splitlines()]
    add = next(entry["add"] for entry in first if "add" in entry)
    features = {"readerFeatures": [feature], "writerFeatures": [feature]}
    entries = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}},
        {"add": {**add, "deletionVector": deletion_vector([2, 3, 7])}},
    ]
    (folder / "_delta_log" / f"{1:020}.json").write_text("\n".join(map(json.dumps, entries)))


def test_rows_in_a_deletion_vector_are_not_in_the_table(tmp_path: Path) -> None:
    delta(tmp_path, "deletionVectors")
    address = TableAddress("delta", str(tmp_path))
    assert offsets(address) == [(0, at) for at in (0, 1, 4, 5, 6, 8, 9)]
    assert offsets(TableAddress("delta", str(tmp_path), snapshot=0)) == [(0, at) for at in range(10)]


def test_a_delta_table_with_a_feature_that_changes_its_columns_is_refused(tmp_path: Path) -> None:
    delta(tmp_path, "columnMapping")
    with pytest.raises(DestinationError, match="columnMapping"):
        offsets(TableAddress("delta", str(tmp_path)))


def test_rows_that_iceberg_has_deleted_are_not_in_the_table_but_in_an_older_snapshot(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("default")
    block = pa.table({"_partition": pa.array([0] * 10, pa.int32()), "_offset": list(range(10))})
    table = catalog.create_table("default.t", block.schema)
    table.append(block)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    table.delete("_offset = 4")
    place = table.metadata_location.removeprefix("file://")
    assert offsets(TableAddress("iceberg", place)) == [(0, at) for at in range(10) if at != 4]
    assert offsets(TableAddress("iceberg", place, snapshot=snapshot.snapshot_id)) == [(0, at) for at in range(10)]


def test_a_delta_table_in_an_object_store(s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    place = f"s3://{BUCKET}/{tmp_path.name}"
    block = pa.table({"partition": pa.array([0] * 10, pa.int32()), "offset": list(range(10))})
    deltalake.write_deltalake(place, block, storage_options={**s3.environment, "AWS_ALLOW_HTTP": "true"})
    assert offsets(TableAddress("delta", place)) == [(0, at) for at in range(10)]


def test_a_delta_table_whose_files_have_other_names_is_refused_by_an_old_protocol_too(tmp_path: Path) -> None:
    """Protocol 2 lists no features. `offset` is the file's `other` after a rename, and would be read from the file's `offset`."""
    block = pa.table({"partition": pa.array([0] * 3, pa.int32()), "offset": [0, 1, 2], "other": [7, 7, 7]})
    deltalake.write_deltalake(str(tmp_path), block)
    place = tmp_path / "_delta_log" / f"{0:020}.json"
    entries = [json.loads(line) for line in place.read_text().splitlines()]
    for entry in entries:
        if "protocol" in entry:
            entry["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
        if "metaData" in entry:
            schema = json.loads(entry["metaData"]["schemaString"])
            for at, field in enumerate(schema["fields"]):
                field["metadata"] = {"delta.columnMapping.id": at + 1, "delta.columnMapping.physicalName": field["name"]}
            schema["fields"][1]["name"], schema["fields"][2]["name"] = "old", "offset"
            settings = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}
            entry["metaData"] |= {"schemaString": json.dumps(schema), "configuration": settings}
    place.write_text("\n".join(map(json.dumps, entries)))
    with pytest.raises(DestinationError, match="columnMapping"):
        offsets(TableAddress("delta", str(tmp_path)))


def test_columns_of_iceberg_are_those_of_now_or_of_the_snapshot_that_is_named(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.types import LongType

    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("default")
    block = pa.table({"_partition": pa.array([0] * 3, pa.int32()), "_offset": [0, 1, 2]})
    table = catalog.create_table("default.t", block.schema)
    table.append(block)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    with table.update_schema() as change:
        change.rename_column("_offset", "before")
    with table.update_schema() as change:
        change.add_column("_offset", LongType())
    place = table.metadata_location.removeprefix("file://")
    with open_table(TableAddress("iceberg", place)) as opened:
        (batch,) = opened.batches(find_coordinates(opened.fields()))
        assert batch[1].to_pylist() == [None, None, None]
    assert offsets(TableAddress("iceberg", place, snapshot=snapshot.snapshot_id)) == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("text", ["hello", "{}", "[1]", ""])
def test_metadata_that_is_damaged_is_an_error_of_one_line(tmp_path: Path, text: str) -> None:
    pytest.importorskip("pyiceberg")
    place = tmp_path / "v1.metadata.json"
    place.write_text(text)
    with pytest.raises(DestinationError, match=r"v1\.metadata\.json: cannot be read"):
        offsets(TableAddress("iceberg", str(place)))
    with pytest.raises(DestinationError, match="no Delta table with version 5"):
        offsets(TableAddress("delta", str(tmp_path), snapshot=5))
