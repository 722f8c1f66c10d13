"""Paths into a record, and which options of a format fit together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kpipe.definition.formats import Format
from kpipe.definition.json_path import parse_path, write_path
from kpipe.definition.yaml_codec import COMPONENT, from_yaml, to_yaml
from tests.cases import each_case

parts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8) | st.integers(0, 10**9 - 1)


@each_case(
    ("text", "parts"),
    [
        ("%", ()),
        ("a", ("a",)),
        ("%::a", ("a",)),
        ("a::b::c", ("a", "b", "c")),
        (" a :: b ", ("a", "b")),
        ("tags::0::name", ("tags", 0, "name")),
        ("tags::`0`", ("tags", "0")),
        ("`a b`::`c``d`", ("a b", "c`d")),
        ("`a::b`", ("a::b",)),
        ("created-at", ("created-at",)),
        ("`%`", ("%",)),
        ("$ref", ("$ref",)),
        ("1234567890", ("1234567890",)),
    ],
)
def test_a_path_names_members_from_the_outside_in(text: str, parts: tuple[str | int, ...]) -> None:
    assert parse_path(text) == parts


@each_case("text", ["", " ", "a::", "::a", "a::::b", "`a", "a`b`", "``", "`a`b", "%::"])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a path"):
        parse_path(text)


@given(st.lists(parts, max_size=4))
def test_a_path_that_is_written_is_read_as_the_same(path: list[str | int]) -> None:
    assert parse_path(write_path(path)) == tuple(path)


def test_a_mapping_has_one_spelling() -> None:
    mapping = {"a": "%::x::`y`", "@b": {"path": " z :: 0 ", "default": None}}
    assert Format.model_validate({"mapping": mapping}).model_dump()["mapping"] == {
        "a": "x::y",
        "@b": {"path": "z::0", "default": None},
    }


@each_case("default", [None, True, False, 0, 1, -3, 2.5, "", "0", "null"])
def test_a_default_keeps_its_kind(default: Any) -> None:
    kept = Format.model_validate({"mapping": {"a": {"path": "a", "default": default}}}).model_dump()["mapping"]["a"]["default"]
    assert (type(kept), kept) == (type(default), default)


@each_case(
    ("fields", "words"),
    [
        ({"type": "csv", "mapping": {"a": "a"}}, "mapping is an option of json, avro, protobuf, not of csv"),
        ({"fields": ["a"]}, "fields is an option of csv, not of json"),
        ({"type": "raw", "schema": "{}"}, "schema is an option of json, avro, protobuf, not of raw"),
        ({"type": "avro", "delimiter": ","}, "delimiter is an option of csv"),
        ({"mapping": {}}, "names no column"),
        ({"type": "csv", "fields": ["a", "A"]}, "a is duplicated"),
        ({"mapping": {"a": "x", "A": "y"}}, "a is duplicated"),
        ({"mapping": {"_kafka_offset": "x"}}, "are reserved for Kafka's coordinates"),
        ({"mapping": {"@1": "x"}}, "'@1' is not a variable"),
        ({"mapping": {"": "x"}}, "'' is not a column's name"),
        ({"mapping": {"a": "x::"}}, "'x::' is not a path"),
        ({"mapping": {"a": {"path": "x"}}}, "default"),
        ({"type": "csv", "quote": "''"}, "at most 1 character"),
    ],
)
def test_options_that_nobody_would_read_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as raised:
        Format.model_validate(fields)
    assert words in str(raised.value)


@each_case("name", ["null", '"null"'])
def test_the_field_called_null_needs_no_quotes_in_yaml(name: str) -> None:
    text = f"type: {COMPONENT}\nattributes:\n  name: p\n  source: {{brokers: b, topic: t}}\n  into: {{table: t}}\n"
    pipeline = from_yaml(f'{text}  format:\n    type: csv\n    {name}: ""\n', "p.yaml", {})
    assert pipeline.format.null == ""
    assert from_yaml(to_yaml(pipeline), "p.yaml", {}) == pipeline


@each_case(
    ("fields", "reason"),
    [
        ({"explode": "a::0"}, "has the index 0"),
        ({"explode": "a::"}, "not a path"),
        ({"explode": "::".join("abcdefghijklmnopqrstu")}, "at most 20 members, found 21"),
        ({"explode_outer": True}, "only allowed with explode"),
        ({"explode": "%", "explode_outer": True}, "an empty list has no other members"),
        ({"explode": "a", "validate": True, "schema": "{}"}, "not available with a JSON Schema"),
        ({"documents": "many", "schema": "{}"}, "not available with a JSON Schema"),
        ({"type": "csv", "explode": "a"}, "explode is an option of json, avro, protobuf, not of csv"),
        ({"type": "avro", "explode": "%"}, "a record of avro is not a list"),
        ({"ordinality": "n"}, "with explode or documents"),
        ({"explode": "a", "ordinality": "@n"}, "expected a name"),
        ({"explode": "a", "ordinality": "_kafka_n"}, "reserved"),
        ({"type": "avro", "documents": "many"}, "documents is an option of json, not of avro"),
        ({"explode": "a", "explode_outer": True, "mapping": {"x": "a::x"}}, "x has no default"),
    ],
)
def test_options_that_divide_a_record_fit_together(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Format.model_validate(fields)


def test_a_list_has_one_spelling_and_gives_several_rows() -> None:
    kind = Format.model_validate({"explode": " %::a :: `b c`", "explode_outer": True, "mapping": {"id": "a", "x": "z"}})
    assert kind.explode == "a::`b c`"
    assert kind.fan_out
    assert Format.model_validate({"documents": "many"}).fan_out
    assert not Format().fan_out
