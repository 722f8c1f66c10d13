"""A pipeline on the cluster, whose program can be told to wait, and the oracle that judges what became of its records."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import psutil

from kpipe import failpoints
from tests.cluster.cluster import PATIENCE_S, Cluster, wait
from tests.cluster.hosts import Host
from tests.survival.landings import DuckDBFile, Landing
from tests.survival.oracle import Observer, Oracle
from tests.survival.truth import Writer

PARTITIONS = 3
# Says that it runs, and where; waits as long as a file asks it to (every attempt, or this one), and works as many seconds as
# another file says, but neither where the driver takes a sample; passes its lines through.
PROGRAM = """#!/bin/sh
echo "$KPIPE_PARTITION $KPIPE_ATTEMPT $(uname -n)" >> {folder}/told
if [ "$(uname -n)" != client ]; then
  while [ -e {folder}/hold-$KPIPE_PARTITION ] || [ -e {folder}/hold-$KPIPE_PARTITION-$KPIPE_ATTEMPT ]; do sleep 0.1; done
  [ ! -e {folder}/work ] || sleep "$(cat {folder}/work)"
fi
exec cat
"""


class HostObserver(Observer):
    """An observer in the network of a host.

    Only its clients are: threads of pyarrow and delta-rs that began there would connect to the host's addresses in all later
    tests of the process.
    """

    def __init__(self, host: Host, brokers: str, topic: str, partitions: int) -> None:
        super().__init__(brokers, topic, partitions)
        self._host = host

    def look(self) -> None:
        with self._host.network():
            super().look()


@dataclass(frozen=True)
class Told:
    """What a program said when it began."""

    partition: int
    attempt: int
    host: str


@dataclass
class Site:
    """One pipeline, its topic, and who knows what is right.

    Attributes:
        cluster: where it runs.
        name: of the pipeline.
        home: KPIPE_HOME, on the client.
        folder: seen by client and workers.
        writer, oracle: of topic and table.
        variables: of its runs.
    """

    cluster: Cluster
    name: str
    home: Path
    folder: Path
    writer: Writer
    oracle: Oracle
    variables: dict[str, str]
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @classmethod
    def made(
        cls, cluster: Cluster, name: str, python: Path | None, landing: Landing | None = None, staging: str = "",
        into: Mapping[str, Any] = {}, variables: Mapping[str, str] = {}, config: Mapping[str, Any] = {}, **fields: Any,
    ) -> Site:  # fmt: skip
        """A new topic, a new home, a definition."""
        place = f"{name}-{uuid.uuid4().hex[:6]}"
        folder, home = cluster.shared / place, cluster["client"].folder / place
        (folder / "staging").mkdir(parents=True)
        (home / "pipelines").mkdir(parents=True)
        (home / "staging").symlink_to(folder / "staging")
        topic = cluster.topic(place, PARTITIONS)
        program = home / "program.sh"
        program.write_text(PROGRAM.format(folder=folder))
        program.chmod(0o755)
        attributes = {
            "name": name,
            "source": {"brokers": cluster.brokers, "topic": topic, "config": {"operation.timeout.ms": 20_000, **config}},
            "batch": {"interval_ms": 300},
            "transform": {"program": str(program), "idle_timeout_s": 900},
            "into": {"table": name, **into},
            **fields,
        }
        definition = {"type": "kpipe_assets.KafkaPipeline", "attributes": attributes}
        (home / "pipelines" / f"{name}.yaml").write_text(json.dumps(definition))
        with cluster["client"].network():
            writer = Writer(cluster.brokers, topic, PARTITIONS, random.Random(1))
        observer = HostObserver(cluster["client"], cluster.brokers, topic, PARTITIONS)
        given = {"KPIPE_STAGING": staging or str(folder / "staging"), **variables}
        if python is not None:
            given["KPIPE_SPARK_PYTHON"] = str(python)
        oracle = Oracle(home, name, observer, writer.truth, "", landing or DuckDBFile())
        return cls(cluster, name, home, folder, writer, oracle, given)

    # -- records ------------------------------------------------------------------------------------------------------

    def write(self, records: int = 90, rounds: int = 1) -> None:
        """Plain records, transactions, one of them aborted now and then."""
        with self.cluster["client"].network():
            for _ in range(rounds):
                self.writer.round(records)

    # -- the program --------------------------------------------------------------------------------------------------

    def hold(self, *partitions: int, attempt: int | None = None) -> None:
        """Programs of these partitions wait; of all if none is named."""
        for number in partitions or range(PARTITIONS):
            (self.folder / f"hold-{number}{'' if attempt is None else f'-{attempt}'}").touch()

    def release(self, *partitions: int) -> None:
        """They go on."""
        for number in partitions or range(PARTITIONS):
            for file in self.folder.glob(f"hold-{number}*"):
                file.unlink(missing_ok=True)

    def told(self) -> list[Told]:
        """Programs that began since `forget`."""
        file = self.folder / "told"
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [Told(int(partition), int(attempt), host) for partition, attempt, host, *_ in lines]

    def forget(self) -> None:
        """Of what was told."""
        (self.folder / "told").unlink(missing_ok=True)

    def at_work(self, programs: int = PARTITIONS, within: float = PATIENCE_S) -> list[Told]:
        """Waits until so many programs have begun."""
        try:
            wait(lambda: len(self.told()) >= programs, f"{programs} programs", within)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.told()}; {self.said()}") from None
        return self.told()

    # -- runs ---------------------------------------------------------------------------------------------------------

    @property
    def log(self) -> Path:
        """What its last run says."""
        return self.home / "run.log"

    def said(self) -> str:
        """The same, its end."""
        return self.log.read_text()[-3000:] if self.log.exists() else ""

    def environment(self, **more: str) -> dict[str, str]:
        """Of a kpipe on the client."""
        return self.cluster.kpipe(self.home, **self.variables, **more)

    def start(self, *arguments: str, fault: str = "", **more: str) -> subprocess.Popen[bytes]:
        """Begin `kpipe run` on the client."""
        self.log.unlink(missing_ok=True)
        if fault:
            more[failpoints.VARIABLE] = fault
        words = [sys.executable, "-m", "kpipe_assets.cli", "run", self.name, *arguments]
        name = str(self.log.relative_to(self.cluster["client"].folder))
        process = self.cluster["client"].spawn(words, name, self.environment(**more))
        self.started.append(process)
        return process

    def run(self, *arguments: str, status: int = 0, within: float = PATIENCE_S, **more: str) -> str:
        """`kpipe run` to its end; what it said."""
        found = self.start(*arguments, **more).wait(within)
        assert found == status, f"exit {found}\n{self.log.read_text()}"
        return self.log.read_text()

    def kpipe(self, *arguments: str) -> str:
        """Another command on the client."""
        return self.cluster["client"].run(sys.executable, "-m", "kpipe_assets.cli", *arguments, **self.environment())

    def batches(self) -> list[dict[str, Any]]:
        """Lines of committed batches that the run has printed (`--json`)."""
        lines = [line for line in self.log.read_text().splitlines() if line.startswith('{"event": "batch"')]
        return [json.loads(line) for line in lines]

    def exact(self, within: float = PATIENCE_S) -> None:
        """Soon the table holds what is in the topic, and the ledger stands at its end."""
        until, problems = time.monotonic() + within, ["nothing was looked at"]
        while problems and time.monotonic() < until:
            self.oracle._waiting.clear()  # what a look of before saw was on its way
            try:
                problems = self.oracle.problems()
            except (duckdb.IOException, duckdb.BinderException) as busy:  # it is being written, or has no columns yet
                problems = [str(busy)]
            time.sleep(0.3)
        assert not problems, f"{problems}\n{self.said()}"

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End the newest run in order, by the client's own process: the first process is `nsenter`."""
        for process in self.cluster["client"].processes(str(self.name), "kpipe_assets.cli"):
            process.send_signal(number)
        self.started[-1].wait(240)  # a batch in whose middle a broker falls silent is finished first

    def close(self) -> None:
        """Nothing of it goes on."""
        self.release()
        for process in self.cluster["client"].processes():
            with suppress(psutil.Error, OSError):  # it has ended since it was listed
                if str(self.home) in str(process.environ()):
                    process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def idle(cluster: Cluster, within: float = PATIENCE_S) -> list[str]:
    """Waits until no host has other processes than those it began with; what is left then."""

    def left() -> list[str]:
        names = ("deploy.worker.Worker", "deploy.master.Master", "kafka.Kafka", "versitygw", "hadoop.yarn.server")
        found = []
        for host in cluster.network.hosts.values():
            for process in host.processes():
                with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):  # it has ended since it was listed
                    words = " ".join(process.cmdline())
                    if not any(name in words for name in names):
                        found.append(f"{host.name}: {process.pid} {words[:200]}")
        return found

    until = time.monotonic() + within
    while (found := left()) and time.monotonic() < until:
        time.sleep(0.5)
    return found
