"""COMMIT and WAL of a DuckDB file: kill -9 at each step, a COMMIT that fails, a full disk."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest

from kpipe import failpoints
from kpipe.errors import (
    DestinationError,
)
from kpipe.schema.columns import Columns
from resources.destinations.sql.ledger import history_tables
from resources.testing.place import COLUMNS, batch, begin
from resources.testing.state import begun, loaded, positions, proof
from tests.resources.destinations.lake_place import killed
from tests.resources.destinations.place import DuckDBPlace


def test_commit_of_an_aborted_transaction_is_not_believed(place: DuckDBPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    destination = loaded(place)
    ledger, rows = destination.ledger()[1], place.rows()

    def swallowing(connection: duckdb.DuckDBPyConnection, *_: object) -> None:
        with suppress(duckdb.Error):
            connection.execute("SELECT error('boom')").fetchall()
        with pytest.raises(duckdb.Error, match="aborted"):
            connection.execute("SELECT 1")

    monkeypatch.setattr(history_tables, "history", swallowing)
    with pytest.raises(DestinationError, match="was acknowledged, but is not in the ledger"):
        destination.commit(batch(place, ledger, {0: 12}))
    assert (destination.ledger()[1], place.rows()) == (ledger, rows)


STEPS = [point for point in failpoints.POINTS if point.startswith("commit.") or point == "readback"]


@pytest.mark.parametrize("first", [True, False])
def test_killed_at_every_step(place: DuckDBPlace, first: bool) -> None:
    destination = place.open()
    if not first:
        destination = loaded(place)
    for step in STEPS:
        seq, ledger = destination.ledger()[1].seq, destination.ledger()[1]
        if first and not ledger.lanes:
            commit = begin("tweets", [0, 1]).writing(columns=COLUMNS)
        else:
            start = positions(destination)[0]
            commit = batch(place, ledger, {0: start + 4}, dead=[(0, start)])
        killed(place, commit, step)
        landed = step in ("commit.after", "readback")
        assert destination.ledger()[1].seq == seq + landed, step
        assert proof(destination).ok, step
        assert destination.commit(commit).seq == seq + 1, step
        assert proof(destination).ok, step
    assert len(place.rows()) == sum(destination.recount().tables["tweets"].rows.values())


def test_wal_that_was_left_is_replayed(place: DuckDBPlace) -> None:
    destination = loaded(place)
    wal = Path(f"{place.path}.wal")
    killed(place, batch(place, destination.ledger()[1], {0: 12}), "commit.after")
    assert wal.exists()
    assert positions(destination)[0] == 12 and proof(destination).ok


def test_a_torn_block_is_explained(place: DuckDBPlace) -> None:
    """As a power cut in a checkpoint leaves it: tests/faults/test_lossy_disk.py."""
    loaded(place)
    with place.path.open("r+b") as file:
        file.seek(3 * 4096 + 8)
        file.write(b"torn")
    with pytest.raises(DestinationError, match=r"cannot open .*Corrupt database file.*restore both from a backup"):
        place.open().ledger()


def test_wal_that_cannot_be_replayed_is_kept_and_explained(place: DuckDBPlace) -> None:
    destination = loaded(place)
    commit = batch(place, destination.ledger()[1], {0: 12})
    killed(place, commit, "commit.after")
    wal = Path(f"{place.path}.wal")
    good = wal.read_bytes()
    bad = bytearray(good)
    bad[len(bad) // 2] ^= 0xFF
    wal.write_bytes(bad)
    for act in (destination.ledger, lambda: destination.commit(commit), destination.history):
        with pytest.raises(DestinationError, match=r"write-ahead log cannot be replayed.*keep kpipe\.duckdb\.wal"):
            act()
        assert wal.read_bytes() == bad
    wal.write_bytes(good)
    assert positions(destination)[0] == 12


def test_file_that_is_no_database_is_left_alone(place: DuckDBPlace) -> None:
    place.path.write_bytes(b"something else" * 1000)
    for act in (place.open().ledger, lambda: place.open().commit(begin("tweets", [0]))):
        with pytest.raises(DestinationError, match=r"cannot open .*kpipe\.duckdb"):
            act()
    assert place.path.read_bytes() == b"something else" * 1000


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_full_disk(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(data)], check=False, capture_output=True).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        place = DuckDBPlace(tmp_path)
        destination = begun(place, 1)
        columns = Columns.of({"text": "VARCHAR"})
        done = 0
        with pytest.raises(DestinationError, match=r"(?i)space"):
            for end in range(20, 4000, 20):
                values = {"text": os.urandom(8000).hex()}
                destination.commit(batch(place, destination.ledger()[1], {0: end}, columns, values))
                done = end
        assert done
        assert positions(destination) == {0: done} and proof(destination).ok
        subprocess.run(["mount", "-o", "remount,size=40m", str(data)], check=True)
        destination.commit(batch(place, destination.ledger()[1], {0: done + 20}, columns, {"text": "x"}))
        assert positions(destination) == {0: done + 20} and proof(destination).ok
    finally:
        subprocess.run(["umount", str(data)], check=True)
