"""A reported commit survives a power cut, and a crash of the catalog's server."""

from __future__ import annotations

from pathlib import Path

import pytest

from resources.destinations.ducklake import file_lake
from resources.testing.place import batch
from resources.testing.state import begun, proof
from tests.resources.destinations.ducklake_place import DuckLakePlace
from tests.servers.postgres import ROLE


@pytest.mark.parametrize(("place", "synced"), [("sqlite", True), ("duckdb", False)], indirect=["place"])
def test_the_folder_of_an_sqlite_catalog_is_synced_after_a_commit(
    place: DuckLakePlace, synced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's default does not sync the folder after it has deleted the journal."""
    destination = begun(place, 1)
    found, sync = list[tuple[Path, int, bool]](), file_lake.sync

    def noted(path: Path) -> None:
        sync(path)
        (rows,) = place.sql("SELECT count(*) FROM tweets")[0]
        found.append((path, rows, Path(f"{place.path}-journal").exists()))

    monkeypatch.setattr(file_lake, "sync", noted)
    destination.commit(batch(place, destination.ledger()[1], {0: 3}))
    assert found == ([(place.path.parent, 3, False)] if synced else [])
    assert proof(destination).ok


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
@pytest.mark.parametrize(("setting", "used"), [("off", "on"), ("remote_apply", "remote_apply"), ("local", "local")])
def test_a_server_does_not_report_a_commit_before_it_is_durable(place: DuckLakePlace, setting: str, used: str) -> None:
    assert place.server is not None
    place.server.sql(f"ALTER ROLE {ROLE} SET synchronous_commit = {setting}")
    try:
        with place.lake().fresh.write() as connection:
            sql = "SELECT * FROM postgres_query('__ducklake_metadata_lake', 'SELECT current_setting(''synchronous_commit'')')"
            assert connection.execute(sql).fetchall() == [(used,)]
    finally:
        place.server.sql(f"ALTER ROLE {ROLE} RESET synchronous_commit")
