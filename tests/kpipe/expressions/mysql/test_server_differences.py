"""MySQL's values are MariaDB's, except where the page of functions says so; see recorded.py."""

from __future__ import annotations

import duckdb
import pytest

from kpipe.expressions.mysql.columns import of_columns
from kpipe.expressions.mysql.compiler import compiled
from kpipe.expressions.mysql.values import text
from kpipe.schema.columns import Columns
from resources.duckdb_engine.in_memory import register
from tests.kpipe.expressions.mysql.recorded import answers, mysql_answers, names, same_document
from tests.kpipe.expressions.mysql.server_rules import RULES, differing_pairs, explained
from website.reference.server_differences import DIFFERENCES, Difference


def test_every_row_has_a_rule() -> None:
    assert [item.what for item in DIFFERENCES] == list(dict.fromkeys(item.what for item in DIFFERENCES))
    assert RULES.keys() == {item.what for item in DIFFERENCES}


@pytest.mark.parametrize("family", names())
def test_the_page_explains_every_difference(family: str) -> None:
    assert [said for said in mysql_answers(family) if not explained(said, differing_pairs(family, said))] == []


def recorded(answer: object) -> str | None:
    """The value in the first row."""
    if isinstance(answer, str):
        assert answer.startswith("error: ")
        return "error"
    assert isinstance(answer, list | dict)
    first = answer[0]
    assert first is None or isinstance(first, str)
    return first


@pytest.mark.parametrize("row", DIFFERENCES, ids=lambda row: row.what)
def test_examples_have_the_values_of_the_page(row: Difference) -> None:
    assert recorded(mysql_answers("differences")[row.example]) == row.mysql
    assert recorded(answers("differences")[row.example]) == row.mariadb
    pairs = differing_pairs("differences", row.example)
    assert row.what in explained(row.example, pairs)
    value = compiled(row.example, of_columns(Columns.of({})))
    with duckdb.connect(":memory:") as connection:
        register(connection)
        ours = connection.execute(f"SELECT {text(value).sql}").fetchall()[0][0]
    theirs = row.mysql if row.follows_mysql else row.mariadb
    if value.kind == "json" and theirs is not None:
        assert same_document(ours, theirs)
    else:
        assert ours == theirs


@pytest.mark.parametrize(
    ("said", "pair"),
    [
        ("UPPER(t)", ("A", "a")),
        ("dt + INTERVAL 1 DAY", ("2024-01-02", "2024-01-03")),
        ("i + n", ("1", "2")),
        ("t = t2", ("1", "0")),
    ],
)
def test_another_difference_is_not_explained(said: str, pair: tuple[str, str]) -> None:
    assert explained(said, [pair]) == []
