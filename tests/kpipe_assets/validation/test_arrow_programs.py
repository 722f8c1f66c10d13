"""Which fields a program with `stdin: arrow` may stand beside; what it makes meaningless is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.yaml_codec import from_yaml, to_yaml
from kpipe.errors import InvalidPipeline, NotAvailable
from kpipe.sql.parser import read
from kpipe.sql.renderer import to_sql
from kpipe.sql.statements import Create
from kpipe_assets.validation import Needs, validate
from resources.home import Home
from tests.kpipe_assets.validation.statements import HEAD, refused

ARROW = {"program": "p", "stdin": "arrow"}


def pipeline(**fields: Any) -> Pipeline:
    base = {"name": "p", "source": {"brokers": "b:9092", "topic": "t"}, "transform": ARROW, "into": {"table": "t"}}
    return Pipeline.model_validate({**base, **fields})


def test_the_format_is_implied() -> None:
    plain = pipeline()
    assert plain.format.type == "arrow"
    assert "format" not in plain.to_dict()
    assert Pipeline.model_validate(plain.to_dict()) == pipeline(format={"type": "arrow"}) == plain
    assert from_yaml(to_yaml(plain)) == plain


def test_a_statement_needs_no_format() -> None:
    text = "CREATE PIPELINE p AS LOAD DATA KAFKA 'b:9092/t' WITH TRANSFORM ('p') STDIN ARROW MODE MAP INTO TABLE t"
    created = read(text)
    assert isinstance(created, Create)
    assert created.pipeline == pipeline()
    assert "FORMAT" not in to_sql(pipeline())


@pytest.mark.parametrize(
    ("fields", "message", "field"),
    [
        ({"format": {"type": "json"}}, "transform.stdin: arrow: the program writes typed columns: expected no format, found json",
         ("format", "type")),
        ({"format": {"type": "csv", "fields": ["a"]}}, "expected no format, found csv", ("format", "type")),
        ({"format": {"type": "raw"}}, "expected no format, found raw", ("format", "type")),
        ({"key_format": {"type": "json"}},
         "transform.stdin: arrow: the program receives keys: expected no key_format, found json", ("key_format", "type")),
        ({"transform": {"program": "p"}, "format": {"type": "arrow"}}, "format: arrow without a program that writes it",
         ("format", "type")),
        ({"transform": {"program": "p"}, "key_format": {"type": "arrow"}}, "expected no key_format, found arrow",
         ("key_format", "type")),
        ({"columns": {"Offset": "BIGINT"}}, "column offset is the offset of a row's record, never a column of the table",
         ("columns", "offset")),
        ({"also": [{"table": "u", "columns": {"offset": "BIGINT"}}]}, "column offset is the offset of a row's record",
         ("columns", "offset")),
    ],
)  # fmt: skip
def test_what_has_no_meaning_is_refused(tmp_path: Any, fields: dict[str, Any], message: str, field: tuple[str, ...]) -> None:
    with pytest.raises(InvalidPipeline) as raised:
        validate(pipeline(**fields), Home(tmp_path), Needs.FIELDS)
    assert message in raised.value.what
    assert raised.value.field == field
    assert raised.value.hint


@pytest.mark.parametrize(
    "fields",
    [
        {"columns": {"offset": "BIGINT"}, "set": {"offset": "_kafka_offset"}},
        {"select": "SELECT id, a + 1 AS b FROM records WHERE id > 2"},
        {"where": "id > 1", "also": [{"table": "u", "where": "id > 2"}]},
        {"transform": {**ARROW, "mode": "filter"}, "into": {"table": "t", "key": ["id"], "on_conflict": "replace"}},
        {"transform": {**ARROW, "mode": "flatmap"}, "into": {"table": "t", "key": ["id"], "on_conflict": "replace"}},
        {"delivery": "at_least_once"}, {"delivery": "at_most_once"}, {"metadata": ["key", "headers"]},
    ],
)  # fmt: skip
def test_what_works_with_rows_works_with_these(tmp_path: Any, fields: dict[str, Any]) -> None:
    assert validate(pipeline(**fields), Home(tmp_path), Needs.FIELDS) == []


@pytest.mark.parametrize("mode", ["filter", "flatmap"])
def test_keys_still_need_rows_with_an_offset(tmp_path: Any, mode: str) -> None:
    lines = {"program": "p", "mode": mode}
    with pytest.raises(NotAvailable, match=f"rows with a key \\(into.key ...\\) from a program with mode: {mode}"):
        validate(
            pipeline(transform=lines, into={"table": "t", "key": ["id"], "on_conflict": "replace"}), Home(tmp_path), Needs.FIELDS
        )


def test_create_points_at_the_format(home: Home) -> None:
    said, marked = refused(home, HEAD + "WITH TRANSFORM ('/nowhere/p.py') STDIN ARROW INTO TABLE t FORMAT JSON")
    assert "expected no format, found json" in said
    assert "FORMAT JSON" in marked
