"""Programs with the compiled loops under the address and undefined sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from functools import cached_property
from pathlib import Path

import pytest

HERE, SOURCES = Path(__file__).parent, Path(__file__).parents[3] / "resources" / "native"
_FLAGS = ["-O1", "-g", "-std=c11", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


class Sanitized:
    """Compile programs of this folder; the loops are compiled once for all of them.

    Args:
        folder: for object files and programs.
    """

    def __init__(self, folder: Path) -> None:
        if not shutil.which("cc"):
            pytest.skip("no C compiler here, so there is no compiled part")
        self.folder = folder

    def built(self, name: str) -> Path:
        """Return a program, compiled when it is first needed."""
        program = self.folder / name
        if not program.exists():
            self._cc(HERE / f"{name}.c", *self._loops, "-I", SOURCES, "-o", program)
        return program

    @cached_property
    def _loops(self) -> list[Path]:
        self._cc("-c", *sorted(SOURCES.glob("*.c")))
        return sorted(self.folder.glob("*.o"))

    def _cc(self, *words: str | Path) -> None:
        done = subprocess.run(["cc", *_FLAGS, *words], cwd=self.folder, capture_output=True, text=True)
        if done.returncode and "asan" in done.stderr:
            pytest.skip("the compiler has no sanitizers")
        assert done.returncode == 0, done.stderr
