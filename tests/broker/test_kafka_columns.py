"""Columns of the Kafka sink: names that none can have, and records with very many of them."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kpipe.interfaces import Destination
from resources.destinations import open_destination
from resources.home import Home
from tests.resources.destinations.kafka_place import read_all
from tests.resources.destinations.place import DuckDBPlace
from tests.resources.several import Bench


class _Bench(Bench):
    @property
    def destination(self) -> Destination:
        return open_destination(self.pipeline, self.home)


@pytest.mark.parametrize("name", ["", "a\0b", "n" * 256])
def test_names_that_no_column_can_have_do_not_stop_the_sink(tmp_path: Path, brokers: str, name: str) -> None:
    place, home, topic = DuckDBPlace(tmp_path), Home.at(tmp_path / "home"), f"columns-{uuid.uuid4().hex[:8]}"
    place.staging = home.make().staging
    place.staging.mkdir(parents=True, exist_ok=True)
    admin = AdminClient({"bootstrap.servers": brokers})
    for created in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        created.result(300)
    into = {"type": "kafka", "brokers": brokers, "topic": topic}
    made = _Bench(place, home, name=f"p_{uuid.uuid4().hex[:8]}", select=None, also=[], columns={}, into=into)
    wide = {"id": 3, **{f"m{at}": at for at in range(1_700)}}
    made.topics.produce(0, {"id": 0, name: 1}, {"id": 1, "o": {name: 1}}, {"id": 2}, wide)
    made.run()
    made.topics.produce(0, {"id": 4})
    made.run()
    sent = [json.loads(message.value()) for message in read_all(brokers, topic)]
    assert sorted(row["id"] for row in sent) == [1, 2, 4]
    assert next(row["o"] for row in sent if row["id"] == 1) == {name: 1}
    proof = made.proof()
    assert proof.ok, proof.problems
    assert proof.counts.dead_letters == 2
