"""A worker loads only what reading needs."""

from __future__ import annotations

import subprocess
import sys


def test_the_reader_loads_no_engine_and_no_models() -> None:
    script = "import sys, resources.kafka.range_reader; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"dagster", "pyspark", "pydantic", "yaml", "duckdb"} & set(done.stdout.split())
