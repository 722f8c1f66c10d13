"""Commits as text in a webhook's outbox: what is written is read, and so is what earlier versions have written."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from kpipe.batch.batch import Commit, Counts, Mark, StagedFile, TableWrite
from kpipe.definition.pipeline import Into
from kpipe.ledger.ledger import Lane, Step
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, TopicId
from resources.destinations.webhook.commit_codec import block_bytes, from_text, to_text

SOURCE = PartitionId(TopicId("c", "i", "t"), 3)
LANE, FILE = Lane(SOURCE, 0, 10), StagedFile("/staging/a.parquet", 9, 4, "00")


def commit() -> Commit:
    step = Step(LANE, 16)
    return Commit(
        "b", "p", (step.change,), steps=(step,),
        tables=(TableWrite("receipts", Columns.of({"id": "BIGINT"}), (FILE,), (), {LANE.key: Counts(rows=4, inserted=4)}),),
        records={LANE.key: Counts(messages=6, dead_letters=1, filtered=1, bytes=60)},
        dead_letters=(StagedFile("/staging/d.parquet", 1, 1, "11"),),
        metadata={SOURCE: {"rows": 4}}, run_id="r", version="v", started_ms=5, seconds=0.5,
        task_seconds={LANE.key: 1.25},
    )  # fmt: skip


def test_a_commit_is_read_as_it_was_written() -> None:
    into = Into(type="webhook", url="https://a.example", table="receipts")
    assert from_text(to_text(commit(), into)) == commit()


def test_the_limit_of_bytes_is_that_of_the_version_that_began_the_batch() -> None:
    """It decides which rows share a request, and so the keys of what was sent already."""
    assert block_bytes(to_text(commit(), size=1 << 20)) == 1 << 20
    assert block_bytes(to_text(commit())) is None


def test_a_commit_of_a_version_without_tables_is_read() -> None:
    """A batch that was on its way when kpipe was updated is finished as it was."""
    said = json.loads(to_text(commit()))
    del said["format"], said["task_seconds"]
    (table,) = said.pop("tables")
    records = said.pop("records")
    counts = asdict(Counts(messages=6, rows=4, dead_letters=1, filtered=1, bytes=60, inserted=4))
    source = ["c", "i", "t", 3]
    former = {
        **said, "columns": table["columns"], "files": table["files"], "deletes": [], "marks": [[source, 10, asdict(Mark(2, 3))]],
        "counts": [[source, LANE.start, counts]], "into": {"table": "receipts"},
    }  # fmt: skip
    found = from_text(json.dumps(former))
    assert records and found.only.marks == {(SOURCE, 10): Mark(2, 3)}
    assert found.writing(marks={}) == replace(commit(), task_seconds={})
    assert found.totals == Counts(messages=6, rows=4, dead_letters=1, filtered=1, bytes=60, inserted=4)
