"""Measure other shapes than tweets in four partitions, into DuckDB: rates, and the memory of driver, JVM and workers.

Each shape runs in a new kpipe, as processes keep memory that they have touched. A run of one range uses one worker: Spark
gets one core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.contenders import kpipe
from bench.contenders.pipelines import TABLE
from bench.stage import Stage, result, say
from bench.topics import Topic
from bench.verify import in_duckdb

__all__ = ["SHAPES", "backlog", "measure"]


@dataclass(frozen=True)
class _Shape:
    """A topic, by what is special about it.

    Attributes:
        topic: what is read.
        cores: of Spark; None: all.
        program: between Kafka and the table.
    """

    topic: Topic
    cores: int | None = None
    program: str = ""


SHAPES: dict[str, _Shape] = {
    "30-byte records": _Shape(Topic("small", "small", 4_000_000, 4)),
    "20 kB records": _Shape(Topic("large", "large", 40_000, 4)),
    "100 columns": _Shape(Topic("wide", "wide", 200_000, 4)),
    "1 partition": _Shape(Topic("tweets-1", "tweets", 1_000_000, 1)),
    "4 partitions": _Shape(Topic("tweets-4", "tweets", 1_000_000, 4)),
    "64 partitions": _Shape(Topic("tweets-64", "tweets", 1_000_000, 64)),
    "90 % in one of 4": _Shape(Topic("tweets-skewed", "tweets", 1_000_000, 4, skew=0.9)),
    "2 GB range: 20 kB records": _Shape(Topic("large-1", "large", 100_000, 1), cores=1),
    "2 GB range: tweets": _Shape(Topic("tweets-2gb", "tweets", 7_000_000, 1), cores=1),
    "2 GB range: tweets, cat": _Shape(Topic("tweets-2gb", "tweets", 7_000_000, 1), cores=1, program="cat"),
}
_QUICK = 50
"""Quick runs have so many times fewer records."""


def measure(stage: Stage, chosen: Sequence[str]) -> dict[str, Any]:
    """Measure every shape whose name begins with one of these; empty: all."""
    runs = []
    wanted = [(name, shape) for name, shape in SHAPES.items() if not chosen or any(map(name.startswith, chosen))]
    for at, (name, shape) in enumerate(wanted):
        if stage.quick:
            shape = replace(shape, topic=replace(shape.topic, records=shape.topic.records // _QUICK))
        runs.append(_one(stage, name, shape))
        if all(later.topic.name != shape.topic.name for _, later in wanted[at + 1 :]):
            stage.done_with(shape.topic)
    return {"runs": runs}


def backlog(stage: Stage, records: int) -> dict[str, Any]:
    """A long backlog of tweets in four partitions, with kpipe's default limits: rows over time."""
    shape = _Shape(Topic("backlog", "tweets", records, 4))
    run = _one(stage, "backlog", shape)
    stage.done_with(shape.topic)
    return {"runs": [run]}


def _one(stage: Stage, name: str, shape: _Shape) -> dict[str, Any]:
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
                columns=None if tweets else {},
                **one_batch,
            )
            problem = in_duckdb(Path(answer["data"]) / "kpipe.duckdb", TABLE, tweets=False).problem(topic.records)
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
    return {"name": name, **run, "records": topic.records, "value_bytes": topic.value_bytes, "partitions": topic.partitions}
