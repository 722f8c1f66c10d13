"""Change events in tables of a lake: values that an update left out, and TRUNCATE, against DuckDB, races and kills."""

from __future__ import annotations

import multiprocessing
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kpipe import failpoints
from kpipe.batch.batch import Commit
from kpipe.definition.lakehouse_options import Part
from kpipe.errors import SchemaConflict
from kpipe.schema.columns import Columns
from resources.destinations.delta import DeltaLake
from resources.destinations.delta.live_files import live_adds
from resources.destinations.iceberg import IcebergLake, SQLite
from resources.destinations.lakehouse.folder import LocalFolder
from resources.testing.kept_values import RULE, Change, changed
from resources.testing.keyed import begun
from resources.testing.lake import LakePlace
from resources.testing.place import Place, begin
from resources.testing.state import proof
from tests.resources.destinations.lake_place import DeltaPlace, IcebergPlace
from tests.resources.destinations.place import DuckDBPlace

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.resources.destinations.lake_place"])

KEPT = ("Big Text", "part", "all")
COLUMNS = Columns.of({"id": "BIGINT", "Big Text": "VARCHAR", "part": "VARCHAR", "all": "STRUCT(name VARCHAR, tags VARCHAR[])"})
WIDER = Columns((*COLUMNS, *Columns.of({"late": "VARCHAR"})))
PARTS = (Part("part"),)


class DividedDelta(DeltaPlace):
    def lake(self, table: str = "tweets") -> DeltaLake:
        return DeltaLake(self.folder / table, PARTS)


class DividedIceberg(IcebergPlace):
    def lake(self, table: str = "tweets") -> IcebergLake:
        return IcebergLake(LocalFolder(self.folder), table, SQLite(self.folder), parts=PARTS)


PLACES: dict[str, type[LakePlace]] = {
    "delta": DeltaPlace, "iceberg": IcebergPlace, "divided delta": DividedDelta, "divided iceberg": DividedIceberg,
}  # fmt: skip


@pytest.fixture(params=["delta", "iceberg"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> LakePlace:
    return PLACES[request.param](tmp_path)


@pytest.fixture
def armed() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Do something once, before the next commit is sent."""

    def arm(act: Callable[[], None]) -> None:
        def reached(point: str) -> None:
            if point == "commit.before":
                failpoints.arm(None)
                act()

        failpoints.arm(reached)

    yield arm
    failpoints.arm(None)


def history(seed: int) -> Iterator[tuple[Columns, list[Change], dict[int, dict[str, Any]]]]:
    """Batches of one partition, and the rows that are there after each."""
    chance, rows, at = random.Random(seed), dict[int, dict[str, Any]](), 0
    for number in range(6):
        columns = WIDER if number > 2 else COLUMNS
        writes: list[Change] = []
        for _ in range(chance.randint(1, 16)):
            key, what = chance.randint(0, 7), chance.random()
            if what < 0.1:
                writes.append((0, at, -1, None, set()))
                rows.clear()
            elif what < 0.3:
                writes.append((0, at, key, None, set()))
                rows.pop(key, None)
            else:
                many = [None, {"name": None, "tags": None}, {"name": f"n{at}", "tags": [f"t{at}", None]}]
                row = {"Big Text": f"t{at}" * 50, "part": chance.choice("ab"), "all": chance.choice(many)}
                row |= {"late": f"l{at}"} if columns is WIDER else {}
                kept = {name for name in row if key in rows and chance.random() < 0.5}
                rows[key] = {**row, **{name: rows[key].get(name) for name in kept}}
                writes.append((0, at, key, row, kept))
            at += 1
        yield columns, writes, rows


def read(place: Place) -> dict[int, dict[str, Any]]:
    return {row["id"]: {name: row.get(name) for name in WIDER.names()[1:]} for row in place.rows()}


@pytest.mark.parametrize(
    "kind", ["divided delta", "divided iceberg", *(pytest.param(kind, marks=pytest.mark.chaos) for kind in ("delta", "iceberg"))]
)
def test_a_lake_and_duckdb_end_with_the_same_rows(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nested columns, columns that come later, and a value that is left out of the partition's column."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # else a warning names a faster package
    (tmp_path / "database").mkdir()
    lake, database = PLACES[kind](tmp_path), DuckDBPlace(tmp_path / "database")
    for place in (lake, database):
        begun(place, RULE, 1)
    for columns, writes, rows in history(11):
        landed = []
        for place in (lake, database):
            destination = place.open(rule=RULE)
            ledger = destination.ledger()[1]
            landed.append(destination.commit(changed(place, ledger, writes, columns=columns)).commit.totals)
        assert landed[0] == landed[1]
        expected = {key: {**dict.fromkeys(WIDER.names()[1:]), **row} for key, row in rows.items()}
        assert read(lake) == read(database) == expected
    assert proof(lake.open(rule=RULE)).ok
    if isinstance(lake, DeltaPlace):
        frame = polars.scan_delta(str(lake.folder / "tweets"))
    else:
        assert isinstance(lake, IcebergPlace)
        frame = polars.scan_iceberg(lake.iceberg())
    found = frame.select("id", "Big Text", "late").collect().rows()
    assert sorted(found) == sorted((key, row["Big Text"], row["late"]) for key, row in expected.items())


def test_after_a_lost_race_the_values_are_those_of_the_winner(place: LakePlace, armed: Any) -> None:
    """Another pipeline replaces the row after its value was read, before the commit; then it adds one before a TRUNCATE."""
    row = {"Big Text": "first", "raw": None, "n": 1}
    destination = begun(place, RULE, 1)
    destination.commit(changed(place, destination.ledger()[1], [(0, at, at, row, set()) for at in range(3)]))
    other = place.open("other", rule=RULE)
    other.commit(begin("other", [0]))

    def commit(first: int, key: int, text: str) -> Callable[[], None]:
        writes: list[Change] = [(0, first, key, {**row, "Big Text": text}, set())]
        return lambda: (other.commit(changed(place, other.ledger()[1], writes, pipeline="other")), None)[1]

    armed(commit(0, 1, "winner"))
    destination.commit(changed(place, destination.ledger()[1], [(0, 3, 1, {**row, "n": 2}, {"Big Text"})]))
    assert {found["id"]: (found["Big Text"], found["n"]) for found in place.rows()} == {
        0: ("first", 1), 1: ("winner", 2), 2: ("first", 1),
    }  # fmt: skip
    armed(commit(1, 9, "new"))
    emptying = changed(place, destination.ledger()[1], [(0, 4, -1, None, set()), (0, 5, 7, row, set())])
    with pytest.raises(SchemaConflict, match="also has rows of pipeline other"):
        destination.commit(emptying)
    assert sorted(found["id"] for found in place.rows()) == [0, 1, 2, 9]
    other.commit(changed(place, other.ledger()[1], [(0, 2, 9, None, set())], pipeline="other"))
    assert destination.commit(emptying).commit.totals.deleted == 3 and [found["id"] for found in place.rows()] == [7]
    assert proof(destination).ok and proof(other).ok


def test_values_are_read_from_files_of_other_programs(place: LakePlace) -> None:
    """Their files have field ids (Iceberg), and lack columns."""
    row = {"Big Text": "a", "raw": b"r", "n": 1}
    destination = begun(place, RULE, 1)
    destination.commit(changed(place, destination.ledger()[1], [(0, 0, 1, row, set())]))
    rows = pa.table({"id": pa.array([2, 3]), "Big Text": ["two", None]})
    if isinstance(place, DeltaPlace):
        write_deltalake(str(place.folder / "tweets"), rows, mode="append", schema_mode="merge")
    else:
        assert isinstance(place, IcebergPlace)
        place.iceberg().append(rows)
    kept = {"Big Text", "raw"}
    writes: list[Change] = [(0, at, at, {**row, "n": at}, kept) for at in (1, 2, 3)]
    assert destination.commit(changed(place, destination.ledger()[1], writes)).commit.totals.updated == 3
    found = {item["id"]: (item["Big Text"], item["raw"], item["n"]) for item in place.rows()}
    assert found == {1: ("a", b"r", 1), 2: ("two", None, 2), 3: (None, None, 3)} and proof(destination).ok


def _commit(place: LakePlace, commit: Commit, fault: str) -> None:
    failpoints.arm(failpoints.Fault(fault))
    place.open(rule=RULE).commit(commit)


KILLS = [(kind, point) for kind in ("delta", "iceberg") for point in ("data", "ledger", "history", "before", "after")]
ALWAYS = (("delta", "before"), ("iceberg", "after"))


@pytest.mark.parametrize(
    ("kind", "point"), [kill if kill in ALWAYS else pytest.param(*kill, marks=pytest.mark.chaos) for kill in KILLS]
)
def test_killed_anywhere_it_lands_once(tmp_path: Path, kind: str, point: str) -> None:
    place = PLACES[kind](tmp_path)
    row = {"Big Text": "old", "raw": b"r", "n": 1}
    destination = begun(place, RULE, 1)
    destination.commit(changed(place, destination.ledger()[1], [(0, at, at, row, set()) for at in range(4)]))
    kept: Change = (0, 4, 1, {**row, "n": 2}, {"Big Text"})
    writes: list[Change] = [kept, (0, 5, 2, None, set())]
    commit = changed(place, destination.ledger()[1], writes)
    emptied = changed(
        place,
        destination.ledger()[1].after(commit.changes, commit.id),
        [(0, 6, -1, None, set()), (0, 7, 1, row, set()), (0, 8, 1, {**row, "n": 3}, {"raw"})],
    )
    for batch, counts, expected in (
        (commit, (0, 1, 1), {0: ("old", 1), 1: ("old", 2), 3: ("old", 1)}),
        (emptied, (1, 1, 3), {1: ("old", 3)}),
    ):
        before = place.rows()
        process = _processes.Process(target=_commit, args=(place, batch, f"commit.{point}:1:kill"))
        process.start()
        process.join(300)
        assert process.exitcode == -signal.SIGKILL
        assert (place.rows() == before) == (point != "after")
        done = place.open(rule=RULE).commit(batch).commit.totals
        assert (done.inserted, done.updated, done.deleted) == counts
        assert {found["id"]: (found["Big Text"], found["n"]) for found in place.rows()} == expected
    assert bytes(place.rows()[0]["raw"]) == b"r" and proof(destination).ok


def files(place: LakePlace) -> int:
    """Files of rows and of deletes in the newest version, as others count them."""
    if isinstance(place, DeltaPlace):
        return len(live_adds(LocalFolder(place.folder / "tweets"), place.delta().version()))
    assert isinstance(place, IcebergPlace)
    snapshot = place.iceberg().current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    said = [int(snapshot.summary[name] or 0) for name in ("total-data-files", "total-delete-files")]
    assert place.iceberg().inspect.files().num_rows == sum(said)
    return sum(said)


def test_a_truncate_removes_the_files(place: LakePlace) -> None:
    """Those of which rows were deleted before, too; a file of the same commit stays, and so do its rows."""
    row = {"Big Text": "a", "raw": None, "n": 1}
    destination = begun(place, RULE, 1)
    for first, keys in ((0, [1, 2, 3]), (3, [2, 4]), (5, [4])):
        writes: list[Change] = [(0, first + at, key, row, set()) for at, key in enumerate(keys)]
        destination.commit(changed(place, destination.ledger()[1], writes))
    assert files(place) > 2
    more: list[Change] = [(0, 6, 3, row, {"Big Text"}), (0, 7, -1, None, set()), (0, 8, 8, row, set()), (0, 9, 9, row, set())]
    done = destination.commit(changed(place, destination.ledger()[1], more))
    assert (done.commit.totals.deleted, done.commit.totals.updated, done.commit.totals.inserted) == (4, 1, 2)
    assert files(place) == 1 and [found["id"] for found in place.rows()] == [8, 9]
    writes = [(0, 10, 8, {**row, "Big Text": "new"}, {"raw"}), (0, 11, -1, None, set())]
    assert destination.commit(changed(place, destination.ledger()[1], writes)).commit.totals.deleted == 2
    assert files(place) == 0 and place.rows() == [] and proof(destination).ok
    destination.commit(changed(place, destination.ledger()[1], [(0, 12, -1, None, set()), (0, 13, 1, row, set())]))
    assert files(place) == 1 and [found["id"] for found in place.rows()] == [1] and proof(destination).ok
