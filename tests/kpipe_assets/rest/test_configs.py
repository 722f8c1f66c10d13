"""Configs of connectors: dotted keys to fields and back, lists, maps, secrets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline
from kpipe_assets.rest.configs import flat, masked, nested, references, texts

SMALL = {"name": "orders", "source.brokers": "b:9092", "source.topic": "orders", "into.table": "orders"}

DEFINITIONS: list[dict[str, Any]] = [
    {},
    {"source": {"brokers": "b", "topics": ["a", "b"], "start": {"a:0": 3, "b:1": 7}}},
    {"source": {"brokers": "b", "topic": "a", "start": {"timestamp": "2026-01-01T00:00:00Z"}, "end": "latest"}},
    {"source": {"brokers": "b", "topic": "a", "start": {"0": 3}, "config": {"security.protocol": "SSL"}}},
    {"columns": {"id": "BIGINT", "a.b": "STRUCT(x INTEGER, y VARCHAR)", "@v": "DOUBLE"}, "set": {"c,d": "id + 1, 2"}},
    {"format": {"mapping": {"a": "b::c", "d": {"path": "x", "default": None}, "e": {"path": "y", "default": "{"}}}},
    {"format": {"type": "csv", "fields": ["a", "b c", "d,e", "[f"], "delimiter": ",", "skip_lines": 2, "null": ""}},
    {"key_format": {"type": "json"}, "into": {"table": "t", "key": ["id"], "on_conflict": "replace", "on_null": "delete"}},
    {"lookups": {"city": {"path": "/data/city.csv", "key": ["id"]}}},
    {"lookups": {"price": {"path": "/data/price.csv", "key": ["shop", "item"]}, "b": {"table": "b", "key": ["a,b"]}}},
    {"also": [{"table": "u", "where": "id > 1", "columns": {"x": "BIGINT"}}]},
    {"into": {"type": "iceberg", "table": "t", "audit": {"a": "id >= 0"}, "partition_by": ["day(at)", "id"]}},
    {"into": {"type": "webhook", "table": "t", "url": "https://h/x", "headers": {"X-A.b": "1"}, "body": '{"a": ${id}}'}},
    {"transform": {"program": "p.py", "args": ["-a", "b,c", ""], "env": ["A"]}, "metadata": ["partition", "offset"]},
    {"errors": {"parse": "fail", "max_dead_letters": 5}, "batch": {"exponential": False, "interval_ms": 0}},
]


def defined(fields: dict[str, Any]) -> Pipeline:
    base = {"name": "orders", "source": {"brokers": "b", "topic": "t"}, "into": {"table": "t"}}
    return Pipeline.model_validate({**base, **fields})


def test_a_flat_config_gives_the_fields() -> None:
    config = {**SMALL, "connector.class": "kpipe", "tasks.max": "4", "batch.interval_ms": "50", "columns.id": "BIGINT"}
    pipeline = Pipeline.model_validate(nested(config))
    assert (pipeline.batch.interval_ms, pipeline.columns) == (50, {"id": "BIGINT"})
    assert Pipeline.model_validate(
        nested(
            {
                "name": "orders",
                "source": {"brokers": "b:9092", "topic": "orders"},
                "into.table": "orders",
                "columns": {"id": "BIGINT"},
            }
        )
    ).columns == {"id": "BIGINT"}


@pytest.mark.parametrize("fields", DEFINITIONS)
def test_flat_and_nested_are_inverse(fields: dict[str, Any]) -> None:
    pipeline = defined(fields)
    config = flat(pipeline.to_dict())
    assert all(isinstance(value, str) for value in config.values())
    assert Pipeline.model_validate(nested(config)) == pipeline


@given(st.dictionaries(st.text(min_size=1).filter(lambda name: "\0" not in name), st.text(), max_size=4))
def test_any_map_survives(expressions: dict[str, str]) -> None:
    pipeline = defined({"set": expressions})
    assert Pipeline.model_validate(nested(flat(pipeline.to_dict()))) == pipeline


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"sourc.topic": "a"}, "did you mean source"),
        ({"source.topik": "a"}, "unknown field source.topik"),
        ({"name.x": "a"}, "has no parts"),
        ({"source": {"topic": "a"}, "source.topic": "b"}, "given twice"),
        ({"source": "x", "source.topic": "b"}, "as a whole"),
    ],
)
def test_a_wrong_key_is_named(config: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidPipeline) as error:
        nested(config)
    assert words in str(error.value)
    assert error.value.field


def test_a_nested_config_is_returned_with_dotted_keys() -> None:
    assert texts({"a": {"b": 1, "c": True}, "d": "x", "e": None}) == {"a.b": "1", "a.c": "true", "d": "x"}


def test_references_stay_and_literals_are_masked_or_rejected() -> None:
    fields = {"source": {"credentials": {"sasl.username": "me", "sasl.password": "${env:PW}"}}}
    kept = references(fields, {})
    assert kept["source"]["credentials"] == {"sasl.username": "me", "sasl.password": "{{ env('PW') }}"}
    assert masked(kept) == fields
    old = {"source": {"credentials": {"sasl.username": "me", "sasl.password": "hidden"}}}
    assert masked(old)["source"]["credentials"]["sasl.password"] == "***"
    assert references(masked(old), old) == old, "the mask of what exists keeps it"
    with pytest.raises(InvalidPipeline, match="is a literal"):
        references(old, {})
    with pytest.raises(InvalidPipeline, match="is a literal"):
        references(masked(old), {})
    with pytest.raises(InvalidPipeline, match="credentials only"):
        references({"where": "a = '{{ env(\"X\") }}'"}, {})
    with pytest.raises(InvalidPipeline, match="credentials only"):
        references({"source": {"config": {"client.id": "${file:/etc/passwd}"}}}, {})
    files = {"into": {"credentials": {"password": "${file:/run/secret}", "sslpassword": "${command:/bin/get x}"}}}
    assert references(files, {})["into"]["credentials"]["sslpassword"] == "{{ command('/bin/get x') }}"
    assert masked(references(files, {})) == files
