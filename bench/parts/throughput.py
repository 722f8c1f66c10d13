"""Measure throughput: kpipe and its peers drain a full topic in turns, warm and from the start of a process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.child import Child, clean_environment
from bench.contenders import bento_loader, flink_loader, kpipe, spark
from bench.contenders.connect import Worker
from bench.contenders.connect_iceberg import IcebergWorker
from bench.contenders.connect_postgres import PostgresWorker
from bench.contenders.pipelines import TABLE, pipeline
from bench.contenders.postgres import Postgres
from bench.meter import Meter
from bench.peers import Unavailable, install_bento, install_flink, install_jdbc
from bench.stage import Stage, result, say
from bench.topics import Topic, retweets_sum
from bench.verify import Found, in_delta, in_duckdb, in_iceberg, in_parquet

__all__ = ["TABLES", "WARM", "measure"]

_PROGRAMS = {"": "", " cat": "cat", " echo": "echo"}
WARM = (
    "raw x2",
    "raw x1",
    *(f"kpipe {how}{program}" for program in _PROGRAMS for how in ("staged", "duckdb")),
    "spark parquet",
    "spark parquet tuned",
    "spark delta",
    "spark pipe cat",
    "connect iceberg",
)
TABLES = (
    *("raw x2", "kpipe delta", "kpipe iceberg", "kpipe postgres", "copy postgres", "spark delta", "connect iceberg"),
    *("connect postgres", "script delta", "bento parquet", "flink parquet"),
)
COLD = ("kpipe duckdb cold", "spark parquet cold", "connect iceberg cold", "script dlt cold")
# Without a warm-up: contenders without a session, and one whose first drain is long enough to warm up its JVM.
_WITHOUT_WARM_UP = ("raw", "script", "bento", "flink", "connect postgres")
# Their drains take 10 s to minutes: fewer of them keep a whole run below 45 minutes.
_REPEATS = {"spark": 2, "connect": 2, "bento": 2, "flink": 2, "script dlt": 1}

# Where each of kpipe's destinations leaves the table by default, under the home's `data`.
_FOUND: dict[str, Callable[[Path], Found]] = {
    "duckdb": lambda data: in_duckdb(data / "kpipe.duckdb", TABLE),
    "delta": lambda data: in_delta(data / "delta" / TABLE),
    "iceberg": lambda data: in_iceberg(data / "iceberg", TABLE),
}


class _Contest:
    """The contenders that were chosen, started when they are first needed, ended together."""

    def __init__(self, stage: Stage, topic: Topic, stack: ExitStack) -> None:
        self._stage, self._topic, self._stack = stage, topic, stack
        self._kpipe: Child | None = None
        self._spark: Child | None = None
        self._connect: dict[str, Worker] = {}
        self._postgres: Postgres | None = None

    def run(self, name: str, out: Path) -> dict[str, Any]:
        """Drain the topic once. The answer has `seconds`, `cpu_s`, `peak_rss_mb` and `found`."""
        kind, _, what = name.partition(" ")
        cold = what.endswith(" cold")
        return dict(getattr(self, f"_{kind}_cold" if cold else f"_run_{kind}")(what, out))

    def _run_raw(self, what: str, _: Path) -> dict[str, Any]:
        return _raw(self._stage.brokers, self._topic, int(what[1:]))

    def _run_kpipe(self, what: str, out: Path) -> dict[str, Any]:
        if self._kpipe is None:
            self._kpipe = self._stack.enter_context(kpipe.server(self._stage.folder("kpipe-session"), **Postgres.environment))
        how, _, program = what.partition(" ")
        order = {"home": str(out), "brokers": self._stage.brokers, "topic": self._topic.name, "program": program}
        if how == "staged":
            answer = self._kpipe.measured("staged", **order)
            return {**answer, "found": in_parquet(answer.pop("files"))}
        if how == "postgres":
            server = self._server()
            into = server.into()
            answer = self._kpipe.measured("committed", [server.pid], into=into, **order)
            return {**answer, "found": server.found(into)}
        answer = self._kpipe.measured("committed", into={"type": how}, **order)
        return {**answer, "found": _FOUND[how](Path(answer.pop("data")))}

    def _run_copy(self, what: str, out: Path) -> dict[str, Any]:
        server = self._server()
        if not server.filled:
            self._run_kpipe(what, out)
        return server.copy()

    def _server(self) -> Postgres:
        if self._postgres is None:
            self._postgres = self._stack.enter_context(Postgres(self._stage.folder("postgres")))
        return self._postgres

    def _run_spark(self, what: str, out: Path) -> dict[str, Any]:
        if self._spark is None:
            self._spark = self._stack.enter_context(spark.server(self._stage.peers, self._stage.folder("spark-session")))
        order = {"brokers": self._stage.brokers, "topic": self._topic.name, "out": str(out)}
        if what == "pipe cat":
            answer = self._spark.measured("pipe", command="cat", **order)
        else:
            kind, _, tuned = what.partition(" ")
            answer = self._spark.measured("drain", kind=kind, options=spark.TUNED if tuned else {}, **order)
        return {**answer, "found": in_parquet(spark.files(out))}

    def _run_script(self, _: str, out: Path) -> dict[str, Any]:
        """Load into Delta in a new process, whose imports are not counted."""
        answer = _script(sys.executable, "delta_script.py", self._stage.brokers, self._topic.name, str(out))
        return {**answer, "found": in_delta(out)}

    def _script_cold(self, _: str, out: Path) -> dict[str, Any]:
        python = self._stage.peers.dlt
        began = time.monotonic()
        answer = _script(str(python), "dlt_script.py", self._stage.brokers, self._topic.name, str(out))
        return {**answer, "seconds": time.monotonic() - began, "found": in_duckdb(answer["database"], "bench.bench")}

    def _run_bento(self, _: str, out: Path) -> dict[str, Any]:
        install_bento(self._stage.peers)
        return _counted(bento_loader.drain(self._stage.peers, out, self._stage.brokers, self._topic))

    def _run_flink(self, _: str, out: Path) -> dict[str, Any]:
        install_flink(self._stage.peers)
        return _counted(flink_loader.drain(self._stage.peers, out, self._stage.brokers, self._topic))

    def _run_connect(self, what: str, out: Path) -> dict[str, Any]:
        if what not in self._connect:
            self._connect_cold(what, out)
        return _counted(self._connect[what].drain())

    def _kpipe_cold(self, _: str, out: Path) -> dict[str, Any]:
        answer = kpipe.cold(pipeline(self._stage.brokers, self._topic.name), out)
        return {**answer, "found": in_duckdb(answer["database"], TABLE)}

    def _spark_cold(self, _: str, out: Path) -> dict[str, Any]:
        answer = spark.cold(self._stage.peers, out, self._stage.brokers, self._topic.name)
        return {**answer, "found": in_parquet(spark.files(out / "out"))}

    def _connect_cold(self, what: str, _: Path) -> dict[str, Any]:
        """Start a worker; it stays for the warm runs."""
        sink = what.removesuffix(" cold")
        if sink == "postgres":
            install_jdbc(self._stage.peers)
        where = self._stage.peers, self._stage.folder(f"connect-{sink}-session"), self._stage.brokers, self._topic
        worker = PostgresWorker(*where, self._server()) if sink == "postgres" else IcebergWorker(*where)
        self._connect[sink] = self._stack.enter_context(worker)
        return _counted(worker.drain())


def _counted(answer: dict[str, Any]) -> dict[str, Any]:
    return {**answer, "found": in_parquet(answer.pop("files"))} if "files" in answer else answer


def _raw(brokers: str, topic: Topic, processes: int) -> dict[str, Any]:
    script = str(Path(__file__).parents[1] / "contenders" / "raw_loop.py")
    shares = [range(topic.partitions)[at::processes] for at in range(processes)]
    commands = [[sys.executable, script, brokers, topic.name, ",".join(map(str, share))] for share in shares]
    began = time.monotonic()
    loops = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean_environment()) for command in commands]
    with Meter(*(loop.pid for loop in loops)) as meter:
        answers = [json.loads(loop.communicate()[0]) for loop in loops]
        seconds = time.monotonic() - began
    return {
        "seconds": seconds,
        "loop_s": max(answer["ended"] for answer in answers) - min(answer["began"] for answer in answers),
        "cpu_s": round(sum(answer["cpu_s"] for answer in answers), 2),
        "peak_rss_mb": round(meter.peak_mb),
        "found": sum(answer["count"] for answer in answers),
    }


def _script(python: str, name: str, *arguments: str) -> dict[str, Any]:
    """Run a contender that is one program; return its figures.

    Raises:
        RuntimeError: it failed; with the end of its stderr.
    """
    command = [python, str(Path(__file__).parents[1] / "contenders" / name), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment())
    with Meter(process.pid) as meter:
        out, log = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{name}: {log[-1500:]}")
    answer = dict(json.loads(out.splitlines()[-1]))
    return {**answer, "cpu_s": round(answer["cpu_s"], 2), "peak_rss_mb": round(meter.peak_mb)}


def measure(
    stage: Stage, records: int, repeats: int, chosen: Sequence[str], warm: Sequence[str] = WARM, cold: Sequence[str] = COLD
) -> Any:
    """Every chosen contender `repeats` times, in turns.

    Args:
        stage: broker, topics and folders.
        records: number of records in the topic.
        repeats: runs of each contender; slow ones have one or two at most.
        chosen: beginnings of the names to measure; empty: all.
        warm: contenders of warm runs, each right after a run that does not count.
        cold: contenders of runs from the start of a process.
    """
    topic = stage.topic(Topic("tweets", "tweets", records, 4))
    expected = retweets_sum(records)
    warm_names = [name for name in warm if _chosen(name, chosen)]
    cold_names = [name for name in cold if _chosen(name, chosen)]
    runs, skipped = [], dict[str, str]()
    with ExitStack() as stack:
        contest = _Contest(stage, topic, stack)
        if "connect iceberg" in warm_names:  # its cold run is its worker's first, once
            cold_names = [name for name in cold_names if name != "connect iceberg cold"]
            runs.append(_one(stage, contest, topic, "connect iceberg cold", 0, expected))
        for repeat in range(repeats):
            for name in (*_rotated(warm_names, repeat), *_rotated(cold_names, repeat)):
                if name in skipped or any(name.startswith(slow) and repeat >= most for slow, most in _REPEATS.items()):
                    continue
                try:
                    if name in warm_names and not name.startswith(_WITHOUT_WARM_UP):
                        _one(stage, contest, topic, name, -1, expected)  # awake again: it has idled since its last turn
                    runs.append(_one(stage, contest, topic, name, repeat, expected))
                except Unavailable as error:
                    skipped[name] = str(error)
                    say(f"  {name} was skipped: {error}")
    stage.done_with(topic)
    return {"topic": asdict(topic), "runs": runs, "skipped": skipped}


def _one(stage: Stage, contest: _Contest, topic: Topic, name: str, repeat: int, expected: int) -> dict[str, Any]:
    """Run a contender once and verify it. A failure or wrong rows give a result with the reason and without a time."""
    out = stage.folder(name)
    before = stage.broker_cpu_s()
    turn = "warm-up" if repeat < 0 else f"repeat {repeat + 1}"
    try:
        answer = contest.run(name, out)
        problem = _problem(answer.pop("found"), topic, expected)
    except (RuntimeError, OSError) as error:
        answer, problem = {}, f"{type(error).__name__}: {error}"
    if problem:
        say(f"  {turn}  {name:<22} FAILED: {problem}")
        return {"name": name, "repeat": repeat, "failed": problem.splitlines()[0]}
    seconds = answer.pop("seconds")
    keep = {key: value for key, value in answer.items() if key not in ("data", "database", "files", "visible")}
    run = result(seconds, topic, **keep, broker_cpu_s=round(stage.broker_cpu_s() - before, 2), rows_verified=True)
    stage.settle(out)
    say(
        f"  {turn}  {name:<22} {run['seconds']:7.2f} s {run['msg_s']:>10,} msg/s {run['mb_s']:7.1f} MB/s"
        f" {run['cpu_s']:7.1f} CPU s {run['peak_rss_mb']:6,} MB"
    )
    return {"name": name, "repeat": repeat, **run}


def _problem(found: Found | int, topic: Topic, expected: int) -> str:
    if isinstance(found, Found):
        return found.problem(topic.records, expected)
    return "" if found == topic.records else f"{found:,} records, not {topic.records:,}"


def _chosen(name: str, chosen: Sequence[str]) -> bool:
    return not chosen or any(name.startswith(word) for word in chosen)


def _rotated(names: Sequence[str], by: int) -> Iterator[str]:
    """Rotate the order: another contender begins each time, so that none always follows the same one."""
    at = by * 5 % max(1, len(names))
    yield from names[at:]
    yield from names[:at]
