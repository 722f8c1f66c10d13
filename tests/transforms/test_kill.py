"""Nothing survives a run: TERM ignored, grandchildren, a dead worker, a caller who leaves (faults C6 to C9)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kpipe.errors import TransformFailed
from tests.patience import longer
from transforms import Program, TransformRun, run

Check = Callable[[int], bool]
ROOT = Path(__file__).resolve().parents[2]


def shell(text: str, **options: object) -> Program:
    return Program(("sh", "-c", text), **{"grace_s": 0.3, "idle_timeout_s": 300, **options})  # type: ignore[arg-type]


def pids(chunks: list[bytes]) -> list[int]:
    return [int(word) for word in b"".join(chunks).split()]


def collect(program: Program, into: list[bytes]) -> TransformRun:
    transform = TransformRun(program, [])
    for chunk in transform:
        into.append(chunk)
    return transform


def silent(text: str, words: int = 1, **options: object) -> list[bytes]:
    """Run a program that writes so many words, and then nothing until it is ended for that. Return what it wrote."""

    def ended(limit_s: float) -> list[bytes]:
        out: list[bytes] = []
        with pytest.raises(TransformFailed, match=f"no progress for {limit_s:g} s"):
            collect(shell(text, idle_timeout_s=limit_s, **options), out)
        assert len(b"".join(out).split()) == words
        return out

    return longer(ended, 2, 30)


def test_a_program_that_ignores_term_is_killed(dies: Check) -> None:
    out = silent("trap '' TERM; echo $$; while :; do sleep 0.1; done")
    assert dies(pids(out)[0])


def test_a_program_that_hears_term_may_clean_up(tmp_path: Path) -> None:
    note = tmp_path / "note"
    silent(f"trap 'echo bye > {note}; exit' TERM; echo ready; while :; do sleep 0.05; done", grace_s=300)
    assert note.read_text() == "bye\n"


def test_a_grandchild_that_holds_stdout_does_not_hang_the_run(dies: Check) -> None:
    out: list[bytes] = []
    transform = collect(shell("sleep 3600 & echo $!", counted=True), out)
    assert transform.report.leftovers
    assert dies(pids(out)[0])


def test_a_grandchild_that_could_still_write_is_an_error_unless_outputs_are_counted(dies: Check) -> None:
    """The number of outputs of a filter is not known in advance."""
    out: list[bytes] = []
    with pytest.raises(TransformFailed, match=r"kept its stdout open for 0\.3 s more.*>/dev/null"):
        collect(shell("(sleep 3600; echo late) & echo $!"), out)
    assert dies(pids(out)[0])
    collect(shell("sleep 3600 >/dev/null & echo $!"), [])


def test_a_grandchild_that_still_writes_after_the_end_is_an_error() -> None:
    def cut(limit_s: float) -> None:
        with pytest.raises(TransformFailed, match="output is missing"):
            collect(shell("(while :; do echo late; sleep 0.05; done) & echo out", grace_s=limit_s), [])

    longer(cut, 2, 30)  # in which the grandchild must have written


def test_a_grandchild_that_finishes_within_the_grace_is_waited_for(settled: None) -> None:
    out: list[bytes] = []
    transform = collect(shell("(sleep 0.1; echo late) & echo out", grace_s=300), out)
    assert b"".join(out) == b"out\nlate\n"
    assert not transform.report.leftovers


@pytest.mark.parametrize("redirect", ["", ">/dev/null 2>&1 </dev/null"])
def test_a_grandchild_in_a_session_of_its_own_is_killed_and_reaped(redirect: str, dies: Check, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    collect(
        shell(
            f"setsid sh -c 'echo $$ > {note}; exec sleep 60' {redirect} & while [ ! -s {note} ]; do sleep 0.01; done",
            counted=True,
        ),
        [],
    )
    assert dies(int(note.read_text()))
    assert not Path(f"/proc/{note.read_text().strip()}").exists()  # reaped as well


def test_a_double_forked_daemon_is_killed_when_the_program_is(dies: Check) -> None:
    out = silent("(setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' &) ; sleep 60")
    assert dies(pids(out)[0])


def test_a_fork_bomb_of_modest_size_is_cleaned_up(dies: Check) -> None:
    text = "i=0; while [ $i -lt 40 ]; do setsid sh -c 'trap \"\" TERM; sleep 60; sleep 60' & echo $!; i=$((i+1)); done; sleep 60"
    out = silent(text, words=40)
    assert all(dies(pid) for pid in pids(out))


def test_other_children_of_the_worker_are_not_touched(alive: Check) -> None:
    before = subprocess.Popen(["sleep", "3600"])
    orphans = subprocess.run(["sh", "-c", "sleep 3600 >/dev/null 2>&1 & echo $!"], capture_output=True, check=True)
    orphan = int(orphans.stdout)
    during: list[subprocess.Popen[bytes]] = []
    try:
        for _ in run(shell("setsid sleep 60 & echo out", counted=True), []):
            during.append(subprocess.Popen(["sleep", "3600"], start_new_session=True))
        assert during
        assert all(alive(pid) for pid in (before.pid, orphan, during[0].pid))
        assert before.poll() is None
    finally:
        os.kill(orphan, signal.SIGKILL)
        for process in (before, *during):
            process.kill()
            process.wait()


def test_leaving_early_kills_the_program(dies: Check) -> None:
    with TransformRun(shell("echo $$; exec yes"), []) as transform:
        chunk = next(iter(transform))
    assert dies(int(chunk.split(b"\n")[0]))


def test_closing_the_generator_kills_the_program(dies: Check) -> None:
    chunks = run(shell("echo $$; exec cat"), (b"1\n" for _ in iter(int, 1)))
    pid = int(next(chunks).split(b"\n")[0])
    chunks.close()  # type: ignore[attr-defined]
    assert dies(pid)


def test_entering_and_leaving_at_once_leaves_nothing() -> None:
    for _ in range(20):  # the signal meets every stage of the start
        with TransformRun(shell("sleep 60"), []):
            pass


WORKER = """
import sys
from pathlib import Path
from transforms import Program, run
text = "(setsid sleep 60 & echo $!; sleep 61 & echo $!; echo $$; echo end) > $0; trap '' TERM; exec cat"
list(run(Program(("sh", "-c", text, sys.argv[1]), scratch=Path(sys.argv[2])), iter(sys.stdin.buffer.readline, b"")))
"""


def test_when_the_worker_is_killed_everything_below_it_dies(alive: Check, dies: Check, tmp_path: Path) -> None:
    note = tmp_path / "pids"
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-c", WORKER, str(note), str(scratch)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, env={"PYTHONPATH": str(ROOT)}) as worker:
        while not note.exists() or not note.read_text().endswith("end\n"):
            assert worker.poll() is None
            time.sleep(0.01)
        found = [int(word) for word in note.read_text().split()[:3]]
        assert all(alive(pid) for pid in found)
        (made,) = scratch.iterdir()
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    assert all(dies(pid) for pid in found)
    until = time.monotonic() + 300
    while made.exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert not made.exists()


def test_the_end_of_the_thread_that_started_it_is_not_the_end_of_the_worker() -> None:
    transform = TransformRun(shell("cat"), [b"1\n"])
    thread = threading.Thread(target=transform.__enter__)
    thread.start()
    thread.join()
    time.sleep(0.1)  # the kernel sends PDEATHSIG when a thread ends
    assert b"".join(transform) == b"1\n"


def test_a_killed_launcher_is_an_error(dies: Check) -> None:
    out: list[bytes] = []
    with pytest.raises(TransformFailed, match="process that watches it was killed"):
        collect(shell("sleep 60 & echo $! $$; kill -9 $PPID; sleep 60"), out)
    assert all(dies(pid) for pid in pids(out))


def test_a_program_whose_launcher_is_killed_dies_though_the_worker_can_do_nothing(dies: Check, tmp_path: Path) -> None:
    note = tmp_path / "pids"
    text = "echo $PPID $$ > $0.part; mv $0.part $0; trap '' TERM; exec cat"
    code = WORKER.replace(WORKER.splitlines()[4], f"text = {text!r}")
    command = [sys.executable, "-c", code, str(note), str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, env={"PYTHONPATH": str(ROOT)}) as worker:
        while not note.exists():
            assert worker.poll() is None
            time.sleep(0.01)
        launcher, program = (int(word) for word in note.read_text().split())
        worker.send_signal(signal.SIGSTOP)
        os.kill(launcher, signal.SIGKILL)
        died = dies(program)
        worker.kill()
    assert died
