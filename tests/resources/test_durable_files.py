"""Folders are made so that a power cut leaves their names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from resources.durable_files import make_folder, sync


def test_each_new_name_is_synced_in_the_folder_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def noted(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        real(handle)

    monkeypatch.setattr(os, "fsync", noted)
    make_folder(tmp_path / "one" / "two", 0o700)
    assert synced == [str(tmp_path), str(tmp_path / "one")]
    assert (tmp_path / "one" / "two").stat().st_mode & 0o777 == 0o700
    make_folder(tmp_path / "one" / "two")
    assert len(synced) == 2
    sync(tmp_path / "one")
    assert len(synced) == 3
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        make_folder(tmp_path / "file" / "below")
