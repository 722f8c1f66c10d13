"""A thousand commits into one table of each format: the last ones cost what the first ones did."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import pytest

from resources.testing.place import batch
from resources.testing.state import begun, proof
from tests.resources.destinations.lake_place import DeltaPlace, IcebergPlace, LakePlace, ParquetPlace

COMMITS, WINDOW = 1000, 100


@pytest.mark.chaos
@pytest.mark.parametrize("kind", [DeltaPlace, IcebergPlace, ParquetPlace])
def test_a_thousand_commits(kind: type[LakePlace], tmp_path: Path) -> None:
    place = kind(tmp_path)
    destination = begun(place, 3)
    ledger, spent = destination.ledger()[1], []
    for end in range(1, COMMITS + 1):
        commit = batch(place, ledger, {0: end, 1: end, 2: end})
        ledger = ledger.after(commit.changes)
        began = time.process_time(), time.perf_counter()
        assert destination.commit(commit).seq == end + 1
        spent.append((time.process_time() - began[0], time.perf_counter() - began[1]))
    windows = [spent[at : at + WINDOW] for at in range(0, COMMITS, WINDOW)]
    for at, window in enumerate(windows):
        cpu, wall = (median(values) * 1e3 for values in zip(*window, strict=True))
        print(f"commits {at * WINDOW:4} to {(at + 1) * WINDOW:4}: CPU {cpu:5.1f} ms, wall {wall:5.1f} ms")
    assert proof(destination).ok and len(place.rows()) == 3 * COMMITS
    first, last = (median(cpu for cpu, _ in windows[at]) for at in (1, -1))
    assert last < 3 * first, f"a commit takes {last * 1e3:.0f} ms of CPU, it took {first * 1e3:.0f} ms"
