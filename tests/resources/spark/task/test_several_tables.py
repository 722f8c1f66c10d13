"""Records of several tables: a record that one table rejects is in none, also before the tables have columns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from kpipe.batch.batch import Piece, RangeReport
from kpipe.definition.formats import Format
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, TopicId
from resources.kafka.record_block import RecordBlock
from resources.spark.task.range_task import stage
from resources.spark.task.task_spec import JobSpec, TableSpec

SOURCE = PartitionId(TopicId("c", "i", "t"), 0)


def staged(folder: Path, columns: dict[str, str], values: list[bytes]) -> tuple[RangeReport, list[list[dict[str, Any]]]]:
    """Stage records of two tables with these columns; return the report, and the rows of each table."""
    (folder / "batch").mkdir()
    table = TableSpec(Columns.of(columns))
    job = JobSpec(
        "batch", {}, str(folder), Format(type="json"), (replace(table, position=0), replace(table, position=1)), fan_out=True,
        held={SOURCE: RecordBlock.of(range(len(values)), [0] * len(values), values)},
    )  # fmt: skip
    report = stage(job, Piece(SOURCE, Range(0, len(values))))
    return report, [[row for file in one.files for row in pq.read_table(file.path).to_pylist()] for one in report.tables]


def test_a_rejected_record_of_tables_without_columns_is_a_dead_letter(tmp_path: Path) -> None:
    report, rows = staged(tmp_path, {}, [b"{}", b'{"id": 1}', b"oops"])
    assert [[row["_kafka_offset"] for row in table] for table in rows] == [[0, 1], [0, 1]]
    assert (report.counts.dead_letters, report.counts.unaccounted(3)) == (1, 0)
    assert [table.new_columns.to_dict() for table in report.tables] == [{"id": "BIGINT"}] * 2


def test_a_rejected_record_of_tables_with_columns_is_a_dead_letter(tmp_path: Path) -> None:
    report, rows = staged(tmp_path, {"id": "BIGINT"}, [b'{"id": 1}', b'{"id": "one"}', b'{"id": 3}'])
    assert [[(row["_kafka_offset"], row["id"]) for row in table] for table in rows] == [[(0, 1), (2, 3)]] * 2
    assert (report.counts.dead_letters, report.counts.unaccounted(3)) == (1, 0)
