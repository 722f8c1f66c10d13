"""What a power cut leaves on a lossy disk."""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest

from tests.faults.lossy_disk import Disk, lossy, missing
from tests.faults.lossy_files import PAGE, Cut, File, Folder, Kept

REASON = missing()
mounts = pytest.mark.skipif(bool(REASON), reason=REASON)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "disk"
    folder.mkdir()
    (folder / "old").write_bytes(b"o" * 100)
    return folder


@pytest.fixture
def disk(place: Path) -> Iterator[Disk]:
    with lossy(place) as made:
        yield made


def synced(path: Path, content: bytes) -> None:
    with path.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())


@mounts
def test_only_synced_content_and_names_are_left(place: Path, disk: Disk) -> None:
    synced(place / "kept", b"k" * 5000)
    (place / "lost").write_bytes(b"l")
    with (place / "old").open("ab") as out:
        out.write(b"more")
    (place / "folder").mkdir()
    os.rename(place / "kept", place / "folder" / "moved")
    assert (place / "old").stat().st_size == 104 and sorted(os.listdir(place)) == ["folder", "lost", "old"]
    disk.cut_after(0, Cut())
    with pytest.raises(OSError, match="Input/output"):
        os.listdir(place)
    disk.restart()
    assert sorted(os.listdir(place)) == ["kept", "old"]
    assert (place / "kept").read_bytes() == b"k" * 5000 and (place / "old").read_bytes() == b"o" * 100


@mounts
def test_a_synced_folder_keeps_names_and_not_contents(place: Path, disk: Disk) -> None:
    (place / "empty").write_bytes(b"gone")
    os.rename(place / "old", place / "new")
    handle = os.open(place, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
    disk.cut_after(0, Cut())
    disk.restart()
    assert sorted(os.listdir(place)) == ["empty", "new"] and (place / "empty").read_bytes() == b""


@mounts
def test_it_fails_at_the_given_change(place: Path, disk: Disk) -> None:
    disk.cut_after(6, Cut())
    with pytest.raises(OSError, match="Input/output"):
        for number in range(9):
            synced(place / str(number), b"x")  # three changes: create, write, fsync
    assert disk.failed()
    disk.restart()
    assert sorted(os.listdir(place)) == ["0", "1", "old"]


@mounts
def test_a_database_has_its_commits_and_no_others(place: Path, disk: Disk) -> None:
    database = duckdb.connect(str(place / "x.duckdb"))
    database.execute("CREATE TABLE t AS SELECT range AS n FROM range(1000)")
    database.execute("BEGIN")
    database.execute("INSERT INTO t FROM range(5)")
    disk.cut_after(0, Cut())
    del database
    disk.restart()
    with duckdb.connect(str(place / "x.duckdb")) as found:
        assert found.execute("SELECT count(*) FROM t").fetchall() == [(1000,)]


def test_changes_and_entries_are_drawn_each_on_its_own() -> None:
    old, new = b"a" * PAGE, b"b" * PAGE
    file = File(stat.S_IFREG | 0o644, bytearray(old * 2), old * 2)

    def found(kept: Kept) -> set[bytes]:
        return {file.after_cut(kept, random.Random(seed)) for seed in range(50)}

    file.write(0, new * 2)
    assert found(Kept.FIRST) == found(Kept.ANY) == {old * 2, new * 2}
    assert found(Kept.TORN) == {old * 2, new * 2, old + new, new + old}
    file.write(PAGE * 2, b"c")
    assert found(Kept.FIRST) == {old * 2, new * 2, new * 2 + b"c"} and old * 2 + b"c" in found(Kept.ANY)
    file.truncate(1)
    assert file.data == b"b" and b"a" in found(Kept.ANY) and found(Kept.NOTHING) == {old * 2}
    root = Folder(stat.S_IFDIR | 0o755, entries={"one": file, "two": file}, durable={"three": file})
    names = {tuple(root.after_cut(Kept.ANY, random.Random(seed))) for seed in range(100)}
    assert len(names) == 8 and tuple(root.after_cut(Kept.NOTHING, random.Random(1))) == ("three",)


def test_duckdb_reads_no_log_with_a_gap(tmp_path: Path) -> None:
    """DuckDB 1.5.5: with a later write of an unfinished commit, and not an earlier one, the file cannot be opened."""
    path = tmp_path / "x.duckdb"
    with duckdb.connect(path) as database:
        database.execute("PRAGMA disable_checkpoint_on_shutdown")
        database.execute("CREATE TABLE t AS SELECT md5(range::TEXT) AS n FROM range(1000)")
        log = path.with_suffix(".duckdb.wal")
        committed = log.read_bytes()
        database.execute("INSERT INTO t SELECT md5(range::TEXT) FROM range(1000)")
    later = log.read_bytes()[len(committed) :]

    def rows(content: bytes) -> int:
        log.write_bytes(content)
        with duckdb.connect(path) as database:
            database.execute("PRAGMA disable_checkpoint_on_shutdown")
            return database.execute("SELECT count(*) FROM t").fetchall()[0][0]  # type: ignore[no-any-return]

    assert len(later) > 3 * PAGE
    assert [rows(committed + later[:length]) for length in (len(later), len(later) - 1, PAGE, 1, 0)] == [
        2000,
        1000,
        1000,
        1000,
        1000,
    ]
    with pytest.raises(duckdb.Error, match="replaying WAL"):
        rows(committed + later[:PAGE] + bytes(PAGE) + later[2 * PAGE :])


@mounts
@pytest.mark.chaos
def test_duckdb_overwrites_a_block_of_its_last_checkpoint(tmp_path: Path) -> None:
    """DuckDB 1.5.5: a cut that keeps the first changes leaves all commits; one that tears a block of 256 KB may not."""

    def left_after(changes: int, kept: Kept) -> str:
        place = tmp_path / f"{changes}-{kept.value}"
        place.mkdir()
        path = str(place / "x.duckdb")
        with duckdb.connect(path) as database:
            database.execute("CREATE TABLE t AS SELECT range AS n FROM range(1000)")
        with lossy(place) as disk:
            disk.cut_after(changes, Cut(kept, changes))
            with suppress(duckdb.Error), duckdb.connect(path) as database:
                database.execute("INSERT INTO t FROM range(1000)")
            if not disk.failed():
                disk.cut_after(0, Cut(kept, changes))
            disk.restart()
        try:
            with duckdb.connect(path) as database:
                return "whole" if database.execute("SELECT count(*) FROM t").fetchall()[0][0] in (1000, 2000) else "rows are lost"
        except duckdb.Error as error:
            return "torn" if "Corrupt database file" in str(error) else str(error)

    for kept, states in ((Kept.NOTHING, {"whole"}), (Kept.FIRST, {"whole"}), (Kept.TORN, {"whole", "torn"})):
        assert {left_after(changes, kept) for changes in range(1, 14)} == states, kept
