"""Notations convert without loss: statement to value to statement, and YAML to SQL to YAML."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.yaml_codec import from_yaml, to_yaml
from kpipe.errors import InvalidPipeline, InvalidStatement
from kpipe.expressions.quoting import quoted, unquoted
from kpipe.sql import statements as s
from kpipe.sql.parser import is_complete, read, read_all
from kpipe.sql.renderer import to_sql, write
from tests.cases import each_case
from tests.kpipe.sql.strategies import pipelines, statements

SMALLEST = {"name": "p", "source": {"brokers": "b", "topic": "t"}, "into": {"table": "t"}}


@settings(max_examples=100)
@given(pipelines)
def test_a_definition_is_the_same_in_every_notation(pipeline: Pipeline) -> None:
    text = to_sql(pipeline)
    found = read(text)
    assert found == s.Create(pipeline)
    assert isinstance(found, s.Create)
    assert to_sql(found.pipeline) == text
    assert from_yaml(to_yaml(found.pipeline), environ={}) == pipeline


def test_skip_all_errors_is_written_as_it_was_said() -> None:
    begin = "CREATE PIPELINE p AS\nLOAD DATA KAFKA 'b:9092/t'\n"
    for clause in ("SKIP ALL ERRORS", "SKIP CONSTRAINT ERRORS", "SKIP DUPLICATE KEY ERRORS", "REPLACE\nSKIP CONSTRAINT ERRORS"):
        made = read(f"{begin}{clause}\nINTO TABLE t\nFORMAT JSON")
        assert isinstance(made, s.Create)
        assert f"\n{clause}\nINTO" in to_sql(made.pipeline)


@settings(max_examples=100)
@given(statements)
def test_a_statement_that_is_written_is_read_as_the_same(statement: s.Statement) -> None:
    text = write(statement)
    assert read(text) == statement
    assert is_complete(text)
    assert write(read(text)) == text


@settings(max_examples=40)
@given(st.lists(statements, max_size=4), st.sampled_from([" ", "\n", " -- x; y\n", ";;", "/* ; */"]))
def test_statements_of_a_script_are_read_in_order(found: list[s.Statement], between: str) -> None:
    assert list(read_all(between.join(map(write, found)) + between)) == found


@given(st.text(max_size=40) | st.text("'\"`;()-/*%@:<>=\\ aA1\n{}", max_size=40))
def test_any_text_is_statements_or_an_error_that_says_where(text: str) -> None:
    try:
        list(read_all(text))
        list(read_all("CREATE PIPELINE " + text))
        list(read_all("CREATE PIPELINE a AS LOAD DATA KAFKA 'h/t' INTO TABLE t FORMAT JSON SET a = " + text))
    except InvalidStatement as error:
        assert str(error).startswith("line ")
        shown, marks = error.excerpt.split("\n")[-2:]
        assert "^" in marks and len(marks) <= 2 * len(shown) + 1  # wide characters take two columns


@given(st.text())
def test_texts_in_quotes(text: str) -> None:
    assert unquoted(quoted(text)) == text
    assert "\n" not in quoted(text)


@each_case(
    "fields",
    [
        {"where": "a; DROP PIPELINE p"},
        {"where": "a) OR (b"},
        {"where": "a WHERE b"},
        {"where": ""},
        {"set": {"a": "1, b = 2"}},
        {"transform": {"program": "p", "archive": "no-suffix"}},
        {"transform": {"program": "x.zip"}},
    ],
)
def test_what_no_statement_can_say_is_told_and_not_changed(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidPipeline, match="cannot be written as a statement"):
        to_sql(Pipeline.model_validate({**SMALLEST, **fields}))


def test_a_secret_that_stands_in_a_definition_is_masked() -> None:
    source = {"brokers": "b", "topic": "t", "credentials": {"sasl.password": "hunter2", "sasl.username": "u"}}
    text = to_sql(Pipeline.model_validate({**SMALLEST, "source": source}))
    assert "hunter2" not in text
    assert '"sasl.password": "***", "sasl.username": "u"' in text
    with pytest.raises(InvalidStatement, match="is a literal"):
        read(text)
