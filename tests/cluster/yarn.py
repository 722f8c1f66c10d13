"""Hadoop's YARN on the cluster's hosts: a ResourceManager on the master's, a NodeManager on each worker's (`make yarn`).

Its processes know nothing of Spark's files: their class path is Hadoop's alone. Files that Spark hands on to containers lie in
the shared folder, where a company would have HDFS.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from resources.java import find_java
from tests.cluster.cluster import WORKERS, Cluster, wait
from tests.cluster.hadoop import FOLDER
from tests.cluster.hosts import Host

_JVM = ("-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_LOG = """
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n
"""
#: Settings of a Spark application on it: three executors of a core, with room for Python beside the JVM.
SPARK = {
    "spark_executor_instances": "3",
    "spark_executor_memoryOverhead": "512m",
    "spark_yarn_am_memory": "256m",
    "spark_yarn_am_extraJavaOptions": " ".join(_JVM[1:]),
}


@dataclass(frozen=True)
class Yarn:
    """YARN that runs.

    Attributes:
        cluster: whose hosts it is on.
    """

    cluster: Cluster

    @property
    def configuration(self) -> Path:
        """HADOOP_CONF_DIR of the client."""
        return self.cluster["client"].folder / "hadoop"

    def variables(self, staged: Path) -> dict[str, str]:
        """Of a kpipe whose containers are started here.

        Args:
            staged: a folder that client and workers see.
        """
        return {
            "KPIPE_SPARK_MASTER": "yarn",
            "HADOOP_CONF_DIR": str(self.configuration),
            "spark_yarn_stagingDir": f"file://{staged}",
            "spark_yarn_jars": f"local:{self.cluster.network.base}/spark/jars/*",
            **SPARK,
        }

    def start(self) -> None:
        """ResourceManager and NodeManagers, until all know each other."""
        self._configure(self.cluster["client"])
        self.start_master()
        for host in self.cluster.workers:
            self.start_node(host)
        wait(lambda: self.nodes() == len(WORKERS), "NodeManagers", 120)

    def start_master(self) -> None:
        """The ResourceManager."""
        self._spawn(self.cluster["master"], "resourcemanager.ResourceManager")

    def start_node(self, host: Host) -> None:
        """A NodeManager."""
        self._spawn(host, "nodemanager.NodeManager")

    def stop(self) -> None:
        """All of it, with containers that a test has left."""
        for host in (self.cluster["master"], *self.cluster.workers):
            host.kill("org.apache.hadoop.yarn.server")
            host.kill("container_")

    def ask(self, path: str) -> dict[str, Any]:
        """The ResourceManager's own interface, below /ws/v1/cluster."""
        address = f"http://{self.cluster['master'].address}:8088/ws/v1/cluster/{path}"
        with self.cluster["client"].network(), urlopen(address, timeout=10) as answer:
            return dict(json.load(answer))

    def nodes(self) -> int:
        """NodeManagers that run."""
        try:
            return int(self.ask("metrics")["clusterMetrics"]["activeNodes"])
        except OSError:
            return 0

    def applications(self) -> list[dict[str, Any]]:
        """All that it was given, the newest last."""
        found = (self.ask("apps")["apps"] or {}).get("app", [])
        return sorted(found, key=lambda one: str(one["id"]))

    def executors(self) -> int:
        """How many the newest application's driver has, by its page, to which YARN's proxy leads; -1 if it does not answer."""
        name = self.applications()[-1]["id"]
        page = f"http://{self.cluster['master'].address}:8088/proxy/{name}/api/v1/applications/{name}/executors"
        with self.cluster["client"].network():
            try:
                with urlopen(page, timeout=10) as answer:
                    return sum(1 for one in json.load(answer) if one["isActive"] and one["id"] != "driver")
            except (OSError, ValueError):
                return -1

    def end(self, application: str) -> None:
        """As `yarn application -kill` does."""
        address = f"http://{self.cluster['master'].address}:8088/ws/v1/cluster/apps/{application}/state?user.name=root"
        words = ("-X", "PUT", "-H", "Content-Type: application/json", "-d", '{"state": "KILLED"}')
        self.cluster["client"].run("curl", "-sSf", *words, address)

    def _spawn(self, host: Host, name: str) -> None:
        folder = self._configure(host)
        jars = self.cluster.network.base / FOLDER
        words = [find_java().executable, *_JVM, "-cp", f"{folder}:{jars}/*", f"org.apache.hadoop.yarn.server.{name}"]
        variables = {"JAVA_HOME": str(find_java().path), "HADOOP_CONF_DIR": str(folder)}
        host.spawn(words, f"{name.partition('.')[0]}.log", variables)

    def _configure(self, host: Host) -> Path:
        folder = host.folder / "hadoop"
        folder.mkdir(exist_ok=True)
        local = host.folder / "yarn"
        _write(folder / "core-site.xml", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": local / "tmp"})
        _write(folder / "yarn-site.xml", {
            "yarn.resourcemanager.hostname": self.cluster["master"].address,
            "yarn.nodemanager.hostname": host.name,
            "yarn.nodemanager.local-dirs": local / "local",
            "yarn.nodemanager.log-dirs": local / "logs",
            "yarn.nodemanager.resource.memory-mb": 2560,
            "yarn.nodemanager.resource.cpu-vcores": 3,
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 100,
            "yarn.scheduler.minimum-allocation-mb": 128,
        })  # fmt: skip
        _write(folder / "capacity-scheduler.xml", {
            "yarn.scheduler.capacity.root.queues": "default",
            "yarn.scheduler.capacity.root.default.capacity": 100,
            "yarn.scheduler.capacity.maximum-am-resource-percent": 1,
        })  # fmt: skip
        if host.name != "client":
            (folder / "log4j2.properties").write_text(_LOG)
        return folder


def _write(path: Path, values: Mapping[str, object]) -> None:
    lines = [f"<property><name>{name}</name><value>{value}</value></property>" for name, value in values.items()]
    path.write_text("\n".join(["<configuration>", *lines, "</configuration>"]) + "\n")
