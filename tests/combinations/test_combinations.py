"""Combinations of topics, definitions and events through kpipe's own code, judged by an oracle: see README.md."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.combinations.judging import NEEDED, check, hunt, sample, search_seconds, search_seed
from tests.combinations.pinned import PINNED
from tests.combinations.strategies import DESTINATIONS

#: Examples of `make test`, which see that the search works: it goes on in `make chaos`. Pinned ones come on top.
_SAMPLE = {"duckdb": 3, "kafka": 2, "webhook": 3, "delta": 1, "iceberg": 1, "parquet": 1, "postgres": 1, "mysql": 1}


@pytest.fixture(params=DESTINATIONS)
def destination(request: pytest.FixtureRequest) -> str:
    """Each destination that this machine has."""
    kind = str(request.param)
    if kind in NEEDED:
        request.getfixturevalue(NEEDED[kind])  # skips where the machine has none
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
@pytest.mark.minutes(30)
@pytest.mark.broker
def test_random_combinations(destination: str, sites: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """KPIPE_COMBINATIONS_MINUTES in all (30), KPIPE_COMBINATIONS_SEED to begin with (the day's number)."""
    seed = search_seed()
    done = hunt(destination, sites, seed, search_seconds())
    with capsys.disabled():
        print(
            f"\n{destination}: {done.examples} examples in {done.seconds:.0f} s, seeds {seed} to {done.last_seed}",
            file=sys.stderr,
        )
    assert not done.failure, f"seed {done.last_seed}, example {done.first}:\n{done.failure}"
