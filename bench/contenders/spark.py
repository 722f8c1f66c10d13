"""Measure Spark: in a session that stays, and cold from the start of its process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bench.child import Child, usage
from bench.meter import Meter
from bench.peers import Peers

__all__ = ["TUNED", "cold", "files", "server"]

TUNED = {
    "kafka.max.poll.records": "10000",
    "kafka.fetch.max.bytes": str(128 << 20),
    "kafka.max.partition.fetch.bytes": str(16 << 20),
    "kafka.receive.buffer.bytes": str(1 << 20),
    "kafka.check.crcs": "false",
}
"""Fetches as large as the other contenders': a fifth less CPU time than with the connector's defaults."""

_SERVER = Path(__file__).parent / "spark_server.py"


def server(peers: Peers, folder: Path, delta: bool = True, ready: bool = True) -> Child:
    """Start a warm session."""
    folder.mkdir(parents=True, exist_ok=True)
    jars = ",".join(str(jar) for jar in peers.jars("kafka", *(("delta",) if delta else ())))
    command = [str(peers.python), str(_SERVER), jars, str(folder)]
    child = Child(command, folder.with_suffix(".log"), peers.environment())
    if ready:
        child.ask("ready")
    return child


def cold(peers: Peers, folder: Path, brokers: str, topic: str) -> dict[str, Any]:
    """Run Structured Streaming to Parquet; return the seconds from the start of the process until the last batch is visible."""
    with server(peers, folder, delta=False, ready=False) as child, Meter(child.process.pid) as meter:
        answer = child.ask("drain", kind="parquet", brokers=brokers, topic=topic, out=str(folder / "out"))
        returned = time.time() - child.began
    seconds = answer["visible"] - child.began
    return {"seconds": seconds, "returned_s": returned, **usage(meter)}


def files(out: Path) -> list[Path]:
    """Return data files of a finished drain. Each drain writes to its own folder, and none is deleted."""
    return sorted((out / "table").glob("*.parquet"))
