"""Records of tables by a field: each is in a table, a dead letter, or filtered, also one without lines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kpipe.batch.batch import Piece, RangeReport
from kpipe.batch.routes import Routes
from kpipe.definition.formats import Format
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, TopicId
from resources.decode.csv import decoder as csv
from resources.kafka.record_block import RecordBlock
from resources.spark.task.range_task import stage
from resources.spark.task.task_spec import JobSpec, TableSpec
from tests.cases import each_case

SOURCE = PartitionId(TopicId("c", "i", "t"), 0)
ROUTES = Routes("of_{field.kind}", 10, ("a", "b"))


def staged(folder: Path, kind: Format, values: list[bytes]) -> tuple[RangeReport, list[list[dict[str, Any]]]]:
    """Stage records; return the report, and the rows of each table."""
    (folder / "batch").mkdir()
    table = TableSpec(Columns.of({"kind": "VARCHAR", "id": "BIGINT"}))
    job = JobSpec(
        "batch", {}, str(folder), kind, (replace(table, position=0), replace(table, position=1)), routes=ROUTES,
        held={SOURCE: RecordBlock.of(range(len(values)), [0] * len(values), values)},
    )  # fmt: skip
    report = stage(job, Piece(SOURCE, Range(0, len(values))))
    return report, [[row for file in one.files for row in pq.read_table(file.path).to_pylist()] for one in report.tables]


CSV = {"type": "csv", "delimiter": ",", "fields": ["kind", "id"]}


@each_case(
    "options, empty, good",
    [
        ({}, b"", b"%s,%d\n"),
        ({"skip_lines": 1}, b"kind,id\n", b"kind,id\n%s,%d\n"),
        ({"line_start": ">"}, b"no line", b">%s,%d\n"),
    ],
)
def test_a_record_without_lines_is_filtered(options: dict[str, Any], empty: bytes, good: bytes, tmp_path: Path) -> None:
    (tmp_path / str(len(options) + len(empty))).mkdir()
    values = [empty, good % (b"a", 1), empty, good % (b"b", 2), good % (b"a!", 3), empty]
    report, (first, second) = staged(tmp_path / str(len(options) + len(empty)), Format(**CSV, **options), values)
    assert ([row["id"] for row in first], [row["id"] for row in second]) == ([1], [2])
    assert (report.counts.filtered, report.counts.dead_letters, report.counts.unaccounted(len(values))) == (3, 1, 0)


def test_a_range_without_any_line_is_filtered(tmp_path: Path) -> None:
    report, rows = staged(tmp_path, Format(**CSV), [b"", b""])
    assert (report.counts.filtered, report.counts.unaccounted(2), rows) == (2, 0, [[], []])


def test_blocks_of_too_many_lines_are_decoded_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv, "MOST_CELLS", 8)  # four lines of the table, eight of the field alone
    values = [b"".join(b"%s,%d\n" % (name, at) for _ in range(3)) for at, name in enumerate([b"a", b"b", b"a", b"a", b"c"])]
    report, (first, second) = staged(tmp_path, Format(**CSV), [*values, b"a,5\n" * 9])
    assert ([row["id"] for row in first], [row["id"] for row in second]) == ([0] * 3 + [2] * 3 + [3] * 3, [1] * 3)
    assert (report.counts.dead_letters, report.sample_dead_letter.rpartition(": ")[2], list(report.found)) == (
        1, "9 lines are too many for the 1 columns of the table", ["c"],
    )  # fmt: skip
