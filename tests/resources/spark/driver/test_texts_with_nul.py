"""Texts with the character NUL, for destinations that cannot store them: records through the code that tasks run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow.parquet as pq
import pytest

from kpipe.batch.dead_letter_replay import DeadLetter
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import RecordRejected
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, TopicId
from resources.home import Home
from resources.spark.driver.dead_letter_stager import LettersStager, batch_of
from tests.cases import each_case

SOURCE = PartitionId(TopicId("c", "i", "t"), 0)
COLUMNS = Columns.of({"id": "BIGINT", "text": "VARCHAR", "j": "JSON"})
RAW, ESCAPED = {"text": "m\0n"}, {"j": {"a": "m\0n"}}


def staged(
    folder: Path, kind: str, *records: dict[str, Any], constraint: str, headers: Mapping[int, str] = MappingProxyType({})
) -> tuple[list[int], dict[int, str]]:
    """Stage records, with names of headers by offset; return the offsets of the rows, and the reasons of the dead letters."""
    database = {"postgres": {"database": "postgresql://u@h/d"}}.get(kind, {})
    pipeline = Pipeline.model_validate(
        {
            "name": "p",
            "source": {"brokers": "b", "topic": "t"},
            "into": {"type": kind, "table": "t", **database},
            "metadata": ["headers"],
            "errors": {"constraint": constraint},
        }
    )
    letters = [
        DeadLetter(at, "b", SOURCE, at, 0, None, json.dumps({"id": at, **record}).encode(), [(headers.get(at, "h"), b"v")])
        for at, record in enumerate(records)
    ]
    stager = LettersStager(pipeline, Home(folder / "home").make(), letters)
    (report,) = stager.stage(batch_of("b", "p", letters), [COLUMNS])
    assert report.counts.unaccounted(len(records)) == 0
    rows = [row["_kafka_offset"] for file in report.tables[0].files for row in pq.read_table(file.path).to_pylist()]
    dead = [] if report.dead_letters is None else pq.read_table(report.dead_letters.path).to_pylist()
    return rows, {letter["offset"]: letter["reason"] for letter in dead}


def test_a_ducklake_takes_none_whatever_the_policy(tmp_path: Path) -> None:
    """Only the bounds of the written files make queries miss rows, but any row may become a bound."""
    with pytest.raises(RecordRejected, match="t/0 offset 1: text: the character NUL, which the table cannot store") as refused:
        staged(tmp_path, "ducklake", {"text": "z"}, RAW, {"text": "a"}, constraint="fail")
    assert refused.value.record == (SOURCE, 1) and "errors.constraint" in refused.value.hint
    rows, dead = staged(tmp_path, "ducklake", {"text": "z"}, RAW, {"text": "a"}, constraint="dead_letter")
    assert rows == [0, 2] and list(dead) == [1]
    assert staged(tmp_path, "ducklake", {}, RAW, constraint="skip") == ([0], {})


@each_case("kind, constraint, rows", [
    ("ducklake", "fail", [0, 1]), ("ducklake", "dead_letter", [0, 1]), ("postgres", "dead_letter", [0]),
    ("duckdb", "dead_letter", [0, 1]),
])  # fmt: skip
def test_the_escape_in_json_is_not_the_character(kind: str, constraint: str, rows: list[int], tmp_path: Path) -> None:
    """PostgreSQL's jsonb does not store it either."""
    found, dead = staged(tmp_path / f"{kind}{constraint}", kind, {}, ESCAPED, constraint=constraint)
    assert (found, list(dead)) == (rows, [at for at in range(2) if at not in rows])


@pytest.mark.parametrize("kind", ["ducklake", "postgres"])
def test_the_name_of_a_header_is_a_text(kind: str, tmp_path: Path) -> None:
    rows, dead = staged(tmp_path, kind, {}, {}, {}, constraint="dead_letter", headers={1: "n\0m"})
    assert rows == [0, 2]
    assert dead == {1: "_kafka_headers: the character NUL, which the table cannot store"}
