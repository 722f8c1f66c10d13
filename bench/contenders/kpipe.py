"""Measure kpipe: warm in a process that stays, and cold as `kpipe run`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.child import Child, clean_environment, stop, usage
from bench.meter import Meter
from kpipe.definition.pipeline import Pipeline
from resources.home import Home

__all__ = ["COMMAND", "cold", "server"]

COMMAND = Path(sys.executable).parent / "kpipe"
_COLD_SECONDS = 600.0


def server(folder: Path, **environ: str) -> Child:
    """Start a warm kpipe whose Spark writes to that folder."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "bench.contenders.kpipe_server", str(folder)]
    child = Child(command, folder.with_suffix(".log"), clean_environment(PYTHONPATH=str(Path(__file__).parents[2]), **environ))
    child.ask("ready")
    return child


def cold(definition: Pipeline, folder: Path) -> dict[str, Any]:
    """Run `kpipe run` in a new home; return the seconds from its start to the report that its last batch was read back."""
    home = Home.at(folder)
    home.save(definition)
    log = folder.with_suffix(".log").open("wb")
    began = time.monotonic()
    with log:
        process = subprocess.Popen(
            [str(COMMAND), "run", definition.name, "--json"],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=clean_environment(KPIPE_HOME=str(folder)),
            start_new_session=True,
        )
        try:
            with Meter(process.pid) as meter:
                assert process.stdout is not None
                seconds = 0.0
                for line in process.stdout:
                    if json.loads(line)["event"] == "batch":
                        seconds = time.monotonic() - began
                status = process.wait(_COLD_SECONDS)
        finally:
            stop(process)
    if status:
        msg = f"kpipe run ended with {status}: {folder.with_suffix('.log').read_text()[-2000:]}"
        raise RuntimeError(msg)
    ended = time.monotonic() - began
    return {"seconds": seconds, "returned_s": ended, "database": str(home.data / "kpipe.duckdb"), **usage(meter)}


def clear(folder: Path) -> None:
    """Remove a home."""
    shutil.rmtree(folder, ignore_errors=True)
