"""Settings of connections to a DuckDB file, and which staged files they read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from kpipe.errors import (
    StagingFailed,
)
from resources.duckdb_engine.file_connection import Database
from resources.testing.place import batch
from resources.testing.state import begun, loaded, proof
from tests.resources.destinations.place import DuckDBPlace


def test_connections_are_closed_to_the_rest_of_the_machine(place: DuckDBPlace, tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside.parquet", place.staging / "inside.parquet"
    for path in (outside, inside):
        duckdb.sql("SELECT 1 AS a").write_parquet(str(path))
    unseen = [1]  # noqa: F841 - what a replacement scan would find
    loaded(place)
    database = Database(place.path, (place.staging,))
    for connect in (database.write, database.read):
        with connect() as connection:
            settings = dict(connection.execute("SELECT name, value FROM duckdb_settings()").fetchall())
            assert {settings[name] for name in ("autoinstall_known_extensions", "autoload_known_extensions")} == {"false"}
            assert (settings["enable_external_access"], settings["lock_configuration"]) == ("false", "true")
            assert settings["allow_community_extensions"] == settings["python_enable_replacements"] == "false"
            assert connection.execute("SELECT * FROM read_parquet(?)", [str(inside)]).fetchall() == [(1,)]
            for statement in (
                f"SELECT * FROM read_parquet('{outside}')",
                f'SELECT * FROM "{outside}"',
                f"SELECT * FROM read_parquet('{place.staging}/../outside.parquet')",
                "SELECT * FROM unseen",
                f"COPY (SELECT 1) TO '{tmp_path}/new.csv'",
                f"ATTACH '{tmp_path}/other.duckdb'",
                "SELECT * FROM read_text('/etc/passwd')",
                "INSTALL httpfs",
                "LOAD httpfs",
                "SET enable_external_access = true",
                "SET lock_configuration = false",
                "SELECT getenv('HOME')",
            ):
                with pytest.raises(duckdb.Error):
                    connection.execute(statement).fetchall()


def test_staged_file_outside_or_behind_a_link_is_refused(place: DuckDBPlace, tmp_path: Path) -> None:
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 3})
    file = Path(commit.only.files[0].path)
    outside = tmp_path / "outside.parquet"
    outside.write_bytes(file.read_bytes())
    link, folder = place.staging / "link.parquet", place.staging / "folder"
    link.symlink_to(file)
    folder.symlink_to(tmp_path)
    for path in (
        outside,
        link,
        folder / "outside.parquet",
        place.staging / ".." / "outside.parquet",
        Path("x.parquet"),
        place.staging,
    ):
        with pytest.raises(StagingFailed):
            destination.commit(commit.writing(files=(replace(commit.only.files[0], path=str(path)),)))
    assert destination.commit(commit).seq == 2


def test_staging_folder_with_odd_names(tmp_path: Path) -> None:
    folder = tmp_path / "a [b] *' {c} year=2026"
    folder.mkdir()
    place = DuckDBPlace(folder)
    destination = loaded(place)
    assert len(place.rows()) == 15 and "year" not in place.rows()[0] and proof(destination).ok


def test_staging_root_that_is_itself_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert proof(loaded(DuckDBPlace(tmp_path / "link"))).ok
