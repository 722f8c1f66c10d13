"""Definitions of tables by a field: templates, what goes with them, and the statement."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from kpipe.batch.batch import Batch
from kpipe.definition.pipeline import Pipeline
from kpipe.definition.target import AT_ONCE
from kpipe.errors import InvalidPipeline, NotAvailable
from kpipe.sql.parser import read_all
from kpipe.sql.renderer import to_sql
from kpipe.tables.field_tables import check_by_field, refused_by_field, routes_of
from kpipe.tables.topic_tables import batch_tables
from tests.cases import each_case


def pipeline(table: str = "e_{field.type}", **more: Any) -> Pipeline:
    into = {"table": table, **more.pop("into", {})}
    return Pipeline.model_validate(
        {"name": "events", "source": {"brokers": "b:9092", "topic": "events", **more.pop("source", {})}, "into": into, **more}
    )


@each_case(
    ("template", "says"),
    [
        ("{field.type}", "expected a prefix or suffix"),
        ("_{field.type}_", "expected a prefix or suffix"),
        ("{topic}_{field.type}", "found both"),
        ("{field.a}_{field.b}", "no other braces"),
        ("e_{field.}", "no other braces"),
        ("e_{field}", "no other braces"),
        ("e-{field.type}", "is not a table's name"),
        ("9{field.type}", "is not a table's name"),
        ("kpipe_{field.type}", "reserved for the ledger"),
        ("x" * 64 + "{field.type}", "63 at most"),
    ],
)
def test_a_template_that_gives_no_names(template: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        pipeline(template)


def test_templates() -> None:
    for template in ("e_{field.type}", "{field.type}_events", "a{field.payload type}z", "{field.type}9"):
        assert pipeline(template).into.by_field and not pipeline(template).into.by_topic
        check_by_field(pipeline(template))
    assert not pipeline("raw").into.by_field
    with pytest.raises(ValidationError, match="max_tables: only allowed with a table by a field"):
        pipeline("raw", into={"max_tables": 3})
    with pytest.raises(ValidationError, match="is not a table's name"):
        pipeline("one", also=[{"table": "e_{field.type}"}])


def test_the_tables_of_a_batch_are_those_of_its_routes() -> None:
    found = routes_of(pipeline(into={"max_tables": 3}), ["e_b", "e_a", "other"])
    assert (found.names, found.most, found.field) == (("e_a", "e_b"), 3, "type")
    assert routes_of(pipeline()).most == 100
    batch = Batch("1", "events", (), found.opened(["e_a"]).widened(["c"]))
    tables = batch_tables(pipeline(), batch)
    assert [part.into.table for part in tables.parts] == ["e_a", "e_c"]
    assert batch_tables(pipeline(), Batch("1", "events", ())).parts == ()


@each_case(
    ("more", "says"),
    [
        ({"also": [{"table": "two"}]}, "not available together with also"),
        ({"into": {"type": "delta"}}, "not available for into.type delta"),
        ({"into": {"type": "iceberg"}}, "not available for into.type iceberg -> use into.type: duckdb, ducklake, postgres"),
        ({"into": {"type": "webhook", "url": "http://localhost"}}, "for into.type webhook -> use into.type: duckdb"),
        ({"into": {"on_conflict": "replace"}}, "name the key's columns, the same in each table: into.key"),
        ({"into": {"on_conflict": "replace", "key": ["id"]}}, "key column id has no type"),
        ({"into": {"on_null": "delete", "key": ["id"]}}, "together with into.on_null"),
        ({"errors": {"duplicate_key": "dead_letter"}}, "together with errors.duplicate_key"),
        ({"errors": {"duplicate_key": "skip"}}, "into.key"),
        ({"transform": {"program": "/bin/cat"}}, "together with transform"),
        ({"where": "id > 1"}, "together with where"),
        ({"set": {"a": "1"}}, "together with set"),
        ({"select": "SELECT id FROM records"}, "together with select"),
        ({"format": {"type": "raw"}}, "with format: raw"),
        ({"format": {"type": "json", "explode": "lines"}}, "together with format.explode"),
        ({"format": {"type": "json", "documents": "many"}}, "together with format.explode"),
        ({"format": {"type": "json", "mapping": {"id": "id"}}}, "format lists no column type: expected one of id"),
        ({"format": {"type": "csv"}}, "CSV fields have no names"),
        ({"format": {"type": "csv", "fields": ["id"]}}, "format lists no column type"),
        ({"delivery": "at_least_once"}, "together with delivery"),
    ],
)
def test_fields_that_do_not_go_with_it(more: dict[str, Any], says: str) -> None:
    with pytest.raises((InvalidPipeline, NotAvailable), match=says):
        check_by_field(pipeline(**more))
    check_by_field(pipeline("plain", **more))
    check_by_field(pipeline(into={"on_conflict": "replace", "key": ["ID"]}, columns={"id": "BIGINT"}))


@pytest.mark.parametrize("type", AT_ONCE)
def test_databases_and_ducklake_take_it(type: str) -> None:
    check_by_field(pipeline(into={"type": type}))


def test_a_command_that_does_not_know_the_tables() -> None:
    refused_by_field(pipeline("plain"), "kpipe as-of", "")
    with pytest.raises(NotAvailable, match=r"kpipe as-of: not available for a table by a field: into.table e_\{field.type\}"):
        refused_by_field(pipeline(), "kpipe as-of", "trace")


def test_the_statement_and_the_definition_are_equal() -> None:
    text = (
        "CREATE PIPELINE events AS LOAD DATA KAFKA 'b:9092/events' INTO TABLE `e_{field.type}` FORMAT JSON"
        ' OPTIONS \'{"into": {"max_tables": 7}}\''
    )
    (statement,) = read_all(text)
    assert (statement.pipeline.into.table, statement.pipeline.into.max_tables) == ("e_{field.type}", 7)
    (again,) = read_all(to_sql(statement.pipeline))
    assert again.pipeline == statement.pipeline
