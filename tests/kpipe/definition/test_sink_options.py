"""`into` of a topic: its fields, what belongs to which type, and both notations."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.sink_options import table_of
from kpipe.sql.parser import read
from kpipe.sql.renderer import to_sql
from kpipe.sql.statements import Create
from tests.cases import each_case

SOURCE = {"brokers": "a:9092", "topic": "t"}


def pipeline(**into: Any) -> Pipeline:
    return Pipeline.model_validate({"name": "p", "source": SOURCE, "into": into})


def test_the_table_is_called_like_the_topic() -> None:
    into = pipeline(type="kafka", brokers=["a:1", "b:2"], topic="out.a-b").into
    assert (into.table, into.brokers) == ("out_a_b", "a:1,b:2")
    assert pipeline(type="kafka", brokers="a", topic="out", table="other").into.table == "other"
    assert (table_of("9-lives"), len(table_of("x" * 249))) == ("t9_lives", 63)


@each_case(
    ("into", "said"),
    [
        ({"type": "duckdb", "table": "t", "topic": "x"}, "topic belongs to type: kafka; the type is duckdb"),
        ({"table": "t", "transaction_timeout_s": 5}, "transaction_timeout_s belongs to type: kafka"),
        ({"type": "kafka", "topic": "x"}, "type: kafka needs brokers"),
        ({"type": "kafka", "brokers": "a", "table": "t"}, "type: kafka needs topic"),
        ({"type": "kafka", "brokers": "a", "topic": "a/b"}, "'a/b' is not a topic's name"),
        ({"type": "kafka", "brokers": " , ", "topic": "x"}, "names no broker"),
    ],
)
def test_fields_of_another_type_and_missing_ones_are_refused(into: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        pipeline(**into)


def test_a_statement_says_the_same() -> None:
    one = pipeline(type="kafka", brokers="a:1", topic="out.x", key=["id"], format="raw", config={"security.protocol": "SSL"})
    assert read(to_sql(one)) == Create(one, False, False)
    assert Pipeline.model_validate(one.to_dict()) == one
