"""Combinations of topics, definitions and events through kpipe's own code, judged by an oracle: see README.md."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.combinations.judging import check, hunt, sample
from tests.combinations.mutants import MUTANTS
from tests.combinations.mutation import Mutant, hunted, planted, texts_are_there
from tests.combinations.pinned import PINNED
from tests.combinations.strategies import DESTINATIONS

#: Examples of `make test`, which see that the search works: it goes on in `make chaos`. Pinned ones come on top.
_SAMPLE = {"duckdb": 3, "kafka": 2, "webhook": 3, "delta": 1, "iceberg": 1, "parquet": 1, "postgres": 1, "mysql": 1}
MINUTES, SEED = "KPIPE_COMBINATIONS_MINUTES", "KPIPE_COMBINATIONS_SEED"


_NEEDED = {"kafka": "brokers", "postgres": "postgres", "mysql": "mariadb"}


def _seconds() -> float:
    """Of the long search, for each destination."""
    return float(os.environ.get(MINUTES, "60")) * 60 / len(DESTINATIONS)


def _seed() -> int:
    return int(os.environ.get(SEED, time.strftime("%Y%m%d")))


@pytest.fixture(params=DESTINATIONS)
def destination(request: pytest.FixtureRequest) -> str:
    """Each destination that this machine has."""
    kind = str(request.param)
    if kind in _NEEDED:
        request.getfixturevalue(_NEEDED[kind])  # skips where the machine has none
    return kind


@pytest.mark.broker
@pytest.mark.parametrize("name", PINNED)
def test_an_example_that_was_wrong_once(name: str, sites: Any) -> None:
    check(PINNED[name], sites)


@pytest.mark.slow
def test_a_sample_of_combinations(destination: str, sites: Any) -> None:
    done = sample(destination, sites, _SAMPLE[destination])
    assert done.examples - done.refused > 0, f"no definition was taken: {done.reasons}"


@pytest.mark.chaos
@pytest.mark.broker
def test_combinations_for_an_hour(destination: str, sites: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """KPIPE_COMBINATIONS_MINUTES in all (60), KPIPE_COMBINATIONS_SEED to begin with (the day's number)."""
    seed = _seed()
    done = hunt(destination, sites, seed, _seconds())
    with capsys.disabled():
        print(f"\n{destination}: {done.examples} examples in {done.seconds:.0f} s, seeds {seed} to {done.last_seed}")
    assert not done.failure, f"seed {done.last_seed}, example {done.first}:\n{done.failure}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.item} {mutant.name}")
def test_a_mutant_replaces_texts_that_are_there(mutant: Mutant) -> None:
    texts_are_there(mutant)


@pytest.mark.chaos
@pytest.mark.broker
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.item} {mutant.name}")
def test_a_defect_that_is_put_back_is_found(
    mutant: Mutant, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """By random examples alone, in the time that the long search has for its destination."""
    broker = request.getfixturevalue("brokers") if mutant.destination == "kafka" else None
    if mutant.destination in _NEEDED:
        request.getfixturevalue(_NEEDED[mutant.destination])
    planted(mutant, tmp_path)
    seed = _seed()
    found = hunted(mutant, tmp_path, seed, _seconds(), broker)
    with capsys.disabled():
        result = f"after {found.examples} examples, {found.seconds:.0f} s, seed {found.seed}: {found.finding[:90]}"
        print(f"\n| {mutant.item} | {mutant.name} | {mutant.destination} | {result} |")
    assert found.finding, f"not found in {found.examples} examples, seeds {seed} to {found.seed}"
