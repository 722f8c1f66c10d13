"""Spark's connections: what a client without the secret gets from them, and what is refused to travel over open ones."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kpipe.definition.formats import Format
from kpipe.errors import NotAvailable
from resources.java import JavaHome
from resources.object_store.config import StoreAccess
from resources.schema_registry.config import Access
from resources.secrets import Secret
from resources.spark.jvm.transport_security import ALLOW_PLAINTEXT, check_private
from resources.spark.task.task_spec import JobSpec, ProgramSpec
from tests.patience import longer

CANARY = "2b7e151628aed2a6"  # nothing else in the job is like it: blocks are compressed
# A client of another local user: Spark's transport protocol (network-common's Message types, OpenBlocks of network-shuffle),
# without the application's secret. Prints what each listening port of the driver's JVM answered.
PROBE = """
import json, os, socket, struct, sys
from pathlib import Path
import psutil
from pyspark import SparkConf, SparkContext
from resources.spark.jvm import session, spark_settings

asked = spark_settings.settings(Path(sys.argv[1]), "local[1]") | json.loads(sys.argv[2])
patience_s = float(sys.argv[3])
with session.prepared(Path(sys.argv[1]), asked):
    context = SparkContext(conf=SparkConf().setAll(list(asked.items())))
canary = os.environ["CANARY"]
assert context.parallelize([1], 1).mapPartitions(lambda _: [canary]).collect() == [canary]

def text(value):
    return struct.pack(">i", len(value)) + value.encode()

def sent(connection, message):
    connection.sendall(struct.pack(">q", len(message) + 8) + message)

def received(connection):
    def exactly(size):
        found = b""
        while len(found) < size:
            more = connection.recv(size - len(found))
            if not more:
                raise EOFError
            found += more
        return found
    return exactly(struct.unpack(">q", exactly(8))[0] - 8)

def fetched(connection, block):
    body = b"\\0" + text("app") + text("driver") + struct.pack(">i", 1) + text(block)
    sent(connection, b"\\3" + struct.pack(">qi", 1, len(body)) + body)
    answer = received(connection)
    if answer[0] != 4:  # RpcResponse
        return answer
    sent(connection, b"\\0" + struct.pack(">qi", struct.unpack(">q", answer[14:22])[0], 0))
    return received(connection)

answers = {}
java = [process for process in psutil.Process().children(recursive=True) if "java" in process.name()]
for at in {item.laddr for process in java for item in process.net_connections() if item.status == "LISTEN"}:
    for block in ("broadcast_0_piece0", "broadcast_1_piece0"):
        try:
            with socket.create_connection((at.ip, at.port), timeout=patience_s) as connection:
                answer = fetched(connection, block)
        except (EOFError, ConnectionError):
            answer = b"closed"
        except TimeoutError:
            answer = b"silent"
        answers[f"{at.port} {block}"] = answer.decode("latin-1")
print(json.dumps(answers))
context.stop()
"""


def probed(home: Path, settings: dict[str, str], patience_s: float) -> list[str]:
    """Answers of all ports of a driver that runs with these settings. One that gives none in this time is silent."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(home), json.dumps(settings), str(patience_s)],
        cwd=Path(__file__).parents[4], capture_output=True, text=True, timeout=600, check=False,
        env={"PATH": "/usr/bin:/bin", "CANARY": CANARY, **JAVA},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return list(json.loads(done.stdout.splitlines()[-1]).values())


JAVA: dict[str, str] = {}


@pytest.fixture(autouse=True)
def _java(java: JavaHome) -> None:
    JAVA["JAVA_HOME"] = str(java.path)


@pytest.mark.spark
def test_a_local_driver_gives_no_broadcast_to_a_client_without_its_secret(tmp_path: Path) -> None:
    refused = "java.lang.IllegalStateException: Expected SaslMessage"  # AuthRpcHandler, before it passes anything on

    def check(patience_s: float) -> None:
        answers = probed(tmp_path, {}, patience_s)
        assert len(answers) >= 4, answers  # two blocks of the block manager and of the RPC port, at least
        assert all(answer in ("closed", "silent") or answer[13:].startswith(refused) for answer in answers), answers
        assert any(answer[13:].startswith(refused) for answer in answers), answers

    longer(check, 5, 60)


@pytest.mark.spark
@pytest.mark.chaos
def test_the_probe_reads_the_job_where_nothing_is_asked(tmp_path: Path) -> None:
    """Otherwise the test above proves nothing."""
    answers = probed(tmp_path, {"spark.authenticate": "false", "spark.network.crypto.enabled": "false"}, 60)
    assert any(CANARY in answer for answer in answers), answers


class Context:
    """What the check uses of a SparkContext."""

    master = "spark://10.0.0.1:7077"

    def __init__(self, **settings: str) -> None:
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}

    def getConf(self) -> dict[str, str]:
        return self._settings


PLAIN = JobSpec("b", {"bootstrap.servers": "k:9092"}, "/staging", Format(), ())
STORE = StoreAccess(None, "eu", (("aws_secret_access_key", Secret(CANARY)),))
WITH_SECRETS = {
    "source.credentials": replace(PLAIN, config={"sasl.password": Secret(CANARY)}),
    "the schema registry's credentials": replace(PLAIN, access=Access(token=Secret(CANARY))),
    "transform.env": replace(PLAIN, program=ProgramSpec("p", None, "", env={"TOKEN": CANARY})),
    "the object store's keys": replace(PLAIN, store=STORE),
}
AUTHENTICATED = {"spark_authenticate": "true"}


@pytest.mark.parametrize("what", WITH_SECRETS)
@pytest.mark.parametrize(
    "settings",
    [{}, AUTHENTICATED, {"spark_network_crypto_enabled": "true"}, {**AUTHENTICATED, "spark_network_crypto_enabled": "false"}],
)
def test_credentials_do_not_travel_over_open_connections(what: str, settings: dict[str, str]) -> None:
    context: Any = Context(**settings)
    with pytest.raises(NotAvailable) as error:
        check_private(context, WITH_SECRETS[what])
    said = str(error.value)
    assert what in said and "spark://10.0.0.1:7077" in said and ALLOW_PLAINTEXT in said and CANARY not in said, said
    missing = [name for name in ("spark.authenticate", "spark.network.crypto.enabled") if context.getConf().get(name) != "true"]
    assert f"expected {' and '.join(f'{name}=true' for name in missing)}" in said


@pytest.mark.parametrize(
    "settings",
    [
        {**AUTHENTICATED, "spark_network_crypto_enabled": "true"},
        {**AUTHENTICATED, "spark_authenticate_enableSaslEncryption": "true"},
        {**AUTHENTICATED, "spark_ssl_rpc_enabled": "true"},
        {ALLOW_PLAINTEXT: "true"},
    ],
)
def test_private_connections_carry_them_and_so_do_open_ones_that_are_trusted(settings: dict[str, str]) -> None:
    context: Any = Context(**settings)
    for job in (*WITH_SECRETS.values(), STORE):
        check_private(context, job)


def test_a_job_without_credentials_needs_no_private_connection() -> None:
    context: Any = Context()
    check_private(context, PLAIN)
    check_private(context, replace(PLAIN, program=ProgramSpec("p", None, "")))
