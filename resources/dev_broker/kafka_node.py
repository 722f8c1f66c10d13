"""One Kafka node in KRaft mode (broker and controller in one process), started by Java without Kafka's shell scripts."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import uuid
from pathlib import Path

from kpipe.errors import KpipeError
from resources.dev_broker.kafka_jars import VERSION, jars_folder
from resources.java import find_java

__all__ = ["ENVIRONMENT", "VERSION", "cluster_id", "command", "format_storage", "new_cluster_id", "write_configuration"]

FORMAT_SECONDS = 180.0

# The environment is empty, because the caller's may contain secrets. Without a UTF-8 locale, Java cannot open paths with
# characters outside ASCII.
ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}

JVM: tuple[str, ...] = (
    "-Xms64m", "-Xmx512m",
    "-XX:+UseSerialGC",         # one thread instead of a dozen; pauses do not matter here
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",         # no files outside the home
    "-Djava.awt.headless=true",
)  # fmt: skip

# A small, local development node without automatic topic creation; only values that differ from Kafka's defaults.
# broker.session.timeout.ms: after a kill, a node is accepted again only when its previous session has expired.
# initial.broker.registration.timeout.ms: a node that a busy machine starts in more than a minute does not give up.
# metadata.max.idle.interval.ms: an idle controller writes a record every 0.5 s, by which others would notice that they lag.
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
initial.broker.registration.timeout.ms=300000
metadata.max.idle.interval.ms=0
num.network.threads=2
num.io.threads=4
background.threads=2
group.initial.rebalance.delay.ms=0
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
log.cleaner.dedupe.buffer.size=16777216
"""

LOG4J2 = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {logs}/kafka.log
appender.file.filePattern = {logs}/kafka.log.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d] %p %m (%c)%n
appender.file.policies.type = Policies
appender.file.policies.startup.type = OnStartupTriggeringPolicy
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 5MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


def cluster_id(folder: Path) -> str | None:
    """Return the cluster id with which the data folder was formatted; None before the first start."""
    try:
        properties = (folder / "data" / "meta.properties").read_text(encoding="latin-1")
    except FileNotFoundError:
        return None
    match = re.search(r"^cluster\.id=(\S+)", properties, re.MULTILINE)
    return match[1] if match else None


def write_configuration(folder: Path, port: int, controller_port: int) -> None:
    """Write `server.properties` and `log4j2.properties` for this start."""
    (folder / "logs").mkdir(exist_ok=True)
    shutil.rmtree(folder / "tmp", ignore_errors=True)  # of a node that was killed
    (folder / "tmp").mkdir()
    properties = PROPERTIES.format(port=port, controller_port=controller_port, data=_escaped(folder / "data"))
    (folder / "server.properties").write_text(properties, encoding="latin-1")
    (folder / "log4j2.properties").write_text(LOG4J2.format(logs=_escaped(folder / "logs")), encoding="latin-1")


def new_cluster_id() -> str:
    """Return 16 random bytes in Kafka's base64; a leading "-" would be taken for an option."""
    return "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")[1:]


def format_storage(folder: Path, cluster: str | None = None) -> None:
    """Format an empty data folder with a cluster id, a new one by default; do nothing if it is formatted.

    Raises:
        KpipeError: the tool failed; the message contains its last lines.
    """
    if cluster_id(folder) is not None:
        return
    arguments = ["format", "--cluster-id", cluster or new_cluster_id(), "--config", str(folder / "server.properties")]
    done = subprocess.run(
        [*_java(folder), "kafka.tools.StorageTool", *arguments, "--ignore-formatted"],
        cwd=folder,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the caller: an incomplete format would have to be removed
        capture_output=True,
        text=True,
        errors="replace",
        timeout=FORMAT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).splitlines()
        last = " | ".join([line for line in lines if line and not line[0].isspace()][-3:])
        raise KpipeError(f"Kafka cannot prepare {folder / 'data'}: {last}", "`kpipe broker start` on an empty folder")


def command(folder: Path) -> list[str]:
    """Return the command that runs the node in the foreground."""
    return [*_java(folder), "kafka.Kafka", str(folder / "server.properties")]


def _java(folder: Path) -> list[str]:
    options = [
        f"-Dkafka.logs.dir={folder / 'logs'}",
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        f"-Djava.io.tmpdir={folder / 'tmp'}",  # for libraries of compression; a killed node leaves them
    ]
    return [str(find_java().executable), *JVM, *options, "-cp", f"{jars_folder()}/*"]


def _escaped(path: Path) -> str:
    """Escape a path as the value of a Java properties file, which allows ASCII only."""
    units = str(path).replace("\\", "\\\\").encode("utf-16-be")
    codes = (int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2))
    return "".join(chr(code) if 32 <= code < 127 else f"\\u{code:04x}" for code in codes)
