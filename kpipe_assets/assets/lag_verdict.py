"""The check `lag` without a run: sensors evaluate it after an error, above its bound, and when that is over.

A run that fails does not execute its checks, and a run outside of Dagster has none: the last result would remain.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

from typing import Any

import dagster as dg

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError, NeedsOperator
from kpipe.ledger.ledger import Ledger
from kpipe.topics import TopicSnapshot
from kpipe_assets.assets.check_records import latest_result
from kpipe_assets.assets.table_asset import table_keys
from kpipe_assets.assets.table_checks import TROUBLE, Bounds, Result, behind, troubled

__all__ = ["alarm", "lag_key", "verdict"]

# Metadata of a result of `alarm`: number of the newest commit.
_SEQ = "kpipe/seq"


def alarm(instance: dg.DagsterInstance, pipeline: Pipeline, trouble: KpipeError, seq: int = 0) -> list[dg.AssetCheckEvaluation]:
    """Return a failed evaluation with the error, unless the last one reports it.

    An error of another class is reported, too, unless a retry may solve it. So is another message, if an operator must decide.

    Args:
        instance: Dagster instance.
        pipeline: the definition.
        trouble: the error that needs an operator, with which the last run has ended, or with which a tick ends.
        seq: number of the newest commit; 0: none, or unknown.
    """
    key = lag_key(pipeline)
    last = latest_result(instance, key)
    reported, result = _reported(last), troubled(trouble)
    same = reported.get(TROUBLE) == type(trouble).__name__ and not isinstance(trouble, NeedsOperator)
    if same or (trouble.retriable and TROUBLE in reported):
        return []
    if reported and last is not None and last.description == result[2]:
        return []
    return [_evaluation(key, result, {_SEQ: seq})]


def verdict(
    instance: dg.DagsterInstance,
    pipeline: Pipeline,
    ledger: Ledger,
    snapshot: TopicSnapshot,
    at_work: bool = False,
    by_dagster: bool = False,
) -> list[dg.AssetCheckEvaluation]:
    """Return an evaluation if there is no error, and it passes and the last one failed, or the reverse.

    Args:
        instance: Dagster instance.
        pipeline: the definition.
        ledger: the committed offsets.
        snapshot: the brokers' offsets.
        at_work: whether a run is at work.
        by_dagster: whether it is one of Dagster, which evaluates the bound at its end.
    """
    key = lag_key(pipeline)
    last = latest_result(instance, key)
    if last is None:
        return []  # see first_checks.py
    reported, result = _reported(last), behind(ledger, snapshot, Bounds().lag)
    if TROUBLE in reported:
        if at_work and reported.get(_SEQ) == ledger.seq and result[3]["kpipe/lag"]:
            return []  # it has committed nothing yet, and may end with the same error
    elif by_dagster or last.passed == result[0]:
        return []
    return [_evaluation(key, result, {})]


def lag_key(pipeline: Pipeline) -> dg.AssetCheckKey:
    """Return the key of a pipeline's check `lag`, which is one of its first table."""
    return dg.AssetCheckKey(table_keys(pipeline)[0], "lag")


def _reported(last: dg.AssetCheckEvaluation | None) -> dict[str, Any]:
    """Return the metadata of a failed evaluation."""
    return {name: value.value for name, value in last.metadata.items()} if last is not None and not last.passed else {}


def _evaluation(key: dg.AssetCheckKey, result: Result, more: dict[str, Any]) -> dg.AssetCheckEvaluation:
    passed, severity, summary, metadata = result
    return dg.AssetCheckEvaluation(
        asset_key=key.asset_key,
        check_name=key.name,
        passed=passed,
        severity=severity,
        description=summary,
        metadata={**metadata, **more},
    )
