"""Hosts on one Linux machine: each is a set of namespaces with a network address, folders and processes of its own.

They hang on a bridge that stands in a namespace, too, so that the machine's own network is not touched. What a host is made of
ends with its first process; nothing else has to be taken down.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from resources.dev_broker.process import identity

NETWORK = "10.77.0"
INSIDE = Path(__file__).with_name("inside.py")
#: What hosts do not share: folders in which programs leave files.
PRIVATE = ("/tmp", "/var/tmp", "/dev/shm", "/run")
_START_S = 30
_spawned: list[subprocess.Popen[bytes]] = []  # they may outlive this process, so nobody need wait for them
_NOBODY = "02:00:00:00:00:99"  # a hardware address that nobody has


def obstacle() -> str:
    """Why no hosts can be made here; empty when they can."""
    if sys.platform != "linux":
        return "namespaces are Linux's"
    if os.geteuid() != 0:
        return "only root can make namespaces"
    missing = [tool for tool in ("unshare", "nsenter", "ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"there is no {missing[0]} (util-linux, iproute2)"
    probe = "ip link add name kp0 type bridge && ip link add name kp1 type veth peer name kp2"
    done = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "sh", "-c", probe], capture_output=True, text=True)
    return "" if done.returncode == 0 else f"the kernel refuses: {done.stderr.strip() or done.returncode}"


@dataclass(frozen=True)
class Host:
    """One host.

    Attributes:
        name: of the host.
        number: last part of its address.
        pid: of its first process, as the machine knows it.
        identity: tells that process from a later one with the same pid.
        folder: its own, seen at the same path from the machine and from no other host.
    """

    name: str
    number: int
    pid: int
    identity: str
    folder: Path

    @property
    def address(self) -> str:
        """In the hosts' network."""
        return f"{NETWORK}.{self.number}"

    @property
    def is_up(self) -> bool:
        """Whether it is there."""
        return identity(self.pid) == self.identity

    def command(self, words: Sequence[str | Path], environment: Mapping[str, str] = {}) -> list[str]:
        """What runs that inside, with this environment and nothing of the caller's but PATH."""
        spaces = ["--mount", "--net", "--pid", "--uts", "--ipc"]
        given = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8", "HOME": "/tmp", **environment}
        settings = [f"{name}={value}" for name, value in given.items()]
        return ["nsenter", f"--target={self.pid}", *spaces, f"--wd={self.folder}", "--", "env", "-i", *settings, *map(str, words)]

    def run(self, *words: str | Path, timeout: float = 120, **environment: str) -> str:
        """Run a command to its end; what it wrote."""
        done = subprocess.run(
            self.command(words, environment), capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, f"{self.name}: {words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def spawn(self, words: Sequence[str | Path], log: str, environment: Mapping[str, str] = {}) -> subprocess.Popen[bytes]:
        """Begin a command that outlives its starter; it writes into that file of the host's folder."""
        with (self.folder / log).open("ab") as out:
            process = subprocess.Popen(
                self.command(words, environment), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        _spawned.append(process)
        return process

    def processes(self, *words: str) -> list[psutil.Process]:
        """Its processes whose command lines hold all of these words, without the first one, zombies, and `nsenter`."""
        mine = os.readlink(f"/proc/{self.pid}/ns/pid")
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                there = os.readlink(f"/proc/{process.pid}/ns/pid") == mine and process.pid != self.pid
                if there and process.status() != psutil.STATUS_ZOMBIE and all(w in " ".join(process.cmdline()) for w in words):
                    found.append(process)
        return found

    def kill(self, *words: str) -> int:
        """SIGKILL to those; how many there were."""
        found = self.processes(*words)
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return len(found)

    @contextmanager
    def network(self) -> Iterator[None]:
        """Inside, sockets of this thread and of threads that it starts are the host's."""
        libc = ctypes.CDLL(None, use_errno=True)
        with Path("/proc/thread-self/ns/net").open() as own, Path(f"/proc/{self.pid}/ns/net").open() as there:
            assert libc.setns(there.fileno(), 0) == 0, os.strerror(ctypes.get_errno())
            try:
                yield
            finally:
                assert libc.setns(own.fileno(), 0) == 0, os.strerror(ctypes.get_errno())

    def received(self) -> int:
        """Bytes that have come to it."""
        return int(json.loads(self.run("ip", "-json", "-stats", "link", "show", "eth0"))[0]["stats64"]["rx"]["bytes"])

    def cut(self, *others: Host) -> None:
        """From now on nothing of this host reaches those, nor the other way round; nobody is told."""
        for one, other in [(self, other) for other in others] + [(other, self) for other in others]:
            neighbour = ["ip", "neigh", "replace", other.address, "lladdr", _NOBODY, "dev", "eth0", "nud", "permanent"]
            one.run(*neighbour)

    def mend(self, *others: Host) -> None:
        """As before."""
        for one, other in [(self, other) for other in others] + [(other, self) for other in others]:
            one.run("ip", "neigh", "del", other.address, "dev", "eth0")


class Network:
    """Hosts that reach each other.

    Args:
        base: folder of all their files. Its `hosts.json` says which there are.
        hidden: further folders of the machine that no host sees.
    """

    def __init__(self, base: Path, hidden: Sequence[Path] = ()) -> None:
        self.base, self._hidden = base, hidden
        self.hosts: dict[str, Host] = {}

    @property
    def _state(self) -> Path:
        return self.base / "hosts.json"

    @classmethod
    def found(cls, base: Path) -> Network | None:
        """The one that was made there; None if there is none."""
        network = cls(base)
        try:
            known: dict[str, Any] = json.loads(network._state.read_text())
        except FileNotFoundError:
            return None
        network.hosts = {name: Host(**{**values, "folder": Path(values["folder"])}) for name, values in known.items()}
        return network if all(host.is_up for host in network.hosts.values()) else None

    def make(self, names: Sequence[str], shown: Mapping[str, Sequence[tuple[Path, Path]]], folders: Sequence[Path] = ()) -> None:
        """Make the hosts, and let them reach each other.

        Args:
            names: of the hosts, in order of their addresses.
            shown: by host, folders and files of the machine that it sees, and where.
            folders: that are made before.
        """
        self.base.mkdir(mode=0o755, parents=True)
        for folder in folders:
            folder.mkdir()
        table = self.base / "hosts"
        lines = [f"{NETWORK}.{number} {name}" for number, name in enumerate(names, 10)]
        table.write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")
        switch = self._born("switch", 1, [])
        self._on(switch, "ip", "link", "add", "name", "bridge0", "type", "bridge")
        self._on(switch, "ip", "link", "set", "bridge0", "up")
        for number, name in enumerate(names, 10):
            host = self._born(name, number, [*shown.get(name, ()), (table, Path("/etc/hosts"))])
            veth = f"ip link add name eth0 netns {host.pid} type veth peer name {name} netns {switch.pid}"
            subprocess.run(veth.split(), check=True)
            self._on(switch, "ip", "link", "set", "dev", name, "master", "bridge0", "up")
            self._on(host, "ip", "address", "add", f"{host.address}/24", "dev", "eth0")
            for link in ("eth0", "lo"):
                self._on(host, "ip", "link", "set", "dev", link, "up")

    def link(self, host: Host, up: bool) -> None:
        """The host's cable, in or out."""
        self._on(self.hosts["switch"], "ip", "link", "set", "dev", host.name, "up" if up else "down")

    def slow(self, host: Host, kbit: int) -> None:
        """What it sends and gets goes no faster; 0: as before. A token bucket of the kernel's: not every kernel has netem."""
        for where, device in ((host, "eth0"), (self.hosts["switch"], host.name)):
            shape = ["replace", "dev", device, "root", "tbf", "rate", f"{kbit}kbit", "burst", "16kb", "latency", "2s"]
            self._on(where, "tc", "qdisc", *(shape if kbit else ["del", "dev", device, "root"]))

    def down(self) -> None:
        """End every host with all its processes, and remove what they wrote."""
        pids = []
        known = json.loads(self._state.read_text()) if self._state.exists() else {}
        for values in known.values():
            if identity(values["pid"]) == values["identity"]:
                os.kill(values["pid"], signal.SIGKILL)  # of a process namespace's first process: the kernel kills them all
                pids.append(values["pid"])
        deadline = time.monotonic() + _START_S
        while any(identity(pid) is not None for pid in pids):
            assert time.monotonic() < deadline, f"hosts that do not end: {pids}"
            time.sleep(0.05)
        shutil.rmtree(self.base, ignore_errors=True)
        self.hosts = {}

    def _born(self, name: str, number: int, shown: Sequence[tuple[Path, Path]]) -> Host:
        folder = self.base / name
        folder.mkdir(mode=0o755)
        ready = folder / ".ready"
        hidden = list(dict.fromkeys(path for path in (*PRIVATE, *map(str, self._hidden)) if Path(path).is_dir()))
        pairs = [f"{source}={target}" for source, target in ((folder, folder), *shown)]
        spaces = [
            "--mount",
            "--net",
            "--pid",
            "--uts",
            "--ipc",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--propagation",
            "private",
        ]
        with (folder / "host.log").open("wb") as log:
            outer = subprocess.Popen(
                ["unshare", *spaces, sys.executable, "-I", "-S", str(INSIDE), name, str(ready), *hidden, "--", *pairs],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/",
            )  # fmt: skip
        _spawned.append(outer)
        deadline = time.monotonic() + _START_S
        while not (ready.exists() and ready.read_text() == "ready"):
            assert outer.poll() is None and time.monotonic() < deadline, (folder / "host.log").read_text()
            time.sleep(0.02)
        (first,) = psutil.Process(outer.pid).children()
        host = Host(name, number, first.pid, identity(first.pid) or "", folder)
        self.hosts[name] = host
        self._state.write_text(json.dumps({n: {**vars(h), "folder": str(h.folder)} for n, h in self.hosts.items()}))
        return host

    @staticmethod
    def _on(host: Host, *words: str) -> None:
        subprocess.run(["nsenter", f"--target={host.pid}", "--net", *words], check=True)
