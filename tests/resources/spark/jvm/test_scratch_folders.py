"""What killed runs leave in a home, and who removes it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from resources.spark.jvm.scratch_folders import scratch, sockets, sweep

HOLD = """
import sys, time
from pathlib import Path
from resources.spark.jvm.scratch_folders import scratch, sockets
folder = scratch(Path(sys.argv[1]))
(folder / "blockmgr").mkdir()
print(folder.name, sockets(Path(sys.argv[1])), flush=True)
time.sleep(3600)
"""


def age(home: Path) -> None:
    past = time.time() - 3600
    for lock in (home / "spark").glob("*/.lock"):
        os.utime(lock, (past, past))


def test_folders_of_killed_processes_are_removed_and_no_others(tmp_path: Path) -> None:
    mine = scratch(tmp_path)
    assert scratch(tmp_path) == mine and mine.stat().st_mode & 0o777 == 0o700
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            name, where = other.stdout.readline().split()
            theirs, ports = mine.parent / name, Path(where)
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(str(ports / ".one.sock"))
            foreign = mine.parent / "something-else"
            foreign.mkdir()
            (mine.parent / "link").symlink_to(tmp_path)
            age(tmp_path)
            assert sweep(tmp_path) == []
        finally:
            other.kill()
        other.wait()
        assert sweep(tmp_path) == [theirs.name]
    assert mine.is_dir() and foreign.is_dir() and not theirs.exists() and not ports.exists()


def test_a_process_ends_without_a_warning_about_its_lock(tmp_path: Path) -> None:
    code = HOLD.replace("time.sleep(3600)", "")
    done = subprocess.run([sys.executable, "-X", "dev", "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_young_ones_are_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "spark" / "just-made"
    folder.mkdir(parents=True)
    (folder / ".lock").touch()
    assert sweep(tmp_path) == []
    age(tmp_path)
    assert sweep(tmp_path) == ["just-made"]
    assert sweep(tmp_path / "nowhere") == []


def test_sockets_lie_in_a_private_folder_with_a_short_path(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 60)
    found = sockets(deep)
    assert sockets(deep) == found and found.stat().st_mode & 0o777 == 0o700
    assert len(os.fsencode(found)) <= 60
    assert (scratch(deep) / "sockets").readlink() == found
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        home = Path(short)
        assert sockets(home) == (scratch(home) if len(str(scratch(home))) <= 60 else sockets(home))


def test_a_link_in_the_home_cannot_have_other_folders_removed(tmp_path: Path) -> None:
    precious = Path(tempfile.mkdtemp(prefix="kpipe-"))
    (precious / "data").write_text("mine")
    for name, target in (("left-1", precious), ("left-2", tmp_path)):
        folder = tmp_path / "spark" / name
        folder.mkdir(parents=True)
        (folder / ".lock").touch()
        (folder / "sockets").symlink_to(target)
    age(tmp_path)
    assert sweep(tmp_path) == ["left-1", "left-2"]
    assert (precious / "data").read_text() == "mine" and tmp_path.is_dir()
    (precious / "data").unlink()
    precious.rmdir()
