"""Facts of a batch that the driver computes from the tasks' reports."""

from __future__ import annotations

from kpipe.batch.batch import Batch, Counts, RangeReport
from kpipe.batch.coverage import task_seconds
from kpipe.ledger.ledger import Lane, Step
from kpipe.offsets import Range
from kpipe.topics import PartitionId, TopicId


def test_the_seconds_of_a_range_are_the_sum_over_its_pieces() -> None:
    topic = TopicId("c", "i", "t")
    first, second = Lane(PartitionId(topic, 0), 0, 0), Lane(PartitionId(topic, 1), 7, 7)
    batch = Batch("b", "p", (Step(first, 10), Step(second, 9)))
    reports = [
        RangeReport(lane.source, Range(start, end), Counts(gaps=end - start), seconds=seconds)
        for lane, start, end, seconds in ((first, 0, 4, 0.5), (first, 4, 10, 0.25), (second, 7, 9, 2.0))
    ]
    assert task_seconds(batch, reports) == {first.key: 0.75, second.key: 2.0}
