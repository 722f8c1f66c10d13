"""Definitions of a rebuild: expressions that name the table name the renamed one."""

from __future__ import annotations

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.expressions.languages import requalified
from kpipe.rebuild.definitions import rebuilding, renamed


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("orders.n + excluded.n", "r.n + excluded.n"),
        ("mysql: ORDERS.n + VALUES(n)", "mysql: r.n + VALUES(n)"),
        ("mysql: `orders` . `n`+1--orders.n -- orders.n", "mysql: `r` . `n`+1--r.n -- orders.n"),
        ('"Orders"."n" || \'orders.n\' || "orders.n"', '"r"."n" || \'orders.n\' || "orders.n"'),
        ("mysql: CONCAT(\"orders.n\", orders.n, '\\'orders.n')", "mysql: CONCAT(\"orders.n\", r.n, '\\'orders.n')"),
        ("a.orders.n + orders + orders.orders.n + orders_.n", "a.orders.n + orders + r.orders.n + orders_.n"),
        ("/* orders.n */ list_transform(l, x -> x + orders.n)", "/* orders.n */ list_transform(l, x -> x + r.n)"),
        ("", ""),
    ],
)
def test_only_the_qualifiers_of_the_table_change(written: str, expected: str) -> None:
    assert requalified(written, "orders", "r") == expected


def test_the_new_row_stays_the_new_row_of_a_table_named_excluded() -> None:
    assert requalified("n + excluded.n", "excluded", "r") == "n + excluded.n"


def test_each_table_has_its_own_expressions() -> None:
    live = Pipeline.model_validate({
        "name": "orders", "source": {"brokers": "b", "topic": "t"}, "columns": {"id": "BIGINT", "n": "BIGINT"},
        "into": {"table": "orders", "key": ["id"], "on_conflict": "update", "update": {"n": "orders.n + excluded.n"}},
        "also": [
            {"table": "parts", "key": ["id"], "on_conflict": "update", "update": {"n": "mysql: parts.n + VALUES(n)"}},
            {"table": "others"},
        ],
    })  # fmt: skip
    for made, ending in ((rebuilding(live, "earliest"), "_rebuild"), (renamed(live), "_replaced")):
        assert made.into.update == {"n": f"orders{ending}.n + excluded.n"}
        assert [one.update for one in made.also] == [{"n": f"mysql: parts{ending}.n + VALUES(n)"}, {}]
