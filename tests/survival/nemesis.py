"""Breaks things around a run that is at work, as its seed says, and heals what it broke.

Each fault is a method. It gets a run that is at work, or begins its own, and gives back every run that it knows of;
what they must leave behind is not its business but the oracle's.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from kpipe.failpoints import POINTS
from kpipe_assets.chaos.processes import below
from resources.dev_broker.broker import LocalBroker
from tests.survival.site import Real, Site, wait_stopped
from tests.survival.small import Small

Run = Small | Real
HOLD = "import duckdb, sys, time; c = duckdb.connect(sys.argv[1], read_only=True); print('held', flush=True); time.sleep(60)"


class Nemesis:
    """Its faults by name; `strike` does one of them.

    Args:
        site: what it breaks.
        broker: which it stops, freezes and kills.
        disk: a small file system that holds the whole home; None where none could be made.
        chance: its seed.
    """

    def __init__(self, site: Site, broker: LocalBroker, disk: Path | None, chance: random.Random) -> None:
        self.site, self.broker, self.disk, self.chance = site, broker, disk, chance
        self.faults: dict[str, Callable[[], list[Run]]] = {
            "killed": self.killed,
            "killed at a point": lambda: self.at_a_point("kill"),
            "failed at a point": lambda: self.at_a_point("raise"),
            "stopped at a point, overtaken, awake": self.zombie,
            "frozen for a while": self.frozen,
            "one process killed": self.one_process,
            "two at once": self.twins,
            "broker restarted": self.broker_restarted,
            "broker killed": self.broker_killed,
            "broker frozen": self.broker_frozen,
            "staged files lost or damaged": self.staged_files,
            "database held by a reader": self.held,
        }
        if disk is not None:
            self.faults["disk full"] = self.disk_full

    def strike(self, name: str) -> list[Run]:
        """Do it; gives the runs that it struck."""
        return self.faults[name]()

    # -- the run

    def begin(self, fault: str = "", real: bool | None = None) -> Run:
        """A run that follows: with Spark, or without it, which is at work sooner."""
        if self.chance.random() < 0.4 if real is None else real:
            return self.site.real(fault, "--follow", "--json")
        return self.site.small(fault, follow=True)

    def at_work(self, real: bool | None = None) -> Run:
        """A run that has committed, and goes on."""
        run = self.begin(real=real)
        until = time.monotonic() + 300
        while '"event": "batch"' not in run.said_file.read_text():
            assert run.poll() is None, f"ended at once: {run.end()}"
            assert time.monotonic() < until, f"committed nothing in two minutes: {run.said_file.read_text()}"
            time.sleep(0.02)
        time.sleep(self.chance.uniform(0, 0.5))
        return run

    def killed(self) -> list[Run]:
        return [self.at_work()]  # whoever still runs at the end of a round is killed

    def at_a_point(self, action: str) -> list[Run]:
        run = self.begin(f"{self.chance.choice(POINTS)}:{self.chance.randint(1, 6)}:{action}")
        self.wait_end(run, 30)
        return [run]

    def zombie(self) -> list[Run]:
        run = self.begin(f"{self.chance.choice(POINTS)}:{self.chance.randint(1, 6)}:stop")
        with suppress(AssertionError):  # it need not come there, and a worker's stop ends with the run
            asleep = wait_stopped(run, 30)
            successor = self.begin(real=False)
            time.sleep(self.chance.uniform(1, 3))
            asleep.send_signal(signal.SIGCONT)
            time.sleep(self.chance.uniform(0, 2))
            return [run, successor]
        return [run]

    def frozen(self) -> list[Run]:
        run = self.at_work()
        processes = below(run.pid)
        some = processes if self.chance.random() < 0.5 else [self.chance.choice(processes)]
        for process in some:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        time.sleep(self.chance.uniform(0.2, 3))
        for process in some:
            with suppress(psutil.NoSuchProcess):
                process.resume()
        time.sleep(self.chance.uniform(0, 1))
        return [run]

    def one_process(self) -> list[Run]:
        run = self.at_work(real=True)
        with suppress(psutil.NoSuchProcess, IndexError):
            self.chance.choice(below(run.pid)[1:]).kill()
        self.wait_end(run, self.chance.uniform(1, 5))
        return [run]

    def twins(self) -> list[Run]:
        runs = [self.at_work(real=False), self.begin(real=False)]
        self.wait_end(runs[0], self.chance.uniform(1, 4))
        return runs

    # -- the broker

    def broker_restarted(self) -> list[Run]:
        run = self.at_work()
        self.broker.stop()
        time.sleep(self.chance.uniform(0, 4))
        self.broker.start()
        self.wait_end(run, self.chance.uniform(0, 4))
        return [run]

    def broker_killed(self) -> list[Run]:
        run = self.at_work()
        process = psutil.Process(self.broker.status().pid)
        process.kill()
        process.wait(300)  # while it ends, it has its port, and the next one would take another
        time.sleep(self.chance.uniform(0, 2))
        self.broker.start()
        self.wait_end(run, self.chance.uniform(0, 4))
        return [run]

    def broker_frozen(self) -> list[Run]:
        run = self.at_work()
        process = psutil.Process(self.broker.status().pid)
        process.suspend()
        time.sleep(self.chance.uniform(0.5, 5))
        process.resume()
        self.wait_end(run, self.chance.uniform(0, 3))
        return [run]

    # -- files

    def staged_files(self) -> list[Run]:
        """What lies in staging is taken away, cut or changed while it waits for its commit."""
        run = self.begin(f"commit.verify:{self.chance.randint(1, 3)}:stop", real=False)
        with suppress(AssertionError):
            asleep = wait_stopped(run, 30)
            for path in sorted((self.site.kpipe.home / "staging").glob("*/*.parquet")):
                how = self.chance.choice(["gone", "cut", "changed", "left"])
                if how == "gone":
                    path.unlink()
                elif how == "cut":
                    os.truncate(path, path.stat().st_size // 2)
                elif how == "changed":
                    with path.open("r+b") as file:
                        file.seek(path.stat().st_size // 2)
                        file.write(b"\xff")
            asleep.send_signal(signal.SIGCONT)
        self.wait_end(run, 5)
        return [run]

    def disk_full(self) -> list[Run]:
        assert self.disk is not None
        run = self.at_work()
        ballast = self.disk / "ballast"
        free = os.statvfs(self.disk)
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_frsize - self.chance.randrange(300_000)))
        self.wait_end(run, self.chance.uniform(1, 5))
        ballast.unlink()
        return [run]

    def held(self) -> list[Run]:
        run = self.at_work()
        with holding(self.site.oracle.path):
            self.wait_end(run, self.chance.uniform(0.2, 2))
        return [run]

    # -- inside

    @staticmethod
    def wait_end(run: Run, within: float) -> None:
        until = time.monotonic() + within
        while run.poll() is None and time.monotonic() < until:
            time.sleep(0.02)


@contextmanager
def holding(path: Path) -> Iterator[None]:
    """Somebody reads the database; DuckDB lets nobody write meanwhile."""
    reader = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert reader.stdout is not None
        reader.stdout.readline()  # empty where a run had it just then
        yield
    finally:
        reader.kill()
        reader.communicate()


@contextmanager
def small_disk(at: Path, size: str) -> Iterator[Path | None]:
    """A file system of that size, made where one may; None elsewhere."""
    at.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(at)]
    made = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield at if made else None
    finally:
        if made:
            subprocess.run(["umount", "-l", str(at)], check=True)
