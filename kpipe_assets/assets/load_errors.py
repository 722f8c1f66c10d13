"""Definitions that cannot be loaded: each is an asset where its table would be, and a check that is red and says why.

One wrong file must not take the others away, and must not be silent: Dagster would show neither, only a code location
that failed. So it is told where people look: on the asset, in its check, in the log.
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

#: The check, and the sensor that turns it red.
CHECK = "definition"
_NAME = "kpipe_definitions"
_LOG = logging.getLogger("dagster.kpipe")


def unloadable(home: Home, problems: Mapping[str, Exception], taken: Collection[dg.AssetKey]) -> dg.Definitions:
    """Assets that stand for definitions which cannot be loaded.

    Args:
        home: where the files lie.
        problems: what is wrong, by the name of the file without its ending.
        taken: keys of assets that there are.
    """
    if not problems:
        return dg.Definitions()
    wrong: dict[dg.AssetKey, str] = {}
    specs = []
    for name, error in problems.items():
        file = home.pipelines / f"{name}.yaml"
        words = str(error) if str(error).startswith(str(file)) else f"{file}: {error}"
        _warn(words)
        key = dg.AssetKey([_table(home, name)])
        if key in taken or key in wrong:
            key = dg.AssetKey([CHECK, name])
        wrong[key] = words
        specs.append(
            dg.AssetSpec(
                key,
                group_name="kpipe",
                description=f"**This pipeline cannot be loaded.** {words}\n\nThe others go on. Mend the file, then reload.",
                metadata={"kpipe/pipeline": name, "kpipe/error": words},
            )
        )
    return dg.Definitions(assets=specs, asset_checks=[_checks(wrong)], sensors=[_sensor(wrong)])


@cache
def _warn(words: str) -> None:
    """Once a process, since Dagster loads definitions twice."""
    _LOG.warning("%s", plain_lines(words))


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
        description="Turns the check of each pipeline that cannot be loaded red. Starts nothing.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        events = []
        for key, words in wrong.items():
            record = context.instance.get_latest_asset_check_evaluation_record(dg.AssetCheckKey(key, CHECK))
            told = record.evaluation if record is not None else None
            if not isinstance(told, dg.AssetCheckEvaluation) or told.description != words:
                events.append(
                    dg.AssetCheckEvaluation(asset_key=key, check_name=CHECK, passed=False, metadata={}, description=words)
                )
        return dg.SensorResult(asset_events=events, skip_reason="; ".join(wrong.values()))

    return sensor


def _table(home: Home, name: str) -> str:
    """The table that the file names, if that can be read: its asset keeps its history while the definition is wrong."""
    try:
        text = (home.pipelines / f"{name}.yaml").read_text(encoding="utf-8")
        table = yaml.safe_load(text)["attributes"]["into"]["table"]
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError, InvalidPipeline):
        return name
    return table if isinstance(table, str) and NAME.fullmatch(table) else name
