"""Brokers that are gone, silent, foreign or do not let us in. Each test breaks a node of its own, never the shared one."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from kpipe.definition.pipeline import Source
from kpipe.errors import BrokerUnreachable, CredentialsRefused, KpipeError, ReadStalled, SourceIdentityChanged
from kpipe.ledger.ledger import Lane, Ledger
from kpipe.offsets import Range
from kpipe.planning.planner import check_source
from kpipe.topics import PartitionId
from resources.dev_broker import kafka_node
from resources.dev_broker.broker import LocalBroker
from resources.java import JavaHome
from resources.kafka.client_config import client_config
from resources.kafka.range_reader import RangeReader
from resources.kafka.topic_metadata import KafkaTopics
from tests.certificates import certificates
from tests.patience import longer

pytestmark = pytest.mark.broker

CANARY = "canary-3f1c-secret"
PLAINLY = {"allow.plaintext.credentials": True, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}


def rows(config: dict[str, Any], topic: str, span: Range, stall_timeout_s: float = 120) -> list[bytes | None]:
    with RangeReader(config, topic, 0, span, stall_timeout_s=stall_timeout_s) as reader:
        return [value for block, _ in reader.blocks() for value in block.values]


def produce(brokers: str, topic: str, values: list[bytes]) -> None:
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(300)
    producer = Producer({"bootstrap.servers": brokers})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(300) == 0


@contextmanager
def waited(least: float) -> Iterator[None]:
    """At least the time that was given."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began >= least


FOREVER_S = 1800  # what is told at once does not wait for it


@contextmanager
def at_once() -> Iterator[None]:
    """Before the time that was given is over: a test that waits for it hangs."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < FOREVER_S


def test_nobody_listens(free_port: Callable[[], int]) -> None:
    address = f"127.0.0.1:{free_port()}"
    source = Source(brokers=address, topic="t")

    def asked(limit_s: float) -> None:
        words = f"{address} answered within {limit_s:g} s: connection refused:"
        with waited(limit_s - 0.1), pytest.raises(BrokerUnreachable, match=words) as error:
            KafkaTopics(source, timeout_s=limit_s).snapshot()
        assert not error.value.reached and error.value.field == ("source", "brokers")
        assert "ipv4#" not in str(error.value) and "source.brokers" in error.value.hint

    def read(limit_s: float) -> None:
        words = rf"t/0 \[3, 9\): no record for {limit_s:g} s after offset 2; .*refused"
        with waited(limit_s - 0.1), pytest.raises(ReadStalled, match=words):
            rows(client_config(source, {}), "t", Range(3, 9), limit_s)

    longer(asked, 1.5, 60)
    longer(read, 1.5, 60)


def test_name_that_does_not_resolve() -> None:
    def asked(limit_s: float) -> None:
        topics = KafkaTopics(Source(brokers="no-such-host.invalid:9092", topic="t"), timeout_s=limit_s)
        with waited(limit_s - 0.1), pytest.raises(BrokerUnreachable, match=r"no-such-host\.invalid:9092 .*does not resolve"):
            topics.snapshot()

    longer(asked, 1, 60)


@pytest.mark.slow
def test_silent_broker_is_never_the_end(
    running_broker: Callable[..., LocalBroker], free_port: Callable[[], int], tmp_path: Path
) -> None:
    broker = running_broker(tmp_path / "silent", free_port())
    status = broker.status()
    assert status.brokers is not None
    assert status.pid is not None
    produce(status.brokers, "t", [b"x" * 1000] * 40_000)
    source = Source(brokers=status.brokers, topic="t", config={"queued.max.messages.kbytes": 1024})
    config, topics = client_config(source, {}), KafkaTopics(source, timeout_s=300)
    assert len(topics.snapshot().partitions) == 1
    with RangeReader(config, "t", 0, Range(0, 40_000), stall_timeout_s=300) as reader:
        blocks = reader.blocks()
        next(blocks)
        os.kill(status.pid, signal.SIGSTOP)
        reader._stall, topics._timeout = 2, 1.5  # a busy machine needs more for what goes well
        try:
            with waited(1.9), pytest.raises(ReadStalled, match=r"t/0 \[0, 40000\): no record for 2 s after offset \d+"):
                list(blocks)
            assert reader.report is None
            with waited(1.4), pytest.raises(BrokerUnreachable, match=r"within 1\.5 s|imed out") as error:
                topics.snapshot()
            assert error.value.reached
            # A client made while the broker is silent, and one in the middle of a read, close at once.
            with waited(0.9), pytest.raises(ReadStalled):
                rows(config, "t", Range(0, 10), 1)
        finally:
            os.kill(status.pid, signal.SIGCONT)
    topics._timeout = 300
    assert len(rows(config, "t", Range(0, 40_000))) == 40_000
    assert len(topics.snapshot().partitions) == 1


@pytest.mark.slow
def test_broker_that_comes_back_and_another_cluster_at_its_address(
    running_broker: Callable[..., LocalBroker], free_port: Callable[[], int], tmp_path: Path
) -> None:
    port = free_port()
    first = running_broker(tmp_path / "first", port)
    source = Source(brokers=f"127.0.0.1:{port}", topic="t")
    produce(source.bootstrap, "t", [b"1", b"2"])
    topics, config = KafkaTopics(source, timeout_s=300), client_config(source, {})
    (before,) = topics.snapshot().topics()
    first.stop()
    with pytest.raises(BrokerUnreachable):
        KafkaTopics(source, timeout_s=5).snapshot()
    with pytest.raises(ReadStalled):
        rows(config, "t", Range(0, 1), 1)
    first.start(port)
    assert topics.snapshot().topics() == (before,)
    assert rows(config, "t", Range(0, 2)) == [b"1", b"2"]
    first.stop()
    second = running_broker(tmp_path / "second", port)
    produce(source.bootstrap, "t", [b"3", b"4", b"5"])
    (after,) = topics.snapshot().topics()
    assert after.name == before.name
    assert after.cluster != before.cluster
    lane = Lane(PartitionId(before, 0), 0, 2)
    with pytest.raises(
        SourceIdentityChanged, match=f"belong to a different cluster: expected {before.cluster}, found {after.cluster}"
    ):
        check_source(Ledger("p", 2, {lane.key: lane}), topics.snapshot())
    second.stop()


SECURE = """\
listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},SASL://127.0.0.1:{sasl},TLS://127.0.0.1:{tls},SASLTLS://127.0.0.1:{sasltls}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{sasl},TLS://127.0.0.1:{tls},SASLTLS://127.0.0.1:{sasltls}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL,SASLTLS:SASL_SSL
sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config={jaas}
listener.name.sasltls.plain.sasl.jaas.config={jaas}
ssl.keystore.type=PEM
ssl.keystore.location={keys}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:admin
"""
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="{CANARY}" user_nobody="{CANARY}";'


@pytest.fixture(scope="module")
def secure(java: JavaHome, free_port: Callable[[], int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Addresses of a node that wants credentials and speaks TLS, by listener; and its authority's certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("secure")
    certificates(folder)
    names = ("plain", "controller", "sasl", "tls", "sasltls")
    ports = {name: free_port() for name in names}
    kafka_node.write_configuration(folder, ports["plain"], ports["controller"])
    wanted = SECURE.format(**ports, jaas=JAAS, keys=folder / "keys.pem")
    replaced = {line.split("=")[0] for line in wanted.splitlines()}
    properties = folder / "server.properties"
    kept = [line for line in properties.read_text().splitlines() if line.split("=")[0] not in replaced]
    properties.write_text("\n".join(kept) + "\n" + wanted)
    kafka_node.format_storage(folder)
    with (folder / "output").open("wb") as output:
        node = subprocess.Popen(kafka_node.command(folder), cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        deadline = time.monotonic() + 300
        while True:
            try:
                AdminClient({"bootstrap.servers": addresses["plain"], "log_level": 0}).list_topics(timeout=10)
                break
            except KafkaException:
                assert node.poll() is None, (folder / "output").read_text()[-2000:]
                assert time.monotonic() < deadline, (folder / "output").read_text()[-2000:]
        produce(addresses["plain"], "t", [b"1", b"2", b"3"])
        yield {**addresses, "ca": str(folder / "ca.pem"), "other": str(folder / "other.pem")}
    finally:
        node.terminate()  # a killed one leaves its native libraries in the folder for temporary files
        with suppress(subprocess.TimeoutExpired):  # now and then Kafka hangs in its own shutdown
            node.wait(30)
        node.kill()
        node.wait()


def source(address: str, user: str = "admin", **config: Any) -> Source:
    credentials = {"sasl.username": user, "sasl.password": "{{ env('PASSWORD') }}"}
    sasl = "SASL" in str(config.get("security.protocol", ""))
    return Source(brokers=address, topic="t", config=config, credentials=credentials if sasl else {})


def both(source: Source, password: str = CANARY) -> tuple[int, list[bytes | None]]:
    """A snapshot and a read."""
    environ = {"PASSWORD": password}
    snapshot = KafkaTopics(source, environ, timeout_s=300).snapshot()
    return len(snapshot.partitions), rows(client_config(source, environ), "t", Range(0, 3))


def test_credentials_that_are_taken(secure: dict[str, str]) -> None:
    expected = (1, [b"1", b"2", b"3"])
    assert both(source(secure["sasl"], **PLAINLY)) == expected
    assert both(source(secure["tls"], **{"security.protocol": "SSL", "ssl.ca.location": secure["ca"]})) == expected
    over_tls = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "ssl.ca.location": secure["ca"]}
    assert both(source(secure["sasltls"], **over_tls)) == expected


def test_a_password_in_a_file_is_read_by_each_new_client(secure: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "password"
    given = source(secure["sasl"], **PLAINLY)
    rotating = given.model_copy(update={"credentials": {"sasl.username": "admin", "sasl.password": f"{{{{ file('{file}') }}}}"}})
    topics = KafkaTopics(rotating, {}, timeout_s=300)
    with pytest.raises(KpipeError, match=r"sasl\.password: file\(\): file .* does not exist"):
        topics.snapshot()
    file.write_text("wrong")
    with pytest.raises(CredentialsRefused):
        topics.snapshot()
    assert rotating.rotates and not given.rotates
    file.write_text(f"{CANARY}\n")
    assert len(topics.snapshot().partitions) == 1
    assert rows(client_config(rotating, {}), "t", Range(0, 3)) == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("listener", "config"),
    [
        ("sasl", PLAINLY),
        ("sasl", {**PLAINLY, "sasl.mechanism": "SCRAM-SHA-256"}),
        ("sasltls", {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "ssl.ca.location": "{ca}"}),
        ("tls", {"security.protocol": "SSL", "ssl.ca.location": "{other}"}),
    ],
    ids=["password", "mechanism", "password-over-tls", "authority"],
)
def test_credentials_that_are_refused(
    secure: dict[str, str], listener: str, config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    filled = {key: value.format(**secure) if isinstance(value, str) else value for key, value in config.items()}
    pipeline = source(secure[listener], **filled)
    wrong = {"PASSWORD": f"wrong-{CANARY}"}
    seen: list[KpipeError] = []
    with at_once(), pytest.raises(CredentialsRefused, match=secure[listener]) as refused:
        KafkaTopics(pipeline, wrong, timeout_s=FOREVER_S).snapshot()
    seen.append(refused.value)
    with at_once(), pytest.raises(CredentialsRefused, match=r"t/0 \[0, 3\)") as refused:
        rows(client_config(pipeline, wrong), "t", Range(0, 3), FOREVER_S)
    seen.append(refused.value)
    for error in seen:
        assert error.hint
        assert CANARY not in f"{error!r} {error} {error.__cause__!r} {error.__context__!r}"
    assert caplog.records  # librdkafka's own lines came through Python's logging
    assert CANARY not in caplog.text


def test_wrong_protocol_for_the_port(secure: dict[str, str]) -> None:
    for pipeline in (
        source(secure["plain"], **{"security.protocol": "SSL", "ssl.ca.location": secure["ca"]}),
        source(secure["sasl"]),
    ):

        def asked(limit_s: float, pipeline: Source = pipeline) -> None:
            with pytest.raises((BrokerUnreachable, CredentialsRefused), match=pipeline.bootstrap) as error:
                KafkaTopics(pipeline, {}, timeout_s=limit_s).snapshot()
            assert "security.protocol" in error.value.hint

        longer(asked, 8, 120)  # in which the broker hangs up at least once


def test_what_a_user_may_not_do(secure: dict[str, str]) -> None:
    pipeline, environ = source(secure["sasl"], "nobody", **PLAINLY), {"PASSWORD": CANARY}
    topics, config = KafkaTopics(pipeline, environ, timeout_s=FOREVER_S), client_config(pipeline, environ)
    with at_once(), pytest.raises(CredentialsRefused, match=rf"{secure['sasl']}: t"):
        topics.snapshot()
    with at_once(), pytest.raises(CredentialsRefused, match=r"t/0 \[0, 3\)"):
        rows(config, "t", Range(0, 3), FOREVER_S)
    admin = AdminClient({"bootstrap.servers": secure["plain"]})
    for operation in (AclOperation.DESCRIBE, AclOperation.READ):
        acl = AclBinding(
            ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:nobody", "*", operation, AclPermissionType.ALLOW
        )
        admin.create_acls([acl])[acl].result(300)
    # Nothing on groups and nothing on the cluster: kpipe needs no more than its topics.
    deadline = time.monotonic() + 300
    while True:
        try:
            assert len(topics.snapshot().partitions) == 1
            assert rows(config, "t", Range(0, 3)) == [b"1", b"2", b"3"]
            break
        except CredentialsRefused:  # one of the two, or both, are not known to the broker yet
            assert time.monotonic() < deadline
    # Taken away in the middle of a read, which waits for a fourth record: an error, and no end of the range.
    read = AclBindingFilter(
        ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:nobody", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    with RangeReader(config, "t", 0, Range(0, 4), stall_timeout_s=FOREVER_S) as reader:
        blocks, count = reader.blocks(), 0
        while count < 3:
            count += len(next(blocks)[0])
        admin.delete_acls([read])[read].result(300)
        with at_once(), pytest.raises(CredentialsRefused, match=r"t/0 \[0, 4\), after offset 2"):
            next(blocks)
    with pytest.raises(CredentialsRefused):
        rows(config, "t", Range(0, 3))
