"""A test that hangs is named and ended."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HANGING = "import time\nimport pytest\n\n@pytest.mark.parametrize('n', [1])\ndef test_x(n):\n    time.sleep(n * 3600)\n"


@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_test_that_hangs_is_named_before_its_process_ends(tmp_path: Path, processes: str) -> None:
    (tmp_path / "test_one.py").write_text(HANGING)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfaulthandler_timeout = 8\nfaulthandler_exit_on_timeout = true\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.hangs", "-n", processes, "--max-worker-restart=0", str(tmp_path)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 1
    assert "test_one.py::test_x[1] has run for 4 s; its process is ended at 8 s\n" in done.stderr
    assert "Timeout (0:00:08)!" in done.stderr and "in test_x" in done.stderr


def test_a_process_that_ends_ends_the_run(tmp_path: Path) -> None:
    """With the options of `make test`. xdist's own restart leaves the others waiting for ever."""
    root = Path(__file__).parents[1]
    (options,) = set(re.findall(r"--dist .*", (root / "Makefile").read_text()))
    for at in range(6):
        crash = "import os; os._exit(1)" if at == 2 else "pass"
        (tmp_path / f"test_{at}.py").write_text(f"def test_x() -> None:\n    {crash}\n\ndef test_y() -> None:\n    pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-n", "2", *options.split(), str(tmp_path)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=600)
    assert done.returncode == 1
    assert "test_2.py::test_x" in done.stdout and "crashed while running" in done.stdout
