"""Continuous ingest: a sensor that starts a run if there are new records and no run is in progress.

START PIPELINE starts the sensor, STOP PIPELINE stops it. It reads no records and needs no Spark. Its cursor contains no
offsets, which are in the ledger. One tick checks ledger and brokers (kpipe_assets/sensors/tick.py; some 30 ms) and starts
at most one run.
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
from kpipe_assets.runs.backoff import Backoff
from kpipe_assets.runs.run_locks import is_alive
from kpipe_assets.runs.run_workers import is_gone
from kpipe_assets.sensors.pipeline_runs import pipeline_runs
from kpipe_assets.sensors.sensor_state import serving
from kpipe_assets.sensors.tick import TickState, check_sources, failed_tick
from resources.home import Home

__all__ = ["CONTINUOUS_TAG", "Pace", "ingest_sensor"]

#: Tag of runs that wait for more records when they have caught up.
CONTINUOUS_TAG = "kpipe/continuous"
_IN_PROGRESS = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_CAUGHT_UP = "caught up"
_LAUNCHED = (dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)


@dataclass(frozen=True)
class Pace:
    """Intervals of the sensors and durations of continuous runs.

    Attributes:
        interval_s: seconds between ticks; Dagster's daemon evaluates a sensor every 5 s at most.
        metadata_s: seconds between ticks of the sensor `NAME_metadata`.
        run_s: a run ends after this time. Short enough to detect a run that hangs, long enough that Spark's start (some
            5 s) does not matter.
        idle_s: a run ends after this time without records. The next record then waits for a tick and a start.
        lead_s: the successor starts this long before a run ends, enough to start Dagster and Spark on a busy machine.
        first_wait_s: wait after the second consecutive failure, doubled after each further one. After the first failure,
            the next run starts at once.
        longest_wait_s: upper limit of the wait. A run that lasted longer than this does not count as a failure to start.
        launch_s: a run that Dagster has not queued this long after its creation is ignored: it will never start.
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
        """Return the intervals for this many pipelines on one Dagster instance.

        In total, ingest sensors tick at most five times a second, metadata sensors once. A tick costs Dagster's daemon and
        code server some 0.1 s of CPU (bench/studies/idle.py).
        """
        return replace(self, interval_s=max(self.interval_s, -(-pipelines // 5)), metadata_s=max(self.metadata_s, pipelines))


def ingest_sensor(pipeline: Pipeline, home: Home, target: dg.AssetsDefinition, pace: Pace = Pace()) -> dg.SensorDefinition:
    """Build the pipeline's sensor `NAME_ingest`, stopped by default."""
    source = f"Kafka's {pipeline.source}" if pipeline.source.reads_topics else str(pipeline.source)

    @dg.sensor(
        name=f"{pipeline.name}_ingest",
        target=[target],
        minimum_interval_seconds=pace.interval_s,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=(
            f"Continuous ingest of {source} into the table {pipeline.into.table}. Starting this sensor is"
            f" START PIPELINE {pipeline.name}, stopping it is STOP PIPELINE {pipeline.name}."
        ),
    )
    def sensor(
        context: dg.SensorEvaluationContext,
        kafka: dg.ResourceParam[Topicsources],
        destinations: dg.ResourceParam[Destinations],
    ) -> dg.SensorResult:
        try:
            seen = check_sources(context, pipeline, home, kafka, destinations)
        except KpipeError as error:
            return failed_tick(context, pipeline, home, error)
        if seen.rests:
            return seen.result(_CAUGHT_UP)
        reason = _skip_reason(context.instance, pipeline, home, seen, pace)
        requests = () if reason else (_request(pipeline, seen, context.instance, pace),)
        return seen.result(reason, requests, may_rest=reason == _CAUGHT_UP)

    return sensor


def _skip_reason(instance: dg.DagsterInstance, pipeline: Pipeline, home: Home, seen: TickState, pace: Pace) -> str:
    """Return the reason to start no run, or an empty string to start one."""
    running = _in_progress(instance, pipeline, home, pace)  # first, because it also reports dead runs as failed
    if seen.trouble:
        return f"needs an operator: {seen.trouble}"
    if (service := serving(home)) is not None:
        return f"{service} runs this pipeline"
    if not running:
        return _backoff(instance, pipeline, home, pace) if seen.behind else _CAUGHT_UP
    if len(running) > 1:
        return "a run and its successor are in progress"
    if running[0].dagster_run.tags.get(CONTINUOUS_TAG) and _age(running[0]) > pace.run_s - pace.lead_s:
        return ""  # start the successor: it takes over when it is ready
    return "a run is in progress"


def _in_progress(instance: dg.DagsterInstance, pipeline: Pipeline, home: Home, pace: Pace) -> list[dg.RunRecord]:
    """List runs of this table that are queued or running. Report a run without a process as failed, and skip it."""
    alive = []
    for record in pipeline_runs(instance, pipeline.name, table_key(pipeline), _IN_PROGRESS):
        run = record.dagster_run
        if run.status == dg.DagsterRunStatus.NOT_STARTED and _age(record) > pace.launch_s:
            continue
        if run.status in _LAUNCHED and not is_alive(home, pipeline.name, run.run_id) and is_gone(instance, run):
            _report_dead(instance, home, pipeline, run.run_id)
            continue
        alive.append(record)
    return alive


def _report_dead(instance: dg.DagsterInstance, home: Home, pipeline: Pipeline, run_id: str) -> None:
    """Report a run without a process as failed, unless it has finished in the meantime."""
    run = instance.get_run_by_id(run_id)
    if run is not None and not run.is_finished:
        instance.report_run_failed(run, "kpipe: the run's process does not exist any more; the next run continues")
    (home.state / f"{pipeline.name}.{run_id}.run").unlink(missing_ok=True)


def _age(record: dg.RunRecord) -> float:
    """Return the seconds since the run started, or since it was created if it has not started."""
    return time.time() - (record.start_time or record.create_timestamp.timestamp())


def _request(pipeline: Pipeline, seen: TickState, instance: dg.DagsterInstance, pace: Pace) -> dg.RunRequest:
    """Request a continuous run over all partitions.

    It has no run key, because Dagster starts only one run for each key. A range of dynamic partitions is in the order in
    which they were added; for a single topic this is numeric order.
    """
    keys = partition_keys(seen.snapshot.partitions)
    if pipeline.source.multi_topic:
        name = str(table_partitions(pipeline).name)
        keys = [*instance.get_dynamic_partitions(name), *seen.new.get(name, ())]
    config = {"max_seconds": pace.run_s, "idle_seconds": pace.idle_s}
    return dg.RunRequest(
        run_config={"ops": {op_name(pipeline): {"config": config}}},
        tags={
            OP_TAG: pipeline.name,
            CONTINUOUS_TAG: "true",
            "dagster/asset_partition_range_start": keys[0],
            "dagster/asset_partition_range_end": keys[-1],
        },
    )


def _backoff(instance: dg.DagsterInstance, pipeline: Pipeline, home: Home, pace: Pace) -> str:
    """Return the reason to wait after consecutive failures, or an empty string. The wait doubles each time."""
    failed = []
    for record in instance.get_run_records(dg.RunsFilter(tags={OP_TAG: pipeline.name}), limit=8):
        lasted = (record.end_time or 0) - (record.start_time or record.end_time or 0)
        if record.dagster_run.status != dg.DagsterRunStatus.FAILURE or lasted > pace.longest_wait_s:
            break
        failed.append(record)
    if not failed:
        return ""
    last_run = home.noted(pipeline.name)
    if last_run.get("state") == "needs_operator":  # a problem that only a run detects: the tick itself found none
        wait, reason = pace.longest_wait_s, f"needs an operator: {last_run['error']}"
    else:
        wait = Backoff(pace.first_wait_s, pace.longest_wait_s).wait_s(len(failed))
        reason = f"{len(failed)} failed in a row"
    left = (failed[0].end_time or 0) + wait - time.time()
    return f"{reason}; the next run starts in {left:.0f} s" if left > 0 else ""
