"""Hosts made of namespaces: what they share, what they do not, and that nothing of them is left."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cluster.hosts import Host, Network, obstacle

pytestmark = pytest.mark.skipif(bool(obstacle()), reason=f"no hosts can be made here: {obstacle()}")

SERVE = "import socket; s = socket.create_server(('0.0.0.0', 99)); s.accept(); s.accept()"


def devices() -> str:
    return subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    """Two hosts with a folder in common."""
    made, shared = Network(tmp_path / "net", [Path.home()]), tmp_path / "net" / "shared"
    try:
        made.make(["one", "two"], {name: [(shared, shared)] for name in ("one", "two")}, folders=[shared])
        yield made
    finally:
        made.down()


def reached(one: Host, other: Host) -> bool:
    with one.network(), socket.socket() as probe:
        probe.settimeout(2)
        try:
            return probe.connect_ex((other.address, 99)) == 0
        except TimeoutError:
            return False


def test_hosts_share_a_folder_and_a_network_and_nothing_else(network: Network) -> None:
    one, two = network.hosts["one"], network.hosts["two"]
    shared, before = network.base / "shared", devices()
    one.run("sh", "-c", f"echo seen > {shared}/file; echo private > /tmp/file; echo own > {one.folder}/file")
    assert two.run("cat", shared / "file") == "seen\n" and (one.folder / "file").read_text() == "own\n"
    assert two.run("sh", "-c", f"ls /tmp/file {one.folder}/file 2>&1 || true").count("No such file") == 2
    assert "Read-only" in two.run("sh", "-c", "touch /usr/file 2>&1 || true")
    assert (one.run("hostname"), two.run("hostname")) == ("one\n", "two\n")
    assert two.run("getent", "hosts", "one").split() == [one.address, "one"]
    assert os.environ.get("PYTEST_CURRENT_TEST", "-") not in one.run("env")

    serving = two.spawn(["python3", "-c", SERVE], "served")
    deadline = time.monotonic() + 20
    while not reached(one, two):
        assert time.monotonic() < deadline, (two.folder / "served").read_text()
    one.cut(two)
    assert not reached(one, two)
    one.mend(two)
    network.link(two, up=False)
    assert not reached(one, two)
    network.link(two, up=True)
    network.slow(two, 512)
    network.slow(two, 0)
    assert [process.name() for process in two.processes()] == ["python3"] and one.processes() == []
    assert devices() == before, "the machine's own network was touched"
    (served,) = two.processes()

    found = Network.found(network.base)
    assert found is not None and found.hosts == network.hosts
    network.down()
    assert not psutil.pid_exists(served.pid) and not network.base.exists() and devices() == before
    assert Network.found(network.base) is None
    serving.wait(10)
