"""The guide to expressions: each of its examples gives the rows that stand there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from kpipe.batch.batch import Batch, Piece
from kpipe.definition.pipeline import Pipeline
from kpipe.ingest.staging import wanted
from kpipe.offsets import Range
from kpipe.topics import PartitionId, TopicId
from kpipe_assets.validation import Needs, validate
from resources.decode.block import Payloads
from resources.decode.factory import sampled
from resources.home import Home
from resources.kafka.record_block import RecordBlock
from resources.spark.driver.sample_stager import LocalStager
from resources.spark.task.range_writer import RangeOutput

GUIDE = (Path(__file__).parents[3] / "docs" / "reference" / "expressions.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SOURCE = PartitionId(TopicId("c", "t", "tweets"), 3)


def examples() -> list[list[tuple[str, str]]]:
    """Blocks from one definition to the next."""
    found: list[list[tuple[str, str]]] = []
    for kind, text in _BLOCK.findall(GUIDE):
        if kind == "yaml":
            found.append([])
        found[-1].append((kind, text))
    return found


@pytest.mark.parametrize("blocks", examples(), ids=lambda blocks: blocks[0][1].split("\n")[0][:40])
def test_an_example_gives_the_rows_that_stand_there(blocks: list[tuple[str, str]], tmp_path: Path) -> None:
    (_, definition), (_, records), (_, rows), *more = blocks
    base = {"name": "p", "source": {"brokers": "b:9092", "topic": "tweets"}, "into": {"table": "t"}}
    pipeline = Pipeline.model_validate({**base, **yaml.safe_load(definition)})
    validate(pipeline, Home(tmp_path), Needs.FIELDS)
    values = [line.encode() for line in records.splitlines()]
    stager = LocalStager(pipeline, Home(tmp_path).make())
    stager._seen[""] = "", sampled(pipeline.format, values)
    batch = Batch("b", "p", ())
    job = stager._shaped(batch, [wanted(pipeline, None, lambda: stager.columns(batch, 0))], None)
    output = RangeOutput(job, Piece(SOURCE, Range(0, len(values))))
    held = RecordBlock.of(range(len(values)), [0] * len(values), values)
    output.decoded([reads.decode(Payloads.of_array(held.column("line"))) for reads in job.decoders], held)
    report = output.finish(len(values), 0, 0)
    assert not report.tables[0].new_columns, "all of it is known from the sample"
    assert found(*report.tables[0].files) == [json.loads(line) for line in rows.splitlines()]
    assert [row["reason"] for row in found(report.dead_letters)] == [line for _, text in more for line in text.splitlines()]


def found(*files: Any) -> list[dict[str, Any]]:
    rows = [row for file in files if file is not None for row in pq.read_table(file.path).to_pylist()]
    shown = [{k: v for k, v in row.items() if not k.startswith("_kafka_")} for row in rows]
    return [{k: v if isinstance(v, int | float | str | None) else str(v) for k, v in row.items()} for row in shown]
