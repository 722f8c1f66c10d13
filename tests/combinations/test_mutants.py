"""The search is judged: defects are put back, each of which it has to find."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.combinations.judging import NEEDED, search_seconds, search_seed
from tests.combinations.mutants import MUTANTS
from tests.combinations.mutation import Mutant, hunted, planted, texts_are_there


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.item} {mutant.name}")
def test_a_mutant_replaces_texts_that_are_there(mutant: Mutant) -> None:
    texts_are_there(mutant)


@pytest.mark.chaos
@pytest.mark.minutes(30)
@pytest.mark.broker
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.item} {mutant.name}")
def test_a_defect_that_is_put_back_is_found(
    mutant: Mutant, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """By random examples, in the time of the long search for its destination, two minutes at most; else by the pinned ones."""
    broker = request.getfixturevalue("brokers") if mutant.destination == "kafka" else None
    if mutant.destination in NEEDED:
        request.getfixturevalue(NEEDED[mutant.destination])
    planted(mutant, tmp_path)
    seed = search_seed()
    found = hunted(mutant, tmp_path, seed, min(search_seconds(), 120), broker)
    with capsys.disabled():
        result = f"after {found.examples} examples, {found.seconds:.0f} s, seed {found.seed}: {found.finding[:90]}"
        print(f"\n| {mutant.item} | {mutant.name} | {mutant.destination} | {result} |", file=sys.stderr)
    assert found.finding, f"not found by random examples from seed {seed} on, nor by {found.examples} pinned ones"
