"""The sum of the offsets of a range's rows, which tasks report."""

from __future__ import annotations

from pathlib import Path

import pytest

from kpipe.batch.batch import Mark, Piece, TableReport
from kpipe.definition.formats import Format
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, TopicId
from resources.decode.block import Payloads
from resources.kafka.record_block import RecordBlock
from resources.spark.task.range_writer import RangeOutput
from resources.spark.task.task_spec import JobSpec, TableSpec


def reported(folder: Path, offsets: list[int], traced: bool = True) -> TableReport:
    """Stage a record for each offset; the second one is not JSON."""
    values = [b"{" if at == 1 else b'{"id": 1}' for at in range(len(offsets))]
    table = TableSpec(Columns.of({"id": "BIGINT"}))
    job = JobSpec("b", {}, str(folder), Format(), (table,), parse="dead_letter")
    held = RecordBlock.of(offsets, [1] * len(offsets), values)
    output = RangeOutput(job, Piece(PartitionId(TopicId("c", "t", "orders"), 0), Range(offsets[0], offsets[-1] + 1)))
    (reads,) = job.decoders
    payloads = Payloads.of_array(held.column("line"))
    made = [reads.decode(payloads, held.column("key"))]
    if traced:
        output.decoded(made, held)
    else:
        output.loose(made, payloads)
    return output.finish(len(offsets), 0, 0).tables[0]


@pytest.mark.parametrize("start", [5, 2**63 - 10])
def test_a_record_gives_one_row(tmp_path: Path, start: int) -> None:
    found = reported(tmp_path, [start, start + 1, start + 3])
    assert (found.counts.rows, found.mark) == (2, Mark(2, 2 * start + 3))


def test_rows_without_offsets_have_none(tmp_path: Path) -> None:
    found = reported(tmp_path, [5, 6, 8], traced=False)
    assert (found.counts.rows, found.mark) == (2, Mark())
