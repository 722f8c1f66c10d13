"""A whole pipeline on a cluster that takes tokens: read by Spark's workers, written to a topic, while tokens expire."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from resources.java import JavaHome
from tests.broker.test_oauthbearer import Guarded
from tests.resources.destinations.kafka_place import read_all
from tests.servers.tokens import SECRET, TokenServer

pytestmark = pytest.mark.spark

COUNT = 2_000


@pytest.fixture(scope="module")
def cluster(java: JavaHome, free_port: Callable[[], int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("tokens")
    with pytest.MonkeyPatch.context() as patch, TokenServer(folder, lives_s=6) as server:
        made = Guarded(folder / "node", free_port, server, patch)
        try:
            yield made
        finally:
            made.node.stop()


@pytest.mark.chaos
def test_exactly_once_through_tokens_that_expire(
    kpipe: Any, cluster: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_SECRET", SECRET)
    read, written = cluster.node.topic("read", 2), cluster.node.topic("written")
    for partition in range(2):
        values = [json.dumps({"id": n}).encode() for n in range(partition * COUNT, (partition + 1) * COUNT)]
        cluster.node.write(read, values, partition=partition)
    slow = tmp_path / "slow"
    slow.write_text(
        f"#!{sys.executable}\nimport sys, time\nfor n, line in enumerate(sys.stdin):\n"
        "    if n % 500 == 0: time.sleep(4)\n    sys.stdout.write(line)\n    sys.stdout.flush()\n"
    )
    slow.chmod(0o755)
    source = cluster.source(read)
    access = {"brokers": cluster.address, "config": source.config, "credentials": source.credentials}
    kpipe.define(
        "orders", read, source=access, into={"type": "kafka", "table": "orders", "topic": written, **access},
        transform={"program": str(slow)}, batch={"max_offsets_per_partition": COUNT // 2},
    )  # fmt: skip
    done = kpipe("run", "orders", "--json")
    assert json.loads(done.stdout.splitlines()[-1])["rows"] == 2 * COUNT
    found = sorted(json.loads(message.value())["id"] for message in read_all(cluster.node.address, written))
    assert found == list(range(2 * COUNT))
    assert kpipe.json("verify", "orders")[0]["ok"]
    assert len(cluster.server.issued) > 5
    texts = [done.stdout, done.stderr, *(path.read_text(errors="replace") for path in kpipe.home.rglob("*") if path.is_file())]
    secrets = [SECRET, *cluster.server.issued]
    assert not [secret for secret in secrets if any(secret in text for text in texts)]
