"""The cluster: three Kafka brokers, a Spark master with three workers, an object store, and a client that has kpipe.

Workers have Spark, Java and what the machine's `/usr` holds; they see neither the checkout nor its environment. Client and
workers see one folder in common, as of a file server: `shared`.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from resources.dev_broker import kafka_node
from resources.dev_broker.kafka_jars import jars_folder
from resources.java import find_java
from tests.cluster import hadoop
from tests.cluster.hosts import Host, Network, obstacle
from tests.servers.s3 import KEY, SECRET, program

ROOT = Path(__file__).parent.parent.parent
KAFKAS, WORKERS = ("kafka1", "kafka2", "kafka3"), ("worker1", "worker2", "worker3")
NAMES = (*KAFKAS, "master", *WORKERS, "store", "client")
KAFKA_PORT, CONTROLLER_PORT, MASTER_PORT, STORE_PORT = 9092, 9093, 7077, 9000
BUCKET = "lake"
#: Limit of a wait: on a busy machine all is slower, and only what hangs shall fail.
PATIENCE_S = 1600.0
# Small, as all of it shares one machine; and JVMs that start with half the processor time, as kpipe's driver does.
_MOST, _JVM = "256m", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: Settings of a Spark application on it: what an executor takes, and how long silence is borne.
SPARK = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": _JVM,
    "spark.network.timeout": "15s",
    "spark.network.timeoutInterval": "3s",
    "spark.cores.max": "3",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.executor.heartbeatInterval": "3s",
    "spark.executor.heartbeat.maxFailures": "4",
}

#: For runs whose executors fetch and unpack the environment, 200 MB: while they do, they send no heartbeat, and Spark ends them.
UNPACKING = {"spark_network_timeout": f"{PATIENCE_S:g}s", "spark_executor_heartbeat_maxFailures": "600"}


def default_base() -> Path:
    """Where `make cluster` puts it: KPIPE_CLUSTER, else a folder among the temporary files."""
    return Path(os.environ.get("KPIPE_CLUSTER") or Path(tempfile.gettempdir()) / "kpipe-cluster")


@dataclass
class Cluster:
    """A cluster that runs."""

    network: Network

    def __getitem__(self, name: str) -> Host:
        return self.network.hosts[name]

    @property
    def workers(self) -> list[Host]:
        """Hosts of Spark's workers."""
        return [self[name] for name in WORKERS]

    @property
    def brokers(self) -> str:
        """All of Kafka's."""
        return ",".join(f"{self[name].address}:{KAFKA_PORT}" for name in KAFKAS)

    @property
    def master(self) -> str:
        """Spark's master."""
        return f"spark://{self['master'].address}:{MASTER_PORT}"

    @property
    def shared(self) -> Path:
        """The folder that client and workers see."""
        return self.network.base / "shared"

    @property
    def configuration(self) -> Path:
        """Folder of Spark's settings that master, workers and client share; it contains the cluster's secret."""
        return self.network.base / "spark-conf"

    @property
    def store(self) -> dict[str, str]:
        """What a process finds in its environment to get at the object store."""
        return {
            "AWS_ENDPOINT_URL": f"http://{self['store'].address}:{STORE_PORT}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def kpipe(self, home: Path, **more: str) -> dict[str, str]:
        """Environment of a kpipe on the client."""
        java = find_java()
        conf = " ".join(f"--conf {shlex.quote(f'{name}={value}')}" for name, value in {**SPARK, **_conf(more)}.items())
        kept = {name: value for name, value in more.items() if not name.startswith("spark_")}
        return {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "JAVA_HOME": str(java.path),
            "KPIPE_HOME": str(home),
            "KPIPE_SPARK_MASTER": self.master,
            "SPARK_CONF_DIR": str(self.configuration),
            "PYSPARK_SUBMIT_ARGS": f"{conf} pyspark-shell",
            **kept,
        }

    def spark_state(self) -> dict[str, Any]:
        """What the master says of workers and applications."""
        import urllib.request

        with (
            self["client"].network(),
            urllib.request.urlopen(f"http://{self['master'].address}:8080/json/", timeout=10) as answer,
        ):
            return dict(json.load(answer))

    def start_kafka(self, name: str) -> None:
        """Begin a broker, which holds its controller, too."""
        folder = self[name].folder / "kafka"
        words = [word.replace("-Xmx512m", f"-Xmx{_MOST}") for word in kafka_node.command(folder)]
        self[name].spawn(words, "kafka.log", kafka_node.ENVIRONMENT)

    def start_worker(self, name: str) -> None:
        """Begin Spark's worker of a host, with one core."""
        host = self[name]
        place = ("-d", str(host.folder / "work"), "-c", "1", "-m", "1g", "--webui-port", "8081")
        self._spark(host, "worker.Worker", "-h", host.address, *place, self.master)

    def _spark(self, host: Host, name: str, *arguments: str) -> None:
        home = self.network.base / "spark"
        environment = {
            "JAVA_HOME": str(find_java().path),
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(self.configuration),
            "SPARK_DAEMON_MEMORY": _MOST,
            "SPARK_DAEMON_JAVA_OPTS": _JVM,
            "SPARK_LOCAL_DIRS": str(host.folder / "local"),
            "SPARK_LOCAL_IP": host.address,
        }
        host.spawn([home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments], "spark.log", environment)

    def wait_for_kafka(self, brokers: int = len(KAFKAS)) -> None:
        """Until so many brokers are known to each other and a controller leads them."""

        def there() -> bool:
            try:
                found = AdminClient({"bootstrap.servers": self.brokers, "log_level": 0}).list_topics(timeout=5)
            except KafkaException:
                return False
            return len(found.brokers) == brokers

        with self["client"].network():
            wait(there, "Kafka")

    def wait_for_workers(self, count: int = len(WORKERS)) -> None:
        """Until the master knows so many living workers."""

        def there() -> bool:
            try:
                return bool(self.spark_state()["aliveworkers"] == count)
            except OSError:
                return False

        wait(there, "Spark")

    def topic(self, name: str, partitions: int = 3) -> str:
        """Make a topic of three replicas, of which two must have what is acknowledged."""
        with self["client"].network():
            admin = AdminClient({"bootstrap.servers": self.brokers, "log_level": 0})
            admin.create_topics([NewTopic(name, partitions, 3, config={"min.insync.replicas": "2"})])[name].result(60)

            def led() -> bool:
                found = admin.list_topics(name, timeout=10).topics[name].partitions.values()
                return len(found) == partitions and all(part.leader >= 0 and len(part.isrs) == 3 for part in found)

            wait(led, f"topic {name}")
        return name


def wait(what: Callable[[], bool], name: str, within: float = PATIENCE_S) -> None:
    """Until it is so."""
    deadline = time.monotonic() + within
    while not what():
        assert time.monotonic() < deadline, f"{name}: not within {within:g} s"
        time.sleep(0.25)


def _conf(more: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in more.items() if name.startswith("spark_")}


def find(base: Path) -> Cluster | None:
    """The cluster that runs there."""
    network = Network.found(base)
    return Cluster(network) if network is not None else None


def build(base: Path) -> Cluster:
    """Make the hosts, and start everything."""
    refused = obstacle()
    assert not refused, refused
    environment = [ROOT, Path(sys.prefix), *([] if sys.base_prefix == "/usr" else [Path(sys.base_prefix)])]  # hosts have /usr
    network = Network(base, [*environment, Path.home()])
    java, spark, shared, conf = find_java().path, base / "spark", base / "shared", base / "spark-conf"
    runtime = [(path, path) for path in (java,)]
    common = [*runtime, (conf, conf), (shared, shared)]
    yarn = [(jar, base / hadoop.FOLDER / jar.name) for jar in hadoop.jars()]
    gateway = program()
    base.parent.mkdir(parents=True, exist_ok=True)
    shown: dict[str, list[tuple[Path, Path]]] = {
        **{name: [*runtime, (jars_folder(), jars_folder())] for name in KAFKAS},
        "master": [*runtime, (conf, conf), (Path(pyspark.__file__).parent, spark), *yarn],
        **{name: [*common, (Path(pyspark.__file__).parent, spark), *yarn] for name in WORKERS},
        "store": [(gateway, gateway)] if gateway is not None else [],
        "client": [*common, *((path, path) for path in outermost(environment))],
    }
    network.make(NAMES, shown, folders=[shared, conf])
    cluster = Cluster(network)
    _configure_spark(cluster)
    for host in cluster.workers:
        (host.folder / "local").mkdir()
    start_store(cluster)
    cluster._spark(cluster["master"], "master.Master", "-h", cluster["master"].address, "-p", str(MASTER_PORT))
    _format_kafka(cluster)
    for name in KAFKAS:
        cluster.start_kafka(name)
    for name in WORKERS:
        cluster.start_worker(name)
    cluster.wait_for_kafka()
    cluster.wait_for_workers()
    return cluster


def outermost(paths: list[Path]) -> list[Path]:
    """Those that do not lie below another one."""
    return [path for path in dict.fromkeys(paths) if not any(path != other and path.is_relative_to(other) for other in paths)]


def _configure_spark(cluster: Cluster) -> None:
    """Write what makes Spark's connections private: the same secret for daemons and applications, in no argument."""
    settings = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secrets.token_hex(16),
        "spark.network.crypto.enabled": "true",
    }
    file = cluster.configuration / "spark-defaults.conf"
    file.touch(mode=0o600)
    file.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))


def _format_kafka(cluster: Cluster) -> None:
    id, voters = (
        kafka_node.new_cluster_id(),
        [f"{n}@{cluster[name].address}:{CONTROLLER_PORT}" for n, name in enumerate(KAFKAS, 1)],
    )
    for number, name in enumerate(KAFKAS, 1):
        address, folder = cluster[name].address, cluster[name].folder / "kafka"
        folder.mkdir()
        kafka_node.write_configuration(folder, KAFKA_PORT, CONTROLLER_PORT)
        more = {
            "node.id": number,
            "controller.quorum.voters": ",".join(voters),
            "listeners": f"PLAINTEXT://{address}:{KAFKA_PORT},CONTROLLER://{address}:{CONTROLLER_PORT}",
            "advertised.listeners": f"PLAINTEXT://{address}:{KAFKA_PORT}",
            "offsets.topic.replication.factor": 3,
            "transaction.state.log.replication.factor": 3,
            "transaction.state.log.min.isr": 2,
            "default.replication.factor": 3,
            "auto.leader.rebalance.enable": "false",  # tests say when leaders move
        }
        properties = folder / "server.properties"
        kept = [line for line in properties.read_text().splitlines() if line.split("=")[0] not in more]
        properties.write_text("\n".join([*kept, *(f"{key}={value}" for key, value in more.items())]) + "\n")
        kafka_node.format_storage(folder, id)


def start_store(cluster: Cluster) -> None:
    """The gateway, if `make s3` has put it there."""
    gateway, host = program(), cluster["store"]
    if gateway is None:
        return
    (host.folder / "data" / BUCKET).mkdir(parents=True, exist_ok=True)
    words = [gateway, "--port", f"{host.address}:{STORE_PORT}", "--quiet", "--health", "/up", "posix", host.folder / "data"]
    begun = host.spawn(words, "store.log", {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET})

    def answers() -> bool:
        assert begun.poll() is None, (host.folder / "store.log").read_text()
        with cluster["client"].network(), socket.socket() as probe:
            probe.settimeout(2)
            return probe.connect_ex((host.address, STORE_PORT)) == 0

    wait(answers, "the store")


def in_foreground(cluster: Cluster, words: list[str], home: Path) -> int:
    """A command on the client, on this terminal; its exit status."""
    return subprocess.run(cluster["client"].command(words, cluster.kpipe(home)), check=False).returncode
