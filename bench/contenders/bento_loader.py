"""Measure Bento, a fork of Benthos: from Kafka into Parquet files, with the settings that were the fastest of those tried.

At least once: offsets are committed after a file is written, and files do not appear atomically. After a crash some records may
be there twice.
"""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.child import clean_environment, stop, usage
from bench.meter import Meter
from bench.peers import Peers
from bench.topics import Topic

__all__ = ["drain"]

_DRAIN_SECONDS = 300.0
_POLL_SECONDS = 0.05
_BATCH = 10_000


def drain(peers: Peers, out: Path, brokers: str, topic: Topic) -> dict[str, Any]:
    """Return the seconds from the start of the process until the last row is in a finished file."""
    files = out / "files"
    files.mkdir(parents=True)
    settings = out / "bento.json"
    settings.write_text(json.dumps(_settings(files, brokers, topic)), encoding="utf-8")
    counted: dict[Path, int] = {}
    began = time.monotonic()
    with (out / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(peers.bento), "-c", str(settings)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean_environment(), start_new_session=True,
        )  # fmt: skip
    try:
        with Meter(process.pid) as meter:
            while sum(counted.values()) < topic.records and time.monotonic() - began < _DRAIN_SECONDS and process.poll() is None:
                time.sleep(_POLL_SECONDS)
                counted |= {file: _rows(file) for file in files.glob("*.parquet") if not counted.get(file)}
            seconds = time.monotonic() - began
    finally:
        stop(process)  # it writes what it still has: rows beyond those of the topic would be found
    if sum(counted.values()) < topic.records:
        tail = (out / "log").read_text(errors="replace")[-1500:]
        raise RuntimeError(f"bento: {sum(counted.values()):,} of {topic.records:,} rows arrived\n{tail}")
    return {"seconds": seconds, "files": sorted(files.glob("*.parquet")), **usage(meter)}


def _rows(file: Path) -> int:
    """Return the rows of a finished file; 0 while its footer is missing."""
    try:
        return int(pq.read_metadata(file).num_rows)
    except (pa.ArrowInvalid, OSError):
        return 0


def _settings(files: Path, brokers: str, topic: Topic) -> dict[str, Any]:
    kafka = {
        "seed_brokers": [brokers],
        "topics": [topic.name],
        "consumer_group": f"bento-{uuid.uuid4().hex[:8]}",
        "start_from_oldest": True,
        "checkpoint_limit": 8 * _BATCH,
        "fetch_max_bytes": "64MiB",
        "fetch_max_partition_bytes": "16MiB",
        "batching": {"count": _BATCH, "period": "100ms"},
    }
    # Timestamps as in other contenders' tables: microseconds, not text.
    times = "root = this\nroot.created_at = this.created_at.ts_unix_micro()"
    return {
        "http": {"enabled": False},
        "input": {"kafka_franz": kafka},
        "pipeline": {
            "threads": 2,
            "processors": [
                {"mapping": times},
                {"parquet_encode": {"schema": _SCHEMA, "default_compression": "snappy"}},
            ],
        },
        "output": {"file": {"path": f"{files}/${{! uuid_v4() }}.parquet", "codec": "all-bytes"}},
        "logger": {"level": "WARN"},
    }


def _fields(**types: str) -> list[dict[str, Any]]:
    return [{"name": name, "type": kind, "optional": True} for name, kind in types.items()]


_SCHEMA: list[dict[str, Any]] = [
    *_fields(id="INT64", created_at="INT64", text="UTF8", lang="UTF8"),
    {"name": "user", "optional": True, "fields": _fields(id="INT64", screen_name="UTF8", followers="INT64")},
    *_fields(retweets="INT64", score="DOUBLE"),
]
