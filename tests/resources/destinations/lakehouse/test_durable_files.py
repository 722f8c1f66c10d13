"""Every file that a commit of a lake names was fsynced: after a power cut it is whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from resources.testing.keyed import RULES, Write, begun, commit_of
from resources.testing.state import proof
from tests.resources.destinations.lake_place import DeltaPlace, IcebergPlace, LakePlace


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[int]]:
    """Inodes of files that were fsynced."""
    found: set[int] = set()
    fsync = os.fsync

    def note(file: int) -> None:
        found.add(os.fstat(file).st_ino)
        fsync(file)

    monkeypatch.setattr(os, "fsync", note)
    yield found


@pytest.mark.parametrize("kind", [DeltaPlace, IcebergPlace])
@pytest.mark.parametrize("rule", ["dead_letter", "update"])
def test_files_of_rows_deletes_and_dead_letters(tmp_path: Path, synced: set[int], kind: type[LakePlace], rule: str) -> None:
    place = kind(tmp_path)
    destination = begun(place, RULES[rule], 1)
    for writes in ([(0, 1, "a"), (1, 2, "b")], [(2, 1, "c"), (3, 3, "d"), (4, 3, "e")]):
        commit = [Write(0, offset, key, text) for offset, key, text in writes]
        destination.commit(commit_of(place, destination.ledger()[1], commit, RULES[rule]))
    assert proof(destination).ok and place.dead_letters() == (2 if rule == "dead_letter" else 0)
    files = [file for file in tmp_path.rglob("*") if file.is_file() and "staging" not in file.parts]
    named = [file for file in files if file.suffix in (".parquet", ".bin", ".avro", ".json")]
    assert len([file for file in named if file.suffix == ".parquet"]) >= 2
    assert [str(file.relative_to(tmp_path)) for file in named if file.stat().st_ino not in synced] == []
