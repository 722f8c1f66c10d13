"""The Delta destination beyond the suite: other hands on the table, kills at each step, and what readers find."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kpipe import failpoints
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import DestinationError, Fenced, LedgerMismatch, NotAvailable, SchemaConflict
from kpipe.failpoints import POINTS
from kpipe.run_events import Seen
from kpipe.schema.columns import Columns
from resources.destinations import open_destination
from resources.destinations.delta import DeltaLake
from resources.destinations.lakehouse import LakeDestination
from resources.destinations.lakehouse.folder import LocalFolder
from resources.home import Home
from resources.testing.place import COLUMNS, DEAD_LETTERS, batch, begin, source
from resources.testing.state import begun, loaded, positions, proof
from tests.resources.destinations.lake_place import DeltaPlace, killed

STEPS = [point for point in POINTS if point.startswith("commit.")] + ["readback"]


@pytest.fixture
def place(tmp_path: Path) -> DeltaPlace:
    return DeltaPlace(tmp_path)


# -- kills


@pytest.mark.parametrize("point", STEPS)
def test_killed_at_each_step_of_a_commit(place: DeltaPlace, point: str) -> None:
    """Rows and dead letters of a batch are there together or not at all, and the next try of the batch ends as it should."""
    destination = loaded(place, dead=[(0, 3)])
    commit = batch(place, destination.ledger()[1], {0: 20, 1: 9}, dead=[(0, 15), (1, 7)])
    killed(place, commit, point)
    fresh = place.open()
    landed = point in ("commit.after", "readback")
    assert positions(fresh) == ({0: 20, 1: 9} if landed else {0: 10, 1: 5})
    assert (len(place.rows()), place.dead_letters(), len(fresh.view("errors"))) == ((26, 3, 3) if landed else (14, 1, 1))
    assert proof(fresh).ok, proof(fresh).problems
    assert fresh.commit(commit).seq == 3
    assert (len(place.rows()), place.dead_letters(), len(fresh.view("errors"))) == (26, 3, 3)
    assert proof(fresh).ok and fresh.ledger()[1].seq == 3


def test_killed_between_dead_letters_and_rows_another_plan_goes_on(place: DeltaPlace) -> None:
    """Dead letters that were already in the table's folder do not come back with the batch that replaces theirs."""
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 10}, dead=[(0, 2)])
    killed(place, commit, "commit.before")
    assert len(list((place.own() / "dead").iterdir())) == 1, "it is killed behind the files of dead letters"
    fresh = place.open()
    assert (place.dead_letters(), list(fresh.view("errors"))) == (0, [])
    fresh.commit(batch(place, fresh.ledger()[1], {0: 4}, dead=[(0, 2)]))
    assert [row["offset"] for row in fresh.view("errors")] == [2]
    with pytest.raises(Fenced):
        destination.commit(commit)
    assert (place.dead_letters(), len(place.rows())) == (1, 3) and proof(fresh).ok


def test_late_before_the_entry_the_successor_wins(place: DeltaPlace) -> None:
    """As a process does that was stopped right before it wrote its entry, and goes on when another one has committed."""
    zombie = begun(place)
    late = batch(place, zombie.ledger()[1], {0: 10, 1: 5})
    successor = place.open()
    overtaking = batch(place, successor.ledger()[1], {0: 4})

    def overtake(point: str) -> None:
        if point == "commit.before":
            failpoints.arm(None)
            successor.commit(overtaking)

    failpoints.arm(overtake)
    with pytest.raises(Fenced):
        zombie.commit(late)
    assert len(place.rows()) == 4 and positions(successor) == {0: 4, 1: 0} and proof(successor).ok


# -- other hands on the table


def test_entries_that_are_cleaned_up_while_a_destination_is_open(place: DeltaPlace) -> None:
    """The first version that it loaded is no longer in the log after another program's checkpoint."""
    destination = begun(place)
    for end in (2, 4, 6):
        destination.commit(batch(place, destination.ledger()[1], {0: end}))
    place.delta().create_checkpoint()
    for version in (0, 1):
        (place.folder / "tweets" / "_delta_log" / f"{version:020}.json").unlink()
    destination.commit(batch(place, destination.ledger()[1], {0: 8}))
    assert len(place.rows()) == 8 and proof(destination).ok


def test_the_log_is_not_replayed_at_each_commit(place: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    destination: Any = begun(place)
    destination.commit(batch(place, destination.ledger()[1], {0: 2}))
    asked = list[str]()

    class Counted:
        def __init__(self, table: DeltaTable) -> None:
            self._table = table

        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return getattr(self._table, name)

    state = destination.lake._last
    monkeypatch.setattr(state, "_base", Counted(state._base))
    for end in (4, 6):
        destination.commit(batch(place, destination.ledger()[1], {0: end}))
    assert "transaction_version" not in asked and len(place.rows()) == 6


def test_foreign_commits_between_are_gone_along_with(place: DeltaPlace) -> None:
    """A compaction, and an append of somebody else, while a commit is about to write its entry: it looks again and lands."""
    destination = loaded(place)
    destination.commit(batch(place, destination.ledger()[1], {0: 12}))
    calls = []

    def meddle(point: str) -> None:
        if point == "commit.before" and len(calls) < 2:
            calls.append(point)
            table = place.delta()
            if len(calls) == 1:
                table.optimize.compact()
            else:
                rows = pa.table({"id": pa.array([7], pa.int64()), "text": ["foreign"]})
                write_deltalake(str(place.folder / "tweets"), rows, mode="append", schema_mode="merge")

    failpoints.arm(meddle)
    assert destination.commit(batch(place, destination.ledger()[1], {0: 15})).seq == 4
    failpoints.arm(None)
    assert len(calls) == 2 and len(place.rows()) == 21 and proof(destination).ok


def test_restored_table_is_noticed_and_going_forward_again_is_fine(place: DeltaPlace) -> None:
    destination = loaded(place)
    before = place.delta().version()
    destination.commit(batch(place, destination.ledger()[1], {0: 20}))
    after = place.delta().version()
    place.delta().restore(before)
    for act in (destination.ledger, destination.columns, place.open().recount):
        with pytest.raises(LedgerMismatch, match=f"was restored to version {before}"):
            act()
    place.delta().restore(after)
    assert positions(destination) == {0: 20, 1: 5} and proof(destination).ok
    destination.commit(batch(place, destination.ledger()[1], {0: 22}))
    assert len(place.rows()) == 27


def test_a_restore_to_a_restored_version_does_not_hide_it(place: DeltaPlace) -> None:
    destination = loaded(place)
    before, foreign = place.delta().version(), pa.table({"id": pa.array([7], pa.int64()), "text": ["foreign"]})
    destination.commit(batch(place, destination.ledger()[1], {0: 20}))
    after = place.delta().version()
    place.delta().restore(before)
    write_deltalake(str(place.folder / "tweets"), foreign, mode="append", schema_mode="merge")
    place.delta().restore(after + 1)  # the state without the rows, by its later number
    with pytest.raises(
        LedgerMismatch, match=f"restored to version {after + 1}, without .* last commit .version {after}"
    ) as caught:
        destination.ledger()
    assert f"restore it to version {after}; or" in caught.value.hint
    place.delta().restore(after)
    write_deltalake(str(place.folder / "tweets"), foreign, mode="append", schema_mode="merge")
    place.delta().restore(after + 4)  # a version with the rows, and others
    assert positions(destination) == {0: 20, 1: 5} and proof(destination).ok


def test_a_restore_to_a_time_is_refused_until_a_version_is_named(place: DeltaPlace) -> None:
    """The log has the time as the operator wrote it, and copies of a folder have other times: no version can be derived."""
    destination = loaded(place)
    made, foreign = place.delta().version(), pa.table({"id": pa.array([7], pa.int64()), "text": ["foreign"]})
    time.sleep(0.01)
    then = datetime.now(UTC)
    time.sleep(0.01)
    write_deltalake(str(place.folder / "tweets"), foreign, mode="append", schema_mode="merge")
    place.delta().restore(then)
    message = f"was restored to a point in time: the log does not show .* last commit .version {made}"
    for act in (destination.ledger, place.open().ledger):
        with pytest.raises(LedgerMismatch, match=message) as caught:
            act()
        assert f"restore it by number to version {made}; or" in caught.value.hint
    place.delta().restore(made)
    assert positions(destination) == {0: 10, 1: 5} and proof(place.open()).ok


def test_entries_of_others_are_read_once(place: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    destination, read = loaded(place), []
    foreign = pa.table({"id": pa.array([7], pa.int64()), "text": ["foreign"]})

    def append(times: int) -> int:
        for _ in range(times):
            write_deltalake(str(place.folder / "tweets"), foreign, mode="append", schema_mode="merge")
        return int(place.delta().version())

    def counted(folder: LocalFolder, name: str) -> bytes | None:
        read.append(name)
        return whole(folder, name)

    newest, whole = append(5), LocalFolder.read
    destination.ledger()
    monkeypatch.setattr(LocalFolder, "read", counted)
    entries = [f"_delta_log/{version:020}.json" for version in range(newest + 4)]
    destination.ledger()
    assert [name for name in read if name in entries] == [entries[newest + 1]]  # it does not exist yet
    read.clear()
    assert append(2) == newest + 2
    destination.ledger()
    assert [name for name in read if name in entries] == entries[newest + 1 : newest + 4]
    place.delta().restore(newest - 5)
    destination.ledger()
    place.delta().restore(0)
    with pytest.raises(LedgerMismatch, match="was restored to version 0"):
        destination.ledger()


def test_erased_transactions_are_no_fresh_start(place: DeltaPlace) -> None:
    """The same folder with a new log, as after a table was written over by CREATE OR REPLACE."""
    destination = loaded(place)
    for entry in (place.folder / "tweets" / "_delta_log").iterdir():
        entry.unlink()
    with pytest.raises(LedgerMismatch, match="table tweets is missing"):
        destination.ledger()
    write_deltalake(str(place.folder / "tweets"), pa.table({"id": [1]}))
    with pytest.raises(LedgerMismatch, match="has lost its reference to the ledger"):
        destination.ledger()


def test_dropped_table_is_noticed_by_the_home(place: DeltaPlace) -> None:
    destination = loaded(place)
    seen = Seen(*destination.ledger()[0:1], destination.ledger()[1].seq)
    place.drop_table()
    uid, ledger = destination.ledger()
    assert uid != seen.uid and ledger.seq < seen.seq


def test_record_that_is_missing_is_an_error(place: DeltaPlace) -> None:
    destination = loaded(place)
    for path in place.own().glob("*.json"):
        if path.name != "state.json":
            path.unlink()
    with pytest.raises(LedgerMismatch, match="is missing"):
        destination.ledger()


def test_edited_lane_of_the_log_is_noticed(place: DeltaPlace) -> None:
    destination = loaded(place)
    lane = json.dumps(["cluster-1", "topic-id-1", "tweets", 0, 0], separators=(",", ":"))
    place.say({f"kpipe:tweets:lane:{lane}": 3})
    with pytest.raises(LedgerMismatch, match="changed by hand"):
        destination.ledger()


def test_vacuum_leaves_the_ledger_alone(place: DeltaPlace) -> None:
    destination = loaded(place, dead=[(0, 1)])
    destination.commit(batch(place, destination.ledger()[1], {0: 12}))
    place.delta().optimize.compact()
    place.delta().vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    assert proof(place.open()).ok and len(place.rows()) == 16 and place.dead_letters() == 1
    place.open().commit(batch(place, destination.ledger()[1], {0: 14}))


@pytest.mark.parametrize(
    "settings",
    [
        {"delta.setTransactionRetentionDuration": "interval 1 days"},
        {"delta.columnMapping.mode": "name", "delta.minReaderVersion": "2", "delta.minWriterVersion": "5"},
        {"delta.enableInCommitTimestamps": "true"},
    ],
)
def test_table_that_would_not_keep_the_promise_is_refused(place: DeltaPlace, settings: dict) -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    try:
        DeltaTable.create(str(place.folder / "tweets"), schema, configuration=settings)
    except Exception as error:
        pytest.skip(f"this version of deltalake cannot make it: {error}")
    with pytest.raises(DestinationError, match="not supported: "):
        place.open().commit(begin("tweets", [0]))


def test_column_that_must_not_be_null_is_refused(place: DeltaPlace) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    DeltaTable.create(str(place.folder / "tweets"), schema)
    with pytest.raises(DestinationError, match="not supported: a NOT NULL column"):
        place.open().commit(begin("tweets", [0]))


def test_table_that_was_there_before(place: DeltaPlace) -> None:
    """Its columns stay, with their spelling; ours come behind; values are cast to its types where that is exact."""
    rows = pa.table({"ID": pa.array([1], pa.decimal128(20, 0)), "note": ["old"]})
    write_deltalake(str(place.folder / "tweets"), rows, description="mine")
    destination = begun(place)
    assert destination.columns() == Columns.of({"ID": "DECIMAL(20,0)", "note": "VARCHAR"})
    destination.commit(batch(place, destination.ledger()[1], {0: 3}))
    assert destination.columns() == Columns.of({"ID": "DECIMAL(20,0)", "note": "VARCHAR", "text": "VARCHAR"})
    assert sorted(int(row["ID"]) for row in place.rows()) == [0, 1, 1, 2]
    assert place.delta().metadata().description == "mine" and proof(destination).ok
    with pytest.raises(SchemaConflict, match="column note"):
        ledger = destination.ledger()[1]
        destination.commit(batch(place, ledger, {0: 4}, Columns.of({"note": "BIGINT"}), {"note": 1}))


# -- types


def test_types_that_delta_has_not_got(place: DeltaPlace) -> None:
    columns = Columns.of({"u": "UUID", "j": "JSON[]", "t": "TIMESTAMP", "f": "FLOAT", "s": "SMALLINT", "d": "DATE"})
    values = {"u": "6f1c5f9e-0000-4000-8000-000000000000", "j": ["{}", "1"], "t": 1, "f": 0.5, "s": -3, "d": None}
    destination = begun(place)
    first = destination.ledger()[1]
    destination.commit(batch(place, first, {0: 2}))  # TIMESTAMP comes later: the table's protocol is raised with it
    destination.commit(
        batch(place, destination.ledger()[1], {0: 3}, Columns((*COLUMNS, *columns)), {"id": 1, "text": "", **values})
    )
    assert destination.columns() == Columns((*COLUMNS, *columns))
    assert place.delta().protocol().min_writer_version == 7
    assert len(place.rows()) == 3 and proof(destination).ok
    types = {field.name: str(field.type) for field in place.delta().schema().fields}
    assert types["u"] == 'PrimitiveType("string")' and types["t"] == 'PrimitiveType("timestamp_ntz")'


# -- readers


def test_duckdb_reads_it_and_skips_files_by_their_bounds(place: DeltaPlace) -> None:
    destination = loaded(place)
    destination.commit(batch(place, destination.ledger()[1], {0: 20}))
    lake = place.delta().to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("lake", lake)
        assert connection.sql("SELECT count(*), max(id) FROM lake").fetchall() == [(25, 1_000_004)]
    adds = pa.table(place.delta().get_add_actions(flatten=True)).to_pylist()
    bounds = {(row["min.id"], row["max.id"], row["null_count.text"], row["num_records"]) for row in adds}
    assert bounds == {(0, 9, 0, 10), (1_000_000, 1_000_004, 0, 5), (10, 19, 0, 10)}
    assert place.delta().to_pyarrow_table(filters=[("id", ">=", 1_000_003)]).num_rows == 2


def test_log_says_who_wrote_it(place: DeltaPlace) -> None:
    loaded(place)
    newest = place.delta().history(1)[0]
    assert (newest["operation"], newest["engineInfo"]) == ("WRITE", "kpipe")
    assert json.loads(newest["kpipe"])["pipeline"] == "tweets"


# -- growth


def test_history_moves_into_segments_and_stays_whole(place: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments, their merging, what is removed, what stays, and publications that are given out late."""
    for name, value in {"_TAIL_COMMITS": 3, "_FANOUT": 3}.items():
        monkeypatch.setattr(f"resources.destinations.lakehouse.commit_log.{name}", value)
    monkeypatch.setattr(DeltaLake, "kept", 4)
    destination, commits = begun(place), []
    for end in range(1, 41):
        commits.append(batch(place, destination.ledger()[1], {0: end}, dead=[(0, end - 1)] if end % 10 == 0 else []))
        assert destination.commit(commits[-1]).seq == end + 1
        if end == 25:
            mine = list(destination.unpublished())
            assert [p.batch for p in mine] == [commit.id for commit in commits]
            assert list(destination.published(mine[:20])) == [p.batch for p in mine[:20]]
    waiting = [p.batch for p in place.open().unpublished()]
    assert waiting == [commit.id for commit in commits[20:]]
    assert list(destination.published(mine[:1])) == []
    assert [entry.range.start for entry in destination.history()] == list(range(40))
    assert [row["seq"] for row in destination.view("batches_summary", 3)] == [41, 40, 39]
    assert len(destination.view("batches")) == 40 and len(destination.view("errors", 2)) == 2
    assert proof(destination).ok
    assert destination.commit(commits[0]).seq == 2
    names = [path.name for path in place.own().iterdir() if path.is_file()]
    assert len([name for name in names if name.endswith(".json.gz")]) < 14
    assert len([name for name in names if name.endswith(".json")]) < 16


# -- definition


def definition(**into: Any) -> Pipeline:
    return Pipeline.model_validate(
        {"name": "tweets", "source": {"brokers": "localhost:9092", "topic": "tweets"}, "into": {"table": "tweets", **into}}
    )


def test_where_it_lies(tmp_path: Path) -> None:
    home = Home.at(tmp_path)
    assert str(tmp_path / "data" / "delta" / "tweets") in open_destination(definition(type="delta"), home).describe()
    for name in (tmp_path / "x", f"file://{tmp_path}/x"):
        found = open_destination(definition(type="delta", database=str(name)), home)
        assert isinstance(found, LakeDestination) and found.lake.place == str(tmp_path / "x" / "tweets")
    with pytest.raises(NotAvailable, match="hdfs://"):
        open_destination(definition(type="delta", database="hdfs://host/x"), home)


def test_missing_package_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "deltalake", None)
    for name in [name for name in __import__("sys").modules if name.startswith("resources.destinations.delta")]:
        monkeypatch.delitem(__import__("sys").modules, name)
    with pytest.raises(NotAvailable, match="deltalake") as caught:
        open_destination(definition(type="delta"), Home.at(tmp_path))
    assert "kpipe[delta]" in str(caught.value)


def test_files_are_durable_before_anything_names_them(place: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file and folder is synced before the entry has its name, and the log's folder afterwards."""
    destination, said = begun(place), []
    real_sync, real_link = os.fsync, os.link

    def noted_sync(handle: int) -> None:
        said.append(os.path.realpath(f"/proc/self/fd/{handle}"))
        real_sync(handle)

    def noted_link(old: Any, new: Any) -> None:
        said.append(f"link {new}")
        real_link(old, new)

    commit = batch(place, destination.ledger()[1], {0: 10}, dead=[(0, 1)])
    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "link", noted_link)
    destination.commit(commit)
    table = str(place.folder / "tweets")
    entry = next(at for at, what in enumerate(said) if what.startswith(f"link {table}/_delta_log/"))
    before = said[:entry]
    assert {table, f"{place.own()}/dead", str(place.own())} <= set(before)
    assert any(what.startswith(f"{table}/_delta_log/.") for what in before)
    assert said[entry + 1] == f"{table}/_delta_log"


def test_delta_lake_names_its_place(tmp_path: Path) -> None:
    assert DeltaLake(tmp_path / "a").place == str(tmp_path / "a")
    assert DEAD_LETTERS and source(0)
