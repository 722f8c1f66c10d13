"""The process that waits for the next run: a real code server, real runs, and kills at each point."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._grpc.types import CancelExecutionRequest, ExecuteExternalJobArgs, StartRunResult
from dagster._serdes import deserialize_value

from kpipe_assets.dagster_server.instance import open_instance
from kpipe_assets.dagster_server.warm_runs import SWITCH, WarmCodeServer, is_on
from tests.cases import each_case
from tests.kpipe_assets.dagster_ui import PatientClient
from tests.patience import looks
from tests.processes import is_running

pytestmark = pytest.mark.slow

MODULE = "tests.kpipe_assets.dagster_server.recording_definitions"
EDITION, HOLD_IMPORT, HOLD_LOAD, HOLD_STEP = "edition", "hold import", "hold load", "hold step"
SECRET = "of-the-run"


def until(what: Callable[[], Any], seconds: float = 300) -> Any:
    for _ in looks(seconds):
        if found := what():
            return found
    raise AssertionError("not in time")


@dataclass
class CodeServer:
    """A code server as `kpipe ui` starts it, without its proxy."""

    folder: Path
    instance: dg.DagsterInstance
    process: subprocess.Popen[bytes]
    client: PatientClient
    used: set[int] = field(default_factory=set)

    def create(self) -> str:
        """A run that was created, but not launched."""
        origin = GrpcServerCodeLocationOrigin(host="localhost", socket=self.client.socket, location_name="kpipe")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RECORDS", str(self.folder))
            job = importlib.import_module(MODULE).defs().resolve_job_def("recorded")
        remote = RemoteJobOrigin(RemoteRepositoryOrigin(origin, "__repository__"), "recorded")
        return str(self.instance.create_run_for_job(job, remote_job_origin=remote).run_id)

    def start(self, run: str) -> StartRunResult:
        """What Dagster's launcher does."""
        origin = self.found(run).remote_job_origin
        assert origin is not None
        arguments = ExecuteExternalJobArgs(job_origin=origin, run_id=run, instance_ref=self.instance.get_ref())
        answer = self.client.start_run(arguments)
        return deserialize_value(answer, StartRunResult)

    def launch(self) -> str:
        run = self.create()
        result = self.start(run)
        assert result.success, result
        return run

    def found(self, run: str) -> dg.DagsterRun:
        found = self.instance.get_run_by_id(run)
        assert found is not None
        return found

    def finished(self, run: str) -> str:
        until(lambda: self.found(run).is_finished)
        return self.found(run).status.value

    def records(self, run: str) -> list[dict[str, Any]]:
        """What each execution of the run's step has recorded."""
        file = self.folder / run
        text = file.read_text() if file.exists() else ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]  # the last one may be half written

    def recorded(self, run: str) -> dict[str, Any]:
        until(lambda: self.records(run))
        (record,) = self.records(run)
        self.used.add(record["pid"])
        return record

    def children(self) -> list[int]:
        """Processes of runs, and the one that waits for a run."""
        return [child.pid for child in psutil.Process(self.process.pid).children() if _is_spawned(child)]

    def spare(self) -> int:
        """The process that waits for a run, for a test that uses it up; no run is in progress."""
        (pid,) = until(lambda: [pid for pid in self.children() if pid not in self.used])
        self.used.add(pid)
        return int(pid)

    def hold(self, name: str) -> None:
        (self.folder / name).touch()

    def held(self, name: str, pid: int) -> None:
        """Wait until the process is at that point."""
        until((self.folder / f"{name}: {pid}").exists)

    def release(self, name: str) -> None:
        (self.folder / name).unlink()


@contextmanager
def running(folder: Path, **more: str) -> Iterator[CodeServer]:
    records, home, socket = folder / "records", folder / "dagster", folder / "s"
    records.mkdir()
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    (records / EDITION).write_text("first")
    root = Path(__file__).parents[3]
    known = {"DAGSTER_HOME": str(home), "RECORDS": str(records), "SECRET": SECRET, "PYTHONWARNINGS": "ignore"}
    with open_instance(home) as instance:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "kpipe_assets.dagster_server.code_api", "api", "grpc", "--socket", str(socket)),
                *("--module-name", MODULE, "--working-directory", str(root), "--location-name", "kpipe"),
            ],
            env={**os.environ, **known, **more},
            cwd=root,
        )
        try:
            client = PatientClient(socket=str(socket))
            until(lambda: (socket.exists() and _answers(client)) or process.poll() is not None)
            yield CodeServer(records, instance, process, client)
        finally:
            for child in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else ():
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CodeServer]:
    """A server that tests share: it survives what becomes of its runs, and of the processes that wait for them."""
    with running(tmp_path_factory.mktemp("server")) as shared:
        yield shared


@pytest.fixture
def own(tmp_path: Path) -> Iterator[CodeServer]:
    """A server that the test ends, or whose first process it holds."""
    with running(tmp_path) as one:
        yield one


def _is_spawned(process: psutil.Process) -> bool:
    try:
        return "spawn_main" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # or it has ended, and its parent has not noticed yet
        return False


def _answers(client: PatientClient) -> bool:
    try:
        return bool(client.ping("here"))
    except dg.DagsterError:
        return False


def test_each_run_takes_a_process_that_waited_for_it(server: CodeServer) -> None:
    taken = []
    for _ in range(2):
        spare = server.spare()
        run = server.launch()
        assert server.finished(run) == "SUCCESS"
        assert server.recorded(run)["pid"] == spare
        until(lambda pid=spare: not is_running(pid))  # it ends with its run
        taken.append(spare)
    assert taken[0] != taken[1]


def test_runs_at_once_have_a_process_each(server: CodeServer) -> None:
    server.spare()
    server.hold(HOLD_STEP)
    runs = [server.launch(), server.launch()]
    pids = {server.recorded(run)["pid"] for run in runs}
    assert len(pids) == 2
    server.release(HOLD_STEP)
    assert [server.finished(run) for run in runs] == ["SUCCESS", "SUCCESS"]


def test_definitions_are_those_of_the_moment_of_the_launch(server: CodeServer) -> None:
    server.hold(HOLD_LOAD)
    spare = server.spare()
    (server.folder / EDITION).write_text("second")
    server.release(HOLD_LOAD)
    run = server.launch()
    assert server.finished(run) == "SUCCESS"
    assert {name: server.recorded(run)[name] for name in ("pid", "edition")} == {"pid": spare, "edition": "second"}


def test_a_run_has_the_environment_of_the_server_and_nothing_of_it_in_its_command(server: CodeServer) -> None:
    server.spare()
    run = server.launch()
    record = server.recorded(run)
    assert record["secret"] == SECRET
    assert record["dumpable"] == 0, "others of this user could read its memory"
    command = " ".join(record["command"])
    assert SECRET not in command
    assert run not in command


@each_case("number", [signal.SIGKILL, signal.SIGTERM])
def test_if_the_spare_was_killed_the_run_starts_as_without_one(server: CodeServer, number: signal.Signals) -> None:
    spare = server.spare()
    os.kill(spare, number)
    until(lambda: not is_running(spare))  # on a busy machine, it could still be given the run, which would then have failed
    run = server.launch()
    assert server.finished(run) == "SUCCESS"
    assert server.recorded(run)["pid"] != spare


def test_a_spare_that_does_not_answer_is_ended_and_the_run_starts_as_without_one(server: CodeServer) -> None:
    spare = server.spare()
    _until_it_waits(spare)
    os.kill(spare, signal.SIGSTOP)
    run = server.launch()
    assert server.finished(run) == "SUCCESS"
    assert server.recorded(run)["pid"] != spare
    assert not is_running(spare)


def _until_it_waits(pid: int) -> None:
    """Wait until the process reads from its pipe: it sleeps, and does not only lack a free core."""
    process, calm = psutil.Process(pid), 0
    switches = process.num_ctx_switches()
    while calm < 20:
        time.sleep(0.1)
        before, switches = switches, process.num_ctx_switches()
        calm = calm + 1 if process.status() == psutil.STATUS_SLEEPING and switches == before else 0


def test_killed_between_handover_and_begin_the_run_is_reported_and_never_executed(own: CodeServer) -> None:
    own.hold(HOLD_IMPORT)
    spare = own.spare()
    own.held(HOLD_IMPORT, spare)
    run = own.create()
    with ThreadPoolExecutor(1) as pool:
        launched = pool.submit(own.start, run)
        time.sleep(1)  # the run is in the pipe now; if it is not yet, the run starts as without a spare, below
        os.kill(spare, signal.SIGKILL)
        own.release(HOLD_IMPORT)
        result = launched.result(300)
    if result.success:
        assert own.finished(run) == "SUCCESS"
        assert own.recorded(run)["pid"] != spare
    else:  # Dagster's launcher makes it a failed run
        assert "terminated unexpectedly" in str(result.message)
        assert own.finished(own.launch()) == "SUCCESS"
        assert own.records(run) == []


def test_a_run_that_both_threads_of_the_server_found_dead_is_forgotten_once() -> None:
    server = WarmCodeServer.__new__(WarmCodeServer)
    server._executions, server._termination_events, server._termination_times = {"a": (None, None)}, {"a": None}, {"a": 1.0}
    server._clear_run("a")
    server._clear_run("a")
    assert not (server._executions or server._termination_events or server._termination_times)


@each_case("point", [HOLD_LOAD, HOLD_STEP])
def test_killed_in_a_run_the_run_has_failed(server: CodeServer, point: str) -> None:
    spare = server.spare()
    server.hold(point)
    run = server.launch()
    server.held(point, spare)
    os.kill(spare, signal.SIGKILL)
    assert server.finished(run) == "FAILURE"
    server.release(point)
    assert len(server.records(run)) == (point == HOLD_STEP)


def test_a_run_can_be_terminated(server: CodeServer) -> None:
    spare = server.spare()
    server.hold(HOLD_STEP)
    run = server.launch()
    server.held(HOLD_STEP, spare)
    server.instance.report_run_canceling(server.found(run))
    server.client.cancel_execution(CancelExecutionRequest(run_id=run))
    assert server.finished(run) == "CANCELED"
    server.release(HOLD_STEP)


def test_the_spare_ends_when_the_server_is_killed(own: CodeServer) -> None:
    spare = own.spare()
    own.process.kill()
    until(lambda: not is_running(spare))


def test_a_run_that_was_handed_over_goes_on_when_the_server_is_killed(own: CodeServer) -> None:
    spare = own.spare()
    own.hold(HOLD_STEP)
    run = own.launch()
    own.held(HOLD_STEP, spare)
    own.process.kill()
    own.process.wait()
    own.release(HOLD_STEP)
    assert own.finished(run) == "SUCCESS"


@pytest.mark.chaos
def test_the_spare_ends_when_another_server_takes_over(own: CodeServer) -> None:
    """`Reload` in the UI: the old server ends when its runs have ended."""
    spare = own.spare()
    own.hold(HOLD_STEP)
    run = own.launch()
    own.held(HOLD_STEP, spare)
    another = int(until(lambda: [pid for pid in own.children() if pid != spare])[0])
    own.client.shutdown_server()
    until(lambda: not is_running(another))
    assert is_running(spare)
    own.release(HOLD_STEP)
    assert own.finished(run) == "SUCCESS"
    assert own.process.wait(300) == 0


@pytest.mark.chaos
def test_off_each_run_starts_its_own_process(tmp_path: Path) -> None:
    with running(tmp_path, **{SWITCH: "0"}) as server:
        for _ in range(2):
            began = time.time()
            server.hold(HOLD_STEP)
            run = server.launch()
            assert psutil.Process(server.recorded(run)["pid"]).create_time() >= began - 1  # the kernel counts in ticks
            server.release(HOLD_STEP)
            assert server.finished(run) == "SUCCESS"
    assert is_on({})
    assert not is_on({SWITCH: "0"})
