"""Continuous ingest: a sensor that looks, and starts a run only when there is work and nobody is at it.

START is the sensor switched on, STOP switched off. It never reads a record, never holds an offset in its cursor (the
ledger knows), and asks for no Spark. One tick: a look (kpipe_assets/sensors/tick.py; some 30 ms), then at most one run.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

import time
from dataclasses import dataclass, replace

import dagster as dg

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError
from kpipe_assets.assets.table_asset import OP_TAG, op_name, table_key
from kpipe_assets.assets.topic_asset import table_partitions
from kpipe_assets.dagster_resources import Destinations, Topicsources
from kpipe_assets.publishing.metadata import partition_keys
from kpipe_assets.runs.run_locks import is_alive
from kpipe_assets.runs.run_workers import is_gone
from kpipe_assets.sensors.tick import Look, look
from resources.home import Home

__all__ = ["CONTINUOUS_TAG", "Pace", "ingest_sensor"]

#: Tag of runs that wait for more when they have caught up.
CONTINUOUS_TAG = "kpipe/continuous"
_IN_PROGRESS = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_CAUGHT_UP = "caught up"  # and nobody is at work
_LAUNCHED = (dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)


@dataclass(frozen=True)
class Pace:
    """How often, and how long.

    Attributes:
        interval_s: seconds between ticks; Dagster's daemon looks every 5 s at the earliest.
        metadata_s: the same of the sensor `NAME_metadata`.
        run_s: a run ends by itself after so long. Short enough that a run that hangs is noticed, long enough that
            Spark's start (some 5 s) does not count.
        idle_s: a run ends when it has found nothing for so long; the next record then waits for a tick and a start.
        lead_s: the successor is started so long before a run's end: a start of Dagster and Spark on a busy machine.
        first_wait_s: wait after the second failed run in a row (the first is followed by the next at once), doubled with
            each further one.
        longest_wait_s: no wait is longer. A run that has lasted longer than this was no failure to begin.
        launch_s: a run that was asked for, and was not queued within this time, never will be.
    """

    interval_s: int = 5
    metadata_s: int = 30
    run_s: float = 900
    idle_s: float = 300
    lead_s: float = 45
    first_wait_s: float = 10
    longest_wait_s: float = 600
    launch_s: float = 60

    def of_many(self, pipelines: int) -> "Pace":
        """The pace of each of so many on one instance: together at most five ticks a second of the one kind, one of the other.

        A tick costs Dagster's daemon and code server some 0.1 s of CPU, whatever it finds (bench/idle.py).
        """
        return replace(self, interval_s=max(self.interval_s, -(-pipelines // 5)), metadata_s=max(self.metadata_s, pipelines))


def ingest_sensor(pipeline: Pipeline, home: Home, target: dg.AssetsDefinition, pace: Pace = Pace()) -> dg.SensorDefinition:
    """The pipeline's sensor, `NAME_ingest`; off until somebody switches it on."""

    @dg.sensor(
        name=f"{pipeline.name}_ingest",
        target=[target],
        minimum_interval_seconds=pace.interval_s,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=(
            f"Continuous ingest of Kafka's {pipeline.source} into the table {pipeline.into.table}. On is START PIPELINE"
            f" {pipeline.name}, off is STOP PIPELINE {pipeline.name}."
        ),
    )
    def sensor(
        context: dg.SensorEvaluationContext,
        kafka: dg.ResourceParam[Topicsources],
        destinations: dg.ResourceParam[Destinations],
    ) -> dg.SensorResult | dg.SkipReason:
        try:
            seen = look(context, pipeline, home, kafka, destinations)
        except KpipeError as error:
            if error.retriable:  # a broker or a lock that is away for a moment is no failure of the sensor
                return dg.SkipReason(str(error))
            raise
        if seen.rests:
            return seen.result(_CAUGHT_UP)
        reason = _why_not(context.instance, pipeline, home, seen, pace)
        requests = () if reason else (_request(pipeline, seen, context.instance, pace),)
        return seen.result(reason, requests, may_rest=reason == _CAUGHT_UP)

    return sensor


def _why_not(instance: dg.DagsterInstance, pipeline: Pipeline, home: Home, seen: Look, pace: Pace) -> str:
    """The reason for starting no run, in words; empty when one is to be started."""
    running = _in_progress(instance, pipeline, home, pace)  # first: who is dead is told so, whatever else there is
    if seen.trouble:
        return f"needs an operator: {seen.trouble}"
    if not running:
        return _too_soon(instance, pipeline, home, pace) if seen.behind else _CAUGHT_UP
    if len(running) > 1:
        return "a run is in progress, and its successor, too"
    if running[0].dagster_run.tags.get(CONTINUOUS_TAG) and _age(running[0]) > pace.run_s - pace.lead_s:
        return ""  # the successor: it starts beside this one and takes over when it is ready
    return "a run is in progress"


def _in_progress(instance: dg.DagsterInstance, pipeline: Pipeline, home: Home, pace: Pace) -> list[dg.RunRecord]:
    """Runs of this table that are queued or at work. One whose process is gone is reported as failed, and not counted."""
    key, alive = table_key(pipeline), []
    for record in instance.get_run_records(dg.RunsFilter(statuses=_IN_PROGRESS)):
        run = record.dagster_run
        if run.tags.get(OP_TAG) != pipeline.name and key not in (run.asset_selection or ()):
            continue
        if run.status == dg.DagsterRunStatus.NOT_STARTED and _age(record) > pace.launch_s:
            continue
        if run.status in _LAUNCHED and not is_alive(home, pipeline.name, run.run_id) and is_gone(instance, run):
            _bury(instance, home, pipeline, run.run_id)
            continue
        alive.append(record)
    return alive


def _bury(instance: dg.DagsterInstance, home: Home, pipeline: Pipeline, run_id: str) -> None:
    """Tell Dagster that a run is dead, unless its last word has come in since."""
    run = instance.get_run_by_id(run_id)
    if run is not None and not run.is_finished:
        instance.report_run_failed(run, "kpipe: the run's process is gone; the pipeline goes on with the next run")
    (home.state / f"{pipeline.name}.{run_id}.run").unlink(missing_ok=True)


def _age(record: dg.RunRecord) -> float:
    """Seconds since the run started, or since it was asked for."""
    return time.time() - (record.start_time or record.create_timestamp.timestamp())


def _request(pipeline: Pipeline, seen: Look, instance: dg.DagsterInstance, pace: Pace) -> dg.RunRequest:
    """A continuous run over all partitions. No run key: Dagster would never start a second one of the same key.

    Dagster counts from the first to the last in the order in which it has learned of them; that of one topic is the numeric one.
    """
    keys = partition_keys(seen.snapshot.partitions)
    if pipeline.source.several:
        name = str(table_partitions(pipeline).name)
        keys = [*instance.get_dynamic_partitions(name), *seen.new.get(name, ())]
    how_long = {"max_seconds": pace.run_s, "idle_seconds": pace.idle_s}
    return dg.RunRequest(
        run_config={"ops": {op_name(pipeline): {"config": how_long}}},
        tags={
            OP_TAG: pipeline.name,
            CONTINUOUS_TAG: "true",
            "dagster/asset_partition_range_start": keys[0],
            "dagster/asset_partition_range_end": keys[-1],
        },
    )


def _too_soon(instance: dg.DagsterInstance, pipeline: Pipeline, home: Home, pace: Pace) -> str:
    """After failures in a row: wait, longer each time; empty when there is nothing to wait for."""
    failed = []
    for record in instance.get_run_records(dg.RunsFilter(tags={OP_TAG: pipeline.name}), limit=8):
        lasted = (record.end_time or 0) - (record.start_time or record.end_time or 0)
        if record.dagster_run.status != dg.DagsterRunStatus.FAILURE or lasted > pace.longest_wait_s:
            break
        failed.append(record)
    if not failed:
        return ""
    noted = home.noted(pipeline.name)
    if noted.get("state") == "needs_operator":  # what only a run can find, since a look found nothing
        wait, words = pace.longest_wait_s, f"needs an operator: {noted['error']}"
    else:
        wait = min(pace.longest_wait_s, pace.first_wait_s * 2 ** (len(failed) - 2)) if len(failed) > 1 else 0.0
        words = f"{len(failed)} failed in a row"
    left = (failed[0].end_time or 0) + wait - time.time()
    return f"{words}; the next run starts in {left:.0f} s" if left > 0 else ""
