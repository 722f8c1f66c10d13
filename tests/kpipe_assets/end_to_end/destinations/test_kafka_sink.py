"""Records whose time the target topic does not take: named, set aside or counted, as `errors.constraint` says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.resources.destinations.kafka_place import read_all

pytestmark = [pytest.mark.broker, pytest.mark.spark]
FAR = 6_247_000_000_000_000  # the year 199930, in ms


def test_a_record_of_the_far_future_becomes_a_dead_letter(kpipe: Any, topic: Any, brokers: str) -> None:
    source, target = topic(1, **{"message.timestamp.after.max.ms": str(2**63 - 1)}), topic(1)
    producer = Producer({"bootstrap.servers": brokers})
    for at in range(6):
        producer.produce(source, json.dumps({"id": at}), partition=0, **({"timestamp": FAR} if at in (2, 4) else {}))
    assert producer.flush(120) == 0
    into = {"type": "kafka", "brokers": brokers, "topic": target}
    kpipe.define("orders", source, into=into)
    failed = kpipe("run", "orders", status=1).stderr
    assert f"{source}/0 offset 2: the record's timestamp {FAR} ms" in failed and "1 more record:" in failed
    assert "message.timestamp.after.max.ms" in failed and "errors.constraint: dead_letter" in failed
    kpipe.define("orders", source, into=into, errors={"constraint": "dead_letter"})
    done = kpipe.json("run", "orders")[-1]
    assert (done["rows"], done["dead_letters"]) == (4, 2)
    assert [json.loads(message.value())["id"] for message in read_all(brokers, target)] == [0, 1, 3, 5]
    letters = {row["offset"]: row for row in kpipe.json("errors", "orders") if row["dead_letter"]}
    assert set(letters) == {2, 4} and {row["stage"] for row in letters.values()} == {"constraint"}
    assert str(FAR) in letters[2]["error_message"]
    assert kpipe.json("verify", "orders")[0]["ok"]
