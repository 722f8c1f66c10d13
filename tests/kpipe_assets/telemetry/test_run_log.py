"""The log of runs: one id per batch from the plan to Dagster's event, bounded, private, without records."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kpipe.errors import (
    BrokerUnreachable,
    DeadLettersExceeded,
    DestinationBusy,
    DestinationError,
    KpipeError,
    ReadStalled,
    RecordRejected,
    TransformFailed,
)
from kpipe.ingest.loop import Ingest
from kpipe.run_events import Event
from kpipe.topics import PartitionId, TopicId
from kpipe_assets.cli import fail, main
from kpipe_assets.runs.runner import Run
from kpipe_assets.telemetry import run_log
from kpipe_assets.telemetry.log_reader import follow, logged, read, since
from kpipe_assets.telemetry.run_log import RunLog, log_file, message_of
from kpipe_assets.terminal import check_logs, unexpected
from resources.home import Home
from resources.spark.task.task_spec import Failure
from tests.cases import each_case
from tests.kpipe_assets.fakes import World

SECRET_RECORD = "4111-1111-1111-1111"


def lines(home: Home, name: str = "tweets") -> list[dict[str, Any]]:
    return list(read(home, [name]))


def run(world: World, **options: Any) -> Run:
    loop = Ingest(world.pipeline, world.topics, world.stager, world.destination, run_id="run-1", **options)
    return Run(world.home, loop)


def test_a_batch_has_one_id_from_its_plan_to_dagsters_event(world: World) -> None:
    assert world.run().success
    found = lines(world.home)
    committed = [line for line in found if line["event"] == "committed"]
    assert len(committed) == 1
    batch = committed[0]["batch"]
    assert len(batch) == 32 and [row["batch_id"] for row in world.destination.view("batches_summary")] == [batch]
    assert [line["event"] for line in found if line["batch"] == batch] == ["planned", "staged", "committed", "published"]
    events = [event for event in world.events() if "kpipe/last_batch" in event.metadata]
    assert events and {event.metadata["kpipe/last_batch"].value for event in events} == {batch}
    assert {record.data["batch"] for event in events for record in event.metadata["kpipe/ranges"].value.records} == {batch}
    assert (committed[0]["rows"], committed[0]["records"]) == (12, 12)
    assert next(line["event"] for line in found if not line["batch"]) == "started"
    assert {line["pipeline"] for line in found} == {"tweets"}


def test_a_run_that_a_consumer_closes_ended_in_order(world: World) -> None:
    passes = run(world).passes(follow=True)
    next(passes)
    passes.close()
    assert lines(world.home)[-1]["event"] == "ended"


def test_a_retry_names_the_batch_that_failed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, failures = world.stager.stage, iter([ReadStalled("no answer")])

    def fails_once(*arguments: Any, **named: Any) -> Any:
        if (error := next(failures, None)) is not None:
            raise error
        return stage(*arguments, **named)

    monkeypatch.setattr(world.stager, "stage", fails_once)
    list(run(world, wait=lambda _: None).passes())
    found = lines(world.home)
    planned = [line["batch"] for line in found if line["event"] == "planned"]
    (retry,) = [line for line in found if line["event"] == "retry"]
    assert retry["batch"] == planned[0] != planned[1]
    assert retry["level"] == "warning" and "no answer" in retry["message"] and "(1/4)" in retry["message"]


@each_case(
    "error",
    [
        RecordRejected(f"tweets/0 offset 3: amount: not a number: {SECRET_RECORD}", "fix the producer"),
        Failure("KpipeError", f"ValueError: {SECRET_RECORD}").error(),  # a defect in a task
        DeadLettersExceeded(f"5 dead letters, the first: not a number: {SECRET_RECORD}"),
        DestinationError(f"duplicate key (id)=({SECRET_RECORD})"),
        ValueError(SECRET_RECORD),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_may_quote_a_record_is_logged_by_its_class(error: Exception, world: World) -> None:
    log = RunLog(world.home, "tweets", "run-1")
    if isinstance(error, KpipeError):
        log.event(Event("retry", text=f"{error}; again in 5 s (1/4)", error=error))
        log.event(Event("narrowed", text=f"{error.what}; searching for the records to skip", error=error))
        log.event(Event("decided", text=f"skip: tweets/0 [3, 4); {error.what}"))
    log.end(error)
    text = log_file(world.home, "tweets").read_text()
    assert SECRET_RECORD not in text
    assert f"{type(error).__name__}: the text may quote a record" in text
    if isinstance(error, KpipeError):
        assert "again in 5 s (1/4)" in text and "skip: tweets/0 [3, 4)" in text


def test_other_errors_are_logged_with_their_text() -> None:
    assert message_of(BrokerUnreachable("kafka:9092: no broker answered", "start it")) == (
        "BrokerUnreachable: kafka:9092: no broker answered -> start it"
    )
    assert message_of(DestinationBusy("x.duckdb is locked by psql; waited 5 s", "close it")) == (
        "DestinationBusy: x.duckdb is locked by psql; waited 5 s -> close it"
    )


def test_an_error_of_kpipe_itself_and_every_hint_are_logged() -> None:
    assert message_of(KpipeError("no kpipe serve runs on /home", "start it")) == (
        "KpipeError: no kpipe serve runs on /home -> start it"
    )
    assert message_of(RecordRejected(SECRET_RECORD, "fix the producer")) == (
        "RecordRejected: the text may quote a record and is not logged -> fix the producer"
    )


def test_the_answer_of_a_destination_is_not_logged() -> None:
    error = DestinationBusy(f"https://r/hook: not accepted in 3 attempts: no: {SECRET_RECORD}", "check its log")
    assert message_of(error) == "DestinationBusy: https://r/hook -> check its log"


def test_a_log_is_private_and_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "MOST_BYTES", 2000)
    log = RunLog(world.home, "tweets", "run-1")
    for number in range(100):
        log.event(Event("restaged", text=f"line {number}"))
    files = sorted(world.home.logs.glob("tweets*"))
    assert [file.name for file in files] == ["tweets.jsonl", "tweets.jsonl.1"]
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.stat().st_size < 2000 + 300
    numbers = [int(line["message"].removeprefix("line ")) for line in lines(world.home)]
    assert numbers == list(range(numbers[0], 100)) and len(numbers) > 5


def test_a_log_that_cannot_be_written_ends_no_run(world: World) -> None:
    log_file(world.home, "tweets").symlink_to(world.home.path / "elsewhere")  # never followed
    assert sum(1 for _ in run(world).batches()) == 1
    assert not (world.home.path / "elsewhere").exists()


def test_following_continues_in_a_file_that_was_renamed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "MOST_BYTES", 1000)
    log = RunLog(world.home, "tweets", "run-1")
    written = iter(range(3, 60))

    def pause(_: float) -> None:
        log.event(Event("restaged", text=str(next(written))))
        log.event(Event("restaged", text=str(next(written))))

    for number in range(3):
        log.event(Event("restaged", text=str(number)))
    found = follow(world.home, lambda: logged(world.home), pause)
    assert [next(found)["message"] for _ in range(50)] == [str(number) for number in range(50)]


def test_lines_of_several_pipelines_are_in_order_of_time(world: World) -> None:
    for number in range(6):
        RunLog(world.home, "ab"[number % 2], "run").event(Event("restaged", text=str(number)))
    with (world.home.logs / "a.jsonl").open("a") as log:
        log.write('{"time": "cut of')
    assert [line["message"] for line in read(world.home, logged(world.home))] == [str(number) for number in range(6)]


def command(home: Home, monkeypatch: pytest.MonkeyPatch, *arguments: str, **variables: str) -> int:
    for name, value in {"KPIPE_HOME": str(home.path), **variables}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    return int(end.value.code or 0)


def test_the_command_selects_lines(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    list(run(world).passes())
    batch = next(line["batch"] for line in lines(world.home) if line["event"] == "planned")
    assert command(world.home, monkeypatch, "logs", "tweets", "--batch", batch[:8], "--json") == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in shown] == ["planned", "staged", "committed"]
    assert command(world.home, monkeypatch, "logs", "--since", "1h") == 0
    text = capsys.readouterr().out.splitlines()
    assert len(text) == len(lines(world.home)) and f"INFO tweets {batch[:8]} commit 2: 12 rows, 0 dead letters" in text[-2]
    assert command(world.home, monkeypatch, "logs", "tweets", "--since", "2999-01-01") == 0
    assert capsys.readouterr().out == ""


@each_case("arguments", [("nosuch",), ("../../etc/passwd",), ("tweets", "--batch", "zz"), ("--since", "later")])
def test_wrong_arguments(
    arguments: tuple[str, ...], world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(world.home, monkeypatch, "logs", *arguments) == 2
    assert "expected" in (message := capsys.readouterr().err) or "no pipeline" in message


def test_json_on_stderr(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KPIPE_LOG", "json")
    list(run(world).passes())
    shown = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert shown == lines(world.home)
    assert {"time", "level", "pipeline", "batch", "message"} <= shown[0].keys() and shown[0]["time"].endswith("Z")
    assert command(world.home, monkeypatch, "run", "nosuch") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["level"] == "error" and "no pipeline 'nosuch'" in json.loads(line)["message"]
    assert command(world.home, monkeypatch, "status", KPIPE_LOG="xml") == 2
    assert "KPIPE_LOG: expected text or json, found 'xml'" in capsys.readouterr().err


def test_the_last_line_on_stderr_quotes_no_record(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    error = TransformFailed(f"t/0 offset 7: it exited with status 3; stderr: {SECRET_RECORD}", "fix the program")
    error.record = (PartitionId(TopicId("c", "i", "t"), 0), 7)
    with pytest.raises(SystemExit):
        fail(error)
    assert SECRET_RECORD in capsys.readouterr().err, "a terminal shows it"
    monkeypatch.setenv("KPIPE_LOG", "json")
    with pytest.raises(SystemExit):
        fail(error)
    line = json.loads(capsys.readouterr().err)
    text = "kpipe: TransformFailed at t/0 offset 7: the text may quote a record and is not logged -> fix the program"
    assert (line["level"], line["message"]) == ("error", text)


def test_a_traceback_in_json_quotes_no_record(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KPIPE_LOG", "json")
    try:
        int(SECRET_RECORD)
    except ValueError as error:
        unexpected(type(error), error, error.__traceback__)
        check_logs()
        try:
            logging.getLogger("kpipe.rest").error("request failed", exc_info=error)
        finally:
            logging.getLogger().handlers.pop()
            logging.captureWarnings(False)
    one, other = (json.loads(line)["message"] for line in capsys.readouterr().err.splitlines())
    for text in (one, other):
        assert "int(SECRET_RECORD)" in text and text.endswith("ValueError: the text may quote a record and is not logged")
    assert SECRET_RECORD not in one + other and other.startswith("request failed\n")


def test_lines_about_a_program_name_pipeline_and_batch() -> None:
    code = (
        "import logging; from kpipe_assets.terminal import check_logs; check_logs();"
        f" logging.getLogger('kpipe.transform').warning('{SECRET_RECORD}', extra={{'pipeline': 'orders', 'batch': 'b7'}})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "KPIPE_LOG": "json"}, capture_output=True, text=True, check=True
    )
    line = json.loads(done.stderr)
    assert (line["pipeline"], line["batch"]) == ("orders", "b7") and SECRET_RECORD not in line["message"]


def test_warnings_of_libraries_are_json() -> None:
    """A library that warns while it is imported wrote a line of text between the objects."""
    code = "import warnings; from kpipe_assets.terminal import check_logs; check_logs(); warnings.warn('no SOCKS')"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "KPIPE_LOG": "json"}, capture_output=True, text=True, check=True
    )
    (line,) = done.stderr.splitlines()
    assert json.loads(line)["level"] == "warning" and "no SOCKS" in json.loads(line)["message"]


def test_moments() -> None:
    assert since("2026-01-02T03:04:05+01:00") == "2026-01-02T02:04:05.000000Z" == since("2026-01-02 02:04:05")
    assert since("90s") > since("2m") > since("1h") > since("2d")


def test_no_file_is_left_behind_by_a_home_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command(Home(tmp_path / "none"), monkeypatch, "logs") == 0
    assert os.listdir(tmp_path) == []
