"""Expressions see the columns' types at any depth, although Arrow has text for JSON, UUID and HUGEINT."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa

from kpipe.schema.columns import Columns, parse_type
from resources.duckdb_engine.arrow_types import staged_type
from resources.duckdb_engine.expressions import Assigned, Evaluator
from tests.cases import each_case

USER = "STRUCT(id BIGINT, tag JSON)"
DIGITS = '{"a":1.10000000000000000001}'
UUIDS = ("6b1f3c2a-0000-4000-8000-00000000000a", "6b1f3c2a-0000-4000-8000-00000000000b")


@each_case(
    "kind, value, text, wanted, expected",
    [
        (USER, {"id": 1, "tag": '{"a":"x"}'}, "mysql: c->>'$.tag.a'", "VARCHAR", "x"),
        (USER, {"id": 1, "tag": '{"a":"x"}'}, "mysql: c::tag::$a", "VARCHAR", "x"),
        (USER, {"id": 1, "tag": "[1]"}, "mysql: JSON_TYPE(c->'$.tag')", "VARCHAR", "ARRAY"),
        (USER, {"id": 1, "tag": DIGITS}, "mysql: c->>'$.tag.a'", "VARCHAR", "1.10000000000000000001"),
        (USER, {"id": 1, "tag": DIGITS}, "c", "JSON", f'{{"id":1,"tag":{DIGITS}}}'),
        (USER, {"id": 1, "tag": DIGITS}, "c", "VARCHAR", f'{{"id":1,"tag":{DIGITS}}}'),
        (USER, {"id": None, "tag": None}, "c", "JSON", '{"id":null,"tag":null}'),
        (USER, None, "c", "JSON", None),
        (USER, {"id": 1, "tag": DIGITS}, "c", USER, {"id": 1, "tag": DIGITS}),
        ("JSON[]", [DIGITS, None], "mysql: CAST(c AS CHAR)", "VARCHAR", f"[{DIGITS},null]"),
        ("MAP(VARCHAR, JSON)", [("k", DIGITS)], "c", "JSON", f'{{"k":{DIGITS}}}'),
        ("STRUCT(a HUGEINT, b HUGEINT)", {"a": "9", "b": "10"}, "c.a < c.b", "BOOLEAN", True),
        ("STRUCT(a HUGEINT, b HUGEINT)", {"a": "9", "b": "10"}, "greatest(c.a, c.b)", "VARCHAR", "10"),
        ("STRUCT(a HUGEINT, b HUGEINT)", {"a": "9", "b": "10"}, "c", "JSON", '{"a":9,"b":10}'),
        ("HUGEINT[]", ["9", "10"], "list_max(c)", "HUGEINT", "10"),
        ("JSON", "12345678901234567.89", "c", "DECIMAL(20,2)", Decimal("12345678901234567.89")),
        ("JSON", '{"a":0.12345678901234567890}', "mysql: c::a", "DECIMAL(30,20)", Decimal("0.12345678901234567890")),
        ("JSON", '"0.50"', "c", "DECIMAL(30,20)", Decimal("0.5")),
        ("JSON", "null", "c", "DECIMAL(30,20)", None),
        ("STRUCT(u UUID)[]", [{"u": UUIDS[0]}], f"c[1].u < UUID '{UUIDS[1].upper()}'", "BOOLEAN", True),
        ("STRUCT(\"order\" JSON)", {"order": "[1]"}, "c.\"order\"->>'$[0]'", "VARCHAR", "1"),
    ],
)  # fmt: skip
def test_members_have_their_types(kind: str, value: Any, text: str, wanted: str, expected: Any) -> None:
    columns = Columns.of({"c": kind})
    block = pa.table({"c": pa.array([value], staged_type(parse_type(kind)))})
    found, reasons = Evaluator(columns, "", [Assigned("o", text, parse_type(wanted))]).values(block)
    assert (found.column("o").to_pylist(), reasons) == ([expected], {})


@each_case(
    "text, wanted, expected",
    [
        ("mysql: CONCAT(c, '')", "VARCHAR", "0.1"),
        ("mysql: CONCAT(-c, ABS(c))", "VARCHAR", "-0.10.1"),
        ("mysql: CONCAT(IFNULL(c, c), IF(c > 9, c, c))", "VARCHAR", "0.10.1"),
        ("mysql: CONCAT(IFNULL(c, 0.3e0))", "VARCHAR", "0.10000000149011612"),
        ("mysql: CONCAT(c + 0)", "VARCHAR", "0.10000000149011612"),
        ("mysql: c = 0.1e0", "BOOLEAN", False),
    ],
)
def test_a_float_is_printed_as_one(text: str, wanted: str, expected: Any) -> None:
    block = pa.table({"c": pa.array([0.1], pa.float32())})
    found, reasons = Evaluator(Columns.of({"c": "FLOAT"}), "", [Assigned("o", text, parse_type(wanted))]).values(block)
    assert (found.column("o").to_pylist(), reasons) == ([expected], {})
