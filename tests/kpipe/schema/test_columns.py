"""Column types: text and back, inference without loss, merging, and names that SQL could misread."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.errors import InvalidPipeline
from kpipe.schema.columns import _SCALARS as SCALARS
from kpipe.schema.columns import BIGINT, BOOLEAN, DOUBLE, JSON, VARCHAR, Columns, ListOf, Scalar, Struct, Type, merge, parse_type
from kpipe.schema.inference import infer
from tests.cases import each_case

decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: Scalar(f"DECIMAL({p},{s})")))
scalars: st.SearchStrategy[Type] = st.sampled_from(sorted(SCALARS)).map(Scalar) | decimals
names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8) | st.sampled_from(
    ["select", "from", "order", "list", "struct", "A b", 'say "hi"', "user", "end"]
)


def nested(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    fields = st.lists(st.tuples(names, inner), min_size=1, max_size=4)
    return inner.map(ListOf) | fields.map(lambda items: Struct(tuple(items)))


types = st.recursive(scalars, nested, max_leaves=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abAB"), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from(["a", "b", "A", "_kafka_offset"]), values, max_size=4)


@given(types)
def test_a_type_that_is_printed_is_read_back_the_same(kind: Type) -> None:
    assert parse_type(str(kind)) == kind


@given(st.text(max_size=30) | st.text('STRUCTAB(),[] "0123456789²INTDECIMAL', max_size=30))
def test_any_text_is_a_type_or_a_clear_error(text: str) -> None:
    try:
        kind = parse_type(text)
    except InvalidPipeline as error:
        assert repr(text) in error.what
        assert error.hint
    else:
        assert parse_type(str(kind)) == kind


@each_case(
    ("text", "printed"),
    [
        ("text", "VARCHAR"), ("varchar(20)", "VARCHAR"), ("int8", "BIGINT"), ("long", "BIGINT"), ("int", "INTEGER"),
        ("numeric", "DECIMAL(18,3)"), ("decimal(5)", "DECIMAL(5,0)"), ("timestamptz", "TIMESTAMP WITH TIME ZONE"),
        ("timestamp with time zone", "TIMESTAMP WITH TIME ZONE"), ("bytes[][]", "BLOB[][]"),
        ('struct(a integer, "b c" date)[]', 'STRUCT(a INTEGER, "b c" DATE)[]'),
        ("STRUCT(Order BIGINT)", 'STRUCT("Order" BIGINT)'),
    ],
)  # fmt: skip
def test_common_names_of_types_are_understood(text: str, printed: str) -> None:
    assert str(parse_type(text)) == printed


@each_case("word", ["select", "from", "order", "end", "group", "default", "table", "limit", "offset", "user x"])
def test_a_field_named_like_a_keyword_of_sql_is_quoted(word: str) -> None:
    assert str(Struct(((word, BIGINT),))) == f'STRUCT("{word}" BIGINT)'


@each_case("text", ["", "BIGINT[", "STRUCT()", "STRUCT(a)", "DECIMAL(39)", "DECIMAL(3,5)", "DECIMAL(²)", "FLOAT64", "INT; DROP"])
def test_what_is_not_a_type_is_refused(text: str) -> None:
    with pytest.raises(InvalidPipeline, match="invalid column type"):
        parse_type(text)


def test_types_are_inferred_only_as_far_as_nothing_is_lost() -> None:
    found = infer([
        {"id": 1, "big": 2**64, "x": 1, "s": "2026-01-01", "b": True, "n": None, "l": [1, None], "o": {"k": 1}},
        {"mix": 1, "e": []},
        {"id": 2, "x": 1.5, "o": {"k": 2, "m": "t"}, "mix": "t", "l": [2.5], "e": []},
    ])  # fmt: skip
    assert found.to_dict() == {
        "id": "BIGINT", "big": "DOUBLE", "x": "DOUBLE", "s": "VARCHAR", "b": "BOOLEAN", "l": "DOUBLE[]",
        "o": "STRUCT(k BIGINT, m VARCHAR)", "mix": "JSON",
    }  # fmt: skip


def test_an_object_with_very_many_keys_is_a_map_in_disguise() -> None:
    assert infer([{"o": {str(i): i for i in range(201)}}]).get("o") == JSON
    assert isinstance(infer([{"o": {str(i): i for i in range(200)}}]).get("o"), Struct)


@given(st.lists(objects, max_size=5))
def test_inferred_columns_can_be_columns_of_one_table(found: list[dict[str, object]]) -> None:
    columns = infer(found)
    folded = [name.lower() for name in columns.names()]
    assert len(set(folded)) == len(folded)
    assert not any(name.startswith("_kafka_") for name in folded)
    assert Columns.of(columns.to_dict()) == columns
    assert '"NULL"' not in json.dumps(columns.to_dict()).replace('\\"', '"')


@given(types, types, types)
def test_merging_types_does_not_depend_on_the_order_and_settles(a: Type, b: Type, c: Type) -> None:
    assert merge(a, a) == a
    assert merge(merge(a, b), b) == merge(a, b)
    if not any("STRUCT" in str(kind) for kind in (a, b, c)):
        assert merge(a, b) == merge(b, a)
        assert merge(merge(a, b), c) == merge(a, merge(b, c))


def test_names_that_differ_by_case_only_are_one_column() -> None:
    assert infer([{"Id": 1}, {"ID": 2.5, "id": None}]).items == (("Id", DOUBLE),)
    columns = Columns((("Id", BIGINT),))
    assert "iD" in columns
    assert columns.get("ID") == BIGINT
    assert columns.merged(Columns((("ID", BIGINT), ("x", VARCHAR)))).names() == ("Id", "x")
    assert columns.without(["id"]).names() == ()


def test_new_columns_and_new_fields_go_behind_those_that_exist() -> None:
    old = Columns.of({"a": "BIGINT", "s": "STRUCT(k BIGINT)[]"})
    new = Columns.of({"z": "DATE", "s": "STRUCT(m VARCHAR)[]"})
    assert old.merged(new).to_dict() == {"a": "BIGINT", "s": "STRUCT(k BIGINT, m VARCHAR)[]", "z": "DATE"}
    assert old.merged(old) == old


@each_case(
    ("old", "new"),
    [("BIGINT", "DOUBLE"), ("VARCHAR", "BIGINT"), ("BIGINT[]", "VARCHAR[]"), ("STRUCT(k BIGINT)", "STRUCT(k DATE)")],
)
def test_a_column_never_changes_its_type_silently(old: str, new: str) -> None:
    with pytest.raises(ValueError, match=r"incompatible types: expected .*, found .* in the records"):
        Columns.of({"c": old}).merged(Columns.of({"c": new}))


def test_a_json_column_takes_anything() -> None:
    held = Columns((("c", JSON),))
    assert held.merged(Columns((("c", BOOLEAN),))) == held


def test_names_that_no_column_can_have_make_no_column() -> None:
    """A record with such a name is a dead letter, and adds nothing to the table of its batch; inside of a column it is JSON."""
    for name in ("", "a\0b", "x" * 256):
        assert infer([{name: 1, "other": 1}, {"id": 1}]) == Columns.of({"id": "BIGINT"})
        inside = {"o": {name: 1, "in": 2}, "l": [{name: 1, "n": 1}]}
        assert infer([inside]) == Columns.of({"o": "JSON", "l": "JSON[]"})
