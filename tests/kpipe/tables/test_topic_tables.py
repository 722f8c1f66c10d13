"""Names of tables by topic, the tables of a batch, and what such a pipeline cannot have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from kpipe.batch.batch import Batch
from kpipe.definition.pipeline import Pipeline
from kpipe.definition.target import AT_ONCE, ONE_BY_ONE
from kpipe.errors import InvalidPipeline, NotAvailable
from kpipe.ledger.ledger import Lane, Step
from kpipe.sql.parser import read_all
from kpipe.sql.renderer import to_sql
from kpipe.tables.topic_tables import TableNames, batch_tables, check_by_topic, check_names, table_of_topic, topic_parts
from kpipe.topics import PartitionId, TopicId
from tests.cases import each_case


def pipeline(table: str = "{topic}", source: dict[str, Any] | None = None, **more: Any) -> Pipeline:
    into = {"table": table, **more.pop("into", {})}
    return Pipeline.model_validate(
        {"name": "web", "source": {"brokers": "b:9092", **(source or {"topic_pattern": "^web"})}, "into": into, **more}
    )


@each_case(
    ("template", "topic", "table"),
    [
        ("{topic}", "web.shop-a_1", "web_shop_a_1"),
        ("raw_{topic}", "9.lives", "raw_9_lives"),
        ("{topic}_raw", "A", "A_raw"),
        ("a{topic}z", "-", "a_z"),
    ],
)
def test_a_topic_names_its_table(template: str, topic: str, table: str) -> None:
    assert table_of_topic(pipeline(template), topic) == table
    check_names(pipeline(template), [topic])


@each_case(
    ("template", "says"),
    [
        ("{field}", "expected one {topic} or {field.NAME} at most"),
        ("{topic}{topic}", "expected one {topic} or {field.NAME} at most"),
        ("a{topic", "no other braces"),
        ("raw-{topic}", "is not a table's name"),
        ("9{topic}", "is not a table's name"),
        ("kpipe_{topic}", "reserved for the ledger"),
        ("x" * 64 + "{topic}", "63 at most"),
    ],
)
def test_a_template_that_gives_no_names(template: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says.replace("{", r"\{")):
        pipeline(template)


@each_case(
    ("topics", "says"),
    [
        (["a.b", "a_b"], "topics a.b and a_b: both would be written to table a_b"),
        (["shop", "Shop"], "topics Shop and shop: both would be written"),
        (["ok", "9lives"], "topic 9lives: '9lives' is not a table's name"),
        (["a" * 64], "63 at most"),
        (["kpipe-batches"], "reserved for the ledger"),
    ],
)
def test_topics_without_a_table_of_their_own(topics: list[str], says: str) -> None:
    with pytest.raises(InvalidPipeline, match=says) as caught:
        check_names(pipeline(), topics)
    assert "source.topic_pattern" in str(caught.value) and caught.value.field == ("into", "table")
    check_names(pipeline("one"), topics)


class Written:
    """Tables by topic with rows of earlier topics. Counts the queries."""

    def __init__(self, **tables: list[str]) -> None:
        self.tables, self.asked = tables, 0

    def columns_of(self, tables: Sequence[str]) -> list[None]:
        return [None for _ in tables]

    def rows_of_tables(self) -> dict[str, int]:
        return {}

    def topics_written(self) -> dict[str, str]:
        return {}

    def topics_of_tables(self) -> dict[str, list[str]]:
        self.asked += 1
        return self.tables


@each_case(
    ("tables", "topic", "says"),
    [
        ({"a_b": ["a.b"]}, "a_b", "table a_b has rows of topic a.b"),
        ({"a_b": ["a.b", "a_b"]}, "a_b", "table a_b has rows of topic a.b"),
        ({"A_B": ["A.B"]}, "a_b", "table A_B has rows of topic A.B"),
        ({"web": ["x", "y"]}, "web", "table web has rows of topics x, y"),
    ],
)
def test_a_topic_whose_table_has_rows_of_another_one(tables: dict[str, list[str]], topic: str, says: str) -> None:
    """The other topic may be missing in Kafka, or not in the definition any more."""
    destination: Any = Written(**tables)
    with pytest.raises(InvalidPipeline, match=f"topic {topic}: .*{says}") as caught:
        TableNames(pipeline(), destination).check([topic, "other"])
    assert f"TRUNCATE TABLE {next(iter(tables))}" in str(caught.value) and caught.value.field == ("into", "table")


def test_tables_are_compared_once_for_each_topic() -> None:
    destination: Any = Written(a=["a"], gone=["gone"])
    names = TableNames(pipeline(), destination)
    for topics in (["a"], ["a"], ["a", "b"], ["b"]):
        names.check(topics)
    assert destination.asked == 2
    destination.tables["c"] = ["C"]
    with pytest.raises(InvalidPipeline, match="topic c: "):
        names.check(["a", "c"])
    with pytest.raises(InvalidPipeline, match="topic c: "):
        names.check(["a", "c"])
    TableNames(pipeline("one"), destination).check(["c"])


def test_a_name_that_postgresql_reserves() -> None:
    check_names(pipeline(), ["pg.log"])
    with pytest.raises(InvalidPipeline, match="reserved by PostgreSQL"):
        check_names(pipeline(into={"type": "postgres", "database": "postgresql://u@h/d"}), ["pg.log"])


def test_a_batch_writes_the_tables_of_its_topics() -> None:
    sources = [PartitionId(TopicId("c", f"id-{name}", name), number) for name, number in (("b", 0), ("a", 1), ("b", 3))]
    batch = Batch("1", "web", tuple(Step(Lane(source, 0, 0), 5) for source in sources))
    found = batch_tables(pipeline("raw_{topic}", where="x > 1"), batch)
    assert [part.into.table for part in found.parts] == ["raw_a", "raw_b"]
    assert [list(found.of(source)) for source in sources] == [[1], [0], [1]]
    assert all(part.where == "x > 1" for part in found.parts)
    several = pipeline("one", also=[{"table": "two"}])
    assert [list(batch_tables(several, batch).of(source)) for source in sources] == [[0, 1]] * 3
    assert [(part.into.table, topics) for part, topics in topic_parts(several, ["a"])] == [("one", ["a"]), ("two", ["a"])]


@each_case(
    ("more", "says"),
    [
        ({"also": [{"table": "two"}]}, "not available together with also"),
        ({"into": {"type": "webhook", "url": "http://localhost"}}, "for into.type webhook -> use into.type: duckdb"),
        ({"into": {"type": "iceberg", "audit": {"few": "id > 0"}}}, "not available together with into.audit"),
        ({"into": {"type": "delta"}, "delivery": "at_most_once"}, "in delta: not available .* at_most_once.*exactly_once"),
        ({"into": {"on_conflict": "replace"}}, "name the key's columns, the same in each table: into.key"),
        ({"errors": {"duplicate_key": "skip"}}, "into.key"),
        ({"source": {"topic": "a"}}, "source.topic_pattern, or source.topics"),
    ],
)
def test_fields_that_do_not_go_with_it(more: dict[str, Any], says: str) -> None:
    with pytest.raises((InvalidPipeline, NotAvailable), match=says):
        check_by_topic(pipeline(**more))
    check_by_topic(pipeline(into={"on_conflict": "replace", "key": ["id"]}))
    check_by_topic(pipeline("plain", **more))


@pytest.mark.parametrize("type", [*AT_ONCE, *ONE_BY_ONE])
def test_databases_and_lakes_take_it(type: str) -> None:
    check_by_topic(pipeline(into={"type": type}))
    check_by_topic(pipeline(into={"type": type}, delivery="at_least_once"))
    if type in AT_ONCE:
        check_by_topic(pipeline(into={"type": type}, delivery="at_most_once"))


def test_a_further_table_has_no_template() -> None:
    with pytest.raises(ValidationError, match="is not a table's name"):
        pipeline("one", also=[{"table": "{topic}_2"}])


def test_the_statement_and_the_definition_are_equal() -> None:
    text = "CREATE PIPELINE web AS LOAD DATA KAFKA 'b:9092' TOPIC PATTERN '^web' INTO TABLE `raw_{topic}` FORMAT JSON"
    (statement,) = read_all(text)
    assert statement.pipeline.into.table == "raw_{topic}"
    (again,) = read_all(to_sql(statement.pipeline))
    assert again.pipeline == statement.pipeline
