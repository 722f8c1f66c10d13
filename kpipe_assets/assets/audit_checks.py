"""Asset checks for `into.audit`: one for each expression, with the branch of rows that fail it.

The result is that of the newest batch, with the commit since which batches were checked. The run that failed its audit
publishes it; after a run outside of Dagster, a sensor does. Rows that fail are on a branch of the table, never on `main`.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

from collections.abc import Iterator
from typing import Any

import dagster as dg

from kpipe.batch_audit import Auditing
from kpipe.definition.pipeline import Pipeline
from kpipe.interfaces import Destination
from kpipe_assets.assets.check_records import latest_result

__all__ = ["PREFIX", "audit_news", "audit_results", "audit_specs"]

#: Prefix of the checks' names: an audit may have the name of another check.
PREFIX = "audit_"
_SNAPSHOT, _SQL, _SINCE = "kpipe/snapshot", "kpipe/expression", "kpipe/passed_since_commit"


def audit_specs(pipeline: Pipeline, asset: dg.AssetKey) -> Iterator[dg.AssetCheckSpec]:
    """Yield a check for each expression. It is blocking: assets downstream are not computed while rows wait."""
    for name, text in pipeline.into.audit.items():
        summary = f"`{text}` is true for every row before the batch is published. Otherwise the batch waits on a branch."
        yield dg.AssetCheckSpec(PREFIX + name, asset=asset, description=summary, blocking=True, metadata={_SQL: text})


def audit_results(pipeline: Pipeline, destination: Destination) -> dict[str, tuple[bool, str, dict[str, Any]]]:
    """Return for each check by name: whether it passed, a summary, and metadata.

    Raises:
        KpipeError: the table or its branch cannot be read.
    """
    waiting = destination.audited() if isinstance(destination, Auditing) else None
    since = destination.passed_since() if isinstance(destination, Auditing) and waiting is None else {}
    results: dict[str, tuple[bool, str, dict[str, Any]]] = {}
    for name, text in pipeline.into.audit.items():
        metadata: dict[str, Any] = {_SQL: text}
        if waiting is None:
            if name in since:
                metadata[_SINCE] = since[name]
            results[PREFIX + name] = True, _nothing_waits(since.get(name)), metadata
            continue
        metadata |= {_SNAPSHOT: waiting.snapshot, "kpipe/branch": waiting.where, "kpipe/rows": waiting.rows}
        failure = waiting.failed.get(name)
        summary = f"{failure}; " if failure else ""
        summary += f"{waiting.rows:,} rows wait on branch {waiting.where}" + ("" if failure else " and pass this check")
        results[PREFIX + name] = failure is None, summary, metadata
    return results


def _nothing_waits(since: int | None) -> str:
    """Describe which published rows passed an expression: batches before it was defined were not checked with it."""
    checked = "the table does not record that a batch passed this check, so its rows may fail it; the next batch is checked"
    if since is not None:
        checked = (
            f"each batch since commit {since} of this pipeline passed; earlier rows and rows of other writers were not checked"
        )
    return f"no rows wait: {checked}"


def audit_news(
    instance: dg.DagsterInstance, pipeline: Pipeline, destination: Destination, asset: dg.AssetKey
) -> list[dg.AssetCheckEvaluation]:
    """Return the check results that differ from those in Dagster, or are missing there.

    Rows are read only if the rows that wait have changed.

    Raises:
        KpipeError: the table or its branch cannot be read.
    """
    if not isinstance(destination, Auditing) or not pipeline.into.audit:
        return []
    last_results = {name: latest_result(instance, dg.AssetCheckKey(asset, PREFIX + name)) for name in pipeline.into.audit}
    snapshot = destination.held_back()
    since = {} if snapshot else destination.passed_since()
    texts = pipeline.into.audit
    current = {name: _is_current(last, snapshot, texts[name], since.get(name)) for name, last in last_results.items()}
    if all(current.values()):
        return []
    events = []
    for name, (passed, summary, metadata) in audit_results(pipeline, destination).items():
        check = name.removeprefix(PREFIX)
        last = last_results[check]
        waits = passed and snapshot  # rows that wait for a moment and pass are not reported
        if last is None or last.passed != passed or not (waits or (current[check] and last.description == summary)):
            events.append(
                dg.AssetCheckEvaluation(
                    asset_key=asset,
                    check_name=name,
                    passed=passed,
                    severity=dg.AssetCheckSeverity.ERROR,
                    description=summary,
                    metadata=metadata,
                    blocking=True,
                )
            )
    return events


def _is_current(last: dg.AssetCheckEvaluation | None, snapshot: str, text: str, since: int | None) -> bool:
    """Return whether the result is of this snapshot of waiting rows, of this expression, and of the batches that passed it.

    Without waiting rows, it must also have today's description: an earlier version claimed that every batch had passed.
    """
    if last is None:
        return False
    metadata = {name: value.value for name, value in last.metadata.items()}
    same = metadata.get(_SNAPSHOT, "") == snapshot and metadata.get(_SQL) == text
    return same and (bool(snapshot) or last.description == _nothing_waits(since))
