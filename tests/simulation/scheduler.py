"""The scheduler: which process goes on, and what happens to it. Every interleaving, or random ones by a seed.

A state that is reached on several ways is looked at once, and the number of ways is counted (`Exhausted.interleavings`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.edges import Effect, stand_ins
from tests.simulation.model import Choice, Model, State
from tests.simulation.runs import Scenario
from tests.simulation.world import words

__all__ = ["Exhausted", "Finding", "Scheduler"]


@dataclass(frozen=True)
class Finding:
    """What is wrong, and the choices that lead there."""

    scenario: Scenario
    schedule: tuple[Choice, ...]
    rules: tuple[str, ...]
    at: int = 0

    def __str__(self) -> str:
        with stand_ins():
            told = "\n    ".join(Scheduler(self.scenario).told(self.schedule))
        return (
            f"{self.scenario.name}: {'; '.join(self.rules)}\n  {self.scenario}\n  replay: {' '.join(self.schedule)}\n    {told}"
        )


@dataclass
class Exhausted:
    """What an exhaustive search has looked at.

    Attributes:
        states: that are different.
        steps: from one to the next.
        interleavings: ways through them, from the beginning to the end.
        deepest: choices of the longest way.
        whole: whether it has come to an end.
        findings: what is wrong.
    """

    states: int = 0
    steps: int = 0
    interleavings: int = 0
    deepest: int = 0
    whole: bool = False
    findings: list[Finding] = field(default_factory=list)


class Scheduler(Model):
    """Courses of a scenario: all of them, random ones, and given ones."""

    def exhaust(self, depth: int | None = None, most: int = 1, steps: int | None = None) -> Exhausted:
        """Look at every interleaving: each of the choices up to that depth, and the first one from there on.

        Args:
            depth: None: without a limit, as every course ends.
            most: findings, after which the search ends.
            steps: after which it is given up.
        """
        result = Exhausted()
        counts: dict[Any, int] = {}
        stack: list[tuple[State, Any, Iterator[Choice], int]] = []
        path: list[Choice] = []

        def enter(state: State, level: int) -> int:
            """Number of ways from there, or 0 where it has to be looked at first."""
            key = (state.key, None if depth is None else min(level, depth))
            if key in counts:
                return counts[key]
            result.states += 1
            result.deepest = max(result.deepest, level)
            options = self.options(state)
            if not options:
                counts[key] = 1
                if found := self.ended(state):
                    result.findings.append(Finding(self.scenario, tuple(path), found, result.states))
                return 1
            counts[key] = 0
            stack.append((state, key, iter(options[:1] if depth is not None and level >= depth else options), level))
            return 0

        enter(self.first, 0)
        while stack and len(result.findings) < most and (steps is None or result.steps < steps):
            state, key, options, level = stack[-1]
            choice = next(options, None)
            if choice is None:
                stack.pop()
                if stack:
                    counts[stack[-1][1]] += counts[key]
                    path.pop()
                continue
            after, found = self.take(state, choice)
            result.steps += 1
            path.append(choice)
            if found:
                result.findings.append(Finding(self.scenario, tuple(path), found, result.states))
            ways = enter(after, level + 1)
            if ways:
                counts[key] += ways
                path.pop()
        result.whole = not stack
        result.interleavings = counts[next(iter(counts))] if result.whole else 0
        return result

    def walk(self, chance: random.Random) -> tuple[tuple[Choice, ...], tuple[str, ...]]:
        """One random interleaving: its choices, and what is wrong."""
        self.trim()
        state, path = self.first, []
        stay = chance.choice((0.0, 0.5, 0.8, 0.95))  # long stretches of one process find other things than short ones
        fault = chance.choice((0.05, 0.2, 0.5))
        last = ""
        while options := self.options(state):
            calm = [o for o in options if o.endswith(":go") or o.startswith("net")]
            same = [o for o in calm if o.startswith(last)] if last else []
            if len(calm) < len(options) and chance.random() < fault:
                choice = chance.choice([o for o in options if o not in calm])
            elif same and chance.random() < stay:
                choice = same[0]
            else:
                choice = chance.choice(calm or options)
            last = choice.partition(":")[0] + ":"
            path.append(choice)
            state, found = self.take(state, choice)
            if found:
                return tuple(path), found
        return tuple(path), self.ended(state)

    def follow(self, schedule: Sequence[Choice]) -> tuple[tuple[Choice, ...], tuple[str, ...]]:
        """Replay a schedule; what cannot happen is left out, and what is missing at the end is each actor in turn."""
        state, path = self.first, []
        rest = list(schedule)
        while options := self.options(state):
            choice = rest.pop(0) if rest else options[0]
            if choice not in options:
                continue
            path.append(choice)
            state, found = self.take(state, choice)
            if found:
                return tuple(path), found
        return tuple(path), self.ended(state)

    def shrunk(self, schedule: tuple[Choice, ...], rules: tuple[str, ...]) -> tuple[tuple[Choice, ...], tuple[str, ...]]:
        """A shorter schedule that breaks the same rule."""
        rule = rules[0].partition(":")[0]
        best, texts = schedule, rules
        at = 0
        while at < len(best):
            path, found = self.follow(best[:at] + best[at + 1 :])
            if found and found[0].startswith(rule) and len(path) < len(best):
                best, texts = path, found
            else:
                at += 1
        return best, texts

    def told(self, schedule: Sequence[Choice]) -> list[str]:
        """A schedule step by step, for people."""
        state, lines = self.first, []
        for choice in schedule:
            who, _, action = choice.partition(":")
            if who not in ("net", "end"):
                node = state.nodes[int(who)]
                assert isinstance(node.pending, Effect)
                spec = self.scenario.actors[int(who)][node.process]
                what = words(node.pending.args[0]) if node.pending.name == "commit" else node.pending.name
                lines.append(f"{'ABCDEF'[int(who)]} {' '.join(map(str, spec))}: {what}" + f" [{action}]" * (action != "go"))
            else:
                lines.append(f"network: {words(state.world.flying[int(action)])}" if who == "net" else "nothing more lands")
            state, found = self.take(state, choice)
            lines += [f"  -> {text}" for text in found]
        return lines
