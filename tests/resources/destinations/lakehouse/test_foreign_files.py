"""Maintenance and keys of tables in which other programs have written files, or beside which they have tables."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import DestinationError, InvalidPipeline
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from resources.destinations import open_destination
from resources.destinations.delta.keyed import _constant
from resources.destinations.delta.live_files import is_inside, live_adds
from resources.destinations.iceberg import IcebergLake, SQLite
from resources.destinations.iceberg.catalogue import _Sql
from resources.destinations.iceberg.transaction import OneAttempt
from resources.destinations.lakehouse import LakeDestination
from resources.destinations.lakehouse.folder import LocalFolder
from resources.destinations.lakehouse.maintenance.removal import Removal
from resources.home import Home
from resources.testing.keyed import begun
from resources.testing.place import batch, begin
from resources.testing.state import proof
from tests.resources.destinations.lake_place import DeltaPlace, IcebergPlace
from tests.resources.destinations.maintained_tables import PLACES, RULE, SOON, load, maintained, one

HOUR = 3600
AT = Columns.of({"id": "BIGINT", "at": "TIMESTAMP WITH TIME ZONE"})
FAR = [-62_135_596_800_000_000, 253_402_300_799_999_999, 0, None]  # years 1 and 9999


def loaded(place: Any, batches: int, columns: Columns = AT) -> Any:
    destination = place.open()
    destination.commit(begin("tweets", [0]))
    for end in range(1, batches + 1):
        destination.commit(batch(place, destination.ledger()[1], {0: end}, columns, {"id": end}))
    return destination


def adopted(place: Any, rows: pa.Table, **how: Any) -> None:
    """Another program has written a file of rows, and the table has it now."""
    if isinstance(place, DeltaPlace):
        path = place.folder / "tweets" / "part-0.parquet"
        pq.write_table(rows, path, **how)
        log = place.folder / "tweets" / "_delta_log"
        version = max(int(file.stem) for file in log.glob("0*.json")) + 1
        facts = {"path": path.name, "partitionValues": {}, "size": path.stat().st_size, "modificationTime": 0, "dataChange": True}
        (log / f"{version:020}.json").write_text(json.dumps({"add": facts}))
        return
    path = place.folder / "default" / "tweets" / "data" / "part-0.parquet"
    pq.write_table(rows, path, **how)
    entry = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows.num_rows,
        file_size_in_bytes=path.stat().st_size,
        spec_id=0,
    )
    change = OneAttempt(place.iceberg())
    producer: Any = change._append_snapshot_producer({}, branch="main")
    with producer:
        producer.append_data_file(entry)
    change.commit_transaction()


def paths(place: Any) -> list[str]:
    if isinstance(place, DeltaPlace):
        return list(place.delta().file_uris())
    return [task.file.file_path.removeprefix("file://") for task in place.iceberg().scan().plan_files()]


@pytest.mark.parametrize("kind", PLACES)
def test_times_as_spark_writes_them_stay_the_same(tmp_path: Path, kind: str) -> None:
    """Spark's default for timestamps is INT96. Arrow reads it in ns, where year 9999 silently is another one."""
    place = PLACES[kind](tmp_path)
    destination = loaded(place, 3)
    rows = pa.table({"id": [7] * len(FAR), "at": pa.array(FAR, pa.timestamp("us", "UTC"))})
    adopted(place, rows, use_deprecated_int96_timestamps=True)
    assert maintained(place).rewritten == 4
    (file,) = paths(place)
    found = pq.read_table(file)
    assert found.filter(pa.compute.equal(found["id"], 7))["at"].cast(pa.int64()).to_pylist() == FAR
    destination.commit(batch(place, destination.ledger()[1], {0: 4}, AT, {"id": 4}))


@pytest.mark.parametrize("kind", PLACES)
def test_an_update_keeps_times_as_spark_writes_them(tmp_path: Path, kind: str) -> None:
    place, rule = PLACES[kind](tmp_path), KeyRule(("id",), "update")
    columns = Columns.of({"id": "BIGINT", "at": "TIMESTAMP WITH TIME ZONE", "text": "VARCHAR"})
    destination = place.open(rule=rule)
    destination.commit(begin("tweets", [0]))
    destination.commit(one(place, destination, 0, columns, {"id": 1, "at": 0, "text": "a"}))
    rows: dict[str, Any] = {"id": range(7, 7 + len(FAR)), "at": pa.array(FAR, pa.timestamp("us", "UTC"))}
    adopted(place, pa.table(rows), use_deprecated_int96_timestamps=True)
    for at, number in enumerate(rows["id"], 1):
        destination.commit(
            one(place, destination, at, Columns.of({"id": "BIGINT", "text": "VARCHAR"}), {"id": number, "text": "b"})
        )
    maintained(place)
    found = pa.concat_tables(map(pq.read_table, paths(place))).sort_by("id")
    assert found["at"].cast(pa.int64()).to_pylist() == [0, *FAR]


def test_names_that_differ_by_case_are_one_column(tmp_path: Path) -> None:
    """Spark finds the columns of a file whatever their case."""
    place = DeltaPlace(tmp_path)
    begun(place, RULE, 1)
    for number in range(3):
        load(place, number, [number])
    adopted(place, pa.table({"ID": [7, 8], "Text": ["x", "y"]}))
    load(place, 3, [7])
    assert maintained(place, replace(SOON, delete_ratio=0.1)).rewritten
    found = pa.concat_tables(map(pq.read_table, paths(place))).sort_by("id")
    assert found.select(["id", "text"]).to_pylist() == [
        {"id": number, "text": text} for number, text in ((0, "t0"), (1, "t1"), (2, "t2"), (7, "t3"), (8, "y"))
    ]


def test_two_names_of_one_column_are_refused(tmp_path: Path) -> None:
    place = DeltaPlace(tmp_path)
    loaded(place, 3)
    adopted(place, pa.table({"id": [7], "ID": [8]}))
    with pytest.raises(DestinationError, match=r"part-0\.parquet: columns id and ID differ by case only"):
        maintained(place)


def test_files_that_a_checkpoint_names_elsewhere_are_not_overlooked(tmp_path: Path) -> None:
    """A checkpoint of version 2 may have a name of version 1, and its files in others (PROTOCOL.md, "V2 Spec")."""
    place = DeltaPlace(tmp_path)
    loaded(place, 4)
    place.delta().create_checkpoint()
    (path,) = (place.folder / "tweets" / "_delta_log").glob("*.checkpoint.parquet")
    folder, table = LocalFolder(place.folder / "tweets"), pq.read_table(path)
    if "sidecar" in table.column_names:
        table = table.drop_columns(["sidecar"])
    for sidecar in (None, {"path": "x.parquet", "sizeInBytes": 1}):
        kind = pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64())])
        column = pa.array([*[None] * (len(table) - 1), sidecar], kind)
        pq.write_table(table.append_column("sidecar", column), path)
        if sidecar is None:
            assert len(live_adds(folder, 4)) == 4
            continue
        with pytest.raises(DestinationError, match="checkpoints of version 2"):
            live_adds(folder, 4)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.parquet", True),
        ("d=a:b/c.parquet", True),
        ("a:b", True),
        ("file:/x/a.parquet", False),
        ("s3://b/a", False),
        ("/x/a", False),
    ],
)
def test_locations_in_deltas_log(path: str, expected: bool) -> None:
    assert is_inside(path) == expected


def test_an_empty_partition_value_is_null() -> None:
    assert _constant("", pa.int64(), 2).to_pylist() == _constant("", pa.string(), 2).to_pylist() == [None, None]
    assert _constant("5", pa.int64(), 2).to_pylist() == [5, 5]


class _Other:
    """A second catalogue, whose tables have the same folders."""

    place = "catalogue other"

    def __init__(self, folder: Path) -> None:
        self._file = folder / "other.db"

    def exists(self) -> bool:
        return True

    def opened(self, folder: Any) -> Any:
        return _Sql(folder, "other", f"sqlite:///{self._file}")

    failed = SQLite.failed


def test_files_of_a_table_in_another_catalogue_stay(tmp_path: Path) -> None:
    place = IcebergPlace(tmp_path)
    destination = loaded(place, 4)
    lake = IcebergLake(LocalFolder(place.folder), "tweets", _Other(tmp_path))
    other: Any = LakeDestination(lake, "tweets", "other", {}, (place.staging,))
    other.commit(begin("other", [0]))
    for end in range(1, 5):
        other.commit(batch(place, other.ledger()[1], {0: end}))
    other.maintain(SOON, tmp_path / "scratch")
    for hours in (0, 9):
        with pytest.raises(DestinationError, match="the folder also has the table"):
            Removal(place.lake(), HOUR, lambda _: None, time.time() + hours * HOUR).run()
        destination.commit(batch(place, destination.ledger()[1], {0: 5 + hours}))
    assert proof(destination).ok and proof(other).ok
    for path in (place.folder / "default" / "tweets" / "metadata").glob("*.metadata.json"):
        if str(place.iceberg().metadata.table_uuid) not in path.read_text():
            path.unlink()  # the operator has dropped the other table
    path = Path(place.iceberg().metadata_location.removeprefix("file://"))
    said = json.loads(path.read_text())
    killed = said | {"table-uuid": "0" * 8 + "-0000-0000-0000-" + "0" * 12, "metadata-log": [], "snapshots": []}
    (path.parent / "00000-killed.metadata.json").write_text(json.dumps(killed))  # a run was killed when it created the table
    (path.parent / "00000-torn.metadata.json").write_text("{")
    assert Removal(place.lake(), HOUR, lambda _: None, time.time()).run().waiting


def test_a_batch_is_committed_again_after_a_commit_to_a_branch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Main is the same, but the snapshot's number is taken. Its files may have been removed meanwhile."""
    place = IcebergPlace(tmp_path)
    destination = loaded(place, 3)
    send = OneAttempt.commit_transaction

    def slept(change: OneAttempt) -> Any:
        monkeypatch.setattr(OneAttempt, "commit_transaction", send)
        Removal(place.lake(), HOUR, lambda _: None, time.time()).run()
        table = place.iceberg()
        head = table.metadata.current_snapshot()
        assert head is not None
        with table.manage_snapshots() as branches:
            branches.create_branch(head.snapshot_id, "elsewhere")
        table.append(table.scan().to_arrow().slice(0, 1), branch="elsewhere")
        Removal(place.lake(), HOUR, lambda _: None, time.time() + 9 * HOUR).run()
        return send(change)

    monkeypatch.setattr(OneAttempt, "commit_transaction", slept)
    destination.commit(batch(place, destination.ledger()[1], {0: 6}, AT, {"id": 6}))
    assert len(place.rows()) == 6 and proof(destination).ok


def test_a_rollback_is_still_one_after_its_snapshots_have_expired(tmp_path: Path) -> None:
    """The copy of the pointers in the table's properties is that of a snapshot whose rows main does not have any more."""
    place = IcebergPlace(tmp_path)
    destination = loaded(place, 1)
    early = place.iceberg().metadata.current_snapshot()
    assert early is not None
    destination.commit(batch(place, destination.ledger()[1], {0: 5}, AT, {"id": 5}))
    with place.iceberg().manage_snapshots() as change:
        change.rollback_to_snapshot(early.snapshot_id)
    table = place.iceberg()
    table.append(table.scan().to_arrow().slice(0, 0))  # a commit of another program
    assert Removal(place.lake(), HOUR, lambda _: None, time.time() + 9 * HOUR).run().expired
    destination = place.open()
    assert list(destination.ledger()[1].positions().values()) == [1]
    destination.commit(batch(place, destination.ledger()[1], {0: 7}, AT, {"id": 7}))
    assert len(place.rows()) == 7 and proof(destination).ok


@pytest.mark.parametrize(("type", "signs"), [("iceberg", "%#?"), ("delta", "%"), ("parquet", "")])
def test_folders_whose_names_libraries_decode_are_refused(tmp_path: Path, type: str, signs: str) -> None:
    into = {"type": type, "table": "t", "database": str(tmp_path / "link")}
    source = {"brokers": "b:9092", "topic": "t"}
    pipeline = Pipeline.model_validate({"name": "t", "source": source, "into": into})
    for sign in "%#? é":
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(tmp_path / f"a{sign}20b")
        if sign in signs:
            with pytest.raises(InvalidPipeline, match=f"contains [{sign}], which programs for {type} decode"):
                open_destination(pipeline, Home.at(tmp_path))
        else:
            assert f"a{sign}20b" in open_destination(pipeline, Home.at(tmp_path)).describe()
