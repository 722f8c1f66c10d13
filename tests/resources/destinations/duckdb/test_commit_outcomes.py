"""What a commit can be told and what may go on beside it: false conflicts, cleaners, other programs with the same file."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from kpipe import failpoints
from kpipe.batch.batch import Commit
from kpipe.errors import DestinationError, StagingFailed
from resources.spark.staging.staged_files import HORIZON_S, collect_garbage
from resources.testing.place import batch
from resources.testing.state import loaded, positions, proof
from tests.resources.destinations.place import DuckDBPlace, at

POINTS = [point for point in failpoints.POINTS if point.startswith("commit.") or point == "readback"]


@pytest.fixture
def place(tmp_path: Path) -> DuckDBPlace:
    return DuckDBPlace(tmp_path)


@pytest.mark.parametrize(
    "answer",
    [
        duckdb.TransactionException("Conflict on tuple deletion!"),
        duckdb.TransactionException("Failed to commit: PRIMARY KEY or UNIQUE constraint violation"),
        duckdb.ConstraintException("Duplicate key"),
        duckdb.IOException("connection lost"),
        OSError("broken"),
    ],
    ids=lambda error: type(error).__name__ + str(len(str(error))),
)
def test_a_conflict_that_is_none(place: DuckDBPlace, answer: Exception) -> None:
    """The commit has landed, the answer says that it has not: reading back decides, and nothing is tried again."""
    destination = loaded(place)

    def lie() -> None:
        raise answer

    at("commit.after", lie)
    assert destination.commit(batch(place, destination.ledger()[1], {0: 12}, dead=[(0, 11)])).seq == 3
    assert len(place.rows()) == 16 and proof(destination).ok


def in_a_folder(place: DuckDBPlace, commit: Commit) -> Commit:
    """The commit with its files where a run stages them."""
    folder = place.staging / commit.id
    folder.mkdir()

    def moved(path: str) -> str:
        return str(shutil.move(path, folder))

    return replace(
        commit.writing(files=tuple(replace(file, path=moved(file.path)) for file in commit.only.files)),
        dead_letters=tuple(replace(file, path=moved(file.path)) for file in commit.dead_letters),
    )


@pytest.mark.parametrize("hours", [0, HORIZON_S / 3600 + 1], ids=["now", "clock-ahead"])
def test_staged_files_are_collected_while_they_are_committed(place: DuckDBPlace, hours: float) -> None:
    """By another run, at each point: it leaves them alone; with a clock a day ahead, the commit fails or lands whole."""
    destination = loaded(place)
    for point in POINTS:
        ledger, rows = destination.ledger()[1], place.rows()
        end = positions(destination)[0] + 3
        commit = in_a_folder(place, batch(place, ledger, {0: end}, dead=[(0, end - 1)]))
        removed: list[str] = []

        def collect(removed: list[str] = removed) -> None:
            removed += collect_garbage(place.staging, lambda _: False, time.time() + hours * 3600)

        at(point, collect)
        try:
            destination.commit(commit)
            landed = True
        except (StagingFailed, DestinationError):
            landed = False
        assert bool(removed) == bool(hours), point
        assert landed or hours, point
        assert positions(destination)[0] == (end if landed else end - 3), point
        assert len(place.rows()) == len(rows) + 2 * landed, point
        assert proof(destination).ok, point
        # What fails is staged anew by the next try.
        if not landed:
            failpoints.arm(None)
            destination.commit(in_a_folder(place, batch(place, destination.ledger()[1], {0: end}, dead=[(0, end - 1)])))
    # Once the ledger knows them they are collected, whatever their age.
    known = {entry.batch for entry in destination.history()}
    collect_garbage(place.staging, known.__contains__)
    assert not [entry for entry in place.staging.iterdir() if entry.is_dir() and entry.name in known]


def test_two_collections_at_once(place: DuckDBPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one removes, between two looks of the other, is no surprise to the other."""
    folders = [place.staging / f"{at:032x}" for at in range(4)]
    for folder in folders:
        folder.mkdir()
        (folder / "x.parquet").write_bytes(b"x")
    honest = Path.is_dir

    def is_dir(path: Path) -> bool:
        found = honest(path)
        if path in folders[1:3]:
            shutil.rmtree(path)
        return found

    monkeypatch.setattr(Path, "is_dir", is_dir)
    assert collect_garbage(place.staging, lambda _: True) == [folders[0].name, folders[3].name]
    assert not any(folder.exists() for folder in folders)


def test_other_programs_work_with_the_file_between_batches(place: DuckDBPlace) -> None:
    """Housekeeping, indexes and views, tables of their own, rows of their own without coordinates."""
    destination = loaded(place)
    for end, statement in enumerate(
        (
            "CHECKPOINT",
            "VACUUM ANALYZE",
            "CREATE INDEX by_id ON tweets (id)",
            "CREATE VIEW latest AS SELECT max(_kafka_offset) AS at FROM tweets GROUP BY _kafka_partition",
            "CREATE TABLE mine AS SELECT text, count(*) AS n FROM tweets GROUP BY text",
            "INSERT INTO tweets (id, text) VALUES (-1, 'mine')",
            "UPDATE tweets SET text = upper(text)",
            "COMMENT ON TABLE tweets IS 'loved'",
            "CREATE SCHEMA other",
        ),
        start=11,
    ):
        place.sql(statement)
        destination.commit(batch(place, destination.ledger()[1], {0: end}))
        assert proof(destination).ok, statement
    assert positions(destination)[0] == 19 and len(place.rows()) == 25
