"""One Kafka node in KRaft mode (broker and controller in one process), started by Java without Kafka's shell scripts."""

from __future__ import annotations

import base64
import subprocess
import uuid
from pathlib import Path

from kpipe.errors import KpipeError
from resources.java import find_java
from resources.kafka_jars import VERSION, jars_folder

__all__ = ["VERSION", "cluster_id", "command", "format_storage", "write_configuration"]

FORMAT_SECONDS = 60.0

JVM = (
    "-Xms64m", "-Xmx512m",
    "-XX:+UseSerialGC",         # one thread instead of a dozen; pauses do not matter here
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",         # no files outside of the home
    "-Djava.awt.headless=true",
)  # fmt: skip

# A development node: small, local, and it never invents a topic. Key by key only where Kafka's default would not do.
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
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 5MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


def cluster_id(folder: Path) -> str:
    """The home's cluster id, made at the first call: 16 random bytes in Kafka's base64."""
    kept = folder / "cluster_id"
    if not kept.is_file():
        new = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        # Kafka refuses ids that its tools would read as an option.
        scratch = kept.with_suffix(".new")
        scratch.write_text(f"k{new[1:]}\n", encoding="ascii")
        scratch.replace(kept)
    return kept.read_text(encoding="ascii").strip()


def write_configuration(folder: Path, port: int, controller_port: int) -> None:
    """`server.properties` and `log4j2.properties` for this start."""
    (folder / "logs").mkdir(exist_ok=True)
    properties = PROPERTIES.format(port=port, controller_port=controller_port, data=_escaped(folder / "data"))
    (folder / "server.properties").write_text(properties, encoding="latin-1")
    (folder / "log4j2.properties").write_text(LOG4J2.format(logs=_escaped(folder / "logs")), encoding="latin-1")


def format_storage(folder: Path) -> None:
    """Write the cluster id into an empty data folder; does nothing if that was done.

    Raises:
        KpipeError: the tool refused; its last lines are in the message.
    """
    if (folder / "data" / "meta.properties").is_file():
        return
    arguments = ["format", "--cluster-id", cluster_id(folder), "--config", str(folder / "server.properties")]
    done = subprocess.run(
        [*_java(folder), "kafka.tools.StorageTool", *arguments, "--ignore-formatted"],
        cwd=folder,
        env={},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=FORMAT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        last = " | ".join((done.stdout + done.stderr).strip().splitlines()[-3:])
        raise KpipeError(f"Kafka cannot prepare {folder / 'data'}: {last}", "`kpipe broker start` on an empty folder")


def command(folder: Path) -> list[str]:
    """What runs the node in the foreground."""
    return [*_java(folder), "kafka.Kafka", str(folder / "server.properties")]


def _java(folder: Path) -> list[str]:
    options = [f"-Dkafka.logs.dir={folder / 'logs'}", f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}"]
    return [str(find_java().executable), *JVM, *options, "-cp", f"{jars_folder()}/*"]


def _escaped(path: Path) -> str:
    """A path as the value of a Java properties file, where characters outside ASCII are escaped."""
    units = str(path).replace("\\", "\\\\").encode("utf-16-be")
    codes = (int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2))
    return "".join(chr(code) if 32 <= code < 127 else f"\\u{code:04x}" for code in codes)
