"""Rows that the clauses of a statement give: expressions on the record's key, `true` and `false` at paths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kpipe.batch.batch import Batch, Piece
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline
from kpipe.expressions.projection import Selection
from kpipe.ingest.staging import wanted
from kpipe.offsets import Range
from kpipe.sql.parser import read
from kpipe.sql.statements import Create
from kpipe.topics import PartitionId, TopicId
from resources.decode.block import Payloads
from resources.decode.factory import sampled
from resources.home import Home
from resources.kafka.record_block import RecordBlock
from resources.spark.driver.sample_stager import LocalStager
from resources.spark.task.range_writer import RangeOutput


def created(rows: str, options: str = "{}") -> Pipeline:
    statement = read(f"CREATE PIPELINE p AS LOAD DATA KAFKA 'b:9092/t' OPTIONS '{options}' INTO TABLE t {rows}")
    assert isinstance(statement, Create)
    return statement.pipeline


def loaded(pipeline: Pipeline, home: Path, values: list[bytes], keys: list[bytes | None]) -> list[dict[str, Any]]:
    """The rows that values with these keys give, without Kafka's coordinates."""
    stager = LocalStager(pipeline, Home(home).make())
    stager._seen[""] = "", sampled(pipeline.format, values, pipeline.key_format, [key for key in keys if key])
    batch = Batch("b", "p", ())
    job = stager._shaped(batch, [wanted(pipeline, None, lambda: stager.columns(batch, 0))], None)
    output = RangeOutput(job, Piece(PartitionId(TopicId("c", "t", "t"), 0), Range(0, len(values))))
    held = RecordBlock.of(range(len(values)), [0] * len(values), values, keys)
    output.decoded([reads.decode(Payloads.of_array(held.column("line")), held.column("key")) for reads in job.decoders], held)
    report = output.finish(len(values), 0, 0)
    found = [row for file in report.tables[0].files for row in pq.read_table(file.path).to_pylist()]
    return [{name: value for name, value in row.items() if not name.startswith("_kafka_")} for row in found]


VALUES = [b'{"id": 1, "n": 2}', b'{"id": 2, "n": 3}']


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # a column of the key's mapping
        ("FORMAT JSON (id <- id) FORMAT JSON KAFKA KEY (device <- d) SET twice = CONCAT(device, device) WHERE device = 'x'",
         [{"id": 1, "device": "x", "twice": "xx"}]),
        # a variable of the key: a boolean is '1', as one of the value is
        ("FORMAT JSON (id <- id) FORMAT JSON KAFKA KEY (@on <- f DEFAULT NULL) SET up = @on",
         [{"id": 1, "up": "1"}, {"id": 2, "up": None}]),
        # the value is open: a variable of the key
        ("FORMAT JSON FORMAT JSON KAFKA KEY (@d <- d) SET dev = @d",
         [{"id": 1, "n": 2, "dev": "x"}, {"id": 2, "n": 3, "dev": "y"}]),
    ],
)  # fmt: skip
def test_expressions_see_the_columns_of_the_key(rows: str, expected: list[dict[str, Any]], tmp_path: Path) -> None:
    keys = [b'{"d": "x", "f": true}', b'{"d": "y"}']
    assert loaded(created(rows), tmp_path, VALUES, keys) == expected


def test_a_variable_of_a_key_that_is_csv_is_text(tmp_path: Path) -> None:
    pipeline = created("FORMAT JSON (id <- id) FORMAT CSV KAFKA KEY (@d) SET dev = UPPER(@d)")
    assert loaded(pipeline, tmp_path, VALUES, [b"x", b"true"]) == [{"id": 1, "dev": "X"}, {"id": 2, "dev": "TRUE"}]


def test_a_key_without_a_list_may_give_any_column() -> None:
    Selection.of(Pipeline.model_validate({
        "name": "p", "source": {"brokers": "b:9092", "topic": "t"}, "into": {"table": "t"},
        "format": {"mapping": {"id": "id"}}, "key_format": {"type": "json"}, "set": {"up": "upper(device)"},
    }))  # fmt: skip


def test_what_neither_gives_is_refused_with_the_columns_of_both() -> None:
    pipeline = created("FORMAT JSON (id <- id) FORMAT JSON KAFKA KEY (device <- d) SET up = nosuch")
    with pytest.raises(InvalidPipeline) as error:
        Selection.of(pipeline)
    assert "uses nosuch, which the record does not have (columns: id, device)" in str(error.value), json.dumps(pipeline.to_dict())


@pytest.mark.parametrize(
    ("booleans", "expected"),
    [
        (None, [{"id": 1, "said": "1", "tiny": 1}, {"id": 2, "said": "0", "tiny": 0}, {"id": 3, "said": "true", "tiny": 7}]),
        ("json", [{"id": 3, "said": "true", "tiny": 7}]),
    ],
)
def test_true_and_false_are_1_and_0_in_a_statement(booleans: str | None, expected: list[Any], tmp_path: Path) -> None:
    """As in SingleStore; OPTIONS give a statement what a file means."""
    values = [b'{"id": 1, "a": true, "b": true}', b'{"id": 2, "a": false, "b": false}', b'{"id": 3, "a": "true", "b": 7}']
    columns = {"said": "VARCHAR", "tiny": "TINYINT"}
    options = {"columns": columns, **({"format": {"booleans": booleans}} if booleans else {})}
    pipeline = created("FORMAT JSON (id <- id, said <- a, tiny <- b)", json.dumps(options))
    assert loaded(pipeline, tmp_path, values, [None] * 3) == expected


def test_a_variable_and_a_column_of_one_path_are_the_same(tmp_path: Path) -> None:
    pipeline = created("FORMAT JSON (a <- f, @a <- f) SET b = @a, c = DUCKDB('@a')", '{"columns": {"a": "VARCHAR"}}')
    assert loaded(pipeline, tmp_path, [b'{"f": true}'], [None]) == [{"a": "1", "b": "1", "c": "1"}]
