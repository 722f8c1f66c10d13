"""SASL/OAUTHBEARER against a broker that checks signatures, with tokens that expire while a range is read or written."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kpipe.definition.pipeline import Into, Source
from kpipe.errors import (
    BrokerUnreachable,
    CredentialsRefused,
    CredentialUnavailable,
    DestinationBusy,
    DestinationError,
)
from kpipe.offsets import Range
from resources.destinations.kafka_sink.cluster import Cluster
from resources.destinations.kafka_sink.producer import Writer
from resources.dev_broker import kafka_node
from resources.java import JavaHome
from resources.kafka import range_reader
from resources.kafka.client_config import client_config
from resources.kafka.range_reader import RangeReader
from resources.kafka.topic_metadata import KafkaTopics
from tests.broker.node import Node
from tests.servers.tokens import CLIENT, SECRET, TokenServer, allowed, broker_properties

COUNT = 60_000


class Guarded:
    """A node with a listener that takes tokens, and the server that issues them."""

    def __init__(self, folder: Path, port: Callable[[], int], server: TokenServer, monkeypatch: pytest.MonkeyPatch) -> None:
        plain, controller, guarded = port(), port(), port()
        listeners = f"PLAINTEXT://127.0.0.1:{plain},GUARDED://127.0.0.1:{guarded}"
        usual = kafka_node.command
        monkeypatch.setattr(kafka_node, "command", lambda *given: _with(usual(*given), allowed(server)))
        self.server, self.address = server, f"127.0.0.1:{guarded}"
        self.node = Node(
            folder, plain, controller,
            {
                "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": listeners,
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_PLAINTEXT",
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "listener.name.guarded.sasl.enabled.mechanisms": "OAUTHBEARER",
                **broker_properties(server, "guarded"),
            },
        ).start()  # fmt: skip

    @property
    def config(self) -> dict[str, Any]:
        """`source.config` of a client."""
        return {
            "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "allow.plaintext.credentials": True,
            "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.token.endpoint.url": f"{self.server.base}/token",
            "sasl.oauthbearer.scope": "read write", "sasl.oauthbearer.extensions": "logicalCluster=lkc1",
            "queued.max.messages.kbytes": 1024, "fetch.max.bytes": 100_000,
        }  # fmt: skip

    def source(self, topic: str, **changes: Any) -> Source:
        credentials = {"sasl.oauthbearer.client.id": CLIENT, "sasl.oauthbearer.client.secret": "{{ env('TOKEN_SECRET') }}"}
        return Source(brokers=self.address, topic=topic, config={**self.config, **changes}, credentials=credentials)

    def by_command(self, topic: str, reference: str) -> Source:
        config = {key: value for key, value in self.config.items() if not key.startswith("sasl.oauthbearer.")}
        return Source(brokers=self.address, topic=topic, config=config, credentials={"sasl.oauthbearer.token": reference})


def _with(command: list[str], options: list[str]) -> list[str]:
    return [command[0], *options, *command[1:]]


@pytest.fixture(scope="module")
def guarded(java: JavaHome, free_port: Callable[[], int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    with pytest.MonkeyPatch.context() as patch, TokenServer(folder) as server:
        made = Guarded(folder / "node", free_port, server, patch)
        try:
            made.node.write(made.node.topic("t"), [b"%d" % n + b"x" * 200 for n in range(COUNT)])
            yield made
        finally:
            made.node.stop()


@pytest.fixture(autouse=True)
def _calm(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    guarded.server.lives_s, guarded.server.answer = 3600, None
    monkeypatch.setattr(range_reader, "BLOCK_RECORDS", 4000)  # more blocks, between which the tests wait
    yield


ENVIRON: Mapping[str, str] = {"TOKEN_SECRET": SECRET}


def numbers(values: list[bytes | None]) -> list[int]:
    return [int((value or b"").split(b"x")[0]) for value in values]


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "binding"])
def test_tokens_that_expire_while_a_range_is_read(guarded: Guarded, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    guarded.server.lives_s = 3
    if not compiled:
        monkeypatch.setattr(range_reader, "available", lambda: False)
    others = set(guarded.server.scopes)  # clients of which may still renew their tokens
    # A source of its own for each case: equal ones share a token.
    source = guarded.source("t", **{"sasl.oauthbearer.scope": f"read {compiled}"})
    topics = KafkaTopics(source, ENVIRON, timeout_s=300)
    assert len(topics.snapshot().partitions) == 1
    before, found = len(guarded.server.issued), []
    with RangeReader(client_config(source, ENVIRON), "t", 0, Range(0, COUNT), stall_timeout_s=300) as reader:
        for block, _ in reader.blocks():
            found += block.values
            if len(guarded.server.issued) < before + 3:
                # The session ends while no thread polls the client, now and then after a login with the expired token.
                time.sleep(1.5 if len(found) < COUNT / 3 else 5)
    assert numbers(found) == list(range(COUNT))
    assert len(guarded.server.issued) >= before + 3
    time.sleep(3.5)  # the driver's own session has ended, too
    assert len(topics.snapshot().partitions) == 1
    assert set(guarded.server.scopes) - others == {f"read {compiled}"}
    assert guarded.server.scopes.count(f"read {compiled}") >= 3


def test_tokens_that_expire_while_a_transaction_is_written(guarded: Guarded) -> None:
    guarded.server.lives_s = 3
    name = guarded.node.topic("written")
    into = Into(
        type="kafka", table="x", brokers=guarded.address, topic=name,
        config={**guarded.config, "sasl.oauthbearer.scope": "w"}, credentials=guarded.source("t").credentials,
    )  # fmt: skip
    cluster = Cluster(into, ENVIRON)
    assert cluster.topic(name) is not None
    writer = Writer(cluster, "writer-1", 60, {name: 1_000_000})
    try:
        before, sent = len(guarded.server.issued), 0
        for _ in range(3):
            writer.begin()
            for _ in range(3):
                writer.write([{"topic": name, "value": b"%d" % n, "partition": 0} for n in range(sent, sent + 10)])
                sent += 10
                time.sleep(1.2)
            writer.flush()
            writer.commit()
    finally:
        writer.close()
    assert len(guarded.server.issued) > before + 1
    found = cluster.topic(name)
    assert found is not None
    (ends,) = cluster.settled(found, 300)
    values = [value for block in cluster.read(name, 0, Range(0, ends.stable)) for value in block.values]
    assert [int(value or b"") for value in values] == list(range(sent))


def test_a_wrong_secret_names_the_server_and_what_to_check(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = {"TOKEN_SECRET": f"wrong-{SECRET}"}
    with pytest.raises(CredentialsRefused) as topics:
        KafkaTopics(guarded.source("t"), wrong, timeout_s=1800).snapshot()
    with (
        pytest.raises(CredentialsRefused) as read,
        RangeReader(client_config(guarded.source("t"), wrong), "t", 0, Range(0, 3), stall_timeout_s=1800) as reader,
    ):
        list(reader.blocks())
    for error in (topics.value, read.value):
        assert error.what.startswith(f"token server {guarded.server.base}/token rejects client {CLIENT}: HTTP 401")
        assert "invalid_client" in error.what and "client.secret" in error.hint
        hidden(f"{error!r} {error} {error.__cause__!r} {error.__context__!r} {caplog.text}", guarded)


def test_a_token_server_that_is_down_is_retried_like_brokers(guarded: Guarded) -> None:
    source = guarded.source("t", **{"sasl.oauthbearer.scope": "down"})
    for answer in ((503, b"<html>"), (429, b"")):
        guarded.server.answer = answer
        with pytest.raises(BrokerUnreachable, match=rf"{guarded.server.base}/token failed: HTTP {answer[0]}") as error:
            KafkaTopics(source, ENVIRON, timeout_s=1800).snapshot()
        assert error.value.retriable
    into = Into(type="kafka", table="x", brokers=guarded.address, topic="t", config=source.config, credentials=source.credentials)
    with pytest.raises(DestinationBusy, match="token server"):
        Cluster(into, ENVIRON).topic("t")
    for answer, text in (
        ((200, b"hello"), "has no time of expiry"),
        ((200, b'{"token": 1}'), "expected JSON with access_token"),
        ((200, b'{"access_token": "a b", "expires_in": 60}'), "expected a token"),
        ((200, b'{"access_token": "ab", "expires_in": -1}'), "compare the clocks"),
        ((302, b""), "redirects"),
        ((400, b'{"error": "invalid_scope"}'), "invalid_scope"),
    ):
        guarded.server.answer = answer
        with pytest.raises(CredentialsRefused, match=text):
            KafkaTopics(source, ENVIRON, timeout_s=1800).snapshot()
    guarded.server.answer = None
    assert len(KafkaTopics(source, ENVIRON, timeout_s=300).snapshot().partitions) == 1


def test_a_token_that_the_broker_rejects(guarded: Guarded) -> None:
    source = guarded.source("t", **{"sasl.oauthbearer.scope": "forged"})
    guarded.server.answer = (200, json.dumps({"access_token": guarded.server.token(aud="others")}).encode())
    with pytest.raises(CredentialsRefused, match=guarded.address) as error:
        KafkaTopics(source, ENVIRON, timeout_s=1800).snapshot()
    hidden(f"{error.value!r}", guarded)
    into = Into(type="kafka", table="x", brokers=guarded.address, topic="t", config=source.config, credentials=source.credentials)
    with pytest.raises(DestinationError):
        Cluster(into, ENVIRON).topic("t")


def test_a_server_that_goes_down_while_a_range_is_read_and_comes_back(guarded: Guarded) -> None:
    guarded.server.lives_s = 3
    source, found = guarded.source("t", **{"sasl.oauthbearer.scope": "back"}), []
    with RangeReader(client_config(source, ENVIRON), "t", 0, Range(0, COUNT), stall_timeout_s=600) as reader:
        for count, (block, _) in enumerate(reader.blocks()):
            found += block.values
            guarded.server.answer = (503, b"") if count == 0 else None
            if count == 0:
                time.sleep(4)
    assert numbers(found) == list(range(COUNT))


def test_a_command_and_a_file_give_tokens_that_are_read_again(guarded: Guarded, tmp_path: Path) -> None:
    calls, held = tmp_path / "calls", tmp_path / "token"
    program = tmp_path / "token-program"
    program.write_text(
        f"#!{sys.executable}\nimport json, os, sys\nopen({str(calls)!r}, 'a').write('x')\n"
        f"assert 'TOKEN_SECRET' not in os.environ\n"
        f"print(json.dumps({{'access_token': open({str(held)!r}).read(), 'expires_in': 3}}))\n"
    )
    program.chmod(0o755)
    held.write_text(guarded.server.token(3600))
    source = guarded.by_command("t", f"{{{{ command('{program}') }}}}")
    assert not calls.exists()
    found: list[bytes | None] = []
    with RangeReader(client_config(source, {}), "t", 0, Range(0, COUNT), stall_timeout_s=300) as reader:
        for block, _ in reader.blocks():
            found += block.values
            if len(calls.read_text()) < 3:
                time.sleep(1.5)
    assert numbers(found) == list(range(COUNT))
    assert len(calls.read_text()) >= 3
    program.write_text("#!/bin/sh\nexit 7\n")
    with pytest.raises(CredentialUnavailable, match="expected exit status 0, found 7"):
        KafkaTopics(guarded.by_command("t", f"{{{{ command('{program} again') }}}}"), {}, timeout_s=300).snapshot()
    with_file = guarded.by_command("t", f"{{{{ file('{held}') }}}}")
    assert len(KafkaTopics(with_file, {}, timeout_s=300).snapshot().partitions) == 1


def hidden(text: str, guarded: Guarded) -> None:
    assert SECRET not in text
    assert not [token for token in guarded.server.issued if token in text or token.split(".")[2] in text]
