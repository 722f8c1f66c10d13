"""Faults of a seed, and what becomes of the processes that they hit."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kpipe.failpoints import AUDITED, POINTS
from kpipe.failpoints import Fault as Setting
from kpipe_assets.chaos.faults import KINDS, Choice, Fault, Injector, points_of
from kpipe_assets.chaos.processes import Run, below, environment, runs_of, signal_all
from tests.processes import is_running

CHILDREN = """
import json, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(json.dumps({"event": "child", "pid": child.pid}), flush=True)
for number in range(3):
    print(json.dumps({"event": "batch", "batch": str(number), "rows": 2}), flush=True)
time.sleep(600)
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """`started(code)`: a run that is Python code; all are killed at the end."""
    runs: list[Run] = []

    def start(code: str = CHILDREN, setting: str = "") -> Run:
        run = Run([sys.executable, "-c", code], {**os.environ, "KPIPE_FAULT": setting}, tmp_path / f"{len(runs)}.out")
        runs.append(run)
        return run

    yield start
    for run in runs:
        run.kill()


def test_the_same_seed_gives_the_same_faults() -> None:
    one, other, third = (Choice(seed, points_of(True, False), True) for seed in (7, 7, 8))
    assert one.batches(1000) == other.batches(1000)
    third.batches(1000)
    faults = [one.next() for _ in range(50)]
    assert faults == [other.next() for _ in range(50)]
    assert faults != [third.next() for _ in range(50)]
    assert [fault.number for fault in faults] == list(range(1, 51))


def test_each_kind_is_chosen_before_one_is_chosen_again_and_every_setting_is_valid() -> None:
    choice = Choice(1, points_of(True, True), True)
    faults = [choice.next() for _ in range(20 * len(KINDS))]
    for first in range(0, len(faults), len(KINDS)):
        assert {fault.kind for fault in faults[first : first + len(KINDS)]} == set(KINDS)
    for setting in filter(None, (fault.setting for fault in faults)):
        Setting(setting)  # raises if it names no failpoint
    assert {fault.role for fault in faults if fault.kind == "kill a process"} == {"jvm", "worker", "program"}


def test_without_a_program_or_an_audit_no_fault_waits_for_one() -> None:
    assert set(points_of(True, True)) == {*POINTS, *AUDITED}
    choice = Choice(1, points_of(False, False), False)
    faults = [choice.next() for _ in range(200)]
    assert not {fault.point for fault in faults} & {"tx.spawned", "tx.eof", *AUDITED}
    assert "program" not in {fault.role for fault in faults}


@pytest.mark.parametrize("window", [1, 19, 60, 100_000])
def test_a_window_is_loaded_in_many_batches(window: int) -> None:
    for seed in range(20):
        assert min(window, 15) <= -(-window // Choice(seed, POINTS, True).batches(window)) <= 60


def test_a_run_is_killed_with_its_children_and_keeps_its_exit_status(started: Callable[..., Run]) -> None:
    run = started()
    assert run.wait(600, lambda: len(run.batches()) == 3)
    child = run.lines()[0]["pid"]
    assert is_running(child)
    assert run.kill() == []
    assert run.poll() == -signal.SIGKILL
    assert not is_running(child)


def injector(started: Callable[..., Run], code: str = CHILDREN) -> Injector:
    return Injector(lambda setting: started(code, setting), 0.1, 0.1, time.monotonic() + 600)


def test_a_killed_driver_must_take_its_processes_along(started: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kpipe_assets.chaos.faults._ORPHANS_S", 0.2)
    found = injector(started)
    found.inject(Fault(1, "kill the run", "run", after=2))
    (run,) = found.runs
    assert run.poll() == -signal.SIGKILL
    assert found.left, "its child sleeps on"
    assert not is_running(run.lines()[0]["pid"]), "and is killed at last"
    found.inject(Fault(2, "kill the run", "all", after=1))
    assert found.left == []


def test_a_paused_run_goes_on_and_is_killed_after_its_fault(started: Callable[..., Run]) -> None:
    found = injector(started)
    found.inject(Fault(1, "pause", "all", after=1, seconds=0.2))
    (run,) = found.runs
    assert (run.went_on, run.poll()) == (True, -signal.SIGKILL)


def test_a_process_that_does_not_exist_yet_is_replaced_by_the_run(started: Callable[..., Run]) -> None:
    found = injector(started)
    found.inject(Fault(1, "kill a process", "jvm", seconds=5))
    assert (found.runs[0].went_on, found.runs[0].poll()) == (False, -signal.SIGKILL)


def test_a_stopped_run_is_overtaken_and_awakes(started: Callable[..., Run]) -> None:
    code = f"import os, signal\nif os.environ['KPIPE_FAULT']: os.kill(os.getpid(), signal.SIGSTOP); os._exit(7)\n{CHILDREN}"
    found = injector(started, code)
    found.inject(Fault(1, "stop at a failpoint", point="commit.open", nth=1, seconds=30))
    first, second = found.runs
    assert first.poll() == 7, "it was continued"
    assert len(second.batches()) == 3


@pytest.mark.parametrize("role", ["first", "second", "both"])
def test_two_runs_at_once(started: Callable[..., Run], role: str) -> None:
    found = injector(started)
    found.inject(Fault(1, "two runs at once", role, after=1, seconds=0.1))
    assert [run.went_on for run in found.runs] == {"first": [False, True], "second": [True, False], "both": [True, True]}[role]
    assert [run.poll() for run in found.runs] == [-signal.SIGKILL] * 2


def test_no_wait_goes_on_after_the_deadline(started: Callable[..., Run]) -> None:
    found = Injector(lambda setting: started("import time; time.sleep(600)", setting), 100, 100, time.monotonic())
    for fault in (Fault(1, "kill the run", "all", after=3), Fault(2, "stop at a failpoint", point="readback", nth=1)):
        found.inject(fault)
        assert [run.poll() for run in found.runs] == [-signal.SIGKILL]


def test_runs_are_found_by_their_command_line_after_their_parent_was_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)", "run", "__kpipe_chaos_feedbeef_3"]
    run = Run(command, dict(os.environ), tmp_path / "x.out")
    assert [process.pid for process in runs_of("__kpipe_chaos_feedbeef")] == [run.pid]
    assert runs_of("__kpipe_chaos_feedbee0") == []
    signal_all(below(run.pid), signal.SIGKILL)
    assert run.wait(600)
    assert runs_of("__kpipe_chaos_feedbeef") == []


def test_runs_get_the_environment_without_what_would_report_or_share() -> None:
    given = {
        "PATH": "/bin", "MY_SECRET": "s", "KPIPE_FAULT": "gc.scan:1:kill", "KPIPE_SPARK": "service", "KPIPE_LOG": "json",
        "KPIPE_SPARK_MASTER": "yarn", "OPENLINEAGE_URL": "http://h", "OTEL_SDK_DISABLED": "false", "KPIPE_HOME": "/real",
    }  # fmt: skip
    assert environment(given, Path("/copy"), KPIPE_STAGING="/s") == {
        "PATH": "/bin", "MY_SECRET": "s", "KPIPE_SPARK_MASTER": "yarn", "OPENLINEAGE_URL": "http://h",
        "OPENLINEAGE_DISABLED": "true", "OTEL_SDK_DISABLED": "true", "KPIPE_HOME": "/copy", "KPIPE_STAGING": "/s",
    }  # fmt: skip


def test_messages_and_tracebacks(started: Callable[..., Run]) -> None:
    failed = started("import sys; print('a', file=sys.stderr); sys.exit('kpipe: it failed -> fix it')")
    assert failed.wait(600)
    assert (failed.poll(), failed.message(), failed.is_unexpected()) == (1, "kpipe: it failed -> fix it", False)
    for code in ("raise KeyError('x')", "import sys; sys.exit('kpipe: t/0: KeyError: x -> this is a defect of kpipe; run it')"):
        broken = started(code)
        assert broken.wait(600)
        assert broken.is_unexpected()
    injected = started("raise RuntimeError('KPIPE_FAULT: failed at readback')")
    assert injected.wait(600)
    assert not injected.is_unexpected()
