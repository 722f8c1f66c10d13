"""CI lists the files of tests by time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BUSY = """
import subprocess, sys, time

def test_child():
    subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 1: pass"], check=True)

def test_waits():
    time.sleep(0.5)
"""


@pytest.mark.parametrize("processes", ["0", "2"])
def test_files_are_listed_with_cpu_of_children_longest_first(tmp_path: Path, processes: str) -> None:
    (tmp_path / "test_short.py").write_text("def test_x(): pass\n")
    (tmp_path / "test_busy.py").write_text(BUSY)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    printed = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.file_times", "-n", processes, str(tmp_path)],
        cwd=Path(__file__).parents[1],
        env=os.environ | {"CI": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    ).stdout
    _, *files = [line.split() for line in printed.partition("CPU s  tests\n")[2].splitlines()[:3]]
    assert [(tests, Path(file).name) for _, _, tests, file in files] == [("2", "test_busy.py"), ("1", "test_short.py")], printed
    wall, cpu = float(files[0][0]), float(files[0][1])
    assert wall >= 0.5 and cpu >= 1, printed
