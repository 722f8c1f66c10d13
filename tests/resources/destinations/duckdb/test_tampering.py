"""Other hands on the file: the ledger erased or edited, the table dropped, refilled or altered, the file replaced.

What kpipe must know to go on is guarded: an error that comes back on every run, and nothing written. Rows belong to the
user: they may be deleted and moved, and `kpipe verify` says what is missing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kpipe import failpoints
from kpipe.batch.batch import Commit
from kpipe.errors import DestinationError, Fenced, KpipeError, LedgerMismatch, SchemaConflict, StagingFailed
from resources.duckdb_engine.file_engine import engine
from resources.duckdb_engine.sandbox import quote
from resources.testing.place import batch, begin
from resources.testing.state import loaded, positions, proof
from tests.resources.destinations.place import DuckDBPlace


@pytest.fixture
def place(tmp_path: Path) -> DuckDBPlace:
    return DuckDBPlace(tmp_path)


def at(point: str, act: Callable[[], object]) -> None:
    """The act comes when the commit reaches that point for the first time."""
    done: list[object] = []

    def reached(name: str) -> None:
        if name == point and not done:
            done.append(act())

    failpoints.arm(reached)


def beside(place: DuckDBPlace, destination: Any, statement: str) -> None:
    """By another hand that does not wait for its turn: while a commit has the file, through the engine that it has it in."""
    database = destination.engine.database
    held = engine(database.path, database.roots)
    if not held._users:
        place.sql(statement)
        return
    with held._main.cursor() as connection:
        connection.execute(f"USE {quote(held._name, 'main')}")
        connection.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM kpipe_ledger WHERE partition = 0",
        "DELETE FROM kpipe_ledger",
        "TRUNCATE kpipe_ledger",
        "UPDATE kpipe_ledger SET next_offset = 3 WHERE partition = 0",
        "UPDATE kpipe_ledger SET next_offset = 300 WHERE partition = 0",
        "UPDATE kpipe_ledger SET topic_id = 'another'",
        "UPDATE kpipe_ledger SET kind = 'skipped', lane_end = 20 WHERE partition = 1",
        "INSERT INTO kpipe_ledger FROM (SELECT * REPLACE (7 AS partition) FROM kpipe_ledger WHERE partition = 0)",
        "DROP TABLE kpipe_ledger",
        "ALTER TABLE kpipe_ledger DROP COLUMN kind",
        "DELETE FROM kpipe_pipelines",
        "DROP TABLE kpipe_pipelines",
    ],
)
def test_ledger_that_was_erased_or_edited(place: DuckDBPlace, statement: str) -> None:
    destination = loaded(place)
    rows = place.rows()
    place.sql(statement)
    for _ in range(2):
        with pytest.raises(LedgerMismatch) as caught:
            destination.ledger()
        assert caught.value.hint and caught.value.exit_status == 3
        with pytest.raises(LedgerMismatch):
            place.open().ledger()
    assert place.rows() == rows


@pytest.mark.parametrize("name", ["kpipe_commits", "kpipe_batches", "kpipe_partitions"])
def test_other_tables_of_kpipe_that_are_gone(place: DuckDBPlace, name: str) -> None:
    destination = loaded(place)
    ledger, rows = destination.ledger()[1], place.rows()
    place.sql(f"DROP TABLE {name}")
    with pytest.raises(LedgerMismatch, match=f"changed by hand.*{name}"):
        destination.commit(batch(place, ledger, {0: 12}))
    assert place.rows() == rows and positions(destination) == {0: 10, 1: 5}


@pytest.mark.parametrize("statement", ["DELETE FROM kpipe_ledger", "DELETE FROM kpipe_pipelines"])
@pytest.mark.parametrize("point", ["commit.begin", "commit.before"])
def test_ledger_that_is_erased_in_the_middle_of_a_commit(place: DuckDBPlace, statement: str, point: str) -> None:
    """By another connection of this process: others cannot have the file then. Whoever comes second has a conflict."""
    destination = loaded(place)
    commit, rows = batch(place, destination.ledger()[1], {0: 12}), place.rows()
    refused: list[duckdb.Error] = []

    def erase() -> None:
        try:
            beside(place, destination, statement)
        except duckdb.Error as error:
            refused.append(error)

    at(point, erase)
    if point == "commit.before":
        assert destination.commit(commit).seq == 3 and len(refused) == 1
        assert proof(destination).ok
        return
    with pytest.raises((Fenced, LedgerMismatch)):
        destination.commit(commit)
    assert not refused
    with pytest.raises(LedgerMismatch):
        destination.ledger()
    assert place.rows() == rows


def test_table_that_was_emptied_is_the_users_and_is_told_by_verify(place: DuckDBPlace) -> None:
    destination = loaded(place)
    place.sql("TRUNCATE tweets")
    destination.commit(batch(place, destination.ledger()[1], {0: 12}))
    assert len(place.rows()) == 2 and positions(destination) == {0: 12, 1: 5}
    problems = proof(destination).problems
    assert "partition 0: expected 12 rows, found 2 in the table" in problems
    assert "partition 1: expected 5 rows, found 0 in the table" in problems


def test_table_that_was_dropped_stops_the_pipeline_until_an_operator_makes_it_again(place: DuckDBPlace) -> None:
    destination = loaded(place)
    commit = batch(place, destination.ledger()[1], {0: 12})
    place.sql("DROP TABLE tweets")
    for _ in range(2):
        with pytest.raises(LedgerMismatch, match=r"table tweets is missing, .* 15 rows .* create tweets empty"):
            destination.columns()
        with pytest.raises(LedgerMismatch):
            destination.commit(commit)
    assert positions(destination) == {0: 10, 1: 5}
    place.sql("CREATE TABLE tweets (id BIGINT, text VARCHAR)")
    destination.commit(commit)
    assert len(place.rows()) == 2
    assert "partition 0: expected 12 rows, found 2 in the table" in proof(destination).problems


@pytest.mark.parametrize("point", ["commit.open", "commit.begin"])
def test_table_that_is_dropped_or_replaced_between_staging_and_commit(place: DuckDBPlace, point: str) -> None:
    destination = loaded(place)
    commit = batch(place, destination.ledger()[1], {0: 12})

    at(point, lambda: beside(place, destination, "DROP TABLE tweets"))
    with pytest.raises(LedgerMismatch, match="is missing"):
        destination.commit(commit)
    assert positions(destination) == {0: 10, 1: 5}


def test_table_that_was_replaced_by_another_of_its_name(place: DuckDBPlace) -> None:
    """As far as its columns can take the rows they are written; what is missing is told."""
    destination = loaded(place)
    place.sql("CREATE OR REPLACE TABLE tweets AS SELECT *, 'mine' AS extra FROM tweets WHERE _kafka_offset < 3")
    destination.commit(batch(place, destination.ledger()[1], {0: 12}))
    assert len(place.rows()) == 8 and not proof(destination).ok
    place.sql("CREATE OR REPLACE TABLE tweets (id DATE, text VARCHAR)")
    ledger = destination.ledger()[1]
    with pytest.raises(SchemaConflict, match="column id"):
        destination.commit(batch(place, ledger, {0: 14}))
    assert destination.ledger()[1] == ledger and place.rows() == []
    place.sql("DROP TABLE tweets")
    place.sql("CREATE VIEW tweets AS SELECT 1::BIGINT AS id, 'x' AS text")
    with pytest.raises(KpipeError):
        destination.commit(batch(place, ledger, {0: 14}))
    assert destination.ledger()[1] == ledger


@pytest.mark.parametrize(
    ("statement", "outcome"),
    [
        ("ALTER TABLE tweets ADD COLUMN mine INTEGER", "lands"),
        ("ALTER TABLE tweets ADD COLUMN mine INTEGER DEFAULT 7", "lands"),
        ("ALTER TABLE tweets DROP COLUMN text", "lands"),  # the batch brings it back
        ("ALTER TABLE tweets RENAME COLUMN text TO words", "lands"),
        ("ALTER TABLE tweets ALTER COLUMN id TYPE HUGEINT", "lands"),
        ("ALTER TABLE tweets ALTER COLUMN id TYPE VARCHAR", "column id is VARCHAR in the table, the batch contains BIGINT"),
        ("ALTER TABLE tweets ALTER COLUMN id TYPE INTEGER", "column id is INTEGER in the table, the batch contains BIGINT"),
        ("ALTER TABLE tweets ALTER COLUMN text SET NOT NULL", "lands"),
        ("CREATE UNIQUE INDEX once ON tweets (_kafka_offset, _kafka_partition)", "lands"),
        ("CREATE UNIQUE INDEX once ON tweets (text)", "Duplicate key"),
        ("ALTER TABLE tweets RENAME TO elsewhere", "table tweets is missing"),
        ("ALTER TABLE tweets DROP COLUMN _kafka_offset", "lands"),
    ],
)
def test_columns_changed_by_hand_between_staging_and_commit(place: DuckDBPlace, statement: str, outcome: str) -> None:
    destination = loaded(place, {0: 10})
    ledger = destination.ledger()[1]
    commit = batch(place, ledger, {0: 12, 1: 4})  # text t0 to t3 stands in partition 0 already
    place.sql(statement)
    before = place.rows() if "elsewhere" not in statement else []
    if outcome == "lands":
        destination.commit(commit)
        new = place.rows()[len(before) :]
        assert sorted((row["id"], row["text"]) for row in new) == [
            (10, "t10"), (11, "t11"), *((1_000_000 + n, f"t{n}") for n in range(4)),
        ]  # fmt: skip
        assert sum(found for found in proof(destination).to_dict()["partitions"]["0"]["ranges"][0]) == 12
    else:
        with pytest.raises((SchemaConflict, LedgerMismatch), match=outcome):
            destination.commit(commit)
        assert destination.ledger()[1] == ledger
        assert place.rows() == before


@pytest.mark.parametrize("which", ["files", "dead_letters"])
@pytest.mark.parametrize("what", ["removed", "truncated", "garbage", "other rows"])
def test_staged_file_that_changes_after_it_was_proven(place: DuckDBPlace, what: str, which: str) -> None:
    """The driver has looked at every byte; while DuckDB reads the file once more, a cleaner of temporary files comes by."""
    destination = loaded(place)
    ledger, rows = destination.ledger()[1], place.rows()

    def staged(commit: Commit) -> Path:
        return Path((commit.only.files if which == "files" else commit.dead_letters)[0].path)

    commit = batch(place, ledger, {0: 20}, dead=[(0, 15), (0, 16)])
    path = staged(commit)
    fewer = batch(place, ledger, {0: 14}, dead=[(0, 10)])

    def change() -> None:
        data = path.read_bytes()
        if what == "removed":
            path.unlink()
        elif what == "truncated":
            path.write_bytes(data[: len(data) // 2])
        elif what == "garbage":
            path.write_bytes(bytes(len(data)))
        else:
            shutil.copy(staged(fewer), path)

    at("commit.open", change)
    with pytest.raises((StagingFailed, DestinationError)):
        destination.commit(commit)
    assert (destination.ledger()[1], place.rows(), place.dead_letters()) == (ledger, rows, 0)
    assert proof(destination).ok


def test_file_that_was_replaced_by_an_older_copy_or_by_another(place: DuckDBPlace, tmp_path: Path) -> None:
    """The ledger travels with its rows, so a copy is sound by itself; that it is older is for the home to notice."""
    destination = loaded(place)
    shutil.copy(place.path, tmp_path / "older")
    (uid, ledger), commit = destination.ledger(), batch(place, destination.ledger()[1], {0: 12})
    destination.commit(commit)
    shutil.copy(tmp_path / "older", place.path)
    assert destination.ledger() == (uid, ledger) and proof(destination).ok
    assert destination.commit(commit).seq == 3 and len(place.rows()) == 17
    # Replaced while a commit is under way: its plan does not fit, or it lands in a file that is whole.
    other = DuckDBPlace(tmp_path / "elsewhere") if (tmp_path / "elsewhere").mkdir() is None else place
    loaded(other, {0: 3})
    at("commit.open", lambda: shutil.copy(other.path, place.path))
    with pytest.raises(Fenced):
        destination.commit(batch(place, place.open().ledger()[1], {0: 14}))
    assert place.open().ledger()[0] != uid and positions(place.open()) == {0: 3, 1: 0} and proof(place.open()).ok
    place.path.unlink()
    assert place.open().ledger()[0] == ""
    assert place.open().commit(begin("tweets", [0])).seq == 1
    assert duckdb.sql("SELECT 1").fetchall() == [(1,)]
