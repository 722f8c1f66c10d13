"""A pipeline with several tables: what belongs to which, what is refused, and queries that take a list apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, NotAvailable
from kpipe.expressions.projection import Selection
from kpipe.expressions.select import Unnest, parse_query, unnests
from kpipe.tables.multi_table import fans_out, table_destinations, table_pipelines
from kpipe.testing.memory import MemoryDestination
from kpipe.testing.memory_store import MemoryStore
from tests.cases import each_case


def test_each_table_has_its_own_and_shares_the_rest(define: Callable[..., Pipeline]) -> None:
    pipeline = define(
        columns={"id": "BIGINT"},
        where="id > 1",
        into={"table": "a", "key": ["id"], "on_conflict": "replace"},
        also=[{"table": "b", "columns": {"id": "INTEGER", "n": "DATE"}, "set": {"n": "now()"}}, {"table": "c", "key": ["x"]}],
    )
    first, second, third = table_pipelines(pipeline)
    assert (first.into, first.where, first.also) == (pipeline.into, "id > 1", [])
    assert (second.into.table, second.into.key, second.into.on_conflict, second.where) == ("b", None, "error", None)
    assert (second.columns, second.set) == ({"id": "INTEGER", "n": "DATE"}, {"n": "now()"})
    assert (third.into.table, third.into.key, third.columns) == ("c", ["x"], {"id": "BIGINT"})
    assert first.source == second.source == third.source
    assert table_pipelines(define()) == (define(),)


@pytest.mark.parametrize(
    ("also", "said"),
    [
        ([{"table": "TWEETS"}], "also: table tweets is named twice"),
        ([{"table": "kpipe_x"}], "names that begin with kpipe_ are reserved for the ledger"),
        ([{"table": "b", "update": {"n": "1"}}], "update: only allowed with on_conflict: update"),
        ([{"table": "b", "columns": {"_kafka_x": "BIGINT"}}], "are reserved for Kafka's coordinates"),
        ([{"table": "b", "database": "x"}], "Extra inputs are not permitted"),
    ],
)
def test_what_also_cannot_say(define: Callable[..., Pipeline], also: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        define(also=also)


def test_a_destination_of_one_table_refuses(define: Callable[..., Pipeline]) -> None:
    place = MemoryDestination(MemoryStore(), "tweets", "tweets")
    assert table_destinations(define(), place) == [(define(), place)]
    with pytest.raises(NotAvailable, match=r"also: memory, table tweets cannot write several tables in one commit"):
        table_destinations(define(also=[{"table": "b"}]), place)


@each_case(
    ("text", "found"),
    [
        ("SELECT a FROM records, UNNEST(lines) AS line", Unnest("lines", "line")),
        ("select a from records cross join unnest( x['a'] ) line where a > 1", Unnest("x['a']", "line")),
        ('SELECT a FROM records, UNNEST(f(a, b)) AS t("odd name")', Unnest("f(a, b)", "odd name")),
        ("SELECT a FROM records, UNNEST(lines) WITH ORDINALITY AS t(line, n)", Unnest("lines", "line", "n")),
        ("SELECT a FROM records WHERE a > 1", None),
    ],
)
def test_a_list_that_is_taken_apart(text: str, found: Unnest | None) -> None:
    assert parse_query(text, "p").unnest == found
    assert unnests(text) == (found is not None)


@each_case(
    "text",
    [
        "SELECT a FROM records, UNNEST(lines)",
        "SELECT a FROM records, UNNEST() AS x",
        "SELECT a FROM records, UNNEST lines AS x",
        "SELECT a FROM records, UNNEST(lines) AS t(a, b)",
        "SELECT a FROM records, UNNEST(lines) WITH ORDINALITY AS x",
        "SELECT a FROM records, UNNEST(lines) WITH ORDINALITY AS t(x, X)",
        "SELECT a FROM records, UNNEST(lines) AS _kafka_offset",
        "SELECT a FROM records, UNNEST(a) AS x, UNNEST(b) AS y",
        "SELECT a FROM records, other",
        "SELECT a FROM records, UNNEST(a",
    ],
)
def test_what_is_no_list_that_is_taken_apart(text: str) -> None:
    with pytest.raises(InvalidPipeline, match="select"):
        parse_query(text, "p")


def test_elements_are_no_columns_of_the_record(define: Callable[..., Pipeline]) -> None:
    text = "SELECT id, n, line.sku AS sku FROM records, UNNEST(lines) WITH ORDINALITY AS t(line, n) WHERE line.ok AND paid"
    found = Selection.of(define(select=text))
    assert found is not None
    assert found.wanted == ("lines", "paid")
    assert (found.only, dict(found.assigned)) == (("id",), {"n": '"n"', "sku": "line.sku"})


def test_which_pipelines_count_records_beside_rows(define: Callable[..., Pipeline]) -> None:
    assert not fans_out(define())
    assert not fans_out(define(select="SELECT a FROM records"))
    assert fans_out(define(also=[{"table": "b"}]))
    assert fans_out(define(select="SELECT a FROM records, UNNEST(lines) AS line"))
    csv: dict[str, Any] = {"format": {"type": "csv", "fields": ["a"]}}
    lines: dict[str, Any] = {"transform": {"program": "p", "mode": "flatmap"}}
    assert fans_out(define(**csv)) and not fans_out(define(**csv, **lines)), "its lines have no offset"
    assert fans_out(define(**csv, **lines, also=[{"table": "b"}]))
