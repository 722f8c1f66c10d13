"""Programs that take too much: memory, processes, descriptors, output, and hold of their own launcher (fault C11)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from kpipe.errors import TransformFailed
from transforms import Limits, Program, TransformRun, line_blocks, run


def shell(text: str, **options: object) -> Program:
    return Program(("sh", "-c", text), **{"grace_s": 0.3, "idle_timeout_s": 300, **options})  # type: ignore[arg-type]


def python(text: str, **options: object) -> Program:
    return Program((sys.executable, "-c", text), **{"grace_s": 0.3, "idle_timeout_s": 300, **options})  # type: ignore[arg-type]


def failure(program: Program) -> TransformFailed:
    with pytest.raises(TransformFailed) as caught:
        list(run(program, [b"1\n"]))
    assert caught.value.phase == "work"
    return caught.value


def with_mark(mark: str) -> set[int]:
    """Processes that have it in their environment, wherever they went."""
    found = set()
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and mark.encode() in Path(f"/proc/{entry}/environ").read_bytes():
                found.add(int(entry))
        except OSError:
            continue
    return found


def all_gone(mark: str) -> bool:
    until = time.monotonic() + 300
    while with_mark(mark) and time.monotonic() < until:
        time.sleep(0.05)
    return not with_mark(mark)


# Bounded, so that a program that nobody looks at for a while does no harm.
GROW = "import time\nheld = []\nfor _ in range(60):\n    held.append(b'x' * 10_000_000)\n    time.sleep(0.02)\ntime.sleep(3600)\n"


def test_a_memory_hog_is_killed_before_the_machine_suffers() -> None:
    error = failure(python(GROW, limits=Limits(tree_bytes=150 << 20)))
    assert "MiB of memory, 150 are allowed" in error.what
    held = int(error.what.split("held ")[1].split(" MiB")[0].replace(",", ""))
    assert held >= 150
    assert "transform.memory_mb" in error.hint


def test_the_memory_of_all_its_processes_counts() -> None:
    text = (
        "import os, time\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0:\n"
        "        break\n"
        "held = bytearray(os.urandom(1)) * 80_000_000\n"
        "time.sleep(60)\n"
    )
    assert "200 are allowed" in failure(python(text, limits=Limits(tree_bytes=200 << 20))).what


def test_addresses_that_are_only_reserved_are_no_memory() -> None:
    text = "import mmap, sys, time\nheld = mmap.mmap(-1, 8 << 30)\ntime.sleep(0.5)\nsys.stdout.write(sys.stdin.read())\n"
    assert b"".join(run(python(text, limits=Limits(tree_bytes=150 << 20)), [b"1\n"])) == b"1\n"


def test_out_of_memory_the_kernel_takes_the_program_first() -> None:
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert int(b"".join(run(shell("cat /proc/self/oom_score_adj"), []))) == max(own, 500) > own


# Bounded, so that a test which fails does no more than fail: a tree of 2,047 processes that stay for 30 s. Each is still
# starting others when the first are to be killed, as in the endless kind.
TREE = "f() {{ [ $1 = 0 ] && exec sleep 30; {0} f $(($1-1)) & {0} f $(($1-1)) & wait; }}; f 10"
SESSIONS = "import os, time\nfor _ in range(10):\n    if os.fork() == 0:\n        os.setsid()\ntime.sleep(30)\n"


@pytest.mark.parametrize("kind", ["one session", "a session each"])
def test_a_fork_bomb_is_stopped_while_it_grows(kind: str) -> None:
    mark = uuid.uuid4().hex
    options = {"env": {"MARK": mark}, "limits": Limits(tree_processes=100)}
    error = failure(shell(TREE.format(""), **options) if kind == "one session" else python(SESSIONS, **options))
    assert "processes at once or more, 100 are allowed" in error.what
    assert all_gone(mark)


def test_a_program_may_use_as_many_processes_as_people_do() -> None:
    text = "i=0; while [ $i -lt 60 ]; do sleep 0.5 & i=$((i+1)); done; wait; cat"
    assert b"".join(run(shell(text), [b"1\n"])) == b"1\n"


def test_a_leak_of_descriptors_is_the_programs_own_end() -> None:
    text = "import os\nwhile True:\n    os.write(2, b'%d\\n' % os.open('/dev/null', os.O_RDONLY))\n"
    error = failure(python(text, limits=Limits(open_files=64)))
    assert " | 63 | Traceback" in error.what and "Too many open files" in error.what


ALONE = """
import gc, os, sys
from kpipe.errors import TransformFailed
from transforms import Limits, Program, run

def held():
    gc.collect()
    with os.scandir("/proc/self/fd") as entries:
        found = {entry.name: os.readlink(entry.path) for entry in entries}
    return {name: what for name, what in found.items() if os.path.lexists(f"/proc/self/fd/{name}")}

OPENS = "import os\\nwhile True:\\n    os.open('/dev/null', os.O_RDONLY)\\n"
GREEDY = Program((sys.executable, "-c", OPENS), limits=Limits(open_files=64))
before = held()
for _ in range(10):
    assert list(run(Program(("cat",)), [b"1\\n"])) == [b"1\\n"]
    next(iter(run(Program(("yes",)), [])))  # left in the middle
    for program in (Program(("false",)), Program(("no-such-program",)), GREEDY):
        try:
            list(run(program, [b"1\\n"]))
        except TransformFailed:
            continue
        raise SystemExit(f"{program} was to fail")
after = held()
if after != before:
    raise SystemExit(f"{before} then {after}")
"""


@pytest.mark.heavy
def test_many_runs_leak_no_descriptor_here() -> None:
    """In an interpreter of its own: here, clients that other tests left open and close theirs when they like."""
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_line_without_end_is_stopped_and_its_program_killed() -> None:
    mark = uuid.uuid4().hex
    transform = TransformRun(shell("yes | tr -d '\\n'", env={"MARK": mark}), [])
    with pytest.raises(TransformFailed, match="a line of more than 4,000,000 bytes") as caught:
        for _ in line_blocks(transform, max_line_bytes=4_000_000):
            pass
    transform.close()
    assert caught.value.phase == "work"
    assert all_gone(mark)


def test_a_program_that_stops_its_launcher_is_killed_all_the_same() -> None:
    mark = uuid.uuid4().hex
    error = failure(shell("setsid sleep 60 & kill -STOP $PPID; exec sleep 60", env={"MARK": mark}, idle_timeout_s=0.5))
    assert "no progress" in error.what
    assert all_gone(mark)
