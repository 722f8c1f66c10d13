"""`kpipe serve` with KPIPE_LOG=json: each line is an object, and `kpipe logs --follow` prints those of its runs."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from resources.java import JavaHome
from tests.commandline import Kpipe
from tests.kpipe_assets.commands.sql_client import sql
from tests.kpipe_assets.service.serving import serving, until

pytestmark = pytest.mark.spark


@pytest.fixture
def kpipe(tmp_path: Path, brokers: str, java: JavaHome) -> Iterator[Kpipe]:
    """A fresh home, with the session's Kafka; the service has its own Spark."""
    command = Kpipe(tmp_path / "home", brokers)
    yield command
    command.kill()


def test_lines_are_objects_are_followed_and_quote_no_program(
    kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., int]
) -> None:
    """Those of the service, of its runs, and of libraries: Py4J logs tracebacks where the JVM is killed."""
    name, other, program = topic(1), topic(1), kpipe.home / "boom.sh"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("#!/bin/sh\necho quoted-record >&2\nexit 3\n")
    program.chmod(0o755)
    kpipe.define("logged", name, batch={"interval_ms": 100})
    kpipe.define("boom", other, batch={"interval_ms": 100}, transform={"program": str(program)})
    write(name, [json.dumps({"id": number}) for number in range(20)])
    write(other, ["{}"])
    sql(kpipe, "START PIPELINE logged; START PIPELINE boom")
    follower = kpipe.start("logs", "logged", "--follow", "--json")
    assert follower.stdout is not None
    with serving(kpipe, KPIPE_LOG="json") as service:
        followed = [json.loads(follower.stdout.readline()) for _ in range(5)]
        assert [line["event"] for line in followed] == ["started", "decided", "planned", "staged", "committed"]
        assert followed[0]["run"].startswith("serve") and followed[-1]["rows"] == 20
        until(lambda: any('"committed"' in line for line in service.lines))
        sql(kpipe, "STOP PIPELINE logged")
        assert json.loads(follower.stdout.readline())["event"] == "ended"
        service.wait_for("failed: TransformFailed")
        jvms = [child for child in service.worker().children() if "java" in child.name()]
        for jvm in jvms:
            jvm.kill()
        assert service.end() in (0, 130)  # the process may be ending because of that
        shown = [json.loads(line) for line in service.lines]
    assert all({"time", "level", "pipeline", "run", "event", "message"} <= line.keys() for line in shown if "rows" not in line)
    assert {line["batch"] for line in shown if line.get("event") == "committed"} == {followed[-1]["batch"]}
    reports = {line["message"] for line in shown if line["pipeline"] == "logged" and "message" in line}
    assert {"started", "ended"} <= reports and any(text.startswith("commit ") for text in reports)
    assert not any("quoted-record" in line for line in service.lines)
    assert {line["level"] for line in shown if str(line.get("message")).startswith("failed")} == {"error"}
    follower.send_signal(signal.SIGINT)
    assert follower.communicate(timeout=300) == ("", "") and follower.returncode == 0
