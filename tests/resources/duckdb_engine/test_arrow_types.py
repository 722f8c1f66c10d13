"""The worker's engine: what kpipe writes as SQL is SQL."""

from __future__ import annotations

import duckdb
import pytest

from kpipe.schema.columns import Struct, parse_type
from resources.duckdb_engine import expressions, in_memory
from resources.duckdb_engine.arrow_types import cast_type


def test_every_word_of_sql_can_be_a_members_name() -> None:
    with duckdb.connect() as connection:
        words = [word for (word,) in connection.sql("SELECT keyword_name FROM duckdb_keywords()").fetchall()]
        assert {"at", "left", "select"} <= set(words)
        for word in words:
            kind = Struct(((word, parse_type("TIMESTAMP")), ("x", parse_type("INTEGER"))))
            assert connection.sql(f"SELECT CAST(NULL AS {kind}) AS v").columns == ["v"]
            assert connection.sql(f"SELECT CAST(NULL AS {cast_type(kind)}) AS v").columns == ["v"]
            assert parse_type(str(kind)) == kind


def test_what_a_json_function_refuses_is_told_in_its_own_words() -> None:
    deep = "[" * 101 + "]" * 101
    for argument, reason in (("x", "invalid JSON document: x"), (deep, "a JSON document has more than 100 levels")):
        with pytest.raises(duckdb.InvalidInputException) as error:
            in_memory.ask("SELECT kpipe_json('type', [?])", [argument])
        assert expressions._message(error.value).startswith(reason)


def test_null_is_an_argument_of_a_json_function_and_its_result() -> None:
    assert in_memory.ask("SELECT kpipe_json('set', ['{}', '$.a', 'null'])", []) == '{"a":null}'
    assert in_memory.ask("SELECT kpipe_json('set', ['{}', NULL, '1'])", []) is None
    assert in_memory.ask("SELECT typeof(kpipe_json_document('array', []))", []) == "JSON"
