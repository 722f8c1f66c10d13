"""What a tick of either sensor begins with: one look at ledger and brokers, and what Dagster does not know of it yet.

What was told before stands in Dagster's event log, whichever sensor told it: so both sensors of a pipeline, and those of
other pipelines on the same topic, repeat nothing of each other. A tick in which nothing has changed writes nothing.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import cast

import dagster as dg

from kpipe.errors import NeedsOperator, OffsetsLost
from kpipe.ingest import Ingest
from kpipe.ledger import Ledger
from kpipe.pipeline import Pipeline
from kpipe.plan import check_source, lag
from kpipe.ports import Destination, Stager, Topics
from kpipe.source import TopicSnapshot
from kpipe_assets.assembly import is_running
from kpipe_assets.checks import verdict
from kpipe_assets.edges import Destinations, Topicsources
from kpipe_assets.publisher import Publisher
from kpipe_assets.tables import table_key
from kpipe_assets.topics import missing_partitions, observations, partitions, topic_key, untold
from resources.home import Home

__all__ = ["Look", "look"]

# An observation of a partition is not followed by another one for so long, however fast it grows: Dagster keeps events
# for ever.
_OBSERVE_S = 60.0
# Commits that wait to be shown for so long, although somebody is at work, are shown by the sensor: `kpipe run --follow`
# publishes nothing, and a run of Dagster's publishes every 30 s.
_REPAIR_S = 60.0


@dataclass(frozen=True)
class Look:
    """What a tick has seen.

    Attributes:
        topic: the topic's name.
        ledger: what is committed.
        snapshot: what the brokers hold.
        trouble: what needs an operator; None when nothing does.
        new: Dagster's keys of partitions that it does not know yet, in numeric order.
        events: observations and verdicts that it has not been told.
        shown: events of the table that this look has published.
        cursor: for the next tick. Holds no offset; losing it loses nothing.
    """

    topic: str
    ledger: Ledger
    snapshot: TopicSnapshot
    trouble: NeedsOperator | None
    new: Sequence[str]
    events: Sequence[dg.AssetObservation | dg.AssetCheckEvaluation]
    shown: int
    cursor: str

    @property
    def behind(self) -> int:
        """Offsets that have not been read, over all partitions."""
        return sum(lag(self.ledger, self.snapshot).values())

    def result(self, reason: str, requests: Sequence[dg.RunRequest] = ()) -> dg.SensorResult:
        """The tick's result: what is to be told, and either runs to start or the reason for starting none."""
        return dg.SensorResult(
            run_requests=list(requests) or None,
            skip_reason=None if requests else reason,
            asset_events=self.events,
            dynamic_partitions_requests=[partitions(self.topic).build_add_request(self.new)] if self.new else None,
            cursor=self.cursor,
        )


def look(
    context: dg.SensorEvaluationContext, pipeline: Pipeline, home: Home, kafka: Topicsources, destinations: Destinations
) -> Look:
    """Look at a pipeline, and show what its ledger has waiting for Dagster.

    Raises:
        KpipeError: the ledger cannot be read, or the brokers cannot be asked.
    """
    home.make()
    topic = pipeline.source.topic or ""
    destination, topics = destinations.open(pipeline), kafka.topics(pipeline)
    ledger, snapshot, trouble = _ledger_and_brokers(pipeline, home, destination, topics)
    waiting = _Waiting.of(context.cursor)
    publisher = Publisher(context.instance, table_key(pipeline), destination, home, pipeline.name, topic_key(topic))
    shown = _repair(waiting, publisher, is_running(home, pipeline.name))
    new = missing_partitions(snapshot, topic, context.instance)
    behind = lag(ledger, snapshot)
    events: list[dg.AssetObservation | dg.AssetCheckEvaluation] = []
    if not new:  # of a partition that Dagster does not know, nothing can be told
        events += observations(snapshot, behind, pipeline, untold(snapshot, topic, context.instance, _OBSERVE_S))
    events += verdict(context.instance, pipeline, ledger, snapshot, trouble)
    return Look(topic, ledger, snapshot, trouble, new, events, shown, json.dumps(asdict(waiting)))


def _ledger_and_brokers(
    pipeline: Pipeline, home: Home, destination: Destination, topics: Topics
) -> tuple[Ledger, TopicSnapshot, NeedsOperator | None]:
    """The ledger first, as the loop reads them, and twice before an operator is called: a run may commit in between."""
    for _ in range(2):
        _, ledger = destination.ledger()
        snapshot, trouble = topics.snapshot(), None
        try:
            _proof(pipeline, home, destination, topics, ledger, snapshot)
        except NeedsOperator as error:
            trouble = error
        if trouble is None:
            break
    return ledger, snapshot, trouble


def _proof(
    pipeline: Pipeline, home: Home, destination: Destination, topics: Topics, ledger: Ledger, snapshot: TopicSnapshot
) -> None:
    """What a run would find first.

    Raises:
        NeedsOperator: a run could do nothing.
    """
    seen = replace(home.seen(pipeline.name), save=lambda _: None)
    Ingest(pipeline, topics, cast(Stager, None), destination, seen=seen).read_ledger()
    try:
        check_source(ledger, snapshot)
    except OffsetsLost:
        if pipeline.source.on_data_loss == "fail":
            raise


@dataclass
class _Waiting:
    """Since when (s since 1970) the oldest commit waits to be shown, and its number; 0 for none."""

    seq: int = 0
    since: float = 0.0

    @classmethod
    def of(cls, cursor: str | None) -> "_Waiting":
        try:
            return cls(**json.loads(cursor or "{}"))
        except (ValueError, TypeError):
            return cls()


def _repair(waiting: _Waiting, publisher: Publisher, at_work: bool) -> int:
    """Publish what waits: at once when nobody is at work, else only what a run should have published long ago.

    Were each tick to publish while a run goes on, Dagster would keep an event for every 5 s. Gives the events' number.
    """
    oldest = publisher.oldest()
    if oldest != waiting.seq:
        waiting.seq, waiting.since = oldest, time.time()
    if oldest and (not at_work or time.time() - waiting.since > _REPAIR_S):
        waiting.seq = 0
        return publisher.publish()
    return 0
