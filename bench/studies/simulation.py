"""Simulate batches event by event: a driver that sends tasks one after the other, cores that work, one commit at a time.

Unlike the formulae of bench/studies/scaling.py it has partitions of different sizes, cores of different speed, late tasks, and
pieces that do not divide evenly. Work is distributed by the project's own `share_out`. The same seed gives the same results.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass

from bench.studies.scaling import SPARK, Cluster, Commit, Load, Tasks
from kpipe.batch.batch import Batch
from kpipe.ledger.ledger import Lane, Step
from kpipe.topics import PartitionId, TopicId
from resources.spark.driver.scheduling import share_out

__all__ = ["Played", "Uneven", "play"]

_TOPIC = TopicId("simulated", "simulated", "simulated")


@dataclass(frozen=True)
class Uneven:
    """How far from even things are.

    Attributes:
        sizes: spread of the partitions' sizes: sigma of a log-normal of mean 1.
        speeds: the same of the cores' speeds.
        late: share of tasks that take twice as long.
    """

    sizes: float = 0.5
    speeds: float = 0.05
    late: float = 0.0


@dataclass(frozen=True)
class Played:
    """What came of it.

    Attributes:
        seconds: until the last commit.
        records: of all batches.
        extract_s: mean time of a batch from plan to last report.
        period_s: mean time from one commit to the next, without the first.
        busy: share of the cores' time that was work.
    """

    seconds: float
    records: int
    extract_s: float
    period_s: float
    busy: float


def play(
    load: Load,
    cluster: Cluster,
    commit: Commit,
    batches: int,
    seed: int,
    uneven: Uneven = Uneven(),
    tasks: Tasks = SPARK,
) -> Played:
    """Play so many batches of a backlog that never ends.

    The next batch is extracted while one commits, and begins when the one before has been extracted and the driver's
    hand-over is free: one batch ahead, never two (kpipe/ingest/prefetch.py).

    Args:
        load: of a batch, on average.
        cluster: workers and cores.
        commit: what the destination costs.
        batches: how many.
        seed: of everything random.
        uneven: how far from even.
        tasks: what the workers' side costs.
    """
    draw = random.Random(seed)
    speeds = [_about_one(draw, uneven.speeds) for _ in range(cluster.slots)]
    extracted = committed = 0.0
    commits, extracts, worked, records = [], [], 0.0, 0
    for _ in range(batches):
        begin = max(extracted, commits[-2] if len(commits) > 1 else 0.0)
        sizes = _sizes(draw, load, uneven.sizes)
        extracted, work = _extract(draw, begin, sizes, cluster.slots, speeds, uneven, tasks, load.tables)
        rows = sum(sizes)
        committed = (
            max(extracted, committed) + commit.batch_s + len(sizes) * commit.range_s + rows * load.tables * commit.record_s
        )
        commits.append(committed)
        extracts.append(extracted - begin)
        worked += work
        records += rows
    between = (commits[-1] - commits[0]) / (len(commits) - 1) if len(commits) > 1 else committed
    return Played(committed, records, sum(extracts) / len(extracts), between, worked / (committed * cluster.slots))


def _extract(
    draw: random.Random,
    begin: float,
    sizes: list[int],
    slots: int,
    speeds: list[float],
    uneven: Uneven,
    tasks: Tasks,
    tables: int,
) -> tuple[float, float]:
    """Return the time of the last report, and the seconds that the cores worked."""
    free = [(begin, at) for at in range(slots)]  # a heap: the core that is free first takes the next task
    sent, last, work = begin + tasks.wave_s + len(sizes) * tasks.ask_s, begin, 0.0
    for pieces in share_out(_batch(sizes), slots):
        sent += tasks.task_s
        at, core = heapq.heappop(free)
        offsets = sum(len(piece.range) for piece in pieces)
        took = (len(pieces) * tasks.range_s + offsets * tasks.record_s * tables) * speeds[core]
        if draw.random() < uneven.late:
            took *= 2
        work += took
        done = max(at, sent) + took
        heapq.heappush(free, (done, core))
        last = max(last, done)
    return last, work


def _sizes(draw: random.Random, load: Load, spread: float) -> list[int]:
    weights = [_about_one(draw, spread) for _ in range(load.partitions)]
    return [max(1, round(load.records * weight / load.partitions)) for weight in weights]


def _about_one(draw: random.Random, spread: float) -> float:
    """Return a log-normal random number with mean 1."""
    return draw.lognormvariate(-spread * spread / 2, spread)


def _batch(sizes: list[int]) -> Batch:
    steps = (Step(Lane(PartitionId(_TOPIC, at), 0, 0), size) for at, size in enumerate(sizes))
    return Batch("simulated", "simulated", tuple(steps))
