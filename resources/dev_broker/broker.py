"""The local broker of a home: a real one-node Kafka, or the mock where there is no Java or no jars.

For development and tests. It listens on 127.0.0.1 only, without passwords, and outlives the command that started it.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import random
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from kpipe.errors import BrokerUnreachable, InvalidPipeline, KpipeError, NotAvailable
from resources.dev_broker import kafka_node, mock_broker
from resources.dev_broker.kafka_jars import jars_folder
from resources.dev_broker.process import Record, is_alive, spawn, terminate
from resources.java import find_java

__all__ = ["BrokerStatus", "LocalBroker"]

HOST = "127.0.0.1"

USUAL_PORT = 9092
"""Taken by the first broker of a machine, since every Kafka example says so; else one of PORTS."""

PORTS = range(20_000, 30_000)
"""Below the ports that Linux and macOS hand to outgoing connections: one of those may be taken after a restart."""

START_SECONDS = 180.0
"""A start takes 2 to 5 s on two cores, and more than a minute beside thirty busy processes. One that ends is told at once."""

ADMIN_SECONDS = 20.0

_SILENT = logging.getLogger("kpipe.broker.client")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False  # the client complains about every attempt before the broker is up


@dataclass(frozen=True)
class BrokerStatus:
    """What `kpipe broker status` says.

    Attributes:
        running: whether its process is alive.
        brokers: `host:port`; the last one if it is not running, None if there was none yet.
        kind: `kafka` or `mock`; of the next start if it is not running.
        version: of Kafka, or of librdkafka for the mock.
        pid: None if it is not running.
        notice: why it is a mock, in one line; None for Kafka.
    """

    running: bool
    brokers: str | None
    kind: str
    version: str
    pid: int | None
    notice: str | None = None


class LocalBroker:
    """The broker that lives in a folder. Any number of objects and processes may use the same folder.

    Args:
        home: the folder, `KPIPE_HOME/broker`; made by `start`.
    """

    def __init__(self, home: Path) -> None:
        self.folder = Path(home).absolute()
        self._record_file = self.folder / "broker.json"

    def start(self, port: int | None = None) -> BrokerStatus:
        """Start it and wait until it answers; if it runs already, only wait.

        Data, cluster id and port are those of the last start. The mock keeps none of them.

        Args:
            port: to listen on; otherwise the one of the last start if it is free, 9092 if that is, or another.

        Raises:
            KpipeError: the port is taken, the folder cannot be written, or the process ended; with its last lines.
            BrokerUnreachable: it runs, but does not answer within 60 s.
        """
        with self._locked():
            record = Record.read(self._record_file)
            if record is not None and is_alive(record):
                if port is not None and record.port != port:
                    raise KpipeError(f"the local broker runs on port {record.port}", "`kpipe broker stop` first")
            else:
                record = self._launch(port, record)
            try:
                self._wait(record)
            except KpipeError:
                terminate(record)
                raise
        return self.status()

    def stop(self) -> BrokerStatus:
        """End its process and wait until it is gone; nothing to do if there is none."""
        if not self.folder.is_dir():
            return self.status()
        with self._locked():
            record = Record.read(self._record_file)
            if record is not None:
                terminate(record)
                replace(record, pid=None, identity=None).write(self._record_file)
        return self.status()

    def status(self) -> BrokerStatus:
        """What is, without starting anything."""
        record = Record.read(self._record_file)
        brokers = f"{HOST}:{record.port}" if record is not None and record.port is not None else None
        if record is not None and is_alive(record):
            notice = _kind()[1] if record.kind == "mock" else None
            return BrokerStatus(True, brokers, record.kind, record.version, record.pid, notice)
        kind, notice = _kind()
        return BrokerStatus(False, brokers, kind, _version(kind), None, notice)

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Make a topic; it is there for everybody when this returns. On the mock, `config` is ignored.

        Raises:
            BrokerUnreachable: the broker does not run, or does not answer.
            KpipeError: the broker refused (exists already, bad name, bad setting).
        """
        if self._running().kind == "mock":
            self._ask_mock("create", name, partitions)
            return
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        admin = self._admin_call("create", name, lambda admin: admin.create_topics([topic], request_timeout=ADMIN_SECONDS))
        deadline = time.monotonic() + ADMIN_SECONDS
        while not _knows(admin, name, partitions):  # the controller has answered; who serves clients hears of it a little later
            if time.monotonic() > deadline:
                raise BrokerUnreachable(f"the local broker made topic {name!r}, and does not show it", f"see {self.folder}")
            time.sleep(0.01)

    def delete_topic(self, name: str) -> None:
        """Remove a topic and its records. Raises as `create_topic` does."""
        if self._running().kind == "mock":
            self._ask_mock("delete", name)
            return
        self._admin_call("delete", name, lambda admin: admin.delete_topics([name], request_timeout=ADMIN_SECONDS))

    # -- inside ---------------------------------------------------------------------------------

    def _launch(self, port: int | None, last: Record | None) -> Record:
        kind, _ = _kind()
        if kind == "mock":
            command, output = mock_broker.command(self._mock), self.folder / "mock.log"
            mock_broker.prepare(self._mock)
            record = Record(None, None, kind, _version(kind), None)
        else:
            port = _free_port(port, last.port if last is not None and last.kind == "kafka" else None)
            kafka_node.write_configuration(self.folder, port, _free_port(None, None, besides=port))
            kafka_node.format_storage(self.folder)
            command, output = kafka_node.command(self.folder), self.folder / "logs" / "stdout.log"
            record = Record(None, None, kind, _version(kind), port, kafka_node.cluster_id(self.folder))
        pid, identity = spawn(command, self.folder, output, kafka_node.ENVIRONMENT)
        record = replace(record, pid=pid, identity=identity)
        record.write(self._record_file)
        return record

    def _wait(self, record: Record) -> None:
        deadline = time.monotonic() + START_SECONDS
        why = "its port is closed"
        while time.monotonic() < deadline:
            if not is_alive(record):
                raise KpipeError(f"the local broker ended while starting: {self._last_lines()}", f"see {self.folder}")
            if record.port is None:
                told = mock_broker.address(self._mock)
                if told is not None:
                    record = replace(record, port=int(told.rpartition(":")[2]))
                    record.write(self._record_file)
            elif _accepts(record.port):
                try:
                    answer = _admin(record.port).list_topics(timeout=2.0)
                except KafkaException as failed:
                    why = str(failed)
                else:
                    if record.cluster_id in (None, answer.cluster_id):
                        return
                    why = f"another cluster answers on port {record.port}"
            time.sleep(0.03)
        raise BrokerUnreachable(
            f"the local broker does not answer after {START_SECONDS:.0f} s ({why}): {self._last_lines()}",
            f"see {self.folder}",
        )

    def _running(self) -> BrokerStatus:
        status = self.status()
        if not status.running:
            raise BrokerUnreachable(f"the local broker of {self.folder.parent} does not run", "`kpipe broker start`")
        return status

    def _admin_call(self, verb: str, topic: str, call: Callable[[AdminClient], dict[str, Any]]) -> AdminClient:
        admin = _admin(int(str(self._running().brokers).rpartition(":")[2]))  # kept: its end would cancel the call
        try:
            call(admin)[topic].result(ADMIN_SECONDS + 5)
        except KafkaException as failed:
            raise KpipeError(f"the local broker cannot {verb} topic {topic!r}: {failed.args[0].str()}") from failed
        return admin

    def _ask_mock(self, verb: str, topic: str, partitions: int = 0) -> None:
        try:
            refused = mock_broker.request(self._mock, verb, topic, partitions)
        except TimeoutError as silent:
            raise BrokerUnreachable(str(silent), "`kpipe broker stop`, then `kpipe broker start`") from silent
        if refused is not None:
            raise KpipeError(f"the local broker cannot {verb} topic {topic!r}: {refused}")

    @property
    def _mock(self) -> Path:
        return self.folder / "mock"

    def _last_lines(self) -> str:
        """The end of what this start wrote, on one line: the errors of Kafka's log with their causes, if there are any."""
        for name in ("logs/kafka.log", "logs/stdout.log", "mock.log"):
            with suppress(OSError):
                lines = (self.folder / name).read_text(encoding="utf-8", errors="replace").splitlines()
                errors = [
                    f"{line} {cause if cause[:1] != '[' else ''}"
                    for line, cause in zip(lines, [*lines[1:], ""], strict=True)
                    if " ERROR " in line or " FATAL " in line
                ]
                if lines:
                    return " | ".join(line.strip()[:400] for line in (errors or lines)[-3:])
        return "it wrote nothing"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One start or stop at a time; the lock ends with the process that holds it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = (self.folder / "lock").open("w", encoding="ascii")
        except OSError as why:
            raise KpipeError(f"cannot write {self.folder}: {why.strerror}", "set KPIPE_HOME to a folder of yours") from why
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _kind() -> tuple[str, str | None]:
    """Kind of the next start, and why it is the mock."""
    forced = os.environ.get("KPIPE_BROKER_KIND", "")
    if forced not in ("", "kafka", "mock"):
        raise InvalidPipeline(f"KPIPE_BROKER_KIND is {forced!r}", "unset it, or set it to kafka or mock")
    if forced == "mock":
        return "mock", "KPIPE_BROKER_KIND asks for the mock: topics and records live in its memory only"
    try:
        jars_folder()
        find_java()
    except NotAvailable as missing:
        if forced:
            raise
        return "mock", f"{missing.what}; the mock stands in: topics and records live in its memory only"
    return "kafka", None


def _version(kind: str) -> str:
    return kafka_node.VERSION if kind == "kafka" else str(confluent_kafka.libversion()[0])


def _admin(port: int) -> AdminClient:
    return AdminClient({"bootstrap.servers": f"{HOST}:{port}"}, logger=_SILENT)


def _knows(admin: AdminClient, topic: str, partitions: int) -> bool:
    try:
        found = admin.list_topics(topic, timeout=2.0).topics.get(topic)
    except KafkaException:
        return False
    return found is not None and sum(one.leader >= 0 for one in found.partitions.values()) == partitions


def _accepts(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1.0)
        return client.connect_ex((HOST, port)) == 0


def _free_port(wanted: int | None, last: int | None, besides: int | None = None) -> int:
    """The wanted one or an error; else the last, the usual, or any."""
    if wanted is not None:
        if not _is_free(wanted):
            raise KpipeError(f"port {wanted} is taken by another program", "choose another with --port, or leave it out")
        return wanted
    usual = [] if besides else [port for port in (last, USUAL_PORT) if port]
    for port in (*usual, *random.sample(PORTS, 100)):
        if port != besides and _is_free(port):
            return port
    raise KpipeError("none of 100 ports is free", "end some programs")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the broker does: connections of the last one that linger in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OverflowError as why:
            raise KpipeError(f"{port} is not a port", "choose one of 1024 to 65535") from why
        except OSError as why:
            if why.errno == errno.EACCES:
                raise KpipeError(f"port {port} needs more rights than yours", "choose one above 1023") from why
            return False
    return True
