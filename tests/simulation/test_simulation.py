"""The commit protocol simulated: every interleaving of small scenarios, and random ones by a seed (README.md)."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from tests.simulation.edges import stand_ins
from tests.simulation.runs import Scenario
from tests.simulation.scenarios import DEEP, SMALL
from tests.simulation.scheduler import Scheduler
from tests.simulation.search import search, until

SEED = int(os.environ.get("KPIPE_SIMULATION_SEED", "0")) or random.randrange(1, 10**9)
MINUTES = float(os.environ.get("KPIPE_SIMULATION_MINUTES", "10"))


@pytest.fixture(autouse=True)
def _stand_ins() -> Iterator[None]:
    with stand_ins():
        yield


@pytest.mark.parametrize("scenario", SMALL, ids=lambda scenario: scenario.name)
def test_every_interleaving(scenario: Scenario) -> None:
    found = Scheduler(scenario).exhaust()
    assert not found.findings, str(found.findings[0])
    assert found.whole and found.interleavings > found.states / 20


def test_random_scenarios() -> None:
    """The same ones each time."""
    found = search(1, lambda so_far: so_far.scenarios >= 8, steps=400, walks=25)
    assert not found.findings, "\n".join(f"seed {name}: {finding}" for name, finding in found.findings.items())


@pytest.mark.chaos
@pytest.mark.parametrize("scenario", DEEP, ids=lambda scenario: scenario.name)
def test_every_interleaving_of_larger_scenarios(scenario: Scenario) -> None:
    found = Scheduler(scenario).exhaust(steps=200_000)
    print(
        f"\n{scenario.name}: {found.interleavings:,} interleavings, {found.states:,} states, {found.steps:,} steps,"
        f" depth {found.deepest}, {'whole' if found.whole else 'given up'}"
    )
    assert not found.findings, str(found.findings[0])


@pytest.mark.chaos
@pytest.mark.minutes(10)
def test_random_scenarios_for_a_time() -> None:
    print(f"\nKPIPE_SIMULATION_SEED={SEED} ({MINUTES:g} minutes)")
    found = search(SEED, until(60 * MINUTES))
    print(found)
    assert not found.findings, "\n".join(f"seed {name}: {finding}" for name, finding in found.findings.items())
