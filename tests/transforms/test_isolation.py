"""A program looks for secrets in the processes around it: as root, and as a user without capabilities."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from resources.java import JavaHome

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc")

#: What nothing but the process that was given it may hold. The sources here hold its halves only.
CANARY = "c4n4ry" + "-of-kpipe"
TOP = "the-top-of-what-is-looked-at"
#: Looks into the processes above it up to TOP, and into their children; prints where it finds the canary.
SPY = r"""#!/usr/bin/env python3
import os, signal, time
canary, top = b"c4n4ry" + b"-of-kpipe", b"the-top-of-" + b"what-is-looked-at"

def read(pid, name):
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""

parents = {}
for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
    if stat := read(pid, "stat").rpartition(b")")[2].split():
        parents[pid] = int(stat[1])
above, pid = [], os.getppid()
while top not in read(pid, "cmdline"):
    above.append(pid)
    pid = parents[pid]
above.append(pid)
around = {pid for pid, parent in parents.items() if parent in above or pid in above} - {os.getpid()}
for pid in sorted(around):
    for name in ("environ", "cmdline"):
        if canary in read(pid, name):
            print(name, read(pid, "comm").decode().strip())
    try:
        with open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for line in read(pid, "maps").decode().splitlines():
                first, last = (int(number, 16) for number in line.split()[0].split("-"))
                if line.split()[1].startswith("rw") and last - first < 1 << 28:
                    try:
                        memory.seek(first)
                        if canary in memory.read(last - first):
                            print("mem", read(pid, "comm").decode().strip())
                            break
                    except OSError:
                        pass
    except OSError:
        pass
    if read(pid, "comm") == b"java\n":  # HotSpot's attach protocol: whoever connects has it dump its heap
        for folder in os.listdir("/tmp"):
            if folder.startswith("hsperfdata_") and os.path.exists(f"/tmp/{folder}/{pid}"):
                print("hsperfdata", pid)
        asked, answer = f"/tmp/.attach_pid{pid}", f"/tmp/.java_pid{pid}"
        open(asked, "w").close()
        os.kill(pid, signal.SIGQUIT)
        for _ in range(30):
            if os.path.exists(answer):
                print("attached", pid)
                break
            time.sleep(0.1)
        os.remove(asked)
print("looked at", "many" if len(around) > 1 else around, "given", os.environ.get("ASKED"), os.environ.get("KAFKA_PASSWORD"))
"""
#: What a program prints that has found nothing.
NOTHING = "looked at many given this None"

#: A worker in a process of its own, with the canary in its environment, and so in its memory.
WORKER = """
import os, sys
from transforms import Program, run

program = Program((sys.argv[2],), env={"ASKED": os.environ["ASKED"]}, idle_timeout_s=600)
sys.stdout.buffer.write(b"".join(run(program, [])))
"""

#: A driver: the canary is in its environment, and travels to its tasks as credentials do.
DRIVER = """
import os, sys
from pathlib import Path
from resources.spark.jvm.session import start
from transforms import Program, run

spy, folder = sys.argv[2:]
secret = os.environ["KAFKA_PASSWORD"]
program = Program((spy,), env={"ASKED": os.environ["ASKED"]}, idle_timeout_s=600)

def task(items):
    assert secret, list(items)
    assert "KAFKA_PASSWORD" not in os.environ
    yield b"".join(run(program, []))

context = start(Path(folder) / "home", "local[1]")
sys.stdout.buffer.write(context.parallelize([1], 1).mapPartitions(task).collect()[0])
"""


#: Becomes its arguments, without any capability: what root may do no more, no other user may.
BARE = """
import ctypes, os, sys

for capability in range(64):
    ctypes.CDLL(None).prctl(24, ctypes.c_ulong(capability), 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture(params=["as it is", "without capabilities"])
def user(request: pytest.FixtureRequest) -> list[str]:
    """What stands before a command: root that has capabilities, in most test environments, and a user without any."""
    return [] if request.param == "as it is" else [sys.executable, "-c", BARE]


def said(code: str, folder: Path, user: list[str], **more: str) -> str:
    spy = folder / "spy"
    spy.write_text(SPY)
    spy.chmod(0o755)
    done = subprocess.run(
        [*user, sys.executable, "-c", code, TOP, str(spy), str(folder)],
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "KAFKA_PASSWORD": CANARY, "ASKED": "this", **more},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_program_finds_no_secret_of_its_worker(tmp_path: Path, user: list[str]) -> None:
    assert said(WORKER, tmp_path, user) == NOTHING


@pytest.mark.spark
def test_a_program_finds_no_secret_of_spark_and_the_driver(tmp_path: Path, user: list[str], java: JavaHome) -> None:
    assert said(DRIVER, tmp_path, user, JAVA_HOME=str(java.path)) == NOTHING
