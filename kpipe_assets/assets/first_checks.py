"""Evaluate a table's checks once, when its first commits are published: otherwise Dagster shows them as not evaluated.

A sensor does it, without Spark and without a run. Later evaluations are those of runs and operators. If Dagster has no runs,
because `kpipe serve` runs the pipeline, the sensor evaluates them again at intervals. A check that a run will
evaluate is left to the run: Dagster shows the record that was created last, and a run's record is created with the run.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

import time
from collections.abc import Callable
from typing import Any

import dagster as dg

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError
from kpipe.interfaces import Destination, Topics
from kpipe_assets.assets.check_records import latest_record
from kpipe_assets.assets.table_checks import check_assets, check_keys, evaluations, troubled
from kpipe_assets.assets.topic_table_assets import topics_with_tables
from resources.home import Home

__all__ = ["AGAIN_S", "first_results"]

#: Age of a result after which it is evaluated again, if there are new commits.
AGAIN_S = 3600.0

# Largest table and history that a tick reads. Dagster ends a tick after 60 s; a larger table waits for a run of its checks.
_MOST_ROWS, _MOST_COMMITS = 5_000_000, 10_000
# Checks that read neither table nor history.
_CHEAP = ("lag", "schema")


def first_results(
    instance: dg.DagsterInstance,
    pipeline: Pipeline,
    home: Home,
    destination: Destination,
    topics: Callable[[], Topics],
    again: bool = False,
) -> list[dg.AssetCheckEvaluation] | None:
    """Return results of the checks that were never evaluated; None if the time is not right: call it again at the next tick.

    Args:
        instance: Dagster instance.
        pipeline: the definition.
        home: KPIPE_HOME.
        destination: the pipeline's; all its commits are published.
        topics: returns the client of its brokers.
        again: whether to evaluate checks with old results, too, except `lag` (lag_verdict.py). Only changed results are returned.
    """
    row = next(iter(destination.view("pipelines")), None)
    if row is None or not destination.view("batches_summary", limit=1):
        return None  # nothing was loaded yet
    keys, with_tables = check_assets(pipeline, home), topics_with_tables(pipeline, home)
    last = {(name, key): latest_record(instance, dg.AssetCheckKey(key, name)) for name, key in check_keys(pipeline, keys)}
    missing = [item for item, record in last.items() if record is None or (again and item[0] != "lag" and _is_old(record))]
    uid, ledger = destination.ledger()
    if int(row["rows"]) + int(row["dead_letters"]) > _MOST_ROWS or ledger.seq > _MOST_COMMITS:
        missing = [(name, key) for name, key in missing if name in _CHEAP]
    if not missing:
        return []
    evaluate, results = evaluations(instance, pipeline, home, destination, topics, with_tables), []
    for name, key in missing:
        try:
            passed, severity, summary, metadata = evaluate[name](keys.index(key))
        except KpipeError as error:
            if error.retriable:
                return None
            passed, severity, summary, metadata = troubled(error)
        results.append(
            dg.AssetCheckEvaluation(
                asset_key=key, check_name=name, passed=passed, severity=severity, description=summary, metadata=metadata
            )
        )
    # A commit in between would make the table differ from the ledger that was read before it.
    now = destination.ledger()
    if (now[0], now[1].seq) != (uid, ledger.seq):
        return None
    return [
        result
        for result in results
        for record in [last[result.check_name, result.asset_key]]
        if _is_news(result, record) and _is_same(record, latest_record(instance, result.asset_check_key))
    ]


def _is_same(before: Any, now: Any) -> bool:
    return now is None if before is None else now is not None and now.id == before.id


def _is_old(record: Any) -> bool:
    return isinstance(record.evaluation, dg.AssetCheckEvaluation) and time.time() - record.create_timestamp > AGAIN_S


def _is_news(result: dg.AssetCheckEvaluation, record: Any) -> bool:
    """Return whether the result differs: Dagster never deletes events, so another summary of a passed check does not count."""
    before = record.evaluation if record is not None else None
    return before is None or before.passed != result.passed or (not result.passed and before.description != result.description)
