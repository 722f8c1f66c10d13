"""Which new columns a table takes: within bounds, and the same ones however a batch was split."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe import column_growth
from kpipe.column_growth import MOST_IN_BATCH, names_in, taken, trimmed
from kpipe.schema.column_names import fault
from kpipe.schema.columns import JSON, WIDEST_STRUCT, Columns, Struct
from kpipe.schema.growth_limits import Room, room
from kpipe.schema.inference import infer
from tests.cases import each_case

WIDE = Room(10_000, 10_000)


def many(count: int, prefix: str = "m") -> Columns:
    return Columns.of({f"{prefix}{at:05}": "BIGINT" for at in range(count)})


def total(columns: Columns) -> int:
    return sum(names_in(kind) for _, kind in columns)


def test_everything_is_taken_while_there_is_room() -> None:
    base, new = Columns.of({"id": "BIGINT", "o": "STRUCT(a BIGINT)"}), Columns.of({"name": "VARCHAR", "o": "STRUCT(b VARCHAR)"})
    found = taken(base, new, WIDE)
    assert found.columns == base.merged(new) and found.closed == column_growth.Closed()


def test_a_batch_adds_so_many_names_and_no_more() -> None:
    found = taken(Columns.of({"id": "BIGINT"}), many(MOST_IN_BATCH + 5), WIDE)
    assert found.columns.names() == ("id", *many(MOST_IN_BATCH).names())
    assert "1,000" in found.closed.column
    again = taken(Columns.of({"id": "BIGINT"}), many(10), WIDE, before=MOST_IN_BATCH - 3)
    assert len(again.columns) == 4, "what a sample has brought counts"


@each_case(("destination", "kind", "most"), [
    ("duckdb", "VARCHAR", 1_000), ("delta", "BIGINT", 1_000), ("kafka", "BIGINT", 1_000), ("postgres", "VARCHAR", 330),
    ("mysql", "VARCHAR", 185), ("mysql", "BIGINT", 844),
])  # fmt: skip
def test_a_table_grows_to_what_its_destination_holds(destination: str, kind: str, most: int) -> None:
    table = Columns()
    for batch in range(4):
        table = (found := taken(table, Columns.of({f"b{batch}c{at:04}": kind for at in range(900)}), room(destination))).columns
    assert len(table) == most and found.closed.column


def test_a_table_that_is_wider_than_the_bounds_keeps_its_columns_and_takes_none() -> None:
    found = taken(many(1_200, "t"), Columns.of({"new": "BIGINT"}), room("duckdb"))
    assert found.columns == many(1_200, "t") and "1,000 columns" in found.closed.column


def test_what_the_definition_names_is_taken_whatever_its_number() -> None:
    new = many(1_500)
    assert taken(Columns(), new, room("postgres"), frozenset(new.names())).columns == new


def test_a_struct_is_given_so_many_fields() -> None:
    base = Columns((("o", Struct(many(WIDEST_STRUCT - 1).items)),))
    one, other = infer([{"o": {"zz": 1}}]), infer([{"o": {"y": 1, "zz": 1}}])
    assert len(taken(base, one, WIDE).columns.get("o").fields) == WIDEST_STRUCT  # type: ignore[union-attr]
    full = taken(base, other, WIDE)
    assert full.columns.get("o") == Struct((*many(WIDEST_STRUCT - 1).items, ("y", infer([{"y": 1}]).items[0][1])))
    assert "STRUCT" in full.closed.field and not full.closed.column
    flood = infer([{"o": {f"k{at}": at for at in range(2_000)}}])
    assert flood.get("o") == JSON, "told as JSON, as it would be in a new column"
    assert taken(base, flood, WIDE).columns == base and taken(base, flood, WIDE).closed.field


def test_a_struct_that_the_definition_names_is_given_so_many_fields() -> None:
    base = Columns.of({"o": "STRUCT(a BIGINT)", "l": "STRUCT(a BIGINT)[]"})
    grown = infer([{"o": {f"k{at:03}": 1 for at in range(200)}, "l": [{f"k{at:03}": 1 for at in range(200)}]}])
    found = taken(base, grown, WIDE, frozenset({"o", "l"}))
    assert [names_in(kind) for _, kind in found.columns] == [1 + WIDEST_STRUCT] * 2 and "200 fields" in found.closed.field
    flood = infer([{"o": {f"k{at}": 1 for at in range(201)}}])
    assert taken(base, flood, WIDE, frozenset({"o"})).columns == base


def test_a_new_column_with_very_many_names_inside_becomes_json() -> None:
    new = infer([{"o": {f"a{at}": {f"b{inner}": 1 for inner in range(100)} for at in range(20)}}])
    assert isinstance(new.get("o"), Struct) and names_in(new.get("o")) > column_growth.MOST_IN_COLUMN  # type: ignore[arg-type]
    assert taken(Columns(), new, WIDE).columns.get("o") == JSON


def test_of_fields_whose_names_differ_by_case_only_the_first_by_name_is_taken() -> None:
    base = Columns.of({"o": "STRUCT(x BIGINT)"})
    parts = [infer([{"o": {name: value}}], apart=True) for name, value in (("a", 1), ("A", "text"), ("b", 2))]
    for order in ((0, 1, 2), (1, 0, 2), (2, 1, 0)):
        new = Columns()
        for at in order:
            new = new.joined(parts[at], apart=True)
        found = taken(base, new, WIDE)
        assert _sorted(found.columns) == _sorted(Columns.of({"o": 'STRUCT(x BIGINT, "A" VARCHAR, b BIGINT)'}))
        assert found.closed == column_growth.Closed()
    own = infer([{"p": {"q": 1, "Q": 1}}], apart=True)
    assert taken(base, own, WIDE).columns.get("p") == JSON, "as in a new column"


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), st.integers() | st.dictionaries(
    st.sampled_from("xyXYz"), st.integers() | st.text(max_size=1), min_size=1, max_size=4), min_size=1, max_size=4), max_size=6),
    st.integers(1, 6), st.integers(2, 8))  # fmt: skip
def test_records_that_are_together_within_the_bounds_are_so_alone(
    found: list[Mapping[str, object]], batch: int, names: int
) -> None:
    base = Columns.of({"a": "STRUCT(x BIGINT)"})
    inside = [{name: value for name, value in record.items() if name != "a" or isinstance(value, dict)} for record in found]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_growth, "MOST_IN_BATCH", batch)
        patch.setattr(column_growth, "MOST_IN_COLUMN", 3)
        left = column_growth.Left(base, Room(4, names))
        if left.beyond(base, infer(inside, apart=True), (), alone=False) == column_growth.Closed():
            for record in inside:
                assert left.beyond(base, infer([record], apart=True), (), alone=True) == column_growth.Closed()


def test_a_type_that_does_not_go_with_the_tables_is_an_error() -> None:
    with pytest.raises(ValueError, match="column a"):
        taken(Columns.of({"a": "BIGINT"}), Columns.of({"a": "STRUCT(b BIGINT)"}), WIDE)


names = st.sampled_from([f"n{at}" for at in range(8)])
# Not empty: an empty object alone tells no type, and beside a number it makes the column JSON.
values = st.integers() | st.dictionaries(names, st.integers(), min_size=1, max_size=4)
records = st.lists(st.dictionaries(names, values, max_size=5), max_size=8)


@given(records, st.data())
def test_what_is_taken_does_not_depend_on_how_a_batch_was_split(found: list[Mapping[str, object]], data: st.DataObject) -> None:
    base = Columns.of({"n0": "BIGINT", "n1": "STRUCT(n2 BIGINT)"})

    def beyond(part: list[Mapping[str, object]]) -> Columns:
        inside = [{name: value for name, value in record.items() if name not in base} for record in part]
        return trimmed(infer(inside), base)

    cut = data.draw(st.integers(0, len(found)))
    shuffled = data.draw(st.permutations(found))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MOST_IN_BATCH", "MOST_IN_COLUMN"):
            patch.setattr(column_growth, name, data.draw(st.integers(1, 6)))
        bounds = Room(5, 12)
        whole = taken(base, beyond(found), bounds)
        parts = taken(base, beyond(shuffled[cut:]).joined(beyond(shuffled[:cut])), bounds)
        assert dict(whole.columns.items) == dict(parts.columns.items) or _sorted(whole.columns) == _sorted(parts.columns)
        assert whole.closed == parts.closed
        assert len(whole.columns) <= 5 and total(whole.columns) - total(base) <= column_growth.MOST_IN_BATCH


def _sorted(columns: Columns) -> list[tuple[str, object]]:
    """Without the order, which is that of first appearance."""

    def plain(kind: object) -> object:
        return sorted((name, plain(item)) for name, item in kind.fields) if isinstance(kind, Struct) else str(kind)

    return sorted((name, plain(kind)) for name, kind in columns)


@each_case(("destination", "name"), [
    ("postgres", "x" * 64), ("postgres", "é" * 32), ("postgres", "xmin"), ("mysql", "x" * 65), ("mysql", "a "),
    ("mysql", "a\n"), ("singlestore", "\U0001f600"), ("mysql", "DB_row_ID"),
])  # fmt: skip
def test_a_name_that_no_column_of_the_destination_has_is_left_out(destination: str, name: str) -> None:
    new = Columns.of({name: "BIGINT", "o": "VARCHAR"})
    found = taken(Columns(), new, room(destination))
    assert found.columns.names() == ("o",) and found.closed.column == fault(destination, name) != ""
    assert taken(Columns(), new, room("duckdb")).columns == new
    assert taken(new, new, room(destination)).columns == new, "a column that is there keeps its name"
    assert taken(Columns(), new, room(destination), frozenset([name.lower()])).columns == new, "the definition decides"


@each_case(("destination", "one", "other"), [
    ("mysql", {"i": "BIGINT"}, {"İ": "BIGINT"}),
    ("iceberg", {"a.b": "BIGINT"}, {"a": "STRUCT(b BIGINT)"}),
    ("iceberg", {"a.element.b": "BIGINT"}, {"a": "STRUCT(b BIGINT)[]"}),
    ("iceberg", {"a.value": "BIGINT"}, {"a": "MAP(VARCHAR, BIGINT)"}),
])  # fmt: skip
def test_of_two_names_that_the_destination_takes_for_one_a_table_gets_one(
    destination: str, one: dict[str, str], other: dict[str, str]
) -> None:
    bounds = room(destination)
    either = [Columns.of({**one, **other}), Columns.of({**other, **one})]
    found = [taken(Columns(), new, bounds) for new in either]
    assert found[0].columns == found[1].columns and len(found[0].columns) == 1 and "for one" in found[0].closed.column
    assert len(taken(Columns(), either[0], room("duckdb")).columns) == 2
    for have, new in ((one, other), (other, one)):
        found = [taken(Columns.of(have), Columns.of(new), bounds)]
        assert found[0].columns == Columns.of(have) and "for one" in found[0].closed.column


def test_a_field_whose_dotted_name_is_a_columns_is_left_out() -> None:
    base = Columns.of({"a.b": "BIGINT", "a": "STRUCT(c BIGINT)", "l.element.b": "BIGINT", "l": "STRUCT(c BIGINT)[]"})
    new = Columns.of({"a": "STRUCT(b BIGINT, d BIGINT)", "l": "STRUCT(b BIGINT, d BIGINT)[]"})
    found = taken(base, new, room("iceberg"))
    assert found.columns.get("a") == Columns.of({"a": "STRUCT(c BIGINT, d BIGINT)"}).get("a")
    assert found.columns.get("l") == Columns.of({"l": "STRUCT(c BIGINT, d BIGINT)[]"}).get("l")
    assert "for one" in found.closed.field
