"""Describe the machine and the versions of a measurement, without names of the machine or its owner."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import confluent_kafka

from bench.peers import BENTO, CONNECT, DEBEZIUM, DELTA, FLINK, ICEBERG, SPARK
from resources.dev_broker.kafka_jars import VERSION as KAFKA
from resources.java import find_java

__all__ = ["facts"]

ROOT = Path(__file__).parent.parent


def facts() -> dict[str, Any]:
    """Return facts by name."""
    return {
        "processor": _first(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo")) or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "java": find_java().version,
        "kafka": KAFKA,
        "librdkafka": confluent_kafka.libversion()[0],
        **{name: version(name) for name in ("confluent-kafka", "pyspark", "pyarrow", "duckdb")},
        "kpipe": _commit(),
        "peers": {
            "spark": SPARK,
            "delta": DELTA,
            "connect": CONNECT,
            "iceberg": ICEBERG,
            "debezium": DEBEZIUM,
            "bento": BENTO,
            "flink": FLINK,
        },
    }


def _first(pattern: str, file: Path) -> str:
    found = re.search(pattern, file.read_text(errors="replace")) if file.exists() else None
    return found[1].strip() if found else ""


def _commit() -> str:
    """Return the commit of this checkout, with a plus if files differ."""
    try:
        git = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=12", "--dirty=+"]
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return version("kpipe")
