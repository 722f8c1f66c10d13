"""The simulation is judged: broken variants of the protocol, each of which it has to find."""

from __future__ import annotations

import pytest

from tests.simulation.edges import stand_ins
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.scenarios import SMALL
from tests.simulation.scheduler import Finding, Scheduler
from tests.simulation.search import search

MOST = 1500


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_broken_protocol_is_found(mutant: Mutant) -> None:
    scenario = next(scenario for scenario in SMALL if scenario.name == mutant.near)
    with stand_ins(), mutant.applied():
        found = Scheduler(scenario).exhaust()
        assert found.findings, f"{mutant}: not found in {found.interleavings:,} interleavings of: {scenario.name}"
        assert Scheduler(scenario).follow(found.findings[0].schedule)[1], "the schedule is a replay"
    _blamed(mutant, found.findings[0])
    print(f"\n{mutant}: found at state {found.findings[0].at:,} of: {scenario.name}: {found.findings[0].rules[0]}")


@pytest.mark.minutes(20)
@pytest.mark.chaos
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_broken_protocol_is_found_by_random_scenarios(mutant: Mutant) -> None:
    with stand_ins(), mutant.applied():
        found = search(1, lambda so_far: bool(so_far.findings) or so_far.scenarios >= MOST, steps=500, walks=100)
    assert found.findings, f"{mutant}: not found: {found}"
    (name, finding), *_ = found.findings.items()
    _blamed(mutant, finding)
    print(f"\n{mutant}: seed {name}: {found}: {finding.rules[0]}")


def _blamed(mutant: Mutant, finding: Finding) -> None:
    """The same schedule is right with the protocol as it is."""
    with stand_ins():
        assert not Scheduler(finding.scenario).follow(finding.schedule)[1], (
            f"{mutant}: it is not the mutant that is wrong: {finding}"
        )
