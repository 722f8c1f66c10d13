"""A pipeline in the pod of deploy/kubernetes/kpipe.yaml, and the oracle that judges what became of its records."""

from __future__ import annotations

import json
import os
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import yaml

from resources.dev_broker.broker import LocalBroker
from tests.cluster import site as cluster
from tests.cluster.site import PARTITIONS, Told
from tests.kubernetes.api import Object
from tests.kubernetes.built import ROOT
from tests.kubernetes.control import Control
from tests.kubernetes.node import Image, Node
from tests.survival.landings import DuckDBFile
from tests.survival.oracle import Observer, Oracle
from tests.survival.truth import Writer

MANIFEST = ROOT / "docs" / "how-to" / "kubernetes" / "kpipe.yaml"
NAMESPACE, DRIVER = "kpipe", "kpipe-0"
IMAGE = "registry.example.com/kpipe:0.1.0"
PASSWORD = "canary-6f1d"
GROUP = 10001  # fsGroup of the manifest
_VOLUMES = "spark.kubernetes.executor.volumes.persistentVolumeClaim"
_SHARED = {"staging": "/var/lib/kpipe/staging", "shared": "/shared"}  # claims kpipe-NAME, and where all pods see them
#: What differs from the manifest: less memory, as all of it shares one machine, and a folder instead of an object store.
SPARK = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.dynamicAllocation.maxExecutors": "3",
    **{f"{_VOLUMES}.{name}.mount.path": place for name, place in _SHARED.items()},
    **{f"{_VOLUMES}.{name}.options.claimName": f"kpipe-{name}" for name in _SHARED},
}


def wait(done: Callable[[], object], what: str, within: float, said: Callable[[], str] = lambda: "") -> None:
    """Until it holds."""
    until = time.monotonic() + within
    while not done():
        assert time.monotonic() < until, f"not within {within} s: {what}\n{said()}"
        time.sleep(0.2)


@dataclass
class Site:
    """One pipeline, its topic, its pod.

    Attributes:
        control: the API server.
        node: runs what it says.
        name: of the pipeline.
        home: KPIPE_HOME of the pod, as this machine sees it.
        shared: the folder that the pods share, as this machine sees it.
        writer, oracle: of topic and table.
        spark: settings beside the manifest's.
        rights: of the account, to pods; as in the manifest.
    """

    control: Control
    node: Node
    name: str
    home: Path
    shared: Path
    writer: Writer
    oracle: Oracle
    spark: dict[str, str] = field(default_factory=dict)
    rights: list[str] = field(default_factory=lambda: ["get", "list", "watch", "create", "delete", "deletecollection"])

    @classmethod
    def made(cls, control: Control, broker: LocalBroker, folder: Path, images: dict[str, Image], **fields: Any) -> Site:
        """A new topic, a definition, and the manifest's things but its pod."""
        name = f"orders_{uuid.uuid4().hex[:6]}"
        home, shared = folder / "home", folder / "shared"
        for one in (home / "pipelines", home / "staging", shared):
            one.mkdir(parents=True)
        brokers = str(broker.status().brokers)
        broker.create_topic(name, PARTITIONS)
        program = home / "program.sh"
        program.write_text(cluster.PROGRAM.format(folder="/shared").replace("!= client", f"!= {DRIVER}"))
        program.chmod(0o755)
        attributes = {
            "name": name,
            "source": {"brokers": brokers, "topic": name, "config": {"operation.timeout.ms": 20_000}},
            "batch": {"interval_ms": 300},
            "transform": {"program": "/var/lib/kpipe/program.sh", "idle_timeout_s": 900},
            "into": {"table": name},
            **fields,
        }
        definition = {"type": "kpipe_assets.KafkaPipeline", "attributes": attributes}
        (home / "pipelines" / f"{name}.yaml").write_text(json.dumps(definition))
        for one in (shared, *shared.rglob("*"), home, *home.rglob("*")):  # as the volumes of a pod with fsGroup are
            os.chown(one, 0, GROUP)
            one.chmod(one.stat().st_mode | (0o2070 if one.is_dir() else 0o060))
        writer = Writer(brokers, name, PARTITIONS, random.Random(1))
        observer = Observer(brokers, name, PARTITIONS)
        oracle = Oracle(home, name, observer, writer.truth, PASSWORD, DuckDBFile())
        claims = {"home-kpipe-0": home, "kpipe-staging": home / "staging", "kpipe-shared": shared}
        node = Node(control, NAMESPACE, folder / "node", images, claims)
        return cls(control, node, name, home, shared, writer, oracle)

    # -- what is applied ------------------------------------------------------------------------------------------------

    def things(self, *arguments: str) -> list[Object]:
        """The manifest's, with what differs."""
        found = list(yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8")))
        by_kind = {thing["kind"]: thing for thing in found}
        (pods,) = (rule for rule in by_kind["Role"]["rules"] if rule["resources"] == ["pods"])
        assert len(self.rights) < len(pods["verbs"]) or self.rights == pods["verbs"]
        pods["verbs"] = self.rights
        lines = [f"{name} {value}\n" for name, value in {**SPARK, **self.spark}.items()]
        by_kind["ConfigMap"]["data"]["spark-defaults.conf"] += "".join(lines)  # of two lines the last one holds
        spec = by_kind["StatefulSet"]["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        container["args"] = ["kpipe", "run", self.name, *arguments]
        next(one for one in container["env"] if one["name"] == "KPIPE_STAGING")["value"] = _SHARED["staging"]
        for shared, place in _SHARED.items():
            container["volumeMounts"].append({"name": shared, "mountPath": place})
            spec["volumes"].append({"name": shared, "persistentVolumeClaim": {"claimName": f"kpipe-{shared}"}})
        spec["terminationGracePeriodSeconds"] = 60
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kpipe-credentials", "namespace": NAMESPACE}}
        found.insert(1, {**secret, "stringData": {"KAFKA_PASSWORD": PASSWORD}})
        return found

    def start(self, *arguments: str) -> None:
        """Apply all of it; then the pod runs `kpipe run NAME ARGUMENTS`."""
        for thing in self.things(*arguments):
            self.control.admin.apply(thing)
        self.node.start()
        wait(lambda: self.node.log(DRIVER) or self.pods("app", "kpipe"), "the driver's pod", 60, self.control.said)

    def pods(self, label: str = "spark-role", value: str = "executor") -> list[Object]:
        """Of executors that are not ending, unless another label is asked for."""
        found = self.control.admin.list("pods", NAMESPACE, **{label: value})
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def running(self) -> list[str]:
        """Names of executors' pods that run."""
        return [pod["metadata"]["name"] for pod in self.pods() if pod["status"].get("phase") == "Running"]

    def ended(self, within: float = 240) -> int:
        """Waits for the end of `kpipe run`; its exit status. The pod would be begun anew, so its set goes first."""

        def status() -> list[int]:
            found = self.pods("app", "kpipe")
            states = [pod["status"].get("containerStatuses", [{}])[0].get("state", {}) for pod in found]
            return [state["terminated"]["exitCode"] for state in states if "terminated" in state]

        codes: list[int] = []
        wait(lambda: codes.extend(status()) or codes, "the end of the run", within, self.said)
        return codes[0]

    def said(self) -> str:
        """The end of what kpipe said, and of the executors' logs."""
        logs = [f"{file.parent.name}: {file.read_text(errors='replace')[-1500:]}" for file in self.node.folder.glob("*/log")]
        return "\n".join([*sorted(logs, reverse=True), *self.node.problems])

    def close(self) -> None:
        """Nothing of it goes on, and its things are gone but for namespace and account."""
        for path in (
            f"apis/apps/v1/namespaces/{NAMESPACE}/statefulsets",
            f"apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles",
        ):
            self.control.admin.ask("DELETE", path)
        self.node.stop()
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        for what in ("pods", "configmaps"):
            self.control.admin.ask("DELETE", f"api/v1/namespaces/{NAMESPACE}/{what}", options)
        wait(lambda: not self.control.admin.list("pods", NAMESPACE), "no pod left", 30)

    # -- as the cluster's site --------------------------------------------------------------------------------------------

    def write(self, records: int = 90, rounds: int = 1) -> None:
        """Plain records, transactions, one of them aborted now and then."""
        for _ in range(rounds):
            self.writer.round(records)

    def hold(self, *partitions: int, attempt: int | None = None) -> None:
        """Programs of these partitions wait; of all if none is named."""
        for number in partitions or range(PARTITIONS):
            (self.shared / f"hold-{number}{'' if attempt is None else f'-{attempt}'}").touch()

    def release(self) -> None:
        """They go on."""
        for file in self.shared.glob("hold-*"):
            file.unlink(missing_ok=True)

    def told(self) -> list[Told]:
        """Programs that began."""
        file = self.shared / "told"
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [Told(int(partition), int(attempt), host) for partition, attempt, host, *_ in lines if host != DRIVER]

    def at_work(self, programs: int = PARTITIONS, within: float = 180) -> list[Told]:
        """Waits until so many programs have begun on executors."""
        wait(lambda: len(self.told()) >= programs, f"{programs} programs", within, self.said)
        return self.told()

    def exact(self, within: float = 180) -> None:
        """Soon the table holds what is in the topic, and the ledger stands at its end."""
        until, problems = time.monotonic() + within, ["nothing was looked at"]
        while problems and time.monotonic() < until:
            self.oracle._waiting.clear()  # what a look of before saw was on its way
            try:
                problems = self.oracle.problems()
            except (duckdb.IOException, FileNotFoundError) as busy:  # something is being written, or taken away
                problems = [str(busy)]
            time.sleep(0.3)
        assert not problems, f"{problems}\n{self.said()}"
