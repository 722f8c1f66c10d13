"""Functions of JSON with arguments of every type: a value, an error of the record, or a refusal that points at a place."""

from __future__ import annotations

import random
from collections.abc import Iterator

import duckdb
import pytest

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.compiler import compiled, of_columns
from kpipe.expressions.mysql.json.json_functions import FUNCTIONS
from kpipe.expressions.mysql.values import text
from kpipe.schema.columns import Columns
from resources.duckdb_engine.in_memory import register
from tests.cases import each_case

RESOLVE = of_columns(Columns.of({"doc": "JSON", "said": "VARCHAR", "n": "BIGINT"}))
KINDS = ["doc", "said", "n", "doc::a", "1", "-1.50", "1e300", "TRUE", "NULL", "''", "'$.a'", "'one'", "'[1]'", "x'00FF'"]
KINDS += ["DATE '2024-02-29'", "CURRENT_TIMESTAMP", "INTERVAL 1 DAY"]
DOCUMENTS = ['{"a": [1, "x"]}', "[5, null]", "true", "null", '"a"']


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        register(connection)
        connection.execute("CREATE TABLE records (doc JSON, said VARCHAR, n BIGINT)")
        for at, document in enumerate(DOCUMENTS):
            connection.execute("INSERT INTO records VALUES (?, ?, ?)", [document, document, at])
        connection.execute("INSERT INTO records VALUES (NULL, 'no document', NULL)")
        yield connection


@each_case("name", sorted(FUNCTIONS))
def test_arguments_of_every_type_give_a_value_or_an_error_of_the_record_or_are_refused_at_a_place(
    engine: duckdb.DuckDBPyConnection, name: str
) -> None:
    function, chosen = FUNCTIONS[name], random.Random(name)
    for _ in range(6):
        count = chosen.randint(function.least, function.most or function.least + 3)
        call = f"{name}({', '.join(chosen.choice(KINDS) for _ in range(count))})"
        for expression in (call, f"CONCAT({call}, '')", f"IF({call} = 1, 'a', {call})"):
            try:
                engine.execute(f"SELECT {text(compiled(expression, RESOLVE)).sql} FROM records").fetchall()
            except Untranslated as refused:
                assert refused.start is not None, expression
            except duckdb.InvalidInputException as error:
                assert "UDF: Invalid: " in str(error), expression
            except duckdb.ConversionException as error:  # bytes that are no text
                assert "could not convert blob to UTF8 string" in str(error), expression
