"""How a batch is shared out over tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kpipe.batch import Batch, Step
from kpipe.ledger import Lane
from kpipe.offsets import RangeSet
from kpipe.source import PartitionId, TopicId
from resources.spark.session import share_out

TOPIC = TopicId("c", "t", "tweets")


def batch(*lengths: int) -> Batch:
    steps = [Step(Lane(PartitionId(TOPIC, n), 0, 10 * n), 10 * n + length) for n, length in enumerate(lengths) if length]
    return Batch("b", "p", tuple(steps))


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=30), st.integers(1, 9), st.integers(1, 700))
def test_pieces_cover_every_range_once_and_no_task_is_empty(lengths: list[int], cores: int, smallest: int) -> None:
    asked = batch(*lengths)
    tasks = share_out(asked, cores, smallest)
    assert len(tasks) <= cores and all(tasks)
    for step in asked.steps:
        pieces = [piece.range for task in tasks for piece in task if piece.source == step.source]
        assert RangeSet.of(pieces).ranges == (step.range,)


def test_a_hot_partition_is_split_when_cores_would_idle() -> None:
    tasks = share_out(batch(100_000), cores=4, smallest=20_000)
    assert [[str(piece.range) for piece in task] for task in tasks] == [
        ["[0, 25000)"], ["[25000, 50000)"], ["[50000, 75000)"], ["[75000, 100000)"],
    ]  # fmt: skip


def test_one_partition_with_most_of_the_data_does_not_become_the_slowest_task() -> None:
    tasks = share_out(batch(900_000, 50_000, 50_000), cores=2)
    loads = [sum(len(piece.range) for piece in task) for task in tasks]
    assert max(loads) <= 1.2 * min(loads)


def test_small_ranges_share_a_task_for_each_core() -> None:
    tasks = share_out(batch(*[100] * 64), cores=2)
    assert [sum(len(piece.range) for piece in task) for task in tasks] == [3200, 3200]
