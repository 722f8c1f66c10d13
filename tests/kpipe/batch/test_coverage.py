"""Facts of a batch that the driver computes from the tasks' reports."""

from __future__ import annotations

import pytest

from kpipe.batch.batch import Batch, Counts, Mark, RangeReport, TableReport
from kpipe.batch.coverage import table_writes, task_seconds, with_tails
from kpipe.batch.table_write import BatchTables
from kpipe.definition.pipeline import Pipeline
from kpipe.ledger.ledger import Lane, Step
from kpipe.ledger.tail import Tail
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
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


def fingerprint(*pieces: tuple[int, int, int, tuple[int, ...]]) -> tuple[int, ...]:
    """Offsets in the fingerprint of a range: of each piece its bounds, the number of its records and which of them it hashed."""
    lane = Lane(PartitionId(TopicId("c", "i", "t"), 0), pieces[0][0], pieces[0][0])
    reports = [
        RangeReport(
            lane.source,
            Range(start, end),
            Counts(messages=count, gaps=end - start - count),
            tail=Tail.of(end, [(at, f"{at:08x}") for at in hashed]),
        )
        for start, end, count, hashed in pieces
    ]
    (step,) = with_tails(Batch("b", "p", (Step(lane, pieces[-1][1]),)), reports[::-1]).steps
    return tuple(offset for offset, _ in step.tail.records) if step.tail is not None else ()


def test_a_fingerprint_has_no_record_before_one_that_was_not_hashed() -> None:
    """Records of many bytes are not all hashed. The next read finds them, and would report a log that was cut."""
    assert fingerprint((0, 3, 3, (0, 1, 2)), (3, 5, 2, (3, 4))) == (1, 2, 3, 4)
    assert fingerprint((0, 3, 3, (0, 1, 2)), (3, 5, 2, (4,))) == (4,)
    assert fingerprint((0, 3, 3, (2,)), (3, 5, 0, ()), (5, 8, 1, (6,))) == (2, 6)
    assert fingerprint((0, 3, 3, (1, 2)), (3, 2003, 1, ())) == ()
    assert fingerprint((5, 8, 3, (3, 4, 5, 6, 7)[-4:]), (8, 9, 1, (8,))) == (5, 6, 7, 8)


def marks(rows: int, dead: int = 0, keyed: bool = False, records: int | None = None, marked: bool = False) -> list[Mark]:
    """Fingerprints of a batch of two ranges of 10 offsets: one is full, the other has these rows and dead letters."""
    topic = TopicId("c", "i", "t")
    lanes = [Lane(PartitionId(topic, number), 0, 0) for number in (0, 1)]
    batch = Batch("b", "p", tuple(Step(lane, 10) for lane in lanes))
    found = [(Counts(), 10, Mark(10, 45)), (Counts(dead_letters=dead), rows, Mark(rows if records is None else records, 7))]
    reports = [
        RangeReport(lane.source, Range(0, 10), counts, (TableReport(Counts(rows=number), mark=mark),))
        for lane, (counts, number, mark) in zip(lanes, found, strict=True)
    ]
    into = Pipeline.model_validate({"name": "p", "source": {"brokers": "b", "topic": "t"}, "into": {"table": "t"}})
    (write,) = table_writes(batch, reports, BatchTables((into,)), [Columns()], [not keyed], marked)
    return list(write.marks.values())


@pytest.mark.parametrize(("rows", "dead"), [(5, 0), (0, 1), (9, 1)])
def test_offsets_are_summed_where_counts_do_not_show_which_have_rows(rows: int, dead: int) -> None:
    assert marks(rows, dead) == [Mark(10, 45), Mark(rows, 7)]


def test_offsets_are_not_summed_where_counts_show_them_or_nothing_is_compared_by_them() -> None:
    assert marks(10) == marks(0) == [], "each offset has a row, or none has"
    assert marks(5, keyed=True) == [], "the balance of the table has the sum"
    assert marks(5, records=0) == [], "rows without offsets"
    assert marks(10, marked=True) == [Mark(10, 45), Mark(10, 7)], "a record may give several rows"
