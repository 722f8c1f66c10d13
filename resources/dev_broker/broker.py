"""Start and stop the local broker of a home: a one-node Kafka.

For development and tests. It listens on 127.0.0.1 only, without passwords, and outlives the command that started it.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import random
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from kpipe.errors import BrokerUnreachable, KpipeError
from resources.dev_broker import kafka_node
from resources.dev_broker.process import Record, ending, is_alive, spawn, terminate

__all__ = ["BrokerStatus", "LocalBroker"]

HOST = "127.0.0.1"

USUAL_PORT = 9092
"""Port of the first broker on a machine, as in every Kafka example; the next ones use one of PORTS."""

PORTS = range(20_000, 30_000)
"""Below the ephemeral ports of Linux and macOS: one of those may be in use after a restart."""

START_SECONDS = 180.0
"""A start takes 2 to 5 s on two cores, and over a minute beside thirty busy processes. A crash is reported at once."""

START_ATTEMPTS = 3
"""A port that was free can be in use when the broker binds it, seconds later. Then the broker starts on another port."""

ADMIN_SECONDS = 20.0

LOG = "logs/kafka.log"

LOG_SECONDS = 1.0
"""Time between two reads of the log of a broker that does not answer yet."""

_SILENT = logging.getLogger("kpipe.broker.client")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False  # the client logs every failed attempt until the broker is up


@dataclass(frozen=True)
class BrokerStatus:
    """State shown by `kpipe broker status`.

    Attributes:
        running: whether its process is alive.
        brokers: `host:port`; of the last start if it is not running; None before the first start.
        version: of Kafka; of the next start if it is not running.
        pid: None if it is not running.
    """

    running: bool
    brokers: str | None
    version: str
    pid: int | None


class _PortTaken(KpipeError):
    """Another program took the port while the broker started."""


class LocalBroker:
    """Local broker of a folder. Any number of objects and processes may use the same folder.

    Args:
        home: the folder, `KPIPE_HOME/broker`; created by `start`.
    """

    def __init__(self, home: Path) -> None:
        self.folder = Path(home).absolute()
        self._record_file = self.folder / "broker.json"

    def start(self, port: int | None = None) -> BrokerStatus:
        """Start the broker and wait until it answers; if it runs already, only wait.

        Data, cluster id and port are those of the last start.

        Args:
            port: to listen on; by default that of the last start if it is free, else 9092, else another. Another
                is also used if a program takes a default port before the broker binds it.

        Raises:
            NotAvailable: Kafka's jars or Java are missing.
            KpipeError: the port is in use, the folder cannot be written, or the process ended; with its last log lines.
            BrokerUnreachable: it runs, but does not answer within 180 s.
        """
        with self._locked():
            record = Record.read(self._record_file)
            if record is not None and is_alive(record):
                if port is not None and record.port != port:
                    raise KpipeError(f"the local broker runs on port {record.port}", "`kpipe broker stop` first")
            else:
                record = self._launch(port, record)
            for attempt in range(START_ATTEMPTS):
                try:
                    self._wait(record)
                    break
                except _PortTaken:  # the broker's, or the controller's, which is chosen at random
                    if (port is not None and not _is_free(port)) or attempt == START_ATTEMPTS - 1:
                        raise
                    record = self._launch(port, None)
                except KpipeError:
                    terminate(record)
                    raise
        return self.status()

    def stop(self) -> BrokerStatus:
        """Stop its process and wait until it has ended; do nothing if it does not run."""
        if not self.folder.is_dir():
            return self.status()
        with self._locked():
            record = Record.read(self._record_file)
            if record is not None:
                terminate(record)
                replace(record, pid=None, identity=None).write(self._record_file)
        return self.status()

    def status(self) -> BrokerStatus:
        """Return the broker's state without starting anything."""
        record = Record.read(self._record_file)
        brokers = f"{HOST}:{record.port}" if record is not None and record.port is not None else None
        if record is not None and is_alive(record):
            return BrokerStatus(True, brokers, record.version, record.pid)
        return BrokerStatus(False, brokers, kafka_node.VERSION, None)

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic; it is visible to all clients when this returns.

        Raises:
            BrokerUnreachable: the broker does not run, or does not answer.
            KpipeError: the broker rejected the request (existing topic, invalid name, invalid setting).
        """
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        admin = self._admin_call("create", name, lambda admin: admin.create_topics([topic], request_timeout=ADMIN_SECONDS))
        deadline = time.monotonic() + ADMIN_SECONDS
        while not _knows(admin, name, partitions):  # the controller has answered; brokers get the metadata a little later
            if time.monotonic() > deadline:
                raise BrokerUnreachable(f"the local broker created topic {name!r}, but does not list it", f"see {self.folder}")
            time.sleep(0.01)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records; no client sees it when this returns. Raises as `create_topic` does."""
        admin = self._admin_call("delete", name, lambda admin: admin.delete_topics([name], request_timeout=ADMIN_SECONDS))
        deadline = time.monotonic() + ADMIN_SECONDS
        while _lists(admin, name):  # as after `create_topic`
            if time.monotonic() > deadline:
                raise BrokerUnreachable(f"the local broker deleted topic {name!r}, but still lists it", f"see {self.folder}")
            time.sleep(0.01)

    # -- inside ---------------------------------------------------------------------------------

    def _launch(self, port: int | None, last: Record | None) -> Record:
        command = kafka_node.command(self.folder)  # first: it raises without jars or Java, before anything is written
        port = _free_port(port, last.port if last is not None else None)
        kafka_node.write_configuration(self.folder, port, _free_port(None, None, besides=port))
        kafka_node.format_storage(self.folder)
        with suppress(FileNotFoundError):  # else lines of the last start would be taken for lines of this one
            (self.folder / LOG).replace(self.folder / "logs" / "kafka.previous.log")
        pid, identity = spawn(command, self.folder, self.folder / "logs" / "stdout.log", kafka_node.ENVIRONMENT)
        record = Record(pid, identity, kafka_node.VERSION, port, kafka_node.cluster_id(self.folder))
        record.write(self._record_file)
        return record

    def _wait(self, record: Record) -> None:
        deadline, look = time.monotonic() + START_SECONDS, time.monotonic() + LOG_SECONDS
        why = "its port is closed"
        while time.monotonic() < deadline:
            if not is_alive(record):
                raise self._ended(record)
            if time.monotonic() >= look:
                if self._found_no_port():  # it ends by itself, but now and then Kafka hangs in its own shutdown
                    terminate(record)
                    raise self._ended(record)
                look = time.monotonic() + LOG_SECONDS
            if _accepts(record.port):
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

    def _ended(self, record: Record) -> KpipeError:
        if self._found_no_port():
            return _PortTaken(f"port {record.port} was taken by another program while the local broker started", "start it again")
        said = " | ".join(part for part in (ending(record), self._last_lines()) if part)
        return KpipeError(f"the local broker ended while starting: {said}", f"see {self.folder}")

    def _found_no_port(self) -> bool:
        return any("Address already in use" in line for line in self._log(LOG))

    def _running(self) -> BrokerStatus:
        status = self.status()
        if not status.running:
            raise BrokerUnreachable(f"the local broker of {self.folder.parent} does not run", "`kpipe broker start`")
        return status

    def _admin_call(self, verb: str, topic: str, call: Callable[[AdminClient], dict[str, Any]]) -> AdminClient:
        admin = _admin(int(str(self._running().brokers).rpartition(":")[2]))  # referenced: its end would cancel the call
        try:
            call(admin)[topic].result(ADMIN_SECONDS + 5)
        except KafkaException as failed:
            raise KpipeError(f"the local broker cannot {verb} topic {topic!r}: {failed.args[0].str()}") from failed
        return admin

    def _last_lines(self) -> str:
        """Return the last log lines of this start as one line: Kafka's errors with their causes, if it logged any.

        Otherwise also what the JVM wrote: it may have ended before Kafka could log that (memory, threads, a crash).
        """
        lines = self._log(LOG)
        found = [
            f"{line} {cause if cause[:1] != '[' else ''}"
            for line, cause in zip(lines, [*lines[1:], ""], strict=bool(lines))
            if " ERROR " in line or " FATAL " in line
        ][-3:]
        found = found or [*self._log("logs/stdout.log")[-3:], *lines[-3:]]
        return " | ".join(line.strip()[:400] for line in found) or "it wrote nothing"

    def _log(self, name: str) -> list[str]:
        try:
            return (self.folder / name).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Allow one start or stop at a time; the lock ends with the process that has it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = (self.folder / "lock").open("w", encoding="ascii")
        except OSError as why:
            raise KpipeError(f"cannot write {self.folder}: {why.strerror}", "set KPIPE_HOME to a folder of yours") from why
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _admin(port: int) -> AdminClient:
    return AdminClient({"bootstrap.servers": f"{HOST}:{port}"}, logger=_SILENT)


def _knows(admin: AdminClient, topic: str, partitions: int) -> bool:
    try:
        found = admin.list_topics(topic, timeout=2.0).topics.get(topic)
    except KafkaException:
        return False
    return found is not None and sum(one.leader >= 0 for one in found.partitions.values()) == partitions


def _lists(admin: AdminClient, topic: str) -> bool:
    try:
        found = admin.list_topics(topic, timeout=2.0).topics.get(topic)
    except KafkaException:
        return True
    return found is not None and found.error is None


def _accepts(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1.0)
        return client.connect_ex((HOST, port)) == 0


def _free_port(wanted: int | None, last: int | None, besides: int | None = None) -> int:
    """Return the requested port or raise an error; by default that of the last start, the usual one, or another."""
    if wanted is not None:
        if not _is_free(wanted):
            raise KpipeError(f"port {wanted} is in use by another program", "choose another with --port, or omit it")
        return wanted
    usual = [] if besides else [port for port in (last, USUAL_PORT) if port]
    for port in (*usual, *random.sample(PORTS, 100)):
        if port != besides and _is_free(port):
            return port
    raise KpipeError("none of 100 ports is free", "stop some programs")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Like the broker, ignore connections in TIME_WAIT.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OverflowError as why:
            raise KpipeError(f"port {port}: not a port that a user may choose: expected 1024 to 65535", "choose another") from why
        except OSError as why:
            if why.errno == errno.EACCES:
                raise KpipeError(f"port {port} needs more rights than yours", "choose one above 1023") from why
            return False
    return True
