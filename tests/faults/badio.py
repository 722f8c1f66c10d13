"""A disk that fails, or that writes down what was asked of it, for one process (badio.c)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["failing", "library", "watched"]


def library(folder: Path) -> Path:
    """The shim, compiled into that folder; skips the test where it cannot be."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("a compiler and Linux are needed to stand between a process and its files")
    made = folder / "badio.so"
    source = Path(__file__).with_name("badio.c")
    if not made.exists():
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(made), str(source), "-ldl", "-lpthread"], check=True)
    return made


def failing(shim: Path, call: str, error: int, part: str, nth: int = 1, times: int = 1) -> dict[str, str]:
    """Variables for a process: the n-th such calls on files whose path holds `part` fail.

    Args:
        shim: see `library`.
        call: `write`, `fsync` or `truncate`.
        error: of errno; 0: only half is written; -1: the process is killed before the call.
        part: of the path.
        nth: the first one that fails.
        times: how many fail.
    """
    return {"LD_PRELOAD": str(shim), "BADIO": f"{call}:{error}:{nth}:{times}:{part}"}


def watched(shim: Path, log: Path, part: str = "") -> dict[str, str]:
    """Variables for a process: its writes and syncs of files whose path holds `part` are written down in order."""
    return {"LD_PRELOAD": str(shim), "BADIO_LOG": str(log), "BADIO_PART": part}
