"""Random scenarios by a seed: each as a whole where it is small, else many random interleavings of it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.scenarios import drawn
from tests.simulation.scheduler import Finding, Scheduler

__all__ = ["Searched", "search"]

#: Steps after which a scenario is taken for too large to be looked at as a whole.
STEPS = 3000
WALKS = 300


@dataclass
class Searched:
    """What a search has looked at.

    Attributes:
        scenarios: that were drawn.
        whole: those of which every interleaving was looked at.
        interleavings: of these.
        walks: random interleavings of the others.
        findings: what is wrong, by the seed of the scenario.
    """

    scenarios: int = 0
    whole: int = 0
    interleavings: int = 0
    walks: int = 0
    findings: dict[str, Finding] = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"{self.scenarios:,} scenarios; every interleaving of {self.whole:,} of them, {self.interleavings:,} together;"
            f" {self.walks:,} random ones of the others; findings: {len(self.findings)}"
        )


def search(seed: int, enough: Callable[[Searched], bool], steps: int = STEPS, walks: int = WALKS) -> Searched:
    """Draw scenarios until it is enough; the scenario number n depends on nothing but the seed and n."""
    result = Searched()
    while not enough(result):
        name = f"{seed}:{result.scenarios}"
        result.scenarios += 1
        finding = _one(name, result, steps, walks)
        if finding is not None:
            result.findings[name] = finding
    return result


def _one(name: str, result: Searched, steps: int, walks: int) -> Finding | None:
    chance = random.Random(name)
    scheduler = Scheduler(drawn(chance))
    found = scheduler.exhaust(steps=steps)
    if found.findings:
        finding = found.findings[0]
        return Finding(scheduler.scenario, *scheduler.shrunk(finding.schedule, finding.rules))
    if found.whole:
        result.whole += 1
        result.interleavings += found.interleavings
        return None
    for _ in range(walks):
        result.walks += 1
        schedule, rules = scheduler.walk(chance)
        if rules:
            return Finding(scheduler.scenario, *scheduler.shrunk(schedule, rules))
    return None


def until(seconds: float) -> Callable[[Searched], bool]:
    """Until that much time has gone by."""
    end = time.monotonic() + seconds
    return lambda _: time.monotonic() >= end
