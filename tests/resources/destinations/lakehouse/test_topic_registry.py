"""The list of the topics of tables by topic, where the folder is restored to an older state under a running service."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from kpipe.batch.batch import Commit
from kpipe.errors import Fenced, LedgerMismatch
from kpipe.ledger.ledger import SKIPPED, Lane, LaneChange
from kpipe.topics import PartitionId, TopicId
from resources.destinations.lakehouse.folder import LocalFolder
from resources.destinations.lakehouse.topics import TopicRegistry
from resources.destinations.lakehouse.topics.first_lanes import FirstLanes


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


def decision(*topics: str) -> FirstLanes:
    lanes = [Lane(PartitionId(TopicId("c", f"id-{topic}", topic), 0), 0, 0, 7, SKIPPED) for topic in topics]
    return FirstLanes(Commit("1" * 32, "web", tuple(LaneChange(None, lane) for lane in lanes), "begin", note="by me"), 3)


def test_a_decision_is_one_file_that_the_topics_before_it_do_not_have(folder: LocalFolder, tmp_path: Path) -> None:
    running, other, first = TopicRegistry(folder, "web"), TopicRegistry(folder, "web"), decision("a", "b")
    running.add({"a": "raw_a", "b": "raw_b"}, first)
    assert other.tables() == {"a": "raw_a", "b": "raw_b"} and other.decided() == running.decided() == {"a": first, "b": first}
    assert other.decided()["b"].part("b").changes == first.commit.changes[1:]
    with pytest.raises(Fenced, match="begin: another run has begun topic b first"):
        other.add({"b": "raw_b", "c": "raw_c"}, decision("b", "c"))
    assert set(other.tables()) == {"a", "b"}
    shutil.copytree(folder.path, tmp_path / "backup")
    running.add({"c": "raw_c"}, decision("c"))
    restore(folder, tmp_path / "backup")
    add(TopicRegistry(folder, "web"), "d")
    assert set(running.tables()) == {"a", "b", "d"} and set(running.decided()) == {"a", "b"}
    file = next(folder.path.rglob("000002.json"))
    file.write_text(file.read_text().replace(", 7, ", ", 8, "))
    with pytest.raises(LedgerMismatch, match=r"000002\.json was not written by kpipe"):
        TopicRegistry(folder, "web").tables()


def test_topics_that_are_listed_without_lanes_are_decided_later(folder: LocalFolder) -> None:
    """A run was killed before the last file, or an earlier version has listed them."""
    add(TopicRegistry(folder, "web"), "a", "b")
    registry, first = TopicRegistry(folder, "web"), decision("a", "b")
    registry.add({"a": "raw_a", "b": "raw_b"}, first)
    other = TopicRegistry(folder, "web")
    assert other.tables() == {"a": "raw_a", "b": "raw_b"} and other.decided() == {"a": first, "b": first}
    other.mark("b")
    assert registry.is_committed("b") and not registry.is_committed("a") and not registry.is_committed("c")
