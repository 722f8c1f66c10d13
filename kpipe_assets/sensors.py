"""Continuous ingest: a sensor that looks, and starts a run only when there is work and nobody is at it.

START is the sensor switched on, STOP switched off. It never reads a record, never holds an offset in its cursor (the
ledger knows), and asks for no Spark. One tick: brokers and ledger (some 30 ms), partitions that appeared, observations,
the mirror, then at most one run.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import dagster as dg

from kpipe.errors import KpipeError, NeedsOperator
from kpipe.ledger import Ledger
from kpipe.pipeline import Pipeline
from kpipe.plan import check_source, lag
from kpipe.source import PartitionId, TopicSnapshot
from kpipe_assets.assembly import is_alive, is_running
from kpipe_assets.edges import Destinations, Topicsources
from kpipe_assets.publisher import Publisher
from kpipe_assets.shown import partition_keys
from kpipe_assets.tables import OP_TAG, op_name, table_key
from kpipe_assets.topics import missing_partitions, observations, partitions, topic_key
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


@dataclass(frozen=True)
class Pace:
    """How often, and how long.

    Attributes:
        interval_s: seconds between ticks; Dagster's daemon looks every 5 s at the earliest.
        run_s: a run ends by itself after so long. Short enough that a run that hangs is noticed, long enough that
            Spark's start (some 5 s) does not count.
        idle_s: a run ends when it has found nothing for so long; the next record then waits for a tick and a start.
        lead_s: the successor is started so long before a run's end: a start of Dagster and Spark on a busy machine.
        observe_s: observations of an unchanged topic are not repeated; of a changing one not more often than this.
        repair_s: commits that wait to be shown for so long, although a run is at work, are shown by the sensor.
        first_wait_s: wait after a failed run, doubled with each further failure in a row.
        longest_wait_s: no wait is longer.
        dead_after_s: a run that Dagster takes for started, and of which no process is alive here after so long, is dead.
    """

    interval_s: int = 5
    run_s: float = 900
    idle_s: float = 300
    lead_s: float = 45
    observe_s: float = 60
    repair_s: float = 60
    first_wait_s: float = 10
    longest_wait_s: float = 600
    dead_after_s: float = 60


def ingest_sensor(pipeline: Pipeline, home: Home, target: dg.AssetsDefinition, pace: Pace = Pace()) -> dg.SensorDefinition:
    """The pipeline's sensor, `NAME_ingest`; off until somebody switches it on."""
    topic = pipeline.source.topic or ""

    @dg.sensor(
        name=f"{pipeline.name}_ingest",
        target=[target],
        minimum_interval_seconds=pace.interval_s,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"Continuous ingest of {topic} into {pipeline.into.table}: on is START PIPELINE, off is STOP PIPELINE.",
    )
    def sensor(
        context: dg.SensorEvaluationContext,
        kafka: dg.ResourceParam[Topicsources],
        destinations: dg.ResourceParam[Destinations],
    ) -> dg.SensorResult | dg.SkipReason:
        home.make()
        destination = destinations.open(pipeline)
        try:
            _, ledger = destination.ledger()
            snapshot = kafka.topics(pipeline).snapshot()
        except KpipeError as error:
            if error.retriable:  # a broker or a lock that is away for a moment is no failure of the sensor
                return dg.SkipReason(str(error))
            raise
        memory = _Memory.of(context.cursor)
        publisher = Publisher(context.instance, table_key(pipeline), destination, home, pipeline.name, topic_key(topic))
        _repair(memory, publisher, is_running(home, pipeline.name), pace)
        behind = lag(ledger, snapshot)
        new = missing_partitions(snapshot, topic, context.instance)
        events = _observe(memory, snapshot, behind, topic, pace) if not new else []
        requests: list[dg.RunRequest] = []
        reason = _why_not(context.instance, pipeline, home, ledger, snapshot, sum(behind.values()), pace)
        if reason is None:
            requests = [_request(pipeline, snapshot, pace)]
        changes = [partitions(topic).build_add_request(new)] if new else []
        if not (requests or events or changes):
            context.update_cursor(memory.text())
            return dg.SkipReason(reason or "nothing to do")
        return dg.SensorResult(
            run_requests=requests, asset_events=events, dynamic_partitions_requests=changes, cursor=memory.text()
        )

    return sensor


@dataclass
class _Memory:
    """What the sensor remembers between ticks: only what was observed, so that losing it loses nothing."""

    at: float = 0.0
    high: dict[str, int] | None = None
    waiting_seq: int = 0
    waiting_at: float = 0.0

    @classmethod
    def of(cls, cursor: str | None) -> "_Memory":
        try:
            return cls(**json.loads(cursor or "{}"))
        except (ValueError, TypeError):
            return cls()

    def text(self) -> str:
        return json.dumps(asdict(self))


def _repair(memory: _Memory, publisher: Publisher, at_work: bool, pace: Pace) -> None:
    """Publish what waits: at once when nobody is at work, else only what a run should have published long ago.

    A run publishes every 30 s itself; were each tick to publish, too, Dagster would keep an event for every 5 s.
    """
    oldest = publisher.oldest()
    if oldest != memory.waiting_seq:
        memory.waiting_seq, memory.waiting_at = oldest, time.time()
    if oldest and (not at_work or time.time() - memory.waiting_at > pace.repair_s):
        publisher.publish()
        memory.waiting_seq = 0


def _observe(
    memory: _Memory, snapshot: TopicSnapshot, behind: Mapping[PartitionId, int], topic: str, pace: Pace
) -> Sequence[dg.AssetObservation]:
    high = {str(source.partition): state.high for source, state in snapshot.partitions.items()}
    if high == memory.high or time.time() - memory.at < pace.observe_s:
        return []
    changed = [key for key, value in high.items() if (memory.high or {}).get(key) != value]
    memory.at, memory.high = time.time(), high
    return observations(snapshot, behind, topic, changed)


def _why_not(
    instance: dg.DagsterInstance,
    pipeline: Pipeline,
    home: Home,
    ledger: Ledger,
    snapshot: TopicSnapshot,
    behind: int,
    pace: Pace,
) -> str | None:
    """The reason for starting no run, in words; None when one is to be started."""
    try:
        loss = pipeline.source.on_data_loss == "record"
        if not loss:
            check_source(ledger, snapshot)
    except NeedsOperator as error:
        return f"needs an operator: {error}"
    running = _in_progress(instance, pipeline, home, pace)
    if not running:
        return _too_soon(instance, pipeline, pace) if behind else "caught up"
    if len(running) > 1:
        return "a run is in progress, and its successor, too"
    if running[0].dagster_run.tags.get(CONTINUOUS_TAG) and _age(running[0]) > pace.run_s - pace.lead_s:
        return None  # the successor: it starts beside this one and takes over when it is ready
    return "a run is in progress"


def _in_progress(instance: dg.DagsterInstance, pipeline: Pipeline, home: Home, pace: Pace) -> list[dg.RunRecord]:
    """Runs of this table that are queued or at work. One whose process is gone is reported as failed, and not counted.

    Dagster's default launcher does not notice that a run's process was killed: the run stays "started" for ever, and
    would keep the pipeline waiting for it.
    """
    key, alive = table_key(pipeline), []
    for record in instance.get_run_records(dg.RunsFilter(statuses=_IN_PROGRESS)):
        run = record.dagster_run
        if run.tags.get(OP_TAG) != pipeline.name and key not in (run.asset_selection or ()):
            continue
        started = run.status == dg.DagsterRunStatus.STARTED
        if started and _age(record) > pace.dead_after_s and not is_alive(home, pipeline.name, run.run_id):
            instance.report_run_failed(run, "kpipe: the run's process is gone; the pipeline goes on with the next run")
            continue
        alive.append(record)
    return alive


def _age(record: dg.RunRecord) -> float:
    """Seconds since the run started, or since it was asked for."""
    return time.time() - (record.start_time or record.create_timestamp.timestamp())


def _request(pipeline: Pipeline, snapshot: TopicSnapshot, pace: Pace) -> dg.RunRequest:
    """A continuous run over all partitions. No run key: Dagster would never start a second one of the same key."""
    keys = partition_keys([source.partition for source in snapshot.partitions])
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


def _too_soon(instance: dg.DagsterInstance, pipeline: Pipeline, pace: Pace) -> str | None:
    """After failures in a row: wait, longer each time."""
    records = instance.get_run_records(dg.RunsFilter(tags={OP_TAG: pipeline.name}), limit=8)
    failures = 0
    for record in records:
        if record.dagster_run.status != dg.DagsterRunStatus.FAILURE:
            break
        failures += 1
    if not failures:
        return None
    wait = min(pace.longest_wait_s, pace.first_wait_s * 2 ** (failures - 1))
    left = (records[0].end_time or 0) + wait - time.time()
    if left <= 0:
        return None
    return f"{failures} failed in a row; the next run starts in {left:.0f} s"
