"""What `into.audit` asks as asset checks of the table: one for each expression, with where the rows wait that are not true.

They are as good as the newest batch: the run that was stopped by them tells it, and so does a sensor where another program's
was. Rows that fail are on a branch of the table, and nobody who reads main has seen one of them.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

from collections.abc import Iterator
from typing import Any

import dagster as dg

from kpipe.definition.pipeline import Pipeline
from kpipe.interfaces import Auditing, Destination

__all__ = ["PREFIX", "audit_news", "audit_results", "audit_specs"]

#: Of the checks' names: an audit may be called as another check is.
PREFIX = "audit_"
_SNAPSHOT, _SQL = "kpipe/snapshot", "kpipe/expression"


def audit_specs(pipeline: Pipeline, asset: dg.AssetKey) -> Iterator[dg.AssetCheckSpec]:
    """A check for each expression. Blocking: what is computed from the table is not, while rows of it wait."""
    for name, text in pipeline.into.audit.items():
        words = f"`{text}` is true of every row, before it is published. Rows of a batch in which it is not wait on a branch."
        yield dg.AssetCheckSpec(PREFIX + name, asset=asset, description=words, blocking=True, metadata={_SQL: text})


def audit_results(pipeline: Pipeline, destination: Destination) -> dict[str, tuple[bool, str, dict[str, Any]]]:
    """Whether each holds, in words, with what is shown beside them; by the check's name.

    Raises:
        KpipeError: the table or its branch cannot be read.
    """
    found = destination.audited() if isinstance(destination, Auditing) else None
    results: dict[str, tuple[bool, str, dict[str, Any]]] = {}
    for name, text in pipeline.into.audit.items():
        metadata: dict[str, Any] = {_SQL: text}
        if found is None:
            results[PREFIX + name] = True, "no rows wait: each batch was true before it was published", metadata
            continue
        metadata |= {_SNAPSHOT: found.snapshot, "kpipe/branch": found.where, "kpipe/rows": found.rows}
        said = found.failed.get(name)
        words = f"{said}; " if said else ""
        words += f"{found.rows:,} rows wait on branch {found.where}" + ("" if said else ", and this is true of them")
        results[PREFIX + name] = said is None, words, metadata
    return results


def audit_news(
    instance: dg.DagsterInstance, pipeline: Pipeline, destination: Destination, asset: dg.AssetKey
) -> list[dg.AssetCheckEvaluation]:
    """What Dagster has not been told of them: each that was never told, or has become something else. Told once.

    Rows are read only where others wait than those that were told of.

    Raises:
        KpipeError: the table or its branch cannot be read.
    """
    if not isinstance(destination, Auditing) or not pipeline.into.audit:
        return []
    told = {name: _told(instance, dg.AssetCheckKey(asset, PREFIX + name)) for name in pipeline.into.audit}
    waits = destination.held_back()
    if all(_is_known(one, waits, pipeline.into.audit[name]) for name, one in told.items()):
        return []
    events = []
    for name, (passed, words, metadata) in audit_results(pipeline, destination).items():
        one = told[name.removeprefix(PREFIX)]
        # What waits for a moment, and is as it should be, is no news.
        if one is None or one.passed != passed or (one.description != words and not (passed and waits)):
            events.append(
                dg.AssetCheckEvaluation(
                    asset_key=asset,
                    check_name=name,
                    passed=passed,
                    severity=dg.AssetCheckSeverity.ERROR,
                    description=words,
                    metadata=metadata,
                    blocking=True,
                )
            )
    return events


def _told(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> dg.AssetCheckEvaluation | None:
    record = instance.get_latest_asset_check_evaluation_record(key)
    found = record.evaluation if record is not None else None
    return found if isinstance(found, dg.AssetCheckEvaluation) else None  # else it was planned, and has not come to pass


def _is_known(told: dg.AssetCheckEvaluation | None, waits: str, text: str) -> bool:
    """Whether that speaks of the rows that wait now, and of this expression."""
    if told is None:
        return False
    said = {name: value.value for name, value in told.metadata.items()}
    return said.get(_SNAPSHOT, "") == waits and said.get(_SQL) == text
