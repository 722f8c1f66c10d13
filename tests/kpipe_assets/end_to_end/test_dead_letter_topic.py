"""`errors.topic` from the outside: real Kafka, real Spark, real DuckDB; killed, refused, and without a topic to write to."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from resources.dev_broker.broker import LocalBroker
from tests.resources.destinations.kafka_place import read_all

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def test_each_dead_letter_is_in_the_topic_once_whatever_is_killed(
    kpipe: Any, topic: Callable[..., str], write: Any, brokers: str
) -> None:
    name, target = topic(1), topic(2)
    kpipe.define("orders", name, errors={"topic": target})
    bad, points = 0, ("commit.after", "letters.read", "letters.before", "letters.after")
    for point in points:
        write(name, ['{"id": 1}', f"{{broken {bad}", f"{{broken {bad + 1}"])
        bad += 2
        killed = kpipe.outside("run", "orders", status=None, KPIPE_FAULT=f"{point}:{2 if point == 'commit.after' else 1}:kill")
        assert killed.returncode == -signal.SIGKILL, point
    kpipe("run", "orders")  # nothing new to read: it writes what the killed run left
    found = read_all(brokers, target)
    assert sorted(message.value().decode() for message in found) == [f"{{broken {at}" for at in range(bad)]
    assert {dict(message.headers())["__connect.errors.topic"].decode() for message in found} == {name}
    proof = kpipe.json("verify", "orders")[0]
    assert proof["ok"] and proof["dead_letters"] == bad
    assert proof["dead_letter_topic"] == {"topic": target, "records": bad, "waiting": 0, "error": ""}
    assert kpipe.json("status", "orders")[0]["dead_letter_topic"] == {"records": bad, "topic": target, "error": ""}
    assert f"topic {target} has received {bad} dead letters" in kpipe("verify", "orders").stdout
    assert f"orders: topic {target} has received {bad} dead letters" in " ".join(kpipe("status", "orders").stdout.split())


def test_loading_continues_while_the_topic_refuses_a_dead_letter(
    kpipe: Any, topic: Callable[..., str], write: Any, brokers: str, kafka_broker: LocalBroker
) -> None:
    name, target = topic(1), topic(1, **{"max.message.bytes": "900"})
    kpipe.define("orders", name, errors={"topic": target}, batch={"max_offsets_per_partition": 2})
    write(name, ['{"id": 1}', "{" + "x" * 900, '{"id": 2}', "{small", '{"id": 3}'])
    failed = kpipe("run", "orders", status=1).stderr
    assert f"the dead letter of {name}/0 offset 1 is larger than max.message.bytes" in failed and target in failed
    assert kpipe.sql("SELECT count(*) FROM orders") == [(3,)]
    told = kpipe("verify", "orders")
    assert f"NOT in topic {target} yet: 2 dead letters" in told.stderr and "proven:" in told.stdout
    assert "NOT the newest: " in kpipe("status", "orders").stdout
    kafka_broker.delete_topic(target)
    kafka_broker.create_topic(target, 1, {"max.message.bytes": "9000"})
    kpipe("run", "orders")
    assert [len(message.value()) for message in read_all(brokers, target)] == [901, 6]
    assert kpipe.json("verify", "orders")[0]["dead_letter_topic"]["waiting"] == 0
