"""Order the ranges of a batch for a sample of its records, and limit the columns of the sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from kpipe.batch.batch import Batch, RangeReport
from kpipe.column_growth import named, widened
from kpipe.definition.pipeline import Pipeline
from kpipe.expressions.projection import Selection
from kpipe.ingest.staging import filled
from kpipe.ledger.ledger import Step
from kpipe.schema.columns import Columns
from kpipe.schema.growth_limits import room
from kpipe.tables.topic_tables import batch_tables
from kpipe.tables.upsert import naming_of
from resources.sources.connector import Connector
from resources.sources.exact_numbers import joined, numbers, refined, selected

__all__ = ["bounds_of", "reported", "spread", "typed"]

_MOST_SPLITS = 16  # splits whose types are read


def bounds_of(pipeline: Pipeline) -> tuple[Any, ...]:
    """Return the limits of a new table's columns, as `sampled` of resources/decode/factory.py takes them."""
    # A record with an impossible column name still gives a row where records add no columns: column_growth.py omits the name.
    kind = naming_of(pipeline) if widened(pipeline) else ""
    return named(pipeline), kind, room(kind) if kind else None, filled(pipeline, pipeline.declared)


def typed(pipeline: Pipeline, inferred: Columns, connector: Connector | None, steps: Sequence[Step]) -> Columns:
    """Return the columns of a sample, with the types of numbers in the source; none if no record gave a column."""
    if not inferred:
        return inferred
    return refined(inferred, _types(pipeline, connector, (step.source.topic.name for step in steps[:_MOST_SPLITS])))


def reported(
    pipeline: Pipeline,
    batch: Batch,
    reports: Sequence[RangeReport],
    connector: Connector | None,
    selections: Sequence[Selection | None],
) -> Sequence[RangeReport]:
    """Return reports whose new columns have the types of numbers in the source, as those of a sample have.

    Args:
        pipeline: the definition.
        batch: the batch.
        reports: of its ranges.
        connector: the source; None: topics.
        selections: the expressions of each table, which give their columns types of their own.
    """
    names = {report.source.topic.name for report in reports if report.found or any(part.new_columns for part in report.tables)}
    types = _types(pipeline, connector, sorted(names)[:_MOST_SPLITS])
    if not types:
        return reports
    of_tables = [types if found is None else types.without(found.targets) for found in selections]
    tables = batch_tables(pipeline, batch)
    return [
        replace(
            report,
            tables=tuple(
                replace(part, new_columns=numbers(part.new_columns, of_tables[at]))
                for at, part in zip(tables.of(report.source), report.tables, strict=True)
            ),
            found={value: numbers(columns, types) for value, columns in report.found.items()},
        )
        for report in reports
    ]


def _types(pipeline: Pipeline, connector: Connector | None, splits: Iterable[str]) -> Columns:
    """Return the types of numbers in the source; none of a topic, and none that a program may have changed."""
    kind = pipeline.format
    if connector is None or pipeline.transform is not None or kind.type != "json":
        return Columns()
    return selected(joined(connector.columns(name) for name in sorted(set(splits))), kind)


def spread(steps: Sequence[Step]) -> list[Step]:
    """Order steps so that the first partition of each topic precedes every topic's second one."""
    seen: Counter[str] = Counter()
    ranked: list[tuple[int, int, Step]] = []
    for step in steps:
        ranked.append((seen[step.source.topic.name], len(ranked), step))
        seen[step.source.topic.name] += 1
    return [step for *_, step in sorted(ranked, key=lambda item: item[:2])]
