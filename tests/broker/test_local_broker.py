"""The local broker's life: start, stop, restart, two at once, stale records, missing jars, the command."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kpipe.errors import BrokerUnreachable, KpipeError, NotAvailable
from kpipe_assets.cli import kpipe
from kpipe_assets.commands.broker import broker as command
from resources.dev_broker import broker as broker_module
from resources.dev_broker import kafka_jars
from resources.dev_broker.broker import LocalBroker
from resources.dev_broker.process import Record
from resources.java import JavaHome
from tests.servers.brokers import running

Start = Callable[..., LocalBroker]


@pytest.fixture(scope="module")
def own(java: JavaHome, tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]) -> Iterator[LocalBroker]:
    """A broker that the tests of this module stop and start; its folder has a blank and an accent in the name."""
    with running(tmp_path_factory.mktemp("own") / "a folder é" / "broker", free_port()) as broker:
        yield broker


def produce(brokers: str | None, topic: str, count: int, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": brokers})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=partition)
    assert producer.flush(300) == 0


def consume(brokers: str | None, topic: str, count: int, partition: int = 0) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    try:
        return [message.value() for message in consumer.consume(count, timeout=600)]
    finally:
        consumer.close()


def record_of(broker: LocalBroker) -> Record:
    record = Record.read(broker.folder / "broker.json")
    assert record is not None
    return record


def processes_below(folder: Path) -> list[int]:
    """Pids of everything that was started with this folder on its command line."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE and any(f"{folder}/" in part for part in process.info["cmdline"] or ())
    ]


def test_a_topic_has_the_partitions_and_settings_asked_for(topic: Callable[..., str], brokers: str) -> None:
    name = topic(partitions=3, **{"cleanup.policy": "compact"})
    admin = AdminClient({"bootstrap.servers": brokers})
    assert len(admin.list_topics(name, timeout=600).topics[name].partitions) == 3


def test_a_topic_is_there_when_it_was_made(kafka_broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller answers first; on a busy machine, who serves clients knew nothing of the topic yet."""
    usual, asked = broker_module._admin, []

    class Late:
        def __init__(self, port: int) -> None:
            self._admin = usual(port)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._admin, name)

        def list_topics(self, topic: str, timeout: float) -> Any:
            asked.append(topic)
            return self._admin.list_topics("not-made-yet" if len(asked) < 4 else topic, timeout=timeout)

    monkeypatch.setattr(broker_module, "_admin", Late)
    kafka_broker.create_topic("t-late", 2)
    assert asked == ["t-late"] * len(asked) and len(asked) >= 4
    kafka_broker.delete_topic("t-late")


def test_transactions_work_on_one_node(topic: Callable[..., str], brokers: str) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": brokers, "transactional.id": name})
    producer.init_transactions(300)
    producer.begin_transaction()
    producer.produce(name, b"x")
    producer.commit_transaction(300)
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "unused"})
    deadline = time.monotonic() + 300
    while consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=600) != (0, 2):  # the record and its marker
        assert time.monotonic() < deadline
    consumer.close()


def test_topics_are_never_invented(brokers: str) -> None:
    admin = AdminClient({"bootstrap.servers": brokers})
    assert admin.list_topics("nobody-made-this", timeout=600).topics["nobody-made-this"].error is not None
    assert "nobody-made-this" not in admin.list_topics(timeout=600).topics


def test_a_refused_topic_is_one_clear_error(topic: Callable[..., str], kafka_broker: LocalBroker) -> None:
    with pytest.raises(KpipeError, match="already exists"):
        kafka_broker.create_topic(topic())


def test_restart_keeps_port_data_and_cluster(own: LocalBroker) -> None:
    before = own.start()
    cluster = AdminClient({"bootstrap.servers": before.brokers}).list_topics(timeout=600).cluster_id
    own.create_topic("kept", 2)
    produce(before.brokers, "kept", 50, partition=1)
    stopped = own.stop()
    assert (stopped.running, stopped.pid, stopped.brokers) == (False, None, before.brokers)
    assert processes_below(own.folder) == []
    after = own.start()
    assert after.brokers == before.brokers
    assert AdminClient({"bootstrap.servers": after.brokers}).list_topics(timeout=600).cluster_id == cluster
    assert consume(after.brokers, "kept", 50, partition=1) == [str(n).encode() for n in range(50)]


def test_killed_broker_starts_again_with_its_data(own: LocalBroker) -> None:
    status = own.start()
    own.create_topic("survivor")
    produce(status.brokers, "survivor", 5)
    assert status.pid is not None
    process = psutil.Process(status.pid)
    process.kill()
    process.wait(300)
    assert not own.status().running
    assert consume(own.start().brokers, "survivor", 5) == [b"0", b"1", b"2", b"3", b"4"]


def test_libraries_of_compression_are_unpacked_into_the_home(own: LocalBroker) -> None:
    """A killed broker leaves them; the next start removes them."""
    own.create_topic("compressed", 1, {"compression.type": "lz4"})
    produce(own.start().brokers, "compressed", 3)
    unpacked = own.folder / "tmp"
    assert list(unpacked.glob("liblz4*"))
    own.stop()
    (unpacked / "left").touch()
    own.start()
    assert not (unpacked / "left").exists()


def test_only_this_machine_can_connect(own: LocalBroker) -> None:
    pid = own.start().pid
    listening = [c.laddr.ip for c in psutil.Process(pid).net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    assert len(listening) == 2
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}


def test_the_process_is_nobodys_child_and_holds_nothing_of_the_caller(own: LocalBroker) -> None:
    pid = own.start().pid
    assert pid is not None
    assert os.getsid(pid) == pid
    assert "KPIPE_HOME" not in psutil.Process(pid).environ()
    if Path("/proc").is_dir():
        assert str(Path(f"/proc/{pid}/fd/0").readlink()) == "/dev/null"
        assert {str(Path(f"/proc/{pid}/fd/{n}").readlink()) for n in (1, 2)} == {str(own.folder / "logs/stdout.log")}


def test_concurrent_starts_end_with_one_broker_and_are_not_held_up_by_their_pipes(own: LocalBroker) -> None:
    """`kpipe broker start | cat` must end although the broker lives on."""
    own.stop()
    code = (
        "import sys; from pathlib import Path; from resources.dev_broker.broker import LocalBroker as L\n"
        "print(L(Path(sys.argv[1])).start().pid)"
    )
    pipe = subprocess.PIPE
    starts = [
        subprocess.Popen([sys.executable, "-c", code, str(own.folder)], stdout=pipe, stderr=pipe, text=True) for _ in range(3)
    ]
    ends = [start.communicate(timeout=600) for start in starts]
    assert {out.strip() for out, _ in ends} == {str(own.status().pid)}, ends
    assert processes_below(own.folder) == [own.status().pid]


def test_a_pid_that_was_given_to_another_process_is_left_alone(own: LocalBroker) -> None:
    own.stop()
    with subprocess.Popen(["sleep", "3600"]) as bystander:
        try:
            stale = record_of(own)
            Record(bystander.pid, "another boot/1", stale.version, stale.port, stale.cluster_id).write(own.folder / "broker.json")
            assert not own.status().running
            own.stop()
            assert bystander.poll() is None
            assert own.start().pid != bystander.pid
        finally:
            bystander.kill()  # the end of the block waits for it


def test_a_record_cut_short_by_a_crash_does_not_stand_in_the_way(own: LocalBroker) -> None:
    own.stop()
    (own.folder / "broker.json").write_text('{"pid": 12')
    assert own.status().brokers is None
    assert own.start().running


def test_a_taken_port_is_one_clear_error_and_starts_nothing(tmp_path: Path) -> None:
    broker = LocalBroker(tmp_path / "broker")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(KpipeError, match=f"port {port} is in use by another program"):
            broker.start(port)
    assert not broker.status().running


def test_a_kept_port_that_was_taken_meanwhile_is_replaced(own: LocalBroker) -> None:
    own.stop()
    port = record_of(own).port
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        status = own.start()
    assert status.running
    assert status.brokers != f"127.0.0.1:{port}"


@pytest.mark.parametrize("chosen", [False, True])
def test_a_port_that_is_taken_during_the_start(
    chosen: bool, running_broker: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        lies = [True]
        truth = broker_module._is_free
        monkeypatch.setattr(broker_module, "USUAL_PORT", port)
        monkeypatch.setattr(broker_module, "_is_free", lambda wanted: (wanted == port and lies and lies.pop()) or truth(wanted))
        if chosen:
            with pytest.raises(KpipeError, match=f"port {port} was taken by another program"):
                LocalBroker(tmp_path / "broker").start(port)
            assert not LocalBroker(tmp_path / "broker").status().running
        else:
            status = running_broker(tmp_path / "broker").status()
            assert status.running and status.brokers != f"127.0.0.1:{port}"
        assert not lies


def test_another_port_than_the_running_one_is_refused(own: LocalBroker, free_port: Callable[[], int]) -> None:
    running = own.start()
    with pytest.raises(KpipeError, match="runs on port"):
        own.start(free_port())
    assert own.status() == running


def test_a_failed_start_shows_the_last_lines_and_leaves_no_process(own: LocalBroker) -> None:
    own.stop()
    properties = own.folder / "data" / "meta.properties"
    good = properties.read_text()
    properties.write_text(good.replace("node.id=1", "node.id=2"))
    try:
        with pytest.raises(KpipeError, match=r"ended while starting: .*node id"):
            own.start()
        assert processes_below(own.folder) == []
    finally:
        properties.write_text(good)


def test_an_unwritable_home_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KpipeError, match="cannot write") as refused:
        LocalBroker(tmp_path / "file" / "broker").start()
    assert "KPIPE_HOME" in refused.value.hint


def test_nothing_runs_where_nothing_was_started(tmp_path: Path) -> None:
    broker = LocalBroker(tmp_path / "broker")
    assert broker.stop() == broker.status()
    assert not broker.folder.exists()
    with pytest.raises(BrokerUnreachable):
        broker.create_topic("x")


def test_without_java_nothing_starts_and_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resources.java.importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    broker = LocalBroker(tmp_path / "broker")
    with pytest.raises(NotAvailable, match="no Java 17"):
        broker.start()
    assert not broker.status().running and broker.status().brokers is None


def test_without_jars_nothing_starts_and_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_jars, "default_folder", lambda: tmp_path / "nowhere")
    monkeypatch.setenv("KPIPE_HOME", str(tmp_path / "home"))
    with pytest.raises(NotAvailable, match="jars are not installed") as missing:
        LocalBroker(tmp_path / "broker").start()
    assert "kpipe broker install" in missing.value.hint and "Maven Central" in missing.value.hint
    assert not LocalBroker(tmp_path / "broker").status().running
    for words in (["demo"], ["broker", "start"]):
        refused = CliRunner().invoke(kpipe, words)
        assert isinstance(refused.exception, NotAvailable) and "jars" in str(refused.exception), words
    assert not (tmp_path / "home" / "broker" / "broker.json").exists()


def test_a_record_of_another_version_still_names_its_process(own: LocalBroker) -> None:
    own.start()
    file = own.folder / "broker.json"
    written = json.loads(file.read_text())
    file.write_text(json.dumps({**written, "kind": "kafka"}))
    try:
        assert own.status().running and own.status().pid == written["pid"]
    finally:
        file.write_text(json.dumps(written))


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KPIPE_HOME", str(tmp_path))
    runner = CliRunner()
    try:
        assert json.loads(runner.invoke(command, ["status", "--json"]).stdout) == {
            "running": False,
            "brokers": None,
            "kind": "kafka",
            "version": LocalBroker(tmp_path).status().version,
        }
        started = runner.invoke(command, ["start"])
        assert started.exit_code == 0
        assert started.stdout.startswith("kafka ")
        status = json.loads(runner.invoke(command, ["status", "--json"]).stdout)
        assert list(status) == ["running", "brokers", "kind", "version"]
        assert status["running"] is True
        assert status["brokers"] == LocalBroker(tmp_path / "broker").status().brokers
    finally:
        stopped = runner.invoke(command, ["stop", "--json"])
    assert json.loads(stopped.stdout)["running"] is False
