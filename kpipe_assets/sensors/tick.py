"""What a tick of either sensor begins with: one look at ledger and brokers, and what Dagster does not know of it yet.

What was told before stands in Dagster's event log, whichever sensor told it: so both sensors of a pipeline, and those of
other pipelines on the same topic, repeat nothing of each other. A tick in which nothing has changed writes nothing. One that
may rest does not even open Dagster's databases, which is most of what a tick costs, where ledger and brokers say what they
said at the last whole look.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import dagster as dg

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import NeedsOperator, OffsetsLost
from kpipe.interfaces import Destination, Topics
from kpipe.ledger.ledger import Ledger
from kpipe.planning.planner import check_source, lag
from kpipe.planning.reconcile import Survey
from kpipe.topics import TopicSnapshot
from kpipe_assets.assets.proof_checks import verdict
from kpipe_assets.assets.quality_checks import audit_news
from kpipe_assets.assets.table_asset import table_keys
from kpipe_assets.assets.topic_asset import missing_partitions, observations, remember, topic_key, topic_names, untold
from kpipe_assets.dagster_resources import Destinations, Topicsources
from kpipe_assets.publishing.metadata import rarer
from kpipe_assets.publishing.publisher import Publisher
from kpipe_assets.runs.run_locks import is_running
from resources.home import Home

__all__ = ["Look", "look"]

# An observation of a partition is not followed by another one for so long, however fast it grows: Dagster keeps events
# for ever.
_OBSERVE_S = 60.0
# After so long a look is a whole one, whatever ledger and brokers say: Dagster's side may have changed, too.
_REST_S = 60.0
# Observations of a tick; others follow with the next ones. Dagster's daemon stores them one by one, and a tick is to be short.
_MOST_TOLD = 50
# Commits that wait to be shown for so long, although somebody is at work, are shown by the sensor: `kpipe run --follow`
# publishes nothing, and a run of Dagster's publishes every 30 s.
_REPAIR_S = 60.0


@dataclass(frozen=True)
class Look:
    """What a tick has seen.

    Attributes:
        ledger: what is committed.
        snapshot: what the brokers hold.
        trouble: what needs an operator; None when nothing does.
        new: Dagster's keys of partitions that it does not know yet, by the name of their definition, in order.
        events: observations and verdicts that it has not been told.
        shown: events of the table that this look has published.
        waiting: what the next tick is to know of this one.
        mark: of what ledger and brokers say.
        rests: whether they say what they said before, so that nothing else was looked at.
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
        """Offsets that have not been read, over all partitions."""
        return sum(lag(self.ledger, self.snapshot).values())

    def result(self, reason: str, requests: Sequence[dg.RunRequest] = (), may_rest: bool = False) -> dg.SensorResult:
        """The tick's result: what is to be told, and either runs to start or the reason for starting none.

        Args:
            reason: in words.
            requests: runs.
            may_rest: whether there is nothing more to do until ledger or brokers say something else.
        """
        waiting = self.waiting
        if not self.rests:
            quiet = may_rest and not (requests or self.new or self.events or self.shown or waiting.seq)
            waiting = replace(waiting, mark=self.mark if quiet else "", looked=time.time() if quiet else 0.0)
        return dg.SensorResult(
            run_requests=list(requests) or None,
            skip_reason=None if requests else reason,
            asset_events=self.events,
            dynamic_partitions_requests=[
                dg.DynamicPartitionsDefinition(name=name).build_add_request(keys) for name, keys in self.new.items()
            ]
            or None,
            # Holds no offset; losing it loses nothing.
            cursor=json.dumps(asdict(waiting)),
        )


def look(
    context: dg.SensorEvaluationContext, pipeline: Pipeline, home: Home, kafka: Topicsources, destinations: Destinations
) -> Look:
    """Look at a pipeline, and show what its ledger has waiting for Dagster; only as far as what the cursor says of the last
    tick, where nothing has changed since.

    Raises:
        KpipeError: the ledger cannot be read, or the brokers cannot be asked.
    """
    home.make()
    destination, topics = destinations.open(pipeline), kafka.topics(pipeline)
    waiting = _Waiting.of(context.cursor)
    uid, ledger = destination.ledger()
    snapshot = topics.snapshot()
    mark = _mark(uid, ledger, snapshot)
    if mark == waiting.mark and time.time() - waiting.looked < _REST_S and not is_running(home, pipeline.name):
        return Look(ledger, snapshot, None, {}, (), 0, waiting, mark, rests=True)
    ledger, snapshot, trouble = _proven(pipeline, home, destination, topics, ledger, snapshot)
    remember(pipeline, home, snapshot)
    keys = [topic_key(topic) for topic in topic_names(pipeline, home)]
    publisher = Publisher(context.instance, table_keys(pipeline), destination, home, pipeline.name, keys)
    shown = _repair(waiting, publisher, is_running(home, pipeline.name), len(snapshot.partitions))
    new = missing_partitions(pipeline, snapshot, context.instance)
    behind = lag(ledger, snapshot)
    events: list[dg.AssetObservation | dg.AssetCheckEvaluation] = []
    if not new:  # of a partition that Dagster does not know, nothing can be told
        waited = _OBSERVE_S * rarer(len(snapshot.partitions))
        events += observations(snapshot, behind, pipeline, untold(snapshot, context.instance, waited)[:_MOST_TOLD])
    events += verdict(context.instance, pipeline, ledger, snapshot, trouble)
    if not is_running(home, pipeline.name):  # else the run tells it
        events += audit_news(context.instance, pipeline, destination, table_keys(pipeline)[0])
    return Look(ledger, snapshot, trouble, new, events, shown, waiting, mark)


def _mark(uid: str, ledger: Ledger, snapshot: TopicSnapshot) -> str:
    """The same as long as nothing is committed and the brokers say the same."""
    return hashlib.sha256(repr((uid, ledger.seq, sorted(snapshot.partitions.items()))).encode()).hexdigest()[:16]


def _proven(
    pipeline: Pipeline, home: Home, destination: Destination, topics: Topics, ledger: Ledger, snapshot: TopicSnapshot
) -> tuple[Ledger, TopicSnapshot, NeedsOperator | None]:
    """The ledger first, as the loop reads them, and twice before an operator is called: a run may commit in between."""
    trouble = _trouble(pipeline, home, destination, topics, ledger, snapshot)
    if trouble is not None:
        _, ledger = destination.ledger()
        snapshot = topics.snapshot()
        trouble = _trouble(pipeline, home, destination, topics, ledger, snapshot)
    return ledger, snapshot, trouble


def _trouble(
    pipeline: Pipeline, home: Home, destination: Destination, topics: Topics, ledger: Ledger, snapshot: TopicSnapshot
) -> NeedsOperator | None:
    try:
        _proof(pipeline, home, destination, topics, ledger, snapshot)
    except NeedsOperator as error:
        return error
    return None


def _proof(
    pipeline: Pipeline, home: Home, destination: Destination, topics: Topics, ledger: Ledger, snapshot: TopicSnapshot
) -> None:
    """What a run would find first.

    Raises:
        NeedsOperator: a run could do nothing.
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
    """What a tick leaves to the next one. Times are seconds since 1970.

    Attributes:
        seq: number of the oldest commit that waits to be shown; 0 for none.
        since: when it was seen first.
        mark: of ledger and brokers, where that look left nothing to do; else empty.
        looked: when that was.
    """

    seq: int = 0
    since: float = 0.0
    mark: str = ""
    looked: float = 0.0

    @classmethod
    def of(cls, cursor: str | None) -> "_Waiting":
        try:
            return cls(**json.loads(cursor or "{}"))
        except (ValueError, TypeError):
            return cls()


def _repair(waiting: _Waiting, publisher: Publisher, at_work: bool, partitions: int) -> int:
    """Publish what waits: at once when nobody is at work, else only what a run should have published long ago.

    Were each tick to publish while a run goes on, Dagster would keep an event for every 5 s. Gives the events' number.
    """
    oldest = publisher.oldest()
    if oldest != waiting.seq:
        waiting.seq, waiting.since = oldest, time.time()
    if oldest and (not at_work or time.time() - waiting.since > _REPAIR_S * rarer(partitions)):
        waiting.seq = 0
        return publisher.publish()
    return 0
