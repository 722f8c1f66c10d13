"""Faults for runs of a copy: chosen from a seed, then injected."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import psutil

from kpipe.failpoints import AUDITED, POINTS
from kpipe_assets.chaos.processes import ROLES, Run, below, by_role, kill_all, signal_all, stopped

__all__ = ["KINDS", "Choice", "Fault", "Injected", "Injector", "points_of"]

KINDS = (
    "kill the run",
    "kill a process",
    "pause",
    "kill at a failpoint",
    "fail at a failpoint",
    "stop at a failpoint",
    "two runs at once",
)
_ACTIONS = {"kill at a failpoint": "kill", "fail at a failpoint": "raise", "stop at a failpoint": "stop"}
_OF_PROGRAM = ("tx.spawned", "tx.eof")
_MOST_BATCHES = 3
_PATIENCE_S = 120.0  # for a run that makes no progress
_ORPHANS_S = 120.0


@dataclass(frozen=True)
class Fault:
    """A fault as the seed chose it.

    Attributes:
        number: from 1.
        kind: an element of `KINDS`.
        role: the process that is killed or paused: an element of `ROLES`, or `all`.
        point: the failpoint; empty for other kinds.
        nth: the point acts when it is reached for the n-th time.
        after: batches that the run commits before.
        delay: further delay: 0 to 1, in durations of a batch, or of the start-up if `after` is 0.
        seconds: duration of a pause, and time for the run to react before it is killed.
    """

    number: int
    kind: str
    role: str = ""
    point: str = ""
    nth: int = 0
    after: int = 0
    delay: float = 0.0
    seconds: float = 0.0

    @property
    def setting(self) -> str:
        """Value of `KPIPE_FAULT`; empty: no failpoint."""
        return f"{self.point}:{self.nth}:{_ACTIONS[self.kind]}" if self.point else ""

    def __str__(self) -> str:
        if self.point:
            return f"{self.kind}: {self.point}, pass {self.nth}"
        return f"{self.kind}: {self.role}" if self.role else self.kind


@dataclass
class Injected:
    """A fault and its effect.

    Attributes:
        fault: the fault.
        copy: name of the copy.
        seconds: since the first fault.
        hit: whether a process was killed, stopped or failed, or two runs were at work.
        runs: the runs in order of their start, with exit status, batches and last message.
        left: names of processes that outlived a killed run.
    """

    fault: Fault
    copy: str
    seconds: float
    hit: bool = False
    runs: list[dict[str, Any]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the object for the report."""
        fault = {name: value for name, value in asdict(self.fault).items() if value not in ("", 0)}
        more = {"copy": self.copy, "at_s": round(self.seconds, 1), "hit": self.hit, "runs": self.runs, "left": self.left}
        return {**fault, **more}


def points_of(program: bool, audited: bool) -> tuple[str, ...]:
    """Return the failpoints that runs of a pipeline can reach."""
    return tuple(point for point in POINTS if program or point not in _OF_PROGRAM) + (AUDITED if audited else ())


class Choice:
    """The faults of a seed. The same seed gives the same faults in the same order, not at the same moments.

    Args:
        seed: of the choices.
        points: failpoints to choose from.
        program: whether the pipeline has a program.
    """

    def __init__(self, seed: int, points: Sequence[str], program: bool) -> None:
        self._chance, self._points = random.Random(seed), tuple(points)
        self._roles = ROLES if program else tuple(role for role in ROLES if role != "program")
        self._kinds: list[str] = []
        self._number = 0

    def batches(self, window: int) -> int:
        """Choose the offsets of one partition in a batch, for that many offsets: 20 to 60 batches."""
        return max(1, -(-window // self._chance.randint(20, 60)))

    def next(self) -> Fault:
        """Choose a fault. Each kind is chosen once, in any order, before one is chosen again."""
        chance = self._chance
        self._kinds = self._kinds or chance.sample(KINDS, len(KINDS))
        kind, self._number = self._kinds.pop(), self._number + 1
        # All numbers are drawn for each kind: one kind more or less does not change the others' draws.
        point, nth = chance.choice(self._points), chance.randint(1, 4)
        after, delay, seconds = chance.randint(0, _MOST_BATCHES), chance.random(), chance.uniform(0.5, 6)
        if kind in _ACTIONS:
            return Fault(self._number, kind, "", point, nth, seconds=seconds)
        roles: dict[str, tuple[str, ...]] = {
            "kill the run": ("run", "all"),
            "kill a process": self._roles[1:],
            "pause": (*self._roles, "all"),
            "two runs at once": ("first", "second", "both"),
        }
        role = chance.choice(roles[kind])
        return Fault(self._number, kind, role, after=after, delay=delay, seconds=seconds)


class Injector:
    """Injects faults into runs of one copy.

    Args:
        start: starts a run with a value of `KPIPE_FAULT`.
        startup_s: time from a run's start to its first batch, undisturbed.
        batch_s: time of a batch, undisturbed.
        deadline: on the monotonic clock: no wait goes on for longer.

    Attributes:
        runs, left, hit: of the last fault; see `Injected`.
    """

    def __init__(self, start: Callable[[str], Run], startup_s: float, batch_s: float, deadline: float) -> None:
        self._start, self._startup_s, self._batch_s, self._deadline = start, startup_s, batch_s, deadline
        self.runs: list[Run] = []
        self.left: list[str] = []
        self.hit = False

    def inject(self, fault: Fault) -> None:
        """Start a run, or two, and disturb them. At the end all have ended (`runs`)."""
        self.runs, self.left, self.hit = [], [], False
        try:
            if fault.kind in ("kill the run", "kill a process"):
                self._kill(fault)
            elif fault.kind == "pause":
                self._pause(fault)
            elif fault.kind == "stop at a failpoint":
                self._overtake(fault)
            elif fault.kind == "two runs at once":
                self._double(fault)
            else:
                run = self._begin(fault.setting)
                self._wait(run, _PATIENCE_S, lambda: len(run.batches()) > fault.nth + 1)
                self.hit = run.poll() not in (None, 0)
        finally:
            for run in self.runs:
                if run.poll() is None:
                    run.went_on = True
                    self.left += names(run.kill())

    def _begin(self, setting: str = "") -> Run:
        run = self._start(setting)
        self.runs.append(run)
        return run

    def _wait(self, run: Run, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        run.wait(max(0.0, min(seconds, self._deadline - time.monotonic())), until)

    def _reached(self, fault: Fault) -> Run:
        """Start a run, and return it when it has committed the fault's batches and the delay is over."""
        run = self._begin()
        if fault.after:
            self._wait(run, _PATIENCE_S, lambda: len(run.batches()) >= fault.after)
        self._wait(run, fault.delay * (self._batch_s if fault.after else self._startup_s))
        return run

    def _kill(self, fault: Fault) -> None:
        run = self._reached(fault)
        processes = below(run.pid)
        self.hit = run.poll() is None
        if fault.role == "all":
            self.left += names(run.kill())
            return
        found = by_role(run.pid)[fault.role] or processes[:1]  # such a process may not exist yet
        signal_all(found[:1], signal.SIGKILL)
        if fault.role == "run":  # the others must notice that it has ended
            run.wait(_ORPHANS_S)
            _, left = psutil.wait_procs(processes[1:], timeout=_ORPHANS_S)
            self.left += names(left)
            kill_all(left)
        else:
            self._wait(run, fault.seconds)

    def _pause(self, fault: Fault) -> None:
        run = self._reached(fault)
        found = below(run.pid) if fault.role == "all" else by_role(run.pid)[fault.role][:1]
        signal_all(found, signal.SIGSTOP)
        self.hit = bool(found) and run.poll() is None
        try:
            time.sleep(fault.seconds)
        finally:
            signal_all(found, signal.SIGCONT)
        self._wait(run, fault.seconds)

    def _overtake(self, fault: Fault) -> None:
        """Stop a run in the middle of a batch, let another one commit, and let the first one continue."""
        first = self._begin(fault.setting)
        self._wait(first, _PATIENCE_S, lambda: stopped(first.pid) is not None)
        asleep = stopped(first.pid)
        if asleep is None:
            return
        self.hit = True
        second = self._begin()
        self._wait(second, _PATIENCE_S, lambda: bool(second.batches()))
        signal_all([asleep], signal.SIGCONT)
        self._wait(first, fault.seconds)

    def _double(self, fault: Fault) -> None:
        first = self._reached(fault)
        second = self._begin()
        self.hit = first.poll() is None
        self._wait(second, _PATIENCE_S, lambda: bool(second.batches()))
        chosen = {"first": [first], "second": [second], "both": []}[fault.role]
        for run in chosen:
            self.left += names(run.kill())
        for run in self.runs:
            self._wait(run, fault.seconds)


def names(processes: Iterable[psutil.Process]) -> list[str]:
    """Return the names of processes."""
    found = []
    for process in processes:
        try:
            found.append(process.name())
        except psutil.NoSuchProcess:
            continue
    return found
