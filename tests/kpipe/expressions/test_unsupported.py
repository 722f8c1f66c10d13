"""Expressions that are refused by name, and texts that are no expression."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpipe.expressions import languages
from kpipe.expressions.duckdb_dialect import columns_of, to_duckdb
from kpipe.expressions.errors import Untranslated
from kpipe.expressions.quoting import quoted as quote
from tests.cases import each_case
from tests.kpipe.expressions.values import value


@each_case(
    ("text", "words"),
    [
        ("", "an expression is missing"),
        ("  -- nothing", "an expression is missing"),
        ("a b c", "not an expression"),
        ("a = = 1", "not an expression (near =) -> write one expression of DuckDB's SQL"),
        ("a,", "not"),
        ("a, b", "not one expression"),
        ("a) FROM (b", "not one expression"),
        ("a); DROP TABLE t; SELECT (b", "; is not allowed in an expression"),
        ("a +", "not an expression"),
        ("(a", "not"),
        ("'a", "unterminated quote: 'a"),
        ("(SELECT 1)", "a query is not allowed in an expression"),
        ("a + (SELECT max(b) FROM t)", "a query is not allowed in an expression"),
        ("EXISTS (SELECT 1)", "a query is not allowed in an expression"),
        ("row_number() OVER ()", "a window function is not allowed in an expression"),
        ("a XOR b", "XOR is a MySQL operator: expected DuckDB's SQL -> begin the expression with mysql:"),
        ("doc::$name", "::$ is a MySQL operator"),
        ("doc::%name", "::% is a MySQL operator"),
        ("t !:> DATE", "!:> is a MySQL operator"),
        ("a DIV b", "DIV is a MySQL operator"),
        ("get_kafka_pipeline_prop(a)", "takes one name in quotes"),
    ],
)
def test_what_cannot_be_translated_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(Untranslated) as raised:
        to_duckdb(text)
    assert words in str(raised.value)


@settings(max_examples=60)
@given(st.text(max_size=12) | st.text("'\"\\{}$`@", max_size=8))
def test_texts_stay_texts(engine: duckdb.DuckDBPyConnection, text: str) -> None:
    """Whatever a text holds, it comes out of DuckDB as it went in: through a rule, and as a key and a header's name."""
    if "\0" in text:
        return
    quoted = quote(text)
    assert value(engine, f"CONCAT({quoted})") == text
    header = f"get_kafka_pipeline_prop({quoted})"
    assert value(engine, header) in (None, "two", "key", "orders", "3", "120", "1795132800123")


@given(st.text(max_size=30) | st.text("()[]{}'\"`,;:@%-/* aN1", max_size=30))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        to_duckdb(text)
        columns_of(text)
    except Untranslated as error:
        assert str(error)


@each_case(
    ("text", "words"),
    [
        ("", "an expression is missing"),
        ("a b c", "unexpected b"),
        ("a +", "unexpected end of the expression"),
        ("(a, b)", "a list is only allowed after IN or beside another list"),
        ("'a", "unterminated quote or comment: 'a"),
        ("(SELECT 1)", "a query is not allowed in an expression"),
        ("SUM(a)", "SUM is not supported: it needs many rows"),
        ("list_sum(a)", "unknown function LIST_SUM"),
        ("CONCATT(a)", "did you mean CONCAT?"),
        ("LEFT(a)", "LEFT: expected 2 arguments, found 1"),
        ("a || b", "|| means OR in MySQL, and concatenation in other databases"),
        ("a = 'x' COLLATE utf8_general_ci", "collation utf8_general_ci is not supported"),
        ("DUCKDB('a') + 1", "must be the whole expression"),
        ("x[1]", "[ is not an operator of MySQL"),
        ("a := 1", "an assignment is not allowed in an expression"),
        ("STR_TO_DATE(t, a)", "STR_TO_DATE"),
    ],
)
def test_what_is_not_on_the_list_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(Untranslated) as raised:
        languages.read_expression(text)
    assert words in str(raised.value)


@given(st.text(max_size=30) | st.text("()[]{}'\"`,;:@%-/*<>=!& aN1", max_size=30))
def test_any_text_is_an_expression_of_mysqls_or_refused(text: str) -> None:
    try:
        languages.names_of(languages.read_expression(text))
    except Untranslated as error:
        assert str(error)
