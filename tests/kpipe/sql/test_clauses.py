"""Clauses of CREATE PIPELINE set the fields that documentation gives them."""

from __future__ import annotations

from typing import Any

from kpipe.sql import statements as s
from kpipe.sql.parser import read
from tests.cases import each_case
from tests.kpipe.sql.clauses import CLAUSES, of, said


def counted(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields, with what a list of paths into JSON says beside them: `true` and `false` are 1 and 0."""
    made = dict(fields)
    for group in ("format", "key_format"):
        part = made.get(group)
        if isinstance(part, dict) and "mapping" in part and part.get("type", "json") == "json":
            made[group] = {**part, "booleans": "number"}
    return made


@each_case(("text", "expected"), CLAUSES, ids=[text[:70] for text, _ in CLAUSES])
def test_clauses_mean_what_they_say(text: str, expected: dict[str, Any]) -> None:
    assert said(text) == counted(expected)


@each_case(
    ("text", "source"),
    [
        ("KAFKA 'a,b:2/t'", {"brokers": "a,b:2", "topic": "t"}),
        ("KAFKA 'SSL://a:9093/t'", {"brokers": "SSL://a:9093", "topic": "t"}),
        ("KAFKA 'a/t1, t2'", {"brokers": "a", "topics": ["t1", "t2"]}),
        ("KAFKA 'a' TOPICS ('t1')", {"brokers": "a", "topics": ["t1"]}),
        ("KAFKA 'a' TOPIC PATTERN '^web\\\\.'", {"brokers": "a", "topic_pattern": "^web\\."}),
        ('KAFKA "a/t"', {"brokers": "a", "topic": "t"}),
        ("KAFKA 'a/${env:NOT_SET:-orders}'", {"brokers": "a", "topic": "orders"}),
    ],
)
def test_brokers_and_topics(text: str, source: dict[str, Any]) -> None:
    assert of(f"CREATE PIPELINE p AS LOAD DATA {text} INTO TABLE t FORMAT JSON")["source"] == source


@each_case(
    ("words", "flags"),
    [
        ("CREATE PIPELINE p", (False, False)),
        ("create or replace aggregator pipeline `p`", (True, False)),
        ("CREATE PIPELINE IF NOT EXISTS p", (False, True)),
        ("/* new */ CREATE -- x\n PIPELINE p", (False, False)),
    ],
)
def test_heads(words: str, flags: tuple[bool, bool]) -> None:
    found = read(f"{words} AS LOAD DATA KAFKA 'k/t' INTO TABLE t FORMAT JSON;")
    assert isinstance(found, s.Create)
    assert (found.pipeline.name, found.or_replace, found.if_not_exists) == ("p", *flags)
