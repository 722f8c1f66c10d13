"""Compare the formulae of docs/explanation/scaling.md with simulated batches on uneven partitions and cores."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.studies.scaling import (
    DESTINATIONS,
    Cluster,
    Load,
    best_tasks,
    commit_s,
    extract_s,
    period_s,
    records_s,
    tables,
    useful_cores,
)
from bench.studies.simulation import Uneven, play

#: How far the two may be apart, for the sizes and speeds of `Uneven`. docs/explanation/scaling.md says the same.
BOUND = 0.15

GRID = [
    (partitions, records, workers)
    for partitions, records in ((12, 1_000_000), (100, 5_000_000), (1_000, 20_000_000), (10_000, 100_000_000))
    for workers in (1, 10, 100, 1_000)
]


@pytest.mark.parametrize("destination", ["duckdb", "delta"])
@pytest.mark.parametrize(("partitions", "records", "workers"), GRID)
def test_the_formulae_are_what_is_played(partitions: int, records: int, workers: int, destination: str) -> None:
    load, cluster, commit = Load(partitions, records), Cluster(workers), DESTINATIONS[destination]
    played = play(load, cluster, commit, batches=3, seed=partitions + workers)
    assert played.records == pytest.approx(3 * records, rel=0.3), "sizes differ, by chance"
    even = Load(partitions, played.records // 3)
    assert played.extract_s == pytest.approx(extract_s(even, cluster), rel=BOUND)
    assert played.period_s == pytest.approx(period_s(even, cluster, commit), rel=2 * BOUND if partitions < 100 else BOUND)


def test_the_same_seed_gives_the_same() -> None:
    again = [play(Load(50, 1_000_000), Cluster(3), DESTINATIONS["delta"], 3, seed) for seed in (7, 7, 8)]
    assert again[0] == again[1] != again[2]


def test_late_tasks_cost_no_more_than_their_own_time() -> None:
    load, cluster = Load(1_000, 20_000_000), Cluster(10)
    calm, late = (play(load, cluster, DESTINATIONS["delta"], 3, 1, Uneven(late=share)) for share in (0.0, 0.05))
    assert calm.extract_s < late.extract_s < 2.1 * calm.extract_s


def test_where_the_commit_is_the_limit_more_workers_change_nothing() -> None:
    load, commit = Load(100, 10_000_000), DESTINATIONS["duckdb"]
    cores = useful_cores(load, commit)
    assert extract_s(load, Cluster(1, round(cores / 2))) > commit_s(load, commit) > extract_s(load, Cluster(1, round(cores * 2)))
    assert records_s(load, Cluster(10), commit) == records_s(load, Cluster(20), commit) == load.records / commit_s(load, commit)


def test_more_tasks_than_the_driver_can_send_make_a_batch_slower() -> None:
    load = Load(10_000, 100_000_000)
    best = Cluster(1, best_tasks(load))
    assert extract_s(load, best) < min(extract_s(load, Cluster(1, best.cores // 4)), extract_s(load, Cluster(1, best.cores * 4)))


def test_the_page_has_what_the_formulae_give() -> None:
    page = (Path(__file__).parents[3] / "docs" / "explanation" / "scaling.md").read_text(encoding="utf-8")
    assert [line for line in tables().splitlines() if line not in page.splitlines()] == []
    assert f"{BOUND:.0%}" in page.replace(" %", "%")
