"""`errors.topic` without a JVM: killed around the transaction that writes it, and without a topic that takes everything."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kpipe.errors import DestinationError
from resources.dev_broker.broker import LocalBroker
from tests.commandline import Kpipe
from tests.resources.destinations.kafka_place import read_all
from tests.survival.small import Small, run

pytestmark = pytest.mark.broker


@pytest.fixture
def kpipe(tmp_path: Path, brokers: str) -> Kpipe:
    """The command line on a fresh home, without a JVM."""
    return Kpipe(tmp_path / "home", brokers)


@pytest.fixture
def write(brokers: str) -> Callable[..., None]:
    """`write(topic, values)`: produce, and wait until the broker has them."""
    producer = Producer({"bootstrap.servers": brokers})

    def values(topic: str, items: list[str]) -> None:
        for item in items:
            producer.produce(topic, item, partition=0)
        assert producer.flush(120) == 0

    return values


def test_each_dead_letter_is_in_the_topic_once_whatever_is_killed(
    kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., None], brokers: str, tmp_path: Path
) -> None:
    name, target, bad = topic(1), topic(2), 0
    kpipe.define("orders", name, errors={"topic": target})
    said = tmp_path / "said.txt"
    for fault in ("commit.after:2", "letters.read:1", "letters.before:1", "letters.after:1"):
        write(name, ['{"id": 1}', f"{{broken {bad}", f"{{broken {bad + 1}"])
        bad += 2
        said.touch()
        status, text = Small(kpipe.home, "orders", said, f"{fault}:kill").end()
        assert status == -signal.SIGKILL, (fault, text)
    list(run(kpipe.home, "orders"))
    found = read_all(brokers, target)
    assert sorted(message.value().decode() for message in found) == [f"{{broken {at}" for at in range(bad)]
    assert {dict(message.headers())["__connect.errors.topic"].decode() for message in found} == {name}
    proof = kpipe.json("verify", "orders")[0]
    assert proof["ok"] and proof["dead_letters"] == bad
    assert proof["dead_letter_topic"] == {"topic": target, "records": bad, "waiting": 0, "error": ""}
    assert kpipe.json("status", "orders")[0]["dead_letter_topic"] == {"records": bad, "topic": target, "error": ""}
    assert f"topic {target} has received {bad} dead letters" in kpipe("verify", "orders").stdout


def test_loading_continues_while_the_topic_takes_no_dead_letter(
    kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., None], brokers: str, kafka_broker: LocalBroker
) -> None:
    name, target = topic(1), topic(1, **{"max.message.bytes": "900"})
    kpipe.define("orders", name, errors={"topic": target}, batch={"max_offsets_per_partition": 2})
    write(name, ['{"id": 1}', "{" + "x" * 900, '{"id": 2}', "{small", '{"id": 3}'])
    with pytest.raises(DestinationError, match=f"the dead letter of {name}/0 offset 1 is larger than max.message.bytes") as error:
        list(run(kpipe.home, "orders"))
    assert target in str(error.value)
    assert kpipe.sql("SELECT count(*) FROM orders") == [(3,)]
    told = kpipe("verify", "orders")
    assert f"NOT in topic {target} yet: 2 dead letters" in told.stderr and "proven:" in told.stdout
    shown = " ".join(kpipe("status", "orders").stdout.split())
    assert f"orders: topic {target} has received 0 dead letters; NOT the newest: " in shown
    kafka_broker.delete_topic(target)
    kafka_broker.create_topic(target, 1, {"max.message.bytes": "9000"})
    list(run(kpipe.home, "orders"))
    assert [len(message.value()) for message in read_all(brokers, target)] == [901, 6]
    assert kpipe.json("verify", "orders")[0]["dead_letter_topic"]["waiting"] == 0
