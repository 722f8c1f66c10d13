"""`STOP_ON_ERROR OFF` from the outside: real Kafka, real Spark, real DuckDB; what fails is skipped on record, and read later."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.broker, pytest.mark.spark]

PROGRAM = "#!/usr/bin/env python3\nimport sys\nfor line in sys.stdin:\n    %s\n    print(line, end='', flush=True)\n"


def test_what_fails_is_skipped_and_read_once_when_it_is_mended(kpipe: Any, topic: Any, write: Any, tmp_path: Path) -> None:
    name = topic(2)
    write(name, [json.dumps({"id": n}) for n in range(60)], 0)
    write(name, ["{broken" if n == 17 else json.dumps({"id": 100 + n}) for n in range(30)], 1)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM % "assert line.strip() not in ('{\"id\": 5}', '{\"id\": 41}')")
    program.chmod(0o755)
    kpipe(
        "sql",
        f"CREATE PIPELINE lenient AS LOAD DATA KAFKA '{kpipe.brokers}/{name}' STOP_ON_ERROR OFF"
        f" WITH TRANSFORM ('{program}') MODE map INTO TABLE lenient FORMAT JSON;"
        " ALTER PIPELINE lenient SET MAX_RETRIES_PER_BATCH_PARTITION 0",
    )
    document = kpipe.home / "pipelines" / "lenient.yaml"
    document.write_text(document.read_text().replace("errors:", "errors:\n    parse: fail"))
    # Killed where the first of them is recorded: begin, then that.
    killed = kpipe.outside("run", "lenient", status=None, KPIPE_FAULT="commit.before:3:kill")
    assert killed.returncode == -signal.SIGKILL
    done = kpipe("run", "lenient", "--json")
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["status"] == "caught_up" and summary["positions"] == {"0": 60, "1": 30}
    assert kpipe.sql("SELECT count(*), count(DISTINCT id) FROM lenient") == [(87, 87)]
    proof = kpipe.json("verify", "lenient")[0]
    assert proof["ok"] and proof["span"] == 87
    assert proof["skipped"] == [f"{name}/0 [5, 6)", f"{name}/0 [41, 42)", f"{name}/1 [17, 18)"]
    assert "skipped, not counted" in kpipe("verify", "lenient").stderr
    assert kpipe.sql("SELECT skipped_batches FROM kpipe_pipelines") == [(3,)]
    events = kpipe.json("errors", "lenient")
    assert sorted((e["error_code"], e["batch_earliest_offset"], e["batch_latest_offset"]) for e in events) == [
        ("RecordRejected", 17, 18),
        ("TransformFailed", 5, 6),
        ("TransformFailed", 41, 42),
    ]
    assert kpipe.json("status", "lenient")[0]["state"] == "stopped"
    # Mended, and read beside what is new.
    program.write_text(PROGRAM % "line = line.replace('{broken', '{\"id\": 117}')")
    write(name, ['{"id": 999}'], 0)
    assert "backfill" in kpipe("sql", "BACKFILL PIPELINE lenient").stdout
    kpipe("run", "lenient")
    assert kpipe.sql("SELECT count(*), count(DISTINCT id), max(id) FROM lenient") == [(91, 91, 999)]
    proof = kpipe.json("verify", "lenient")[0]
    assert proof["ok"] and not proof["skipped"] and proof["span"] == 91
