"""The list of the topics of tables by topic, where the folder is restored to an older state under a running service."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from kpipe.errors import LedgerMismatch
from resources.destinations.lakehouse.folder import LocalFolder
from resources.destinations.lakehouse.topics import TopicRegistry


def add(registry: TopicRegistry, *topics: str) -> Mapping[str, str]:
    registry.add({topic: f"raw_{topic}" for topic in topics})
    return registry.tables()


@pytest.fixture
def folder(tmp_path: Path) -> LocalFolder:
    return LocalFolder(tmp_path / "_kpipe-topics")


def restore(folder: LocalFolder, backup: Path) -> None:
    shutil.rmtree(folder.path)
    shutil.copytree(backup, folder.path, copy_function=shutil.copy)


def test_topics_that_another_run_added_after_a_restore_are_read(folder: LocalFolder, tmp_path: Path) -> None:
    running = TopicRegistry(folder, "web")
    add(running, "a")
    shutil.copytree(folder.path, tmp_path / "backup")
    assert set(add(running, "b")) == {"a", "b"}
    restore(folder, tmp_path / "backup")
    assert set(add(TopicRegistry(folder, "web"), "c", "d")) == {"a", "c", "d"}
    assert set(running.tables()) == {"a", "c", "d"}
    assert set(add(running, "b")) == set(TopicRegistry(folder, "web").tables()) == {"a", "b", "c", "d"}
    assert set(add(running, "b", "c")) == {"a", "b", "c", "d"}


def test_an_older_list_is_named(folder: LocalFolder, tmp_path: Path) -> None:
    running = TopicRegistry(folder, "web")
    add(running, "a")
    shutil.copytree(folder.path, tmp_path / "backup")
    add(running, "b")
    restore(folder, tmp_path / "backup")
    with pytest.raises(LedgerMismatch, match="not numbered from 1 to 2"):
        running.tables()
    assert set(TopicRegistry(folder, "web").tables()) == {"a"}
