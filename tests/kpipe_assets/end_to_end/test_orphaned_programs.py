"""A program dies with its parent: kill -9 of the Spark worker, and of the driver. So does all that it has started (fault C9)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.spark

# While there is a file `hold`: starts a process in its group and one in a session of its own, all deaf to TERM, notes the
# three, and stays.
PROGRAM = """#!/bin/sh
[ -e {folder}/hold ] || exec cat
trap '' TERM
sleep 600 &
child=$!
setsid sh -c "trap '' TERM; while :; do sleep 600; done" &
echo "$$ $child $!" > {folder}/note.part
mv {folder}/note.part {folder}/note
read -r line
sleep 600
"""


def wait_for(what: Any, seconds: float = 300) -> Any:
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return found


def noted(folder: Path) -> list[psutil.Process]:
    """The three of the run that is at it now; the note is taken away."""
    wait_for((folder / "note").exists)
    pids = [int(word) for word in (folder / "note").read_text().split()]
    (folder / "note").unlink()
    assert len(pids) == 3
    return [psutil.Process(pid) for pid in pids]


def all_die(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=300)
    return not alive


def test_nothing_outlives_a_killed_worker_or_driver(kpipe: Any, topic: Any, write: Any, tmp_path: Path) -> None:
    name = topic(1)
    write(name, [json.dumps({"id": n}) for n in range(10)])
    program = tmp_path / "holds.sh"
    program.write_text(PROGRAM.format(folder=tmp_path))
    program.chmod(0o755)
    kpipe.define("held", name, transform={"program": str(program)}, batch={"interval_ms": 100})
    kpipe("run", "held")  # makes the table, so that the next run needs no sample
    write(name, [json.dumps({"id": n}) for n in range(10, 20)])
    (tmp_path / "hold").touch()

    run = kpipe.start("run", "held")
    first = noted(tmp_path)
    launcher = first[0].parent()
    assert launcher is not None and "launch.py" in " ".join(launcher.cmdline())
    worker = launcher.parent()
    assert worker is not None and "pyspark" in " ".join(worker.cmdline())
    assert {process.pid for process in first} <= {process.pid for process in launcher.children(recursive=True)}
    worker.kill()
    assert all_die([*first, launcher])

    second = noted(tmp_path)  # a lost worker is tried again
    launcher = second[0].parent()
    assert launcher is not None
    run.kill()
    run.communicate(timeout=600)
    assert all_die([*second, launcher])
    wait_for(lambda: kpipe.processes() == [])
    assert not [entry for entry in (kpipe.home / "programs").iterdir() if entry.name.startswith("kpipe-transform-")]

    (tmp_path / "hold").unlink()
    assert kpipe.json("run", "held")[-1]["rows"] == 10
    assert kpipe.sql("SELECT count(*), count(DISTINCT id), sum(id) FROM held") == [(20, 20, 190)]
    assert kpipe.json("verify", "held")[0]["ok"]
