"""Keys of deletes that the table cannot store become dead letters, as rows with these values do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kpipe.batch.batch import Piece, RangeReport
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import RecordRejected
from kpipe.offsets import Range
from kpipe.schema.columns import VARCHAR, Columns
from kpipe.topics import PartitionId, TopicId
from resources.destinations.value_limits import limits_of
from resources.kafka.record_block import RecordBlock
from resources.spark.task.projection_plan import shaped
from resources.spark.task.range_task import stage
from resources.spark.task.task_spec import JobSpec, TableSpec
from tests.cases import each_case

SOURCE = PartitionId(TopicId("c", "i", "t"), 0)


def staged(
    folder: Path,
    kind: str,
    column: str,
    records: list[tuple[bytes, bytes | None]],
    format: str = "json",
    table: str = "",
    **policies: Any,
) -> tuple[RangeReport, list[Any], list[tuple[int, str, str]]]:
    """Stage records with a key and a value; return the report, the deleted keys, and the dead letters."""
    (folder / "batch").mkdir(parents=True)
    database = {"postgres": "postgresql://u@h/d", "mysql": "mysql://u@h/d"}[kind]
    into = {"type": kind, "database": database, "table": "t", "key": ["id"], "on_conflict": "replace", "on_null": "delete"}
    pipeline = Pipeline.model_validate(
        {
            "name": "p",
            "source": {"brokers": "b", "topic": "t"},
            "into": into,
            "format": {"type": format, **({"source_table": table} if table else {})},
        }
    )
    columns = Columns.of({"id": column})
    shape = shaped(pipeline, None, columns, lambda: columns, no_nul=frozenset({VARCHAR} if kind == "postgres" else ()))
    job = JobSpec(
        "batch", {}, str(folder), pipeline.format, (TableSpec(columns, unique=columns, shape=shape, deletes=True),),
        limits=limits_of(pipeline), **{"constraint": "dead_letter", **policies},
        held={SOURCE: RecordBlock.of(range(len(records)), [0] * len(records), [value for _, value in records],
                                     keys=[key for key, _ in records])},
    )  # fmt: skip
    report = stage(job, Piece(SOURCE, Range(0, len(records))))
    assert report.counts.unaccounted(len(records)) == 0
    file, dead = report.tables[0].deletes, report.dead_letters
    letters = [] if dead is None else pq.read_table(dead.path).to_pylist()
    deleted = [] if file is None else pq.read_table(file.path).column("id").to_pylist()
    return report, deleted, [(letter["offset"], letter["stage"], letter["reason"]) for letter in letters]


CASES = [
    ("postgres", "VARCHAR", b"a\x00b", b"ab", "constraint", "id: the character NUL, which the table cannot store"),
    ("postgres", "TIMESTAMP", b"5000-01-01 (BC) 00:00:00", b"2026-01-01", "parse",
     "is beyond what PostgreSQL can store as TIMESTAMP"),
    ("mysql", "TIMESTAMP", b"20000-01-01", b"2026-01-01", "parse", "is beyond what MySQL can store as TIMESTAMP"),
    ("mysql", "DOUBLE", b"nan", b"1.5", "parse", "id: nan is beyond what MySQL can store as DOUBLE"),
]  # fmt: skip


@each_case("kind, column, bad, good, phase, reason", CASES)
def test_a_tombstone(kind: str, column: str, bad: bytes, good: bytes, phase: str, reason: str, tmp_path: Path) -> None:
    report, deleted, dead = staged(tmp_path / f"{kind}{column}", kind, column, [(bad, None), (good, None), (bad, None)])
    assert (len(deleted), report.counts.deletes, report.counts.dead_letters) == (1, 1, 2)
    assert [(at, stage) for at, stage, _ in dead] == [(0, phase), (2, phase)] and all(reason in why for _, _, why in dead)


def test_a_tombstone_beside_events_of_other_tables_deletes_nothing(tmp_path: Path) -> None:
    """It names no table; the event of the delete comes before it."""
    deletes = [{"op": "d", "before": None, "after": None, "source": {"table": name}} for name in ("orders", "customers")]
    records: list[tuple[bytes, bytes | None]] = [
        (b'{"id":%d}' % at, json.dumps(event).encode()) for at, event in enumerate(deletes)
    ]
    records += [(key, None) for key, _ in records]
    report, deleted, dead = staged(tmp_path / "one", "postgres", "BIGINT", records, "debezium", "orders")
    assert (deleted, dead, report.counts.filtered) == ([0], [], 3)


@each_case("kind, column, bad, good, phase, reason", CASES)
def test_a_delete_of_a_change_event(
    kind: str, column: str, bad: bytes, good: bytes, phase: str, reason: str, tmp_path: Path
) -> None:
    if column == "DOUBLE":
        bad, good = b"NaN", b"1.5"
    event = b'{"op":"d","before":null,"after":null}'
    records = [(json.dumps({"id": text.decode()}).encode(), event) for text in (good, bad)]
    _, deleted, dead = staged(tmp_path / f"{kind}{column}", kind, column, records, "debezium")
    assert len(deleted) == 1 and [(at, stage) for at, stage, _ in dead] == [(1, phase)] and reason in dead[0][2]


def test_the_policy_is_that_of_a_row(tmp_path: Path) -> None:
    with pytest.raises(RecordRejected, match=r"offset 0: id: .* is beyond what MySQL can store"):
        staged(tmp_path, "mysql", "TIMESTAMP", [(b"20000-01-01", None)], parse="fail")
    report, deleted, dead = staged(tmp_path / "2", "postgres", "VARCHAR", [(b"a\x00b", None)], constraint="skip")
    assert (report.counts.filtered, deleted, dead) == (1, [], [])
