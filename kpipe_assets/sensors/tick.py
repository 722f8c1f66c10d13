"""The first step of each sensor's tick: check ledger and brokers, and publish changes to Dagster.

Earlier events are read from Dagster's event log, so several sensors on one topic do not repeat each other's events. A tick
without changes writes nothing. If ledger and brokers are as at the last full check, a tick does not open Dagster's
databases, which is most of its cost.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import dagster as dg

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError, LedgerMismatch, NeedsOperator, OffsetsLost
from kpipe.interfaces import Destination, Topics
from kpipe.ledger.ledger import Ledger
from kpipe.planning.planner import check_source, lag
from kpipe.planning.reconcile import Survey
from kpipe.topics import TopicSnapshot
from kpipe_assets.assets.audit_checks import audit_news
from kpipe_assets.assets.check_records import latest_record
from kpipe_assets.assets.first_checks import AGAIN_S, first_results
from kpipe_assets.assets.lag_verdict import alarm, lag_key, verdict
from kpipe_assets.assets.table_asset import table_keys
from kpipe_assets.assets.table_checks import check_assets
from kpipe_assets.assets.topic_asset import missing_partitions, observations, remember, source_keys, untold
from kpipe_assets.assets.topic_table_assets import publish_topic_tables
from kpipe_assets.dagster_resources import Destinations, Topicsources
from kpipe_assets.publishing.metadata import rarer
from kpipe_assets.publishing.publisher import Publisher
from kpipe_assets.runs.rebuilt import finish
from kpipe_assets.runs.run_locks import is_run_by_dagster, is_running
from kpipe_assets.runs.status import last_error
from resources.home import Home

__all__ = ["TickState", "check_sources", "failed_tick"]

# Shortest time between two observations of a partition: Dagster never deletes events.
_OBSERVE_S = 60.0
# Longest time between two full checks: Dagster's state may change while ledger and brokers do not.
_REST_S = 60.0
# Most observations in one tick; others follow in the next ones. Dagster's daemon stores them one by one.
_MAX_OBSERVATIONS = 50
# While a run is in progress, the sensor publishes commits that are older than this. `kpipe run --follow` publishes none; a
# Dagster run publishes every 30 s.
_REPAIR_S = 60.0
# Ticks that fail for longer than this, with errors that a retry may solve, make the check `lag` fail.
_LASTING_S = 300.0
# A longer time between two failed ticks counts as this: the sensor may have been stopped in between.
_LONGEST_GAP_S = 60.0


@dataclass(frozen=True)
class TickState:
    """The result of a check of ledger and brokers.

    Attributes:
        ledger: the committed offsets.
        snapshot: the brokers' offsets.
        trouble: the error that needs an operator, or None.
        new: keys of partitions that are missing in Dagster, in order, by the name of their partitions definition.
        events: new observations and check results for Dagster.
        shown: number of table events that this check has published.
        waiting: state for the next tick.
        mark: hash of ledger and brokers.
        rests: whether the hash is that of the last full check, so that nothing else was checked.
    """

    ledger: Ledger
    snapshot: TopicSnapshot
    trouble: NeedsOperator | None
    new: Mapping[str, Sequence[str]]
    events: Sequence[dg.AssetObservation | dg.AssetCheckEvaluation]
    shown: int
    waiting: "_Waiting"
    mark: str
    rests: bool = False

    @property
    def behind(self) -> int:
        """Total lag over all partitions, in offsets."""
        return sum(lag(self.ledger, self.snapshot).values())

    def result(self, reason: str, requests: Sequence[dg.RunRequest] = (), may_rest: bool = False) -> dg.SensorResult:
        """Build the tick's result: events, new partitions, and either run requests or the skip reason.

        Args:
            reason: the skip reason.
            requests: runs to start.
            may_rest: whether the next tick may skip the full check if ledger and brokers are unchanged.
        """
        waiting = self.waiting
        if not self.rests:
            quiet = may_rest and not (requests or self.new or self.events or self.shown or waiting.seq)
            waiting = replace(waiting, mark=self.mark if quiet else "", looked=time.time() if quiet else 0.0, failing=0.0)
        return dg.SensorResult(
            run_requests=list(requests) or None,
            skip_reason=None if requests else reason,
            asset_events=self.events,
            dynamic_partitions_requests=[
                dg.DynamicPartitionsDefinition(name=name).build_add_request(keys) for name, keys in self.new.items()
            ]
            or None,
            # Without offsets: a lost cursor loses no data.
            cursor=json.dumps(asdict(waiting)),
        )


def check_sources(
    context: dg.SensorEvaluationContext, pipeline: Pipeline, home: Home, kafka: Topicsources, destinations: Destinations
) -> TickState:
    """Check a pipeline, and publish its commits that Dagster does not show yet.

    If ledger and brokers are unchanged since the last full check in the cursor, nothing else is read.

    Raises:
        KpipeError: the ledger cannot be read, or the brokers do not answer; see `failed_tick`.
    """
    home.make()
    destination, topics = destinations.open(pipeline), kafka.topics(pipeline)
    waiting = _Waiting.of(context.cursor)
    uid, ledger = destination.ledger()
    snapshot = topics.snapshot()
    mark = _mark(uid, ledger, snapshot)
    if mark == waiting.mark and time.time() - waiting.looked < _REST_S and not is_running(home, pipeline.name):
        return TickState(ledger, snapshot, None, {}, (), 0, waiting, mark, rests=True)
    ledger, snapshot, trouble = _checked(pipeline, home, destination, topics, ledger, snapshot)
    remember(pipeline, home, snapshot)
    keys = list(source_keys(pipeline, home))
    others = partial(publish_topic_tables, context.instance, pipeline, destination)
    publisher = Publisher(context.instance, table_keys(pipeline), destination, home, pipeline.name, keys, others)
    shown = _repair(waiting, publisher, is_running(home, pipeline.name), len(snapshot.partitions))
    new = missing_partitions(pipeline, snapshot, context.instance)
    behind = lag(ledger, snapshot)
    events: list[dg.AssetObservation | dg.AssetCheckEvaluation] = []
    if not new:  # Dagster rejects observations of partitions that it does not have yet
        waited = _OBSERVE_S * rarer(len(snapshot.partitions))
        events += observations(snapshot, behind, pipeline, untold(snapshot, context.instance, waited)[:_MAX_OBSERVATIONS])
    at_work = is_running(home, pipeline.name)
    by_dagster = at_work and is_run_by_dagster(home, pipeline.name)
    trouble_now = trouble or last_error(home, pipeline.name)
    if trouble_now is not None:
        events += alarm(context.instance, pipeline, trouble_now, ledger.seq)
    else:
        events += verdict(context.instance, pipeline, ledger, snapshot, at_work, by_dagster)
    if not by_dagster:  # else the run publishes it
        events += audit_news(context.instance, pipeline, destination, table_keys(pipeline)[0])
        assets = " ".join(key.to_user_string() for key in check_assets(pipeline, home))
        if latest_record(context.instance, lag_key(pipeline)) is None:  # every run plans it, and the last run ended before it
            waiting.checked = ""
        if waiting.is_due(assets, ledger.seq, at_work):
            again = waiting.checked == assets
            results = first_results(context.instance, pipeline, home, destination, lambda: topics, again)
            waiting.note_results(assets if results is not None else None, ledger.seq)
            told = {(event.asset_key, event.check_name) for event in events if isinstance(event, dg.AssetCheckEvaluation)}
            events += [event for event in results or () if (event.asset_key, event.check_name) not in told]
    return TickState(ledger, snapshot, trouble, new, events, shown, waiting, mark)


def failed_tick(context: dg.SensorEvaluationContext, pipeline: Pipeline, home: Home, error: KpipeError) -> dg.SensorResult:
    """Build the result of a tick that could not check the pipeline: the error as skip reason, and a failed check `lag`.

    The check fails at once if a retry does not help or the last run has failed, else when ticks have failed for 5 minutes:
    brokers or locks may be unavailable for a moment. Time without ticks does not count.
    """
    before, now = _Waiting.of(context.cursor), time.time()
    waiting = replace(before, mark="", failing=before.failing_since(now), failed=now)
    lasts = not error.retriable or now - waiting.failing > _LASTING_S
    trouble = last_error(home, pipeline.name) or (error if lasts else None)
    events = alarm(context.instance, pipeline, trouble) if trouble is not None else []
    return dg.SensorResult(skip_reason=str(error), asset_events=events, cursor=json.dumps(asdict(waiting)))


def _mark(uid: str, ledger: Ledger, snapshot: TopicSnapshot) -> str:
    """Return a hash that changes with each commit and with each change of the brokers' offsets."""
    return hashlib.sha256(repr((uid, ledger.seq, sorted(snapshot.partitions.items()))).encode()).hexdigest()[:16]


def _checked(
    pipeline: Pipeline, home: Home, destination: Destination, topics: Topics, ledger: Ledger, snapshot: TopicSnapshot
) -> tuple[Ledger, TopicSnapshot, NeedsOperator | None]:
    """Check for problems that need an operator. Read again before reporting one: a run may have committed in between.

    The ledger is read before the brokers, as in the loop.
    """
    trouble = _trouble(pipeline, home, destination, topics, ledger, snapshot)
    if trouble is not None:
        if isinstance(trouble, LedgerMismatch):
            try:  # of an interrupted exchange; only a run would do so otherwise, and none would begin
                finish(home, pipeline.name)
            except NeedsOperator as error:
                return ledger, snapshot, error
        _, ledger = destination.ledger()
        snapshot = topics.snapshot()
        trouble = _trouble(pipeline, home, destination, topics, ledger, snapshot)
    return ledger, snapshot, trouble


def _trouble(
    pipeline: Pipeline, home: Home, destination: Destination, topics: Topics, ledger: Ledger, snapshot: TopicSnapshot
) -> NeedsOperator | None:
    try:
        _check(pipeline, home, destination, topics, ledger, snapshot)
    except NeedsOperator as error:
        return error
    return None


def _check(
    pipeline: Pipeline, home: Home, destination: Destination, topics: Topics, ledger: Ledger, snapshot: TopicSnapshot
) -> None:
    """Make the checks with which a run begins.

    Raises:
        NeedsOperator: a run would fail with this error.
    """
    seen = replace(home.seen(pipeline.name), save=lambda _: None)
    Survey(pipeline, topics, destination, seen=seen).read_ledger()
    try:
        check_source(ledger, snapshot)
    except OffsetsLost:
        if pipeline.source.on_data_loss == "fail":
            raise


@dataclass
class _Waiting:
    """State that a tick stores in the cursor for the next one. Times are seconds since 1970.

    Attributes:
        seq: number of the oldest unpublished commit; 0 for none.
        since: when a tick saw it first.
        mark: hash of ledger and brokers at the last full check, if that left nothing to do; else empty.
        looked: time of that check.
        checked: the tables whose checks were evaluated once, or are too large for it.
        tried: when the sensor last began to evaluate checks.
        evaluated: when it did so for the last time.
        evaluated_seq: number of the newest commit then.
        failing: when the first of the last ticks failed, later by the time without ticks; 0: the last one did not.
        failed: when a tick failed for the last time.
    """

    seq: int = 0
    since: float = 0.0
    mark: str = ""
    looked: float = 0.0
    checked: str = ""
    tried: float = 0.0
    evaluated: float = 0.0
    evaluated_seq: int = 0
    failing: float = 0.0
    failed: float = 0.0

    @classmethod
    def of(cls, cursor: str | None) -> "_Waiting":
        try:
            return cls(**json.loads(cursor or "{}"))
        except (ValueError, TypeError):
            return cls()

    def is_due(self, assets: str, seq: int, at_work: bool) -> bool:
        """Return whether to evaluate the checks of these tables, after all commits up to `seq` are published.

        While a run commits, an evaluation may have to be repeated: then rarely.
        """
        now = time.time()
        old = now - self.evaluated > AGAIN_S and seq != self.evaluated_seq
        return (self.checked != assets or old) and not self.seq and now - self.tried > (_REST_S if at_work else 0.0)

    def failing_since(self, now: float) -> float:
        """Return `failing` after a tick that fails now."""
        without_ticks = max(0.0, now - self.failed - _LONGEST_GAP_S)
        return min(self.failing + without_ticks, now) if self.failing else now

    def note_results(self, assets: str | None, seq: int) -> None:
        """Record an evaluation of the checks of these tables; None: it must be repeated."""
        self.tried = time.time()
        if assets is not None:
            self.checked, self.evaluated, self.evaluated_seq = assets, self.tried, seq


def _repair(waiting: _Waiting, publisher: Publisher, at_work: bool, partitions: int) -> int:
    """Publish waiting commits and return the number of events.

    While a run is in progress, publish only commits that the run should have published already: otherwise Dagster would
    store an event every 5 s.
    """
    oldest = publisher.oldest()
    if oldest != waiting.seq:
        waiting.seq, waiting.since = oldest, time.time()
    if oldest and (not at_work or time.time() - waiting.since > _REPAIR_S * rarer(partitions)):
        waiting.seq = 0
        return publisher.publish()
    return 0
