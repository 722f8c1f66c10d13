"""Names of tables by a field's value: hostile values, limits, and choices that do not depend on how a batch was divided."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from kpipe.batch.routes import Routes
from kpipe.definition.table_template import NAME, field_of, of_value, value_of
from tests.cases import each_case

OF_TYPE = "e_{field.type}"
PLAIN = st.text("aAbB_1", min_size=1, max_size=4)
ANY = st.one_of(PLAIN, st.text(max_size=80), st.sampled_from(["", " ", "a.b", "ä", "a\0", "a\n", "{field.type}", "..", "a" * 61]))


def routes(most: int = 100, template: str = OF_TYPE, **more: str) -> Routes:
    return Routes(template, most, **more)  # type: ignore[arg-type]


@each_case(
    ("value", "says"),
    [
        (None, "type: missing or null"),
        ("", "'' cannot be a part of a table's name"),
        ("a.b", "'a.b' cannot be a part of a table's name: expected letters, digits and _"),
        ('x"; DROP TABLE y; --', "cannot be a part of a table's name"),
        ("ä", "cannot be a part of a table's name"),
        ("a\n", r"'a\n' cannot be a part"),
        ("x" * 62, "expected a table's name of 63 characters at most, found 64"),
        ("x" * 1_000_000, "found 1,000,002"),
    ],
)
def test_values_that_name_no_table(value: str | None, says: str) -> None:
    why = routes().problem(value)
    assert says in why and len(why) < 250 and why.isprintable()
    assert routes().place(value) is None and value not in routes().widened([value or ""]).values


def test_names_that_are_reserved() -> None:
    assert "reserved for the ledger" in routes(template="k{field.type}").problem("pipe_ledger")
    assert "reserved for the ledger" in routes(template="K{field.type}").problem("PIPE_x")
    assert "reserved by the database" in routes(template="p{field.type}", reserved="pg_").problem("g_class")
    assert not routes(template="p{field.type}").problem("g_class")


def test_a_value_that_differs_by_case_only() -> None:
    found = routes().widened(["Order", "order", "ORDER"])
    assert found.values == ("order",), "of a batch, the one in lower case"
    assert found.problem("Order") == "type: table e_Order differs from table e_order by upper and lower case only"
    later = routes().known(["e_Order", "other"]).widened(["order", "x"])
    assert later.values == ("x",) and "differs from table e_Order" in later.problem("order")


def test_the_number_of_tables_is_limited() -> None:
    found = routes(2).known(["e_a", "f_b", "kpipe_ledger"])
    assert found.names == ("e_a",) and found.room == 1
    wide = found.opened(["e_a"]).widened(["c", "b", "d"])
    assert wide.values == ("a", "b")
    assert wide.problem("c") == "type: no table for 'c': expected 2 tables at most (into.max_tables)"
    assert not wide.problem("a") and wide.place("b") == 1
    # A table that was removed empty has its place still.
    assert routes(2).known(["e_y", "e_z"]).widened(["a", "z", "y"]).values == ("y", "z")
    assert routes(0).known(["e_a"]).room == 0


@settings(max_examples=40, deadline=None)
@given(st.text("ab_{}.0", max_size=3), st.text("ab_9", max_size=3), ANY)
def test_a_name_has_one_value(prefix: str, suffix: str, value: str) -> None:
    template = f"{prefix.strip('{}.')}{{field.x}}{suffix}"
    assert field_of(template) == "x"
    found = value_of(template, of_value(template, value))
    assert found in (None, value)


@settings(max_examples=40, deadline=None)
@given(st.lists(ANY, max_size=12), st.integers(0, 4), st.lists(PLAIN.map(lambda v: f"e_{v}"), max_size=3))
def test_each_value_has_its_own_table_or_a_reason(values: list[str], most: int, written: list[str]) -> None:
    before = routes(most).known(written)
    found = before.widened(values)
    assert len({*found.values}) == len(found.values) and set(found.values) <= set(values)
    names = [name.lower() for name in {*found.tables, *found.names}]
    assert len(found.tables) == len({name.lower() for name in found.tables})
    assert len(set(names)) <= max(most, len({name.lower() for name in before.names}))
    for value in values:
        at = found.place(value)
        assert (at is None) == bool(found.problem(value)), value
        if at is not None:
            assert found.tables[at] == "e_" + value and NAME.fullmatch(found.tables[at])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(ANY, max_size=5), max_size=5), st.integers(0, 4), st.lists(PLAIN.map(lambda v: f"e_{v}"), max_size=3))
def test_the_choice_does_not_depend_on_the_tasks(parts: list[list[str]], most: int, written: list[str]) -> None:
    before = routes(most).known(written)

    def all_of(some: Sequence[Sequence[str]]) -> list[str]:
        return [value for part in some for value in part]

    whole = before.widened(all_of(parts))
    assert before.widened(all_of([before.least(part) for part in parts])) == whole
    kept: Sequence[str] = ()
    for part in parts:
        kept = before.least((*kept, *part))
        assert len(kept) <= before.room + len(before.names)
    assert before.widened(kept) == whole
