"""Measure other shapes than tweets in four partitions, into DuckDB: rates, CPU time, memory of driver, JVM and workers.

Each shape runs in a new kpipe, as processes keep memory that they have touched. A run of one range uses one worker: Spark
gets one core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.contenders import kpipe
from bench.contenders.pipelines import TABLE
from bench.stage import Stage, result, say
from bench.topics import Topic
from bench.verify import dead_letters, in_duckdb
from resources.available_memory import available_bytes
from resources.duckdb_engine.memory_limit import engine_bytes

__all__ = ["MEMORY", "SHAPES", "Shape", "backlog", "measure", "memory"]


@dataclass(frozen=True)
class Shape:
    """A topic, by what is special about it.

    Attributes:
        topic: what is read.
        cores: of Spark; None: all.
        program: between Kafka and the table.
        columns: declared; None: those of a tweet, or inferred ones for another shape.
        rejects: whether records may become dead letters.
    """

    topic: Topic
    cores: int | None = None
    program: str = ""
    columns: Mapping[str, str] | None = None
    rejects: bool = False


#: What bytes cost by the width of records, and by how they are spread: none should be far more than another.
SHAPES: dict[str, Shape] = {
    "30-byte records": Shape(Topic("small", "small", 4_000_000, 4)),
    "100 columns": Shape(Topic("wide", "wide", 200_000, 4)),
    "300 columns": Shape(Topic("columns-300", "300 columns", 60_000, 4)),
    "1000 columns": Shape(Topic("columns-1000", "1000 columns", 18_000, 4)),
    "2000 members, declared": Shape(
        Topic("members", "2000 members", 40_000, 4),
        columns={"id": "BIGINT", **{f"member_{at:05d}": "BIGINT" for at in range(2000)}},
    ),
    "2000 members, new": Shape(Topic("members", "2000 members", 40_000, 4), columns={"id": "BIGINT"}, rejects=True),
    "1 GB of headers": Shape(Topic("headers", "small", 100_000, 4, header_bytes=10_000)),
    "1 partition": Shape(Topic("tweets-1", "tweets", 1_000_000, 1)),
    "4 partitions": Shape(Topic("tweets-4", "tweets", 1_000_000, 4)),
    "64 partitions": Shape(Topic("tweets-64", "tweets", 1_000_000, 64)),
    "1000 partitions": Shape(Topic("tweets-1000", "tweets", 1_000_000, 1000)),
    "90 % in one of 4": Shape(Topic("tweets-skewed", "tweets", 1_000_000, 4, skew=0.9)),
}
#: 2 GB each.
MEMORY: dict[str, Shape] = {
    "20 kB records": Shape(Topic("large", "large", 100_000, 4)),
    "1 MB records": Shape(Topic("huge", "huge", 2000, 4)),
    "one range: 20 kB records": Shape(Topic("large-1", "large", 100_000, 1), cores=1),
    "one range: tweets": Shape(Topic("tweets-2gb", "tweets", 7_000_000, 1), cores=1),
    "one range: tweets, cat": Shape(Topic("tweets-2gb", "tweets", 7_000_000, 1), cores=1, program="cat"),
}
_QUICK = 50
"""Quick runs have so many times fewer records."""


def measure(stage: Stage, chosen: Sequence[str]) -> dict[str, Any]:
    """Measure every shape whose name begins with one of these; empty: all."""
    return {"runs": _run_all(stage, SHAPES, chosen)}


def memory(stage: Stage, chosen: Sequence[str]) -> dict[str, Any]:
    """Measure 2 GB of large records, and 2 GB read by one worker; also return DuckDB's limit in the driver."""
    limit = {"engine_limit_mb": engine_bytes({}) // 10**6, "available_mb": available_bytes() // 10**6}
    return {**limit, "runs": _run_all(stage, MEMORY, chosen)}


def _run_all(stage: Stage, shapes: Mapping[str, Shape], chosen: Sequence[str]) -> list[dict[str, Any]]:
    runs = []
    wanted = [(name, shape) for name, shape in shapes.items() if not chosen or any(map(name.startswith, chosen))]
    for at, (name, shape) in enumerate(wanted):
        records = max(1, shape.topic.records // (_QUICK if stage.quick else 1))
        runs.append(_one(stage, name, replace(shape, topic=replace(shape.topic, records=records))))
        if all(later.topic.name != shape.topic.name for _, later in wanted[at + 1 :]):
            stage.done_with(shape.topic)
    return runs


def backlog(stage: Stage, records: int) -> dict[str, Any]:
    """A long backlog of tweets in four partitions, with kpipe's default limits: rows over time."""
    shape = Shape(Topic("backlog", "tweets", records, 4))
    run = _one(stage, "backlog", shape)
    stage.done_with(shape.topic)
    return {"runs": [run]}


def _one(stage: Stage, name: str, shape: Shape) -> dict[str, Any]:
    topic = stage.topic(shape.topic)
    environ = {"KPIPE_SPARK_MASTER": f"local[{shape.cores}]"} if shape.cores else {}
    home = stage.folder("shape-home")
    tweets = topic.shape == "tweets"
    one_batch = {"max_offsets_per_partition": topic.records} if shape.cores else {}
    try:
        with kpipe.server(stage.folder("shape-session"), **environ) as child:
            answer = child.measured(
                "committed",
                home=str(home),
                brokers=stage.brokers,
                topic=topic.name,
                program=shape.program,
                columns=dict(shape.columns) if shape.columns is not None else None if tweets else {},
                headers=topic.header_bytes > 0,
                **one_batch,
            )
            database = Path(answer["data"]) / "kpipe.duckdb"
            letters = dead_letters(database) if shape.rejects else 0
            found = in_duckdb(database, TABLE, tweets=False)
            problem = "" if shape.rejects and found.distinct + letters == topic.records else found.problem(topic.records)
    except RuntimeError as error:
        answer, problem = {}, str(error)
    finally:
        stage.settle(home)
    if problem:
        say(f"  {name}: FAILED: {problem}")
        return {"name": name, "failed": problem.splitlines()[0]}
    roles = answer["roles_mb"]
    run = result(answer.pop("seconds"), topic, **{key: value for key, value in answer.items() if key != "database"})
    say(
        f"  {name:<26} {run['seconds']:6.2f} s {run['msg_s']:>9,} msg/s {run['mb_s']:6.1f} MB/s  largest worker"
        f" {roles.get('worker', 0)} MB, driver {roles['driver']} MB, JVM {roles.get('jvm', 0)} MB"
    )
    size = topic.value_bytes + topic.records * topic.header_bytes
    return {"name": name, **run, "records": topic.records, "bytes": size, "partitions": topic.partitions}
