"""Definitions that cannot be loaded: each becomes an asset with a failed check that contains the error.

One invalid file must not hide the other pipelines: by default, Dagster would only show a code location that failed. The
error is shown on the asset, in its check and in the log.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

import logging
from collections.abc import Collection, Iterator, Mapping
from functools import cache

import dagster as dg
import yaml

from kpipe.definition.target import NAME
from kpipe.errors import InvalidPipeline
from kpipe.terminal import plain_lines
from resources.home import Home

__all__ = ["CHECK", "unloadable"]

#: Name of the asset check.
CHECK = "definition"
_NAME = "kpipe_definitions"
_EFFECT = "Other pipelines are not affected. Fix the file, then reload."
_LOG = logging.getLogger("dagster.kpipe")


def unloadable(home: Home, problems: Mapping[str, Exception], taken: Collection[dg.AssetKey]) -> dg.Definitions:
    """Build an asset, a check and a sensor for definitions that cannot be loaded.

    Args:
        home: KPIPE_HOME.
        problems: errors by the file's name without its extension.
        taken: keys of existing assets.
    """
    if not problems:
        return dg.Definitions()
    wrong: dict[dg.AssetKey, str] = {}
    specs = []
    for name, error in problems.items():
        file = home.pipelines / f"{name}.yaml"
        message = str(error) if str(error).startswith(str(file)) else f"{file}: {error}"
        _warn(message)
        key = dg.AssetKey([_table(home, name)])
        if key in taken or key in wrong:
            key = dg.AssetKey([CHECK, name])
        wrong[key] = message
        specs.append(
            dg.AssetSpec(
                key,
                group_name="kpipe",
                description=f"**This pipeline cannot be loaded.** {message}\n\n{_EFFECT}",
                metadata={"kpipe/pipeline": name, "kpipe/error": message},
            )
        )
    return dg.Definitions(assets=specs, asset_checks=[_checks(wrong)], sensors=[_sensor(wrong)])


@cache
def _warn(message: str) -> None:
    """Log an error once in a process: Dagster loads definitions twice."""
    _LOG.warning("%s", plain_lines(message))


def _checks(wrong: Mapping[dg.AssetKey, str]) -> dg.AssetChecksDefinition:
    @dg.multi_asset_check(
        name=_NAME,
        specs=[dg.AssetCheckSpec(CHECK, asset=key, description="The pipeline's definition can be loaded.") for key in wrong],
        can_subset=True,
    )
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        for key in context.selected_asset_check_keys:
            yield dg.AssetCheckResult(passed=False, asset_key=key.asset_key, check_name=CHECK, description=wrong[key.asset_key])

    return checks


def _sensor(wrong: Mapping[dg.AssetKey, str]) -> dg.SensorDefinition:
    @dg.sensor(
        name=_NAME,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reports a failed check for each pipeline that cannot be loaded. Starts no runs.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        events = []
        for key, message in wrong.items():
            record = context.instance.get_latest_asset_check_evaluation_record(dg.AssetCheckKey(key, CHECK))
            last = record.evaluation if record is not None else None
            if not isinstance(last, dg.AssetCheckEvaluation) or last.description != message:
                events.append(
                    dg.AssetCheckEvaluation(asset_key=key, check_name=CHECK, passed=False, metadata={}, description=message)
                )
        return dg.SensorResult(asset_events=events, skip_reason="; ".join(wrong.values()))

    return sensor


def _table(home: Home, name: str) -> str:
    """Return the table's name in the file, else the file's name: the table's asset keeps its history."""
    try:
        text = (home.pipelines / f"{name}.yaml").read_text(encoding="utf-8")
        table = yaml.safe_load(text)["attributes"]["into"]["table"]
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError, InvalidPipeline):
        return name
    return table if isinstance(table, str) and NAME.fullmatch(table) else name
