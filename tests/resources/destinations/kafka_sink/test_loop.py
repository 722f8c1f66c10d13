"""A topic that is both read and written, by different addresses of the same brokers, is refused by its id."""

from __future__ import annotations

import pytest

from kpipe.batch.batch import Commit
from kpipe.definition.pipeline import Into
from kpipe.errors import InvalidPipeline
from kpipe.ledger import transitions
from kpipe.ledger.ledger import Lane, Step
from kpipe.topics import PartitionId, TopicId
from resources.destinations.kafka_sink.cluster import Topic
from resources.destinations.kafka_sink.destination import KafkaDestination


@pytest.mark.parametrize(
    ("name", "field"), [("out", "topic"), ("out.dead-letters", "dead_letters"), ("kpipe-ledger-p", "ledger")]
)
@pytest.mark.parametrize("same", [True, False])
def test_a_commit_of_a_topic_that_the_pipeline_writes_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, field: str, same: bool
) -> None:
    made = KafkaDestination(Into(type="kafka", brokers="127.0.0.1:1", topic="out"), "p")
    monkeypatch.setattr(made.cluster, "topic", lambda asked: Topic(asked, "id-1", 1))
    sources = [PartitionId(TopicId("c", "id-1" if same else "id-2", name), 0), PartitionId(TopicId("c", "id-3", "in"), 0)]
    changes = tuple(change for source in sources for change in transitions.begin(source, 0, 0))
    rows = tuple(Step(Lane(source, 0, 0), 1) for source in sources)  # with at_least_once, before the lanes move
    for commit in (Commit("b", "p", changes, kind="begin"), Commit("b", "p", (), kind="rows", steps=rows)):
        if not same:
            made._check_loop(commit)
            continue
        with pytest.raises(InvalidPipeline, match=f"into.{field}: expected a topic that the source does not read, found {name}"):
            made._check_loop(commit)
