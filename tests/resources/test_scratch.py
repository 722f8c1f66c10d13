"""What killed runs leave in a home, and who removes it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from resources.spark.scratch import scratch, sweep

HOLD = """
import sys, time
from pathlib import Path
from resources.spark.scratch import scratch
folder = scratch(Path(sys.argv[1]))
(folder / "blockmgr").mkdir()
print(folder.name, flush=True)
time.sleep(60)
"""


def age(home: Path) -> None:
    past = time.time() - 3600
    for lock in (home / "spark").glob("*/.lock"):
        os.utime(lock, (past, past))


def test_folders_of_killed_processes_are_removed_and_no_others(tmp_path: Path) -> None:
    mine = scratch(tmp_path)
    assert scratch(tmp_path) == mine and mine.stat().st_mode & 0o777 == 0o700
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        theirs = mine.parent / other.stdout.readline().strip()
        foreign = mine.parent / "something-else"
        foreign.mkdir()
        (mine.parent / "link").symlink_to(tmp_path)
        age(tmp_path)
        assert sweep(tmp_path) == []
        other.kill()
        other.wait()
        assert sweep(tmp_path) == [theirs.name]
    assert mine.is_dir() and foreign.is_dir() and not theirs.exists()


def test_young_ones_are_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "spark" / "just-made"
    folder.mkdir(parents=True)
    (folder / ".lock").touch()
    assert sweep(tmp_path) == []
    age(tmp_path)
    assert sweep(tmp_path) == ["just-made"]
    assert sweep(tmp_path / "nowhere") == []
