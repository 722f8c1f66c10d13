"""Arguments that a rule names several times are computed once: SQL grows with the text, and RAND() is drawn once."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.columns import of_columns
from kpipe.expressions.mysql.compiler import compiled, computed
from kpipe.expressions.mysql.function_list import known
from kpipe.schema.columns import Columns
from resources.duckdb_engine.in_memory import register
from tests.cases import each_case
from tests.kpipe.expressions.mysql.generated import nestings
from tests.kpipe.expressions.mysql.records import COLUMNS, TYPES

TABLE = Columns.of({name: TYPES[name.rstrip("2")] for name in COLUMNS})
RESOLVE = of_columns(TABLE)
LEAVES = ("t", "i", "d", "f", "b", "dt", "at", "tm", "CONCAT(t, t2, t, t2, t)", "(i + n + i + n + i)", "(d / 3)")


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        register(connection)
        yield connection


def size(said: str) -> int:
    """Length of the compiled SQL; 0 for what is refused."""
    try:
        return len(compiled(said, RESOLVE).sql)
    except Untranslated as error:
        assert "too long" not in str(error), said
        return 0


def nested(form: str, leaf: str, depth: int) -> str:
    for _ in range(depth):
        leaf = form.format(leaf)
    return leaf


@each_case("name", sorted(known()))
def test_a_function_in_itself_grows_by_the_same_length_at_each_level(name: str) -> None:
    function = known()[name]
    most = function.most if function.most is not None else function.least + 1
    for count in range(max(function.least, 1), most + 1):
        for at in range(count):
            for further in ("'1'", "i"):
                form = f"{name}({', '.join('{}' if place == at else further for place in range(count))})"
                for leaf in ("t", "i"):
                    sizes = [size(nested(form, leaf, depth)) for depth in (2, 3, 5, 6)]
                    if all(sizes):
                        assert sizes[3] - sizes[2] <= 1.2 * (sizes[1] - sizes[0]) + 100, (form, sizes)


@each_case("seed", range(4))
def test_nested_forms_are_as_long_as_the_forms_alone(seed: int) -> None:
    alone: dict[str, int] = {}
    for forms in nestings(seed, 40, 8):
        for form in forms:
            alone.setdefault(form, max(size(form.format(leaf)) for leaf in LEAVES))
        said = "t"
        for form in forms:
            said = form.format(said)
        found = size(said)
        assert found <= sum(alone[form] for form in forms) * 1.2 + 2000, said


@each_case(
    "said",
    [
        "ELT(FLOOR(RAND() * 3) + 1, 'a', 'b', 'c') IS NULL",  # asked for each WHEN, one in four would be none
        "CASE FLOOR(RAND() * 2) WHEN 0 THEN 0 WHEN 1 THEN 0 ELSE 1 END",
        "FLOOR(RAND() * 3) NOT IN (0, 1, 2)",
        "NULLIF(FLOOR(RAND() * 2), 0) <=> 0",
        "RAND() = RAND()",
        "GREATEST(RAND(), RAND()) = 2",
        "LENGTH(CONV(FLOOR(RAND() * 1000) + 1, 10, 10)) = 0",
    ],
)
def test_a_random_number_is_drawn_once_for_each_record(engine: duckdb.DuckDBPyConnection, said: str) -> None:
    sql = compiled(f"({said}) + 0", RESOLVE).sql
    assert engine.execute(f"SELECT sum({sql}) FROM range(3000)").fetchall() == [(0,)]


@each_case(
    "said",
    [
        "(i + i + i + i + i) BETWEEN 1 AND 5",
        "NULLIF(CONCAT(t, t, t, t, t), '')",
        "CASE i * i * i * i * i WHEN 1 THEN 2 END",
        "GREATEST(i + i + i + i + i, n)",
        "CAST(at AS DATETIME)",
        "i * i * i * i * i IN (1, 2, 3)",
        "CAST(t AS SIGNED) << n",
        "CAST(tm AS TIME)",
        "CAST(t AS BINARY(5))",
    ],
)
def test_generated_columns_repeat_arguments_and_take_no_lambda(engine: duckdb.DuckDBPyConnection, said: str) -> None:
    sql = computed(said, TABLE)
    assert "lambda" not in sql
    columns = ", ".join(f'"{name}" {kind}' for name, kind in TABLE)
    engine.execute(f"CREATE OR REPLACE TABLE generated ({columns}, x AS ({sql}))")


@each_case("said", ["DATE(t)", "at = t", "ADDTIME(t, tm)", "NULLIF(RAND() + RAND() + RAND() + RAND(), 1)"])
def test_generated_columns_that_would_need_a_lambda_are_refused(said: str) -> None:
    with pytest.raises(Untranslated, match="not supported in a computed column"):
        computed(said, TABLE)


def test_deep_nesting_runs_at_once(engine: duckdb.DuckDBPyConnection) -> None:
    engine.execute("CREATE OR REPLACE TABLE one AS SELECT '12' AS t, '7' AS t2, 5 AS i, 2 AS n, true AS b")
    for form in (
        "CONV({}, 10, 16)",
        "({} BETWEEN 1 AND 5)",
        "ELT({}, '1', '2')",
        "({} IN (1, 2, 3))",
        "NULLIF({}, '')",
        "CAST({} AS YEAR)",
    ):
        sql = compiled(nested(form, "t", 12), RESOLVE).sql
        assert len(engine.execute(f"SELECT {sql} FROM one").fetchall()) == 1
