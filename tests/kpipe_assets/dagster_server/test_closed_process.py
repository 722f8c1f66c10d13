"""Processes of `kpipe ui` deny tracing before they import anything that takes long."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dagster._grpc import server

from kpipe_assets.dagster_server import code_server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="prctl")

PROBE = """
import ctypes, sys
dumpable = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
print(dumpable, "dagster" in sys.modules, sys.argv[1:], __name__)
"""
#: Unpickled in the process that is spawned, before anything else of this module's.
SPAWNING = """
import ctypes, multiprocessing, sys

def probe():
    print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), flush=True)

if __name__ == "__main__":
    from kpipe_assets.dagster_server.helper_processes import close_runs
    close_runs()
    process = multiprocessing.get_context("spawn").Process(target=probe)
    process.start()
    process.join()
"""


def said(folder: Path, *command: str) -> str:
    environ = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, *command], env=environ, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_module_starts_closed(tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text(PROBE)
    assert (
        said(tmp_path, "-m", "kpipe_assets.dagster_server.closed_process", "probe", "one", "--two")
        == "0 False ['one', '--two'] __main__"
    )


def test_processes_that_multiprocessing_spawns_start_closed(tmp_path: Path) -> None:
    (tmp_path / "spawning.py").write_text(SPAWNING)
    assert said(tmp_path, "-m", "spawning") == "0"


def test_the_code_server_starts_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = server.get_python_environment_entry_point("python")  # type: ignore[attr-defined]
    assert before == ["python", "-m", "dagster"], "what is replaced"
    monkeypatch.setattr(server, "get_python_environment_entry_point", None)
    code_server.close_code_servers()
    assert server.get_python_environment_entry_point("python")[1:3] == ["-m", "kpipe_assets.dagster_server.closed_process"]  # type: ignore[attr-defined]
