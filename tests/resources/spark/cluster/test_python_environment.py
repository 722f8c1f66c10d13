"""The archive of kpipe's code, which workers without an installation of kpipe import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from resources.spark.cluster.python_environment import code
from resources.spark.jvm.spark_settings import settings
from tests.archives import unpack

# Nothing but the archive may answer: an editable installation is a finder that `sys.meta_path` holds.
IMPORT = """
import importlib, sys
sys.meta_path = [one for one in sys.meta_path if "editable" not in repr(one)]
sys.path = [one for one in sys.path if "-packages" in one or "python3" in one]
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    print(importlib.import_module(name).__file__)
"""


def test_workers_can_import_what_a_task_needs_from_the_archive(tmp_path: Path) -> None:
    unpacked = tmp_path / "unpacked"
    unpack(code(tmp_path), unpacked)
    daemon = settings(tmp_path, "local[1]")["spark.python.daemon.module"]
    names = ["kpipe", "transforms.process", "resources.spark.task.range_task", daemon]
    done = subprocess.run([sys.executable, "-I", "-c", IMPORT, unpacked, *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [Path(line).is_relative_to(unpacked) for line in done.stdout.splitlines()] == [True] * len(names), done.stdout
