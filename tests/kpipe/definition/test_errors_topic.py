"""`errors.topic`: which names it takes, and definitions derived from one that has it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.yaml_codec import from_yaml, to_yaml
from kpipe.rebuild.definitions import rebuilding, renamed
from kpipe.sql.parser import read
from kpipe.sql.renderer import to_sql
from tests.cases import each_case


def pipeline(topic: str, source: dict[str, Any] | None = None, **errors: Any) -> Pipeline:
    read_from = {"brokers": "b:9092", **(source or {"topic": "orders"})}
    return Pipeline.model_validate(
        {"name": "p", "source": read_from, "errors": {"topic": topic, **errors}, "into": {"table": "t"}}
    )


def test_it_is_written_in_every_notation() -> None:
    made = pipeline("orders.dead-letters")
    assert made.positions_topic == "__kpipe-dead-letters-p"
    assert from_yaml(to_yaml(made)) == made
    text = to_sql(made)
    assert """OPTIONS '{"errors": {"topic": "orders.dead-letters"}}'""" in text
    assert read(text).pipeline == made  # type: ignore[attr-defined]


@each_case(
    ("topic", "source", "says"),
    [
        ("orders", {"topic": "orders"}, "expected a topic that the source does not read, found orders"),
        ("b", {"topics": ["a", "b"]}, "expected a topic that the source does not read, found b"),
        ("orders.dead", {"topic_pattern": "^orders"}, "expected a topic that the source does not read, found orders.dead"),
        ("__kpipe-dead-letters-p", {"topic": "orders"}, "contains the positions of errors.topic"),
        ("a/b", {"topic": "orders"}, "'a/b' is not a topic's name"),
        ("", {"topic": "orders"}, "'' is not a topic's name"),
    ],
)
def test_a_topic_that_would_come_back_or_cannot_exist_is_refused(topic: str, source: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as error:
        pipeline(topic, source)
    assert says in str(error.value)


@each_case(
    ("source", "into", "field"),
    [
        ({"topic": "orders"}, {"topic": "orders"}, "into.topic"),
        ({"topics": ["orders", "x"]}, {"topic": "orders"}, "into.topic"),
        ({"topic_pattern": "^orders"}, {"topic": "orders-clean"}, "into.topic"),
        ({"topic_pattern": "letters$"}, {"topic": "clean"}, "into.dead_letters"),
        ({"topic_pattern": "letters$"}, {"topic": "clean", "dead_letters": "dead"}, ""),
        ({"topic": "dead"}, {"topic": "clean", "dead_letters": "dead"}, "into.dead_letters"),
        ({"topic_pattern": "^kpipe"}, {"topic": "clean"}, "into.ledger"),
        ({"topic_pattern": "^kpipe"}, {"topic": "clean", "ledger": "positions"}, ""),
        ({"topic": "orders"}, {"topic": "orders", "brokers": ["a:1", "b"]}, "into.topic"),
        ({"topic": "orders"}, {"topic": "orders", "brokers": "other:9092"}, ""),
        ({"topic": "orders"}, {"topic": "orders-clean"}, ""),
    ],
)
def test_a_source_that_reads_what_the_pipeline_writes_is_refused(
    source: dict[str, Any], into: dict[str, Any], field: str
) -> None:
    fields = {
        "name": "p", "source": {"brokers": "b:9092", **source}, "into": {"type": "kafka", "brokers": "b:9092", **into},
    }  # fmt: skip
    if not field:
        assert Pipeline.model_validate(fields)
        return
    with pytest.raises(ValidationError, match=f"{field}: expected a topic that the source does not read"):
        Pipeline.model_validate(fields)


def test_a_pattern_never_reads_internal_topics() -> None:
    assert pipeline("__dead", {"topic_pattern": "."}).errors.topic == "__dead"


def test_a_rebuild_writes_to_no_topic() -> None:
    live = pipeline("dead", constraint="dead_letter")
    for made in (rebuilding(live, "earliest"), renamed(live)):
        assert made.errors.topic is None and made.errors.constraint == "dead_letter"
