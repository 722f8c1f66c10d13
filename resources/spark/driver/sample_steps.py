"""Order the ranges of a batch for a sample of its records, and limit the columns of the sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from kpipe.column_growth import named, widened
from kpipe.definition.pipeline import Pipeline
from kpipe.ingest.staging import filled
from kpipe.ledger.ledger import Step
from kpipe.schema.columns import Columns
from kpipe.schema.growth_limits import room
from kpipe.tables.upsert import naming_of
from resources.sources.connector import Connector
from resources.sources.exact_numbers import joined, refined, selected

__all__ = ["bounds_of", "spread", "typed"]


def bounds_of(pipeline: Pipeline) -> tuple[Any, ...]:
    """Return the limits of a new table's columns, as `sampled` of resources/decode/factory.py takes them."""
    # A record with an impossible column name still gives a row where records add no columns: column_growth.py omits the name.
    kind = naming_of(pipeline) if widened(pipeline) else ""
    return named(pipeline), kind, room(kind) if kind else None, filled(pipeline, pipeline.declared)


def typed(pipeline: Pipeline, inferred: Columns, connector: Connector | None, steps: Sequence[Step]) -> Columns:
    """Return columns inferred from records, with the types of numbers in the source; a program may have changed them."""
    kind = pipeline.format
    if connector is None or pipeline.transform is not None or kind.type != "json":
        return inferred
    names = sorted({step.source.topic.name for step in steps})
    return refined(inferred, selected(joined(connector.columns(name) for name in names), kind))


def spread(steps: Sequence[Step]) -> list[Step]:
    """Order steps so that the first partition of each topic precedes every topic's second one."""
    seen: Counter[str] = Counter()
    ranked: list[tuple[int, int, Step]] = []
    for step in steps:
        ranked.append((seen[step.source.topic.name], len(ranked), step))
        seen[step.source.topic.name] += 1
    return [step for *_, step in sorted(ranked, key=lambda item: item[:2])]
