"""Reads of a ledger whose files other runs supersede meanwhile, and searches of a long history."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kpipe.batch.batch import Commit
from kpipe.errors import DestinationBusy, LedgerMismatch
from resources.destinations.lakehouse import commit_log
from resources.destinations.lakehouse.current_reads import at_one_version
from resources.destinations.lakehouse.folder import LocalFolder
from resources.destinations.lakehouse.ledger_file import folder_of, missing
from resources.testing.place import batch, begin
from resources.testing.state import loaded, proof
from tests.resources.destinations.lake_place import DeltaPlace, ParquetPlace


@pytest.fixture
def place(tmp_path: Path) -> DeltaPlace:
    return DeltaPlace(tmp_path)


def failing(tmp_path: Path, names: list[str]) -> Callable[[], str]:
    """A read that misses these files, one after the other."""
    left = iter(names)

    @at_one_version
    def read() -> str:
        for name in left:
            raise missing(LocalFolder(tmp_path), "p", name)
        return "done"

    return read


def test_a_read_is_repeated_while_other_files_are_missing(tmp_path: Path) -> None:
    assert failing(tmp_path, [])() == failing(tmp_path, ["a", "b"])() == "done"
    with pytest.raises(LedgerMismatch, match="ledger file b is missing in"):
        failing(tmp_path, ["a", "b", "b"])()
    with pytest.raises(DestinationBusy, match="during each of 3 reads"):
        failing(tmp_path, ["a", "b", "c", "d"])()


def other_commits(place: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Let another pipeline commit when the ledgers are listed for the first time, and its record before be deleted."""
    other, removed = place.open("other"), list[Path]()
    names = LocalFolder.names

    def listed(folder: LocalFolder, name: str) -> list[str]:
        if name == "" and not removed:
            removed.extend((place.lake().ledger.path / folder_of("other")).glob("*.json"))  # type: ignore[attr-defined]
            other.commit(batch(place, other.ledger()[1], {0: 9}))
            for record in removed:
                record.unlink()
        return names(folder, name)

    monkeypatch.setattr(LocalFolder, "names", listed)
    return removed


@pytest.mark.parametrize("traced", [False, True])
def test_rows_of_a_pipeline_whose_record_is_superseded_meanwhile_are_counted(
    place: DeltaPlace, monkeypatch: pytest.MonkeyPatch, traced: bool
) -> None:
    destination, other = loaded(place), place.open("other")
    other.commit(begin("other", [0]))
    other.commit(batch(place, other.ledger()[1], {0: 5}))
    removed = other_commits(place, monkeypatch)
    if traced:
        facts = destination.trace("tweets", 0, 1)  # type: ignore[attr-defined]
        assert [reading.tables[0].shared_offset for reading in facts.readings] == [True]
    assert proof(destination).ok and len(removed) == 2 and len(place.rows()) == 24


def test_a_lost_record_of_another_pipeline_is_reported(place: DeltaPlace) -> None:
    destination, other = loaded(place), place.open("other")
    other.commit(begin("other", [0]))
    other.commit(batch(place, other.ledger()[1], {0: 9}))
    for record in (place.lake().ledger.path / folder_of("other")).glob("*.json"):  # type: ignore[attr-defined]
        record.unlink()
    for read in (destination.recount, lambda: destination.writers("tweets")):  # type: ignore[attr-defined]
        with pytest.raises(LedgerMismatch, match=r"pipeline other: ledger file .* is missing in"):
            read()


def test_a_segment_that_is_merged_meanwhile_is_read_again(place: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log, "_TAIL_COMMITS", 2)
    monkeypatch.setattr(commit_log, "_FANOUT", 2)
    destination, writer = loaded(place), place.open()
    read, merged = commit_log._read, list[str]()

    def reading(folder: Any, pipeline: str, segment: Any) -> Any:
        if not merged:
            merged.append(segment.name)
            for end in (11, 12, 13):
                writer.commit(batch(place, writer.ledger()[1], {0: end}))
            (folder.path / folder_of(pipeline) / segment.name).unlink()
        return read(folder, pipeline, segment)

    monkeypatch.setattr(commit_log, "_read", reading)
    assert sum(len(entry.range) for entry in destination.history()) == 18 and merged
    assert proof(destination).ok


def test_commits_without_lane_changes_do_not_read_the_history_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`delivery: at_least_once`: each commit of rows is searched before it is made."""
    monkeypatch.setattr(commit_log, "_TAIL_COMMITS", 2)
    monkeypatch.setattr(commit_log, "_FANOUT", 100)
    place = ParquetPlace(tmp_path)
    destination = loaded(place)
    commits, reads, numbers = list[Commit](), list[int](), list[int]()
    read, count = commit_log._read, 0

    def counted(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        return read(*arguments)

    monkeypatch.setattr(commit_log, "_read", counted)
    for _ in range(12):
        whole = batch(place, destination.ledger()[1], {0: 11})
        commits.append(replace(whole, kind="rows", changes=(), metadata={}))
        numbers.append(destination.commit(commits[-1]).seq)
        reads.append(count)
    assert max(after - before for before, after in pairwise(reads)) <= 2
    for opened in (destination, place.open()):
        assert [opened.commit(commit).seq for commit in commits] == numbers
    assert destination.commit(Commit(os.urandom(16).hex(), "tweets", (), kind="skip", note="by me")).seq == numbers[-1] + 1
