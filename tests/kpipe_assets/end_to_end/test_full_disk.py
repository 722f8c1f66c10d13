"""A disk that is full where files are staged: an error that says so, nothing written, and exact once there is room."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark


@pytest.fixture
def small_staging(kpipe: Any) -> Iterator[Path]:
    """The home's staging folder, on a disk of 1 MB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    folder = kpipe.home / "staging"
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_staging_is_full(kpipe: Any, topic: Any, write: Any, small_staging: Path) -> None:
    name = topic(2)
    write(name, [json.dumps({"id": n, "noise": os.urandom(4000).hex()}) for n in range(20)])
    kpipe.define("crowded", name, batch={"max_retries": 0})
    assert kpipe.json("run", "crowded")[-1]["rows"] == 20
    for partition in range(2):
        rows = range(1000 * (partition + 1), 1000 * (partition + 1) + 400)
        write(name, [json.dumps({"id": n, "noise": os.urandom(4000).hex()}) for n in rows], partition)
    for _ in range(2):
        error = kpipe("run", "crowded", status=1).stderr
        assert "No space left on device" in error and str(small_staging) in error and "nothing was committed" in error
        assert "Traceback" not in error
        assert kpipe.sql("SELECT count(*) FROM crowded") == [(20,)]
    assert kpipe.json("status", "crowded")[0]["state"] == "error"
    # Torn files are left to the collection, which takes them a day later; an operator may do so at once.
    assert list(small_staging.rglob("*.parquet"))
    subprocess.run(["mount", "-o", "remount,size=40m", str(small_staging)], check=True)
    assert kpipe.json("run", "crowded")[-1]["rows"] == 800
    assert kpipe.sql("SELECT count(*), count(DISTINCT id) FROM crowded") == [(820, 820)]
    assert kpipe.json("verify", "crowded")[0]["ok"]
