"""The memory limit of every engine, and the folder for data that does not fit."""

from __future__ import annotations

import os
import stat
import uuid
from pathlib import Path

import duckdb
import pytest

from kpipe.errors import InvalidPipeline
from resources.available_memory import available_bytes
from resources.duckdb_engine import in_memory
from resources.duckdb_engine.file_connection import Connection, Database
from resources.duckdb_engine.memory_limit import VARIABLE, engine_bytes
from resources.duckdb_engine.row_groups import row_group_rows
from resources.duckdb_engine.sandbox import closed


def _limit(connection: Connection) -> str:
    row = connection.execute("SELECT current_setting('memory_limit')").fetchone()
    assert row is not None
    return str(row[0])


def test_default_is_half_of_what_the_process_can_use() -> None:
    assert engine_bytes({}) == engine_bytes({VARIABLE: " "}) == available_bytes() // 2


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GB", 2 * 10**9), ("1.5 GiB", 3 << 29), ("64mb", 64_000_000), ("100000000B", 10**8), ("1TiB", 1 << 40)],
)
def test_override(text: str, size: int) -> None:
    assert engine_bytes({VARIABLE: text}) == size


@pytest.mark.parametrize("text", ["lots", "2", "-1GB", "80%", "63MB", "0GB", "1e3GB", "2GB; DROP", "9" * 5000, "1.GB", "²GB"])
def test_nonsense_is_rejected(text: str) -> None:
    with pytest.raises(InvalidPipeline, match=rf"{VARIABLE}: invalid size: expected 64MB or more, found") as error:
        engine_bytes({VARIABLE: text})
    assert len(str(error.value)) < 300


def test_every_engine_has_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "200MiB")
    database = Database(tmp_path / "a.duckdb", ())
    for connect in (database.write, database.read):
        with connect() as connection:
            assert _limit(connection) == "200.0 MiB"
    with closed((), ()) as connection:
        assert _limit(connection) == "200.0 MiB"
    in_memory.forget()
    try:
        assert in_memory.ask("SELECT current_setting('memory_limit')", []) == "200.0 MiB"
        assert in_memory.ask("SELECT current_setting('temp_directory')", []) == ""
    finally:
        in_memory.forget()


def test_nonsense_fails_where_a_file_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "plenty")
    with pytest.raises(InvalidPipeline, match=VARIABLE), Database(tmp_path / "a.duckdb", ()).write():
        pass


def _spill(connection: Connection) -> int:
    """Sort more than the limit; return the bytes in the temporary folder meanwhile."""
    connection.execute("CREATE TEMP TABLE big AS SELECT i, repeat(md5(i::VARCHAR), 20) AS s FROM range(150_000) AS r(i)")
    row = connection.execute("SELECT sum(size) FROM duckdb_temporary_files()").fetchone()
    assert row is not None
    return int(row[0] or 0)


def test_temporary_folder_is_private_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "64MB")
    place = tmp_path / "data"
    database = Database(place / "a.duckdb", ())
    umask = os.umask(0)
    try:
        with database.write() as connection:
            assert _spill(connection) > 0
            (folder,) = [path for path in place.iterdir() if path.is_dir()]
            assert folder.name.startswith("a.duckdb.tmp-") and stat.S_IMODE(folder.stat().st_mode) == 0o700
            assert list(folder.iterdir())
    finally:
        os.umask(umask)
    assert [path.name for path in place.iterdir()] == ["a.duckdb"]
    with database.write() as connection:  # the same engine again
        assert _spill(connection) > 0


def test_folders_of_killed_processes_are_removed_by_the_next_writer(tmp_path: Path) -> None:
    database = Database(tmp_path / "a[b].duckdb", ())
    with database.write() as connection:
        connection.execute("CREATE TABLE t (i BIGINT)")
    left = tmp_path / f"a[b].duckdb.tmp-{uuid.uuid4().hex}"
    other = [tmp_path / f"ab.duckdb.tmp-{uuid.uuid4().hex}", tmp_path / "a[b].duckdb.tmp-mine", tmp_path / "kept"]
    for folder in (left, *other):
        folder.mkdir()
        (folder / "duckdb_temp_storage_DEFAULT-0.tmp").write_text("rows")
    link = tmp_path / f"a[b].duckdb.tmp-{uuid.uuid4().hex}"
    link.symlink_to(other[-1])
    with database.read():
        assert left.exists()  # a reader does not know whether another one uses it
    with database.write():
        assert not left.exists()
    assert all((folder / "duckdb_temp_storage_DEFAULT-0.tmp").exists() for folder in (*other, link))


@pytest.mark.parametrize(
    ("size", "rows"), [(0, 122_880), (285, 122_880), (1000, 65_536), (20_000, 2048), (10**6, 2048), (10**12, 2048)]
)
def test_row_groups_of_large_rows_have_fewer_rows(size: int, rows: int) -> None:
    assert row_group_rows(size) == rows


def test_row_groups_of_different_sizes_in_one_table(tmp_path: Path) -> None:
    """Every commit may choose another size: what is there stays readable, and appending goes on."""
    database, total = Database(tmp_path / "a.duckdb", ()), 0
    for size, count in ((100, 130_000), (20_000, 3), (20_000, 5000), (0, 10), (30_000, 2048), (2000, 70_000), (0, 125_000)):
        with database.write(size) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS t (i BIGINT PRIMARY KEY, s VARCHAR)")
            connection.execute("INSERT INTO t SELECT i, 'x' || i FROM range($1, $2) AS r(i)", [total, total + count])
        total += count
        with database.read() as connection:
            found = "SELECT count(*), count(DISTINCT rowid), sum(i), count(*) FILTER (s = 'x' || i) FROM t"
            assert connection.execute(found).fetchone() == (total, total, total * (total - 1) // 2, total)
    with duckdb.connect(str(database.path), read_only=True) as connection:  # without the setting
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (total,)


def test_a_cursor_has_the_settings_of_its_engine(tmp_path: Path) -> None:
    # A setting without GLOBAL applies to one connection, and statements run on cursors: an ASOF join then was a loop.
    main = closed([], [], str(tmp_path))
    for connection in (main, main.cursor()):
        row = connection.execute("SELECT current_setting('asof_loop_join_threshold')").fetchone()
        assert row == (0,)
