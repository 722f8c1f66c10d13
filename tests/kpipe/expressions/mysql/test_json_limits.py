"""Hostile documents and patterns, and functions of JSON that are refused."""

from __future__ import annotations

import json

import duckdb
import pytest

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.compiler import check, compiled
from kpipe.expressions.mysql.function_list import known
from kpipe.expressions.mysql.refused.functions import REFUSED
from tests.cases import each_case
from tests.kpipe.expressions.mysql.json_answers import RESOLVE, Ask


def test_levels_are_bounded_as_in_mysql(ask: Ask) -> None:
    deep = "[" * 100 + "1" + "]" * 100
    assert ask("JSON_DEPTH(said)", deep) == "101"
    for levels in (101, 5_000, 200_000):
        with pytest.raises(duckdb.InvalidInputException, match="more than 100 levels"):
            ask("said::a", "[" * levels + "]" * levels)
    wide = json.dumps([[1]] * 1000)
    assert ask("JSON_LENGTH(said)", wide) == "1000"


def test_documents_of_megabytes(ask: Ask) -> None:
    document = json.dumps({f"k{at}": "ü" * 100 for at in range(20_000)} | {"last": [1.25]})
    assert ask("said::last::%`0`", document) == "1.25"
    changed = ask("JSON_SET_STRING(said, 'k1', 'x')", document)
    assert changed is not None and json.loads(changed) == {**json.loads(document), "k1": "x"}


def test_numbers_of_thousands_of_digits(ask: Ask) -> None:
    fraction, digits = "0.4" + "9" * 5000, "9" * 5000
    assert ask("said::a", f'{{"a": {digits}}}') == digits
    assert ask("JSON_EXTRACT_BIGINT(said, 'a')", f'{{"a": {fraction}}}') == "0"
    assert ask("JSON_EXTRACT_BIGINT(said, 'a')", f'{{"a": -{digits}}}') == "-9223372036854775808"
    assert ask("said::a :> DECIMAL(10,3)", f'{{"a": {fraction}}}') == "0.500"
    assert ask("said::a :> DECIMAL(10,3)", f'{{"a": -{digits}}}') == "-9999999.999"
    assert ask("said::a :> DECIMAL(10,3)", '{"a": 1e-999999999999}') == "0.000"
    assert ask("said::a :> DECIMAL(4,3)", '{"a": 9.9995}') == "9.999"
    assert ask("said::a = 0", f'{{"a": {fraction}}}') == "0"
    assert ask("JSON_TYPE(said::a)", f'{{"a": {digits}}}') == "DOUBLE"
    assert ask("said::%a > 1", f'{{"a": {digits}}}') == "1"


def test_no_pattern_of_a_record_makes_a_search_last(ask: Ask) -> None:
    document = json.dumps(["a" * 3000, "%a" * 40 + "%b"])
    assert ask("JSON_SEARCH(said, 'one', JSON_EXTRACT_STRING(said, 1))", document) == '"$[1]"'
    assert ask("JSON_SEARCH('[\"x%y\", \"xzy\"]', 'all', 'x|%y', '|')") == '"$[0]"'
    assert ask("JSON_SEARCH(said, 'all', '%')", '["x\\ny", ""]') == '["$[0]","$[1]"]'


def test_an_array_is_not_filled_without_end(ask: Ask) -> None:
    with pytest.raises(duckdb.InvalidInputException, match="at most 1000000 elements"):
        ask("JSON_SET_DOUBLE('[]', 999999999, 1)")


REFUSALS = [
    ("JSON_EXTRACT_STRING(doc, '$.a')", "name of one member", "'a', 'b', 0"),
    ("JSON_EXTRACT_BIGINT(doc, '$[0]')", "name of one member", "'a', 'b', 0"),
    ("JSON_EXTRACT(doc, 'a')", "invalid JSON path: a", "'$.member.other[0]'"),
    ("JSON_EXTRACT(doc, '$.a-b')", "invalid JSON path", "'$.\"a-b\"'"),
    ("JSON_EXTRACT(doc, '$[-1]')", "invalid JSON path", ""),
    ("JSON_EXTRACT(doc, '$**')", "ends in **", ""),
    ("doc->'a'", "invalid JSON path: a", ""),
    ("JSON_SET(doc, '$.*', 1)", "a * or a range", "one value"),
    ("JSON_SET(doc, '$.a')", "expected 3 or more arguments", ""),
    ("JSON_SET(doc, '$.a', 1, '$.b')", "the last one is incomplete", ""),
    ("JSON_OBJECT('a')", "the last one is incomplete", ""),
    ("JSON_REMOVE(doc, '$')", "cannot remove $", "write NULL"),
    ("JSON_ARRAY_INSERT(doc, '$.a', 1)", "does not end in an array index", "'$.list[0]'"),
    ("JSON_KEYS(doc, said)", "must be literals", "'$.a'"),
    ("JSON_QUOTE(5)", "expected a text", "TO_JSON"),
    ("JSON_ARRAY_UNPACK('x')", "expected a vector", "JSON_ARRAY_PACK"),
    ("JSON_CONTAINS_PATH(doc, 'some', '$.a')", "expected 'one' or 'all', found 'some'", ""),
    ("doc::a < doc::b", "have no order", "value::%a"),
    ("JSON_AGG(doc)", "it is an aggregate", "JSON_BUILD_ARRAY"),
    ("BSON_EXTRACT_STRING(doc, 'a')", "kpipe has no BSON type", "JSON_EXTRACT_STRING"),
    ("JSON_TABLE(doc)", "not rows", "UNNEST"),
    ("JSON_TABLE(doc, '$[*]' COLUMNS(a INT PATH '$.a'))", "JSON_TABLE is not supported", "UNNEST"),
]


@each_case(("expression", "what", "hint"), REFUSALS, ids=[one for one, _, _ in REFUSALS])
def test_what_cannot_mean_the_same_is_refused_with_what_works(expression: str, what: str, hint: str) -> None:
    with pytest.raises(Untranslated) as refused:
        compiled(expression, RESOLVE)
    assert what in refused.value.what
    assert hint in refused.value.hint
    assert refused.value.start is not None


def test_no_function_is_both_known_and_refused() -> None:
    assert not known().keys() & REFUSED.keys()


def test_what_the_refusals_name_instead_is_compiled() -> None:
    for expression in (
        "JSON_BUILD_ARRAY(a, b)",
        "JSON_OBJECT('a', a, 'b', b)",
        "JSON_EXTRACT_JSON(value, 0)",
        "JSON_MATCH_ANY_EXISTS(value, 'a', 'b')",
        "value::a::$b = 'x'",
        "JSON_BUILD_OBJECT('a', value::a)",
        "JSON_DELETE_KEY(value, 'a')",
        "JSON_MERGE_PRESERVE(a, b)",
        "CAST(a AS JSON) = CAST(b AS JSON)",
        "JSON_PRETTY(value)",
        "JSON_TYPE(value->'$.a') = 'INTEGER'",
        "JSON_ARRAY_CONTAINS_JSON(array, TO_JSON(value))",
        "CAST(JSON_VALUE(value, '$.a') AS SIGNED)",
        "COALESCE(JSON_VALUE(value, '$.a'), 0)",
    ):
        check(expression)


@each_case("said", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_lacks_are_refused_with_what_works(ask: Ask, said: str) -> None:
    document = f'{{"a": [1, {said}]}}'
    with pytest.raises(duckdb.InvalidInputException) as refused:
        ask("JSON_EXTRACT(said, '$.a')", document)
    assert f'{said} is not JSON; write null, or "{said}" in quotes' in str(refused.value)
    assert ask("said::a", document) is None
    assert ask("JSON_EXTRACT(said, '$.a')", document.replace(said, f'"{said}"')) == f'[1,"{said}"]'
