"""The Iceberg destination beyond the suite: kills, rollbacks, expiry, and what the library does where kpipe goes around it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyiceberg.table
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema as PyIcebergSchema
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, StructType

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import DestinationError, Fenced, LedgerMismatch, NotAvailable, SchemaConflict
from kpipe.failpoints import POINTS
from kpipe.maintenance.plan import Limits
from kpipe.schema.columns import BIGINT, Columns, Struct
from resources.destinations import open_destination
from resources.destinations.iceberg.data_files import append, location
from resources.destinations.iceberg.durable import local
from resources.destinations.iceberg.transaction import OneAttempt
from resources.home import Home
from resources.testing.place import COLUMNS, batch
from resources.testing.state import begun, loaded, positions, proof
from tests.resources.destinations.lake_place import IcebergPlace, killed

STEPS = [point for point in POINTS if point.startswith("commit.")] + ["readback"]
SAMPLE = ("commit.before", "commit.after")


@pytest.fixture
def place(tmp_path: Path) -> IcebergPlace:
    return IcebergPlace(tmp_path)


@pytest.mark.parametrize("point", [pytest.param(p, marks=[] if p in SAMPLE else pytest.mark.chaos) for p in STEPS])
def test_killed_at_each_step_of_a_commit(place: IcebergPlace, point: str) -> None:
    destination = loaded(place, dead=[(0, 3)])
    commit = batch(place, destination.ledger()[1], {0: 20, 1: 9}, dead=[(0, 15), (1, 7)])
    killed(place, commit, point)
    fresh = place.open()
    landed = point in ("commit.after", "readback")
    assert positions(fresh) == ({0: 20, 1: 9} if landed else {0: 10, 1: 5})
    assert (len(place.rows()), place.dead_letters(), len(fresh.view("errors"))) == ((26, 3, 3) if landed else (14, 1, 1))
    assert fresh.commit(commit).seq == 3
    assert (len(place.rows()), place.dead_letters()) == (26, 3) and proof(fresh).ok


def test_zombie_is_fenced_and_widening_comes_with_the_rows(place: IcebergPlace) -> None:
    zombie = loaded(place)
    late = batch(place, zombie.ledger()[1], {0: 20})
    successor, wide = place.open(), Columns((*COLUMNS, *Columns.of({"s": "STRUCT(a BIGINT)", "j": "JSON"})))
    successor.commit(batch(place, successor.ledger()[1], {0: 11}, wide, {"id": 1, "text": "", "s": {"a": 1}, "j": "[]"}))
    with pytest.raises(Fenced):
        zombie.commit(late)
    assert set(dict(zombie.columns() or ())) == {"id", "text", "s", "j"} and dict(zombie.columns() or ())["j"] == dict(wide)["j"]
    assert len(place.rows()) == 16 and proof(zombie).ok


def test_rolled_back_table_takes_its_ledger_along(place: IcebergPlace) -> None:
    destination = loaded(place)
    table = place.iceberg()
    destination.commit(batch(place, destination.ledger()[1], {0: 20}))
    with place.iceberg().manage_snapshots() as manage:
        manage.rollback_to_snapshot(table.current_snapshot().snapshot_id)
    assert positions(destination) == {0: 10, 1: 5} and destination.ledger()[1].seq == 2 and proof(destination).ok
    destination.commit(batch(place, destination.ledger()[1], {0: 12}))
    assert len(place.rows()) == 17 and proof(destination).ok
    with place.iceberg().manage_snapshots() as manage:
        manage.rollback_to_snapshot(place.iceberg().metadata.snapshots[0].snapshot_id)
    assert positions(destination) == {0: 0, 1: 0} and place.rows() == []


@pytest.mark.parametrize("change", ["rename", "drop", "drop a field"])
def test_a_column_that_another_program_has_renamed_or_dropped_does_not_come_back(place: IcebergPlace, change: str) -> None:
    """Its values are in older files, under its name: a new column of this name would show them."""
    columns = Columns((*COLUMNS.items, ("s", Struct((("a", BIGINT), ("b", BIGINT))))))
    values = {"id": 1, "text": "x", "s": {"a": 1, "b": 2}}
    destination = begun(place)
    destination.commit(batch(place, destination.ledger()[1], {0: 3}, columns=columns, values=values))
    with place.iceberg().update_schema() as update:
        if change == "rename":
            update.rename_column("text", "note")
        else:
            update.delete_column("text" if change == "drop" else ("s", "b"))
    before = place.rows()
    name = "s.b" if change == "drop a field" else "text"
    for _ in range(2):
        with pytest.raises(SchemaConflict, match=f"column {name}: another program has renamed or dropped it") as caught:
            destination.commit(batch(place, destination.ledger()[1], {0: 5}, columns=columns, values=values))
        assert "schema: ignore" in caught.value.hint
        assert place.rows() == before and positions(destination)[0] == 3
    kept = Columns((("id", BIGINT), ("other", BIGINT)))
    destination.commit(batch(place, destination.ledger()[1], {0: 5}, columns=kept, values={"id": 1, "other": 2}))
    assert proof(destination).ok and len(place.rows()) == 5


def test_a_dropped_column_does_not_come_back_after_its_snapshots_have_expired(place: IcebergPlace) -> None:
    """Dropping the newest column makes an earlier schema current again, with its earlier id."""
    wide = Columns((*COLUMNS, *Columns.of({"x": "BIGINT"})))
    destination, old = begun(place), {"id": 1, "text": "a", "x": 111}
    destination.commit(batch(place, destination.ledger()[1], {0: 2}))
    destination.commit(batch(place, destination.ledger()[1], {0: 4}, wide, old))
    with place.iceberg().update_schema() as update:
        update.delete_column("x")
    destination.commit(batch(place, destination.ledger()[1], {0: 6}))
    expire_all_but_the_current(place)
    with pytest.raises(SchemaConflict, match="column x: another program has renamed or dropped it"):
        destination.commit(batch(place, destination.ledger()[1], {0: 8}, wide, {**old, "x": 999}))
    assert len(place.rows()) == 6 and proof(place.open()).ok


def add_fields(place: IcebergPlace, *fields: NestedField) -> None:
    """As a program does that does not edit the name mapping."""
    table = place.iceberg()
    number = 1 + max(schema.schema_id for schema in table.metadata.schemas)
    schema = PyIcebergSchema(*table.schema().fields, *fields, schema_id=number)
    table.catalog.commit_table(table, (), (AddSchemaUpdate(schema=schema), SetCurrentSchemaUpdate(schema_id=number)))


def test_a_column_that_another_program_added_without_its_name(place: IcebergPlace) -> None:
    destination = begun(place)
    destination.commit(batch(place, destination.ledger()[1], {0: 2}))
    inner = StructType(NestedField(101, "a", LongType(), required=False))
    add_fields(place, NestedField(100, "discount", LongType(), required=False), NestedField(102, "s", inner, required=False))
    wide = Columns((*COLUMNS.items, ("discount", BIGINT), ("s", Struct((("a", BIGINT),)))))
    values = {"id": 1, "text": "x", "discount": 5, "s": {"a": 7}}
    destination.commit(batch(place, destination.ledger()[1], {0: 4}, columns=wide, values=values))
    assert [(row["discount"], row["s"]) for row in place.rows()] == [(None, None)] * 2 + [(5, {"a": 7})] * 2
    assert proof(place.open()).ok
    made = place.iceberg().metadata.name_mapping()
    destination.commit(batch(place, destination.ledger()[1], {0: 5}))  # without the column, and nothing is left to change
    assert len(place.rows()) == 5 and place.iceberg().metadata.name_mapping() == made


def test_a_column_that_another_program_added_with_the_name_of_an_earlier_one(place: IcebergPlace) -> None:
    destination = begun(place)
    destination.commit(batch(place, destination.ledger()[1], {0: 2}))
    with place.iceberg().update_schema() as update:
        update.rename_column("text", "note")
    add_fields(place, NestedField(100, "text", StringType(), required=False))
    with pytest.raises(SchemaConflict, match=r"column text: schema\.name-mapping\.default maps this name to another column"):
        destination.commit(batch(place, destination.ledger()[1], {0: 4}))
    assert positions(destination)[0] == 2


def expire_all_but_the_current(place: IcebergPlace) -> None:
    table = place.iceberg()
    for snapshot in table.metadata.snapshots:
        if snapshot.snapshot_id != table.metadata.current_snapshot_id:
            table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()


FOREIGN = pa.table({"id": pa.array([7], pa.int64()), "text": ["foreign"]})


@pytest.mark.parametrize("appends", [1, 3])
def test_expired_snapshots_leave_the_ledger(place: IcebergPlace, appends: int) -> None:
    """Another program appends, and then only its own newest snapshot is kept."""
    destination = loaded(place)
    for _ in range(appends):
        place.iceberg().append(FOREIGN)
    expire_all_but_the_current(place)
    assert positions(place.open()) == {0: 10, 1: 5}
    place.iceberg().append(FOREIGN)
    expire_all_but_the_current(place)
    assert positions(place.open()) == {0: 10, 1: 5}
    destination.commit(batch(place, destination.ledger()[1], {0: 12}))
    assert len(place.rows()) == 18 + appends and proof(destination).ok


@pytest.mark.parametrize("older", [False, True])
def test_a_rollback_stays_one_when_another_program_expires_its_snapshots(place: IcebergPlace, older: bool) -> None:
    """Also in tables of a kpipe that recorded a sequence number beside the copy of the pointers, and no snapshot."""
    destination = begun(place)
    destination.commit(batch(place, destination.ledger()[1], {0: 3}))
    early = place.iceberg().metadata.current_snapshot()
    assert early is not None
    destination.commit(batch(place, destination.ledger()[1], {0: 10}))
    with place.iceberg().manage_snapshots() as change:
        change.rollback_to_snapshot(early.snapshot_id)
    place.iceberg().append(FOREIGN)
    if older:
        with place.iceberg().transaction() as change:
            change.remove_properties("kpipe.ledger.snapshot")
    expire_all_but_the_current(place)
    assert positions(place.open()) == {0: 3, 1: 0}
    destination = place.open()
    destination.commit(batch(place, destination.ledger()[1], {0: 15}))
    assert len(place.rows()) == 16 and positions(place.open()) == {0: 15, 1: 0} and proof(place.open()).ok


@pytest.mark.parametrize("older", [False, True])
def test_as_of_names_only_the_snapshot_that_a_commit_made(
    place: IcebergPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older: bool
) -> None:
    """Later snapshots of kpipe repeat the pointers: a compaction's, and those of other pipelines."""
    if older:  # as kpipe wrote summaries before
        monkeypatch.setattr("resources.destinations.iceberg.table.append", unmarked(append))
    destination: Any = begun(place)
    for end in range(1, 6):
        destination.commit(batch(place, destination.ledger()[1], {0: end}))
    last, seq = place.iceberg().metadata.current_snapshot_id, destination.ledger()[1].seq
    destination.maintain(Limits(min_input_files=2), tmp_path / "scratch")
    begun(place, pipeline="other")
    assert place.iceberg().metadata.current_snapshot_id != last
    known = place.open().snapshots([seq - 1, seq])
    assert {number: item.id for number, item in known.items()}[seq] == last and len(known) == 2
    expire_all_but_the_current(place)
    assert place.open().snapshots([seq - 1, seq]) == {}


def unmarked(real: Any) -> Any:
    def call(change: Any, folder: Any, files: Any, summary: dict[str, str], branch: str) -> None:
        del summary["kpipe.commit"]
        real(change, folder, files, summary, branch)

    return call


def test_an_operator_decides_where_no_metadata_proves_the_ledger(place: IcebergPlace) -> None:
    loaded(place)
    for _ in range(2):
        place.iceberg().append(FOREIGN)
    expire_all_but_the_current(place)
    table = place.iceberg()
    for entry in table.metadata.metadata_log:
        local(entry.metadata_file).unlink()
    with pytest.raises(LedgerMismatch, match="main has no snapshot with kpipe's ledger") as caught:
        place.open().ledger()
    name, number = "kpipe.ledger.snapshot", str(table.metadata.current_snapshot_id)
    assert f"set the table property {name} to {number}" in caught.value.hint
    with table.transaction() as change:
        change.set_properties({name: number})
    destination = place.open()
    assert positions(destination) == {0: 10, 1: 5}
    destination.commit(batch(place, destination.ledger()[1], {0: 12}))
    assert len(place.rows()) == 19 and proof(destination).ok


def test_snapshots_beyond_those_that_are_to_stay_are_expired(place: IcebergPlace) -> None:
    """Commits do not grow slower with those before; the ledger, and all within reach of a rollback, stay."""
    destination = begun(place)
    with place.iceberg().transaction() as change:
        change.set_properties({"history.expire.min-snapshots-to-keep": "5"})
    counts = []
    for end in range(1, 45):
        destination.commit(batch(place, destination.ledger()[1], {0: end}))
        counts.append(len(place.iceberg().metadata.snapshots))
    assert max(counts) <= 5 + 32 and min(counts[-10:]) < 20
    assert len(place.rows()) == 44 and proof(place.open()).ok
    before = place.iceberg().metadata.snapshots[-5]
    with place.iceberg().manage_snapshots() as manage:
        manage.rollback_to_snapshot(before.snapshot_id)
    assert positions(place.open()) == {0: 40, 1: 0} and proof(place.open()).ok
    with place.iceberg().transaction() as change:
        change.remove_properties("history.expire.min-snapshots-to-keep")
    known = len(place.iceberg().metadata.snapshots)
    for end in range(41, 81):
        destination.commit(batch(place, destination.ledger()[1], {0: end}))
    assert len(place.iceberg().metadata.snapshots) == known + 40, "a table that says nothing keeps all"


def test_a_table_that_names_a_class_for_its_files_is_refused(place: IcebergPlace, tmp_path: Path) -> None:
    """The library would import it, from wherever the process finds modules, and call it."""
    destination = begun(place)
    destination.commit(batch(place, destination.ledger()[1], {0: 2}))
    with place.iceberg().transaction() as change:
        change.set_properties({"write.py-location-provider.impl": "pyiceberg.table.locations.SimpleLocationProvider"})
    with pytest.raises(DestinationError, match=r"the property write\.py-location-provider\.impl"):
        place.open().ledger()


def test_catalogue_that_is_gone_is_noticed(place: IcebergPlace) -> None:
    destination = loaded(place)
    (place.folder / "catalog.db").unlink()
    with pytest.raises(LedgerMismatch, match="table tweets is missing"):
        place.open().ledger()
    with pytest.raises(LedgerMismatch):
        destination.columns()


def test_duckdb_reads_it(place: IcebergPlace) -> None:
    loaded(place)
    rows = place.iceberg().scan().to_arrow()
    with duckdb.connect() as connection:
        connection.register("lake", rows)
        assert connection.sql("SELECT count(*), max(id) FROM lake").fetchall() == [(15, 1_000_004)]


def test_missing_package_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = {"brokers": "b:9092", "topic": "t"}
    definition: dict[str, Any] = {"name": "t", "source": source, "into": {"type": "iceberg", "table": "t"}}
    pipeline = Pipeline.model_validate(definition)
    assert "Iceberg" in open_destination(pipeline, Home.at(tmp_path)).describe()
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog.sql", None)
    for name in [name for name in sys.modules if name.startswith("resources.destinations.iceberg")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(NotAvailable, match="pyiceberg"):
        open_destination(pipeline, Home.at(tmp_path))


# -- the library


def test_stale_commits_are_tried_again_by_the_library_and_not_by_ours(place: IcebergPlace) -> None:
    """Finding 1: two handles that both saw one state both land. Ours is stopped before the second try."""
    begun(place)
    stale, other = place.iceberg(), place.iceberg()
    other.add_files([], snapshot_properties={"who": "other"})
    stale.add_files([], snapshot_properties={"who": "stale"})
    assert [s.summary.additional_properties.get("who") for s in place.iceberg().metadata.snapshots][-2:] == ["other", "stale"]
    stale, count = place.iceberg(), len(place.iceberg().metadata.snapshots) + 1
    place.iceberg().add_files([], snapshot_properties={"who": "other"})
    change = OneAttempt(stale)
    change.add_files([], snapshot_properties={"who": "ours"}, check_duplicate_files=False)
    with pytest.raises(Exception, match="another commit created a newer snapshot"):
        change.commit_transaction()
    assert len(place.iceberg().metadata.snapshots) == count


def test_what_a_commit_does_to_metadata_is_computed_once_for_each_change(
    place: IcebergPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library does it whenever it looks, each time with a copy of all snapshots. Expiring is a commit like any other."""
    destination, real, asked = loaded(place), pyiceberg.table.update_table_metadata, list[tuple[Any, Any]]()

    def counted(base: Any, updates: Any, *more: Any) -> Any:
        asked.append((base, updates))  # kept, so that no other one gets their place in memory
        return real(base, updates, *more)

    def twice() -> int:
        return len(asked) - len({(id(base), id(updates)) for base, updates in asked})

    monkeypatch.setattr(pyiceberg.table, "update_table_metadata", counted)
    place.iceberg().add_files([])
    assert twice() > 5, "the library does it once: ours is not needed any more"
    with place.iceberg().transaction() as change:
        change.set_properties({"history.expire.min-snapshots-to-keep": "1"})
    for known in range(len(place.iceberg().metadata.snapshots), 34):
        asked.clear()
        destination.commit(batch(place, destination.ledger()[1], {0: known + 20}))
        assert asked and not twice()
    assert len(place.iceberg().metadata.snapshots) < 33, "some have expired"
    assert proof(place.open()).ok


def test_false_conflict_leaves_the_table_readable(place: IcebergPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding 2: the catalogue lands a commit and answers with a conflict. The batch is found, and nothing was deleted."""
    destination, real = loaded(place), SqlCatalog.commit_table

    def lying(*arguments: Any) -> Any:
        monkeypatch.setattr(SqlCatalog, "commit_table", real)
        real(*arguments)
        raise CommitFailedException("injected: landed, and answered as a conflict")

    commit = batch(place, destination.ledger()[1], {0: 20})
    monkeypatch.setattr(SqlCatalog, "commit_table", lying)
    assert destination.commit(commit).seq == 3
    assert len(place.rows()) == 25 and proof(place.open()).ok


def test_a_table_that_is_partitioned_by_a_field_of_a_struct_is_rejected(place: IcebergPlace) -> None:
    """kpipe computes the partitions of columns only: it would write all rows to the partition NULL."""
    city = NestedField(3, "city", StringType(), required=False)
    schema = PyIcebergSchema(
        NestedField(1, "id", LongType(), required=False), NestedField(2, "address", StructType(city), required=False)
    )
    lake = place.lake()
    catalog = lake._opened()
    catalog.create_namespace_if_not_exists("default")
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "city"))
    catalog.create_table("default.tweets", schema, location=location(lake._table), partition_spec=spec)
    with pytest.raises(DestinationError, match=r"not supported: a partition transform other than .* of a top-level column"):
        begun(place, 1)


def test_entries_have_no_bounds_of_numbers_that_may_be_nan(place: IcebergPlace, caplog: pytest.LogCaptureFixture) -> None:
    """Iceberg's bounds leave out NaN, which is greater than every number: readers would skip the file."""
    destination = begun(place, 1)
    columns = Columns.of({"id": "BIGINT", "d": "DOUBLE", "s": "STRUCT(f FLOAT, n BIGINT)"})
    rows = [{"id": at, "d": d, "s": {"f": d, "n": 1}} for at, d in enumerate((3.0, float("nan"), None))]
    commit = batch(place, destination.ledger()[1], {0: 3}, columns, rows[0])
    coordinates = {"_kafka_partition": 0, "_kafka_timestamp": 0}
    file = place.staged([{**row, **coordinates, "_kafka_offset": at} for at, row in enumerate(rows)], columns)
    destination.commit(commit.writing(files=(file,)))
    table = place.iceberg()
    names = {table.schema().find_field(name).field_id: name for name in ("id", "d", "s.f", "s.n")}
    (task,) = table.scan().plan_files()
    assert "id" in {names.get(number) for number in task.file.lower_bounds}
    assert not {"d", "s.f"} & {names.get(number) for number in (*task.file.lower_bounds, *task.file.upper_bounds)}
    assert "id" in {names.get(number) for number in task.file.null_value_counts} and not caplog.records
    assert table.scan(row_filter="d is nan").to_arrow()["id"].to_pylist() == [1]
    assert proof(destination).ok
