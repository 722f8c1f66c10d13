"""CREATE SOURCE PIPELINE: files into a topic."""

from __future__ import annotations

from typing import Any

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidStatement
from kpipe.sql.parser import read
from kpipe.sql.renderer import to_sql
from tests.cases import each_case

HEAD = "CREATE SOURCE PIPELINE p AS LOAD DATA "


def defined(files: Any, **fields: Any) -> Pipeline:
    into = {"type": "kafka", "brokers": "h:1", "topic": "t", **fields.pop("into", {})}
    source = {"files": files, **fields.pop("source", {})}
    return Pipeline.model_validate({"name": "p", "source": source, "into": into, **fields})


@each_case(
    ("text", "pipeline"),
    [
        ("FILES '/in/*.jsonl' INTO KAFKA 'h:1/t' FORMAT JSON", defined("/in/*.jsonl")),
        ("FILES '/in/*' INTO KAFKA 'h:1/t' KEY (a, b) FORMAT JSON", defined("/in/*", into={"key": ["a", "b"]})),
        ("FILES '/in/*.parquet' INTO KAFKA 'h:1/t' FORMAT PARQUET", defined({"path": "/in/*.parquet", "type": "parquet"})),
        (
            "FILES '/in/*' INTO KAFKA 'h:1/t' FORMAT CSV FIELDS TERMINATED BY ',' IGNORE 1 LINES (a, b)",
            defined("/in/*", format={"type": "csv", "delimiter": ",", "skip_lines": 1, "fields": ["a", "b"]}),
        ),
        (
            "FILES '/in/*' OPTIONS '{\"source\": {\"files\": {\"header\": true}}}' INTO KAFKA 'h:1/t' FORMAT CSV",
            defined({"path": "/in/*", "header": True}, format={"type": "csv"}),
        ),
        (
            "FILES 's3://b/in/*' CREDENTIALS '{\"access.key.id\": \"${env:K}\"}' INTO KAFKA 'h:1/t' FORMAT JSON WHERE a > 1",
            defined("s3://b/in/*", source={"credentials": {"access.key.id": "{{ env('K') }}"}}, where="a > 1"),
        ),
        (
            "TABLE s.orders IN postgres 'postgresql://u@h/d' ORDER BY id INTO KAFKA 'h:1/t' KEY (id) FORMAT JSON",
            Pipeline.model_validate(
                {
                    "name": "p",
                    "source": {
                        "table": {"type": "postgres", "database": "postgresql://u@h/d", "name": "s.orders", "column": "id"}
                    },
                    "into": {"type": "kafka", "brokers": "h:1", "topic": "t", "key": ["id"]},
                }
            ),
        ),
        ("FILES '/in/*' INTO KAFKA 'h:1,i:2/t.u' FORMAT JSON", defined("/in/*", into={"brokers": "h:1,i:2", "topic": "t.u"})),
    ],
)
def test_a_statement_is_a_definition_and_back(text: str, pipeline: Pipeline) -> None:
    statement: Any = read(HEAD + text)
    assert statement.pipeline.model_copy(update={"where": None, "set": {}}) == pipeline.model_copy(update={"where": None})
    again: Any = read(to_sql(statement.pipeline))
    assert again.pipeline == statement.pipeline
    assert to_sql(statement.pipeline).startswith("CREATE SOURCE PIPELINE `p`\nAS LOAD DATA ")


def test_another_table_name_is_kept() -> None:
    pipeline = defined("/in/*", into={"table": "other"})
    again: Any = read(to_sql(pipeline))
    assert again.pipeline == pipeline


@each_case(
    ("text", "words"),
    [
        ("FILES '/in/*' INTO TABLE t FORMAT JSON", "CREATE SOURCE PIPELINE: expected FILES, TABLE or HTTP, and INTO KAFKA"),
        ("KAFKA 'h:1/s' INTO KAFKA 'h:1/t' FORMAT JSON", "CREATE SOURCE PIPELINE: expected FILES, TABLE or HTTP, and INTO KAFKA"),
        ("TABLE o ORDER BY id INTO KAFKA 'h:1/t'", "expected IN"),
        ("TABLE o IN sqlite 'x' ORDER BY id INTO KAFKA 'h:1/t'", "TABLE"),
        ("FILES 'in/*' INTO KAFKA 'h:1/t' FORMAT JSON", "FILES: 'in/*' is not an absolute path"),
        ("FILES '/in/../*' INTO KAFKA 'h:1/t' FORMAT JSON", "without '.', '..'"),
        ("FILES '/in/*' INTO KAFKA 'h:1' FORMAT JSON", "the topic is missing"),
        ("FILES '/in/*' OFFSETS LATEST INTO KAFKA 'h:1/t' FORMAT JSON", "start belongs to topics, not to files"),
        ("FILES '/in/*' CONFIG '{\"fetch.min.bytes\": 1}' INTO KAFKA 'h:1/t'", "config belongs to topics, not to files"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidStatement) as caught:
        read(HEAD + text)
    assert words in str(caught.value)
