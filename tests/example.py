"""The example of a destination that another package brings along (example_destination/), installed as anybody would."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parent / "example_destination"


def install(folder: Path) -> Path:
    """The folder that the package was installed into; its tests lie beside it."""
    tree, target = folder / "tree", folder / "installed"
    shutil.copytree(SOURCE, tree, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation",
         "--target", str(target), str(tree)],
        check=True, timeout=600,
    )  # fmt: skip
    shutil.copytree(tree / "tests", target / "tests")
    return target
