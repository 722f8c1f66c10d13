"""The guide to several tables: its example, in both notations, gives the rows that stand there; and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.yaml_codec import from_yaml, to_yaml
from kpipe.errors import InvalidPipeline, KpipeError, NotAvailable
from kpipe.sql.parser import read
from kpipe.sql.renderer import to_sql
from kpipe.sql.statements import Create
from kpipe_assets.validation import Needs, validate
from resources.destinations import open_destination
from resources.home import Home
from tests.resources.destinations.place import DuckDBPlace
from tests.resources.several import Bench

GUIDE = (Path(__file__).parents[3] / "docs" / "how-to" / "several-tables.md").read_text(encoding="utf-8")
#: The first block of each language.
BLOCKS = dict(reversed(re.findall(r"^```(\w+)\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)))
#: The page's definition as a statement.
STATEMENT = """
CREATE PIPELINE shop
AS LOAD DATA KAFKA 'localhost:9092/orders'
OPTIONS '{"columns": {"id": "BIGINT", "lines": "STRUCT(sku VARCHAR, quantity INTEGER, price DECIMAL(10,2))[]"},
          "select": "SELECT id, customer, len(lines) AS positions FROM records"}'
INTO TABLE orders
FORMAT JSON
ALSO INTO TABLE order_lines
SETTINGS '{"select": "SELECT id, number, line.sku AS sku, line.quantity AS quantity, line.price AS price FROM records, UNNEST(lines) WITH ORDINALITY AS t(line, number)"}'
ALSO INTO TABLE large_orders
SET customer = upper(customer)
WHERE DUCKDB('len(lines) >= 3');
"""  # noqa: E501
SMALL: dict[str, Any] = {"name": "p", "source": {"brokers": "b", "topic": "t"}, "into": {"table": "a"}, "also": [{"table": "b"}]}


def test_the_statement_and_the_file_say_the_same() -> None:
    statement = read(STATEMENT.strip())
    assert isinstance(statement, Create)
    assert statement.pipeline == from_yaml(BLOCKS["yaml"])
    assert read(to_sql(statement.pipeline)) == statement
    assert from_yaml(to_yaml(statement.pipeline)) == statement.pipeline


def test_the_example_gives_the_rows_that_stand_there(tmp_path: Path) -> None:
    pipeline = from_yaml(BLOCKS["yaml"])
    validate(pipeline, Home.at(tmp_path), Needs.FIELDS)
    bench = Bench(DuckDBPlace(tmp_path), Home.at(tmp_path / "home"))
    bench.pipeline = pipeline
    for line in BLOCKS["json"].splitlines():
        bench.topics.produce(0, json.loads(line))
    bench.run()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in GUIDE.splitlines() if line.startswith("| ")]
    start = next(at for at, row in enumerate(table) if row[0] == "_kafka_offset")
    names, rows = table[start], table[start + 1 : start + 6]
    found = bench.sql(f"SELECT {', '.join(names)} FROM order_lines ORDER BY id, number")
    assert [[str(value) for value in row] for row in found] == rows
    assert bench.sql("SELECT id, customer, positions FROM orders ORDER BY id") == [(1, "ann", 2), (2, "bo", 0), (3, "cy", 3)]
    assert bench.sql("SELECT id, customer FROM large_orders") == [(3, "CY")]
    proof = bench.proof()
    assert proof.ok, proof.problems
    assert (proof.counts.given, proof.span) == (3, 3)


@pytest.mark.parametrize(
    ("more", "error", "said"),
    [
        (
            {"into": {"table": "a", "on_null": "delete", "key": ["id"], "on_conflict": "replace"}},
            NotAvailable,
            "into.on_null: delete",
        ),
        ({"errors": {"duplicate_key": "dead_letter"}}, NotAvailable, "errors.duplicate_key: dead_letter"),
        ({"format": {"type": "csv"}}, InvalidPipeline, "also: CSV fields have no names"),
    ],
)
def test_what_is_refused_beside_also(more: dict[str, Any], error: type[KpipeError], said: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=re.escape(said)):
        validate(Pipeline.model_validate({**SMALL, **more}), Home.at(tmp_path), Needs.FIELDS)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_lake_refuses_several_tables_when_it_is_opened(kind: str, tmp_path: Path) -> None:
    pipeline = Pipeline.model_validate({**SMALL, "into": {"table": "a", "type": kind}})
    with pytest.raises(NotAvailable, match=f"also is not available for {kind}"):
        open_destination(pipeline, Home(tmp_path))
