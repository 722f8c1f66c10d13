"""Order the ranges of a batch for a sample of its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kpipe.ledger.ledger import Step

__all__ = ["spread"]


def spread(steps: Sequence[Step]) -> list[Step]:
    """Order steps so that the first partition of each topic precedes every topic's second one."""
    seen: Counter[str] = Counter()
    ranked: list[tuple[int, int, Step]] = []
    for step in steps:
        ranked.append((seen[step.source.topic.name], len(ranked), step))
        seen[step.source.topic.name] += 1
    return [step for *_, step in sorted(ranked, key=lambda item: item[:2])]
