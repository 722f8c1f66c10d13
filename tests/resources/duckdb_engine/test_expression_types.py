"""Expressions see the columns' types at any depth, although Arrow has text for JSON, UUID and HUGEINT."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa

from kpipe.schema.columns import Columns, parse_type
from resources.destinations.sql.merge.conflict_expressions import assignments, folded
from resources.duckdb_engine.arrow_types import staged_type
from resources.duckdb_engine.expressions import Assigned, Evaluator
from resources.duckdb_engine.sandbox import closed
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


@each_case(
    "text, wanted, expected",
    [
        ("HEX(IFNULL(c, ''))", "VARCHAR", "FF01"),
        ("IFNULL(c, '')", "BLOB", b"\xff\x01"),
        ("IF(i > 0, c, 5)", "BLOB", b"\xff\x01"),
        ("CASE WHEN i > 0 THEN c ELSE 'x' END", "BLOB", b"\xff\x01"),
        ("GREATEST(c, 'x')", "BLOB", b"\xff\x01"),
        ("DECODE(i, 1, c, 'x')", "BLOB", b"\xff\x01"),
        ("CONCAT_WS(',', c, 'a', NULL)", "BLOB", b"\xff\x01,a"),
        ("REPLACE(c, UNHEX('01'), 'ab')", "BLOB", b"\xffab"),
        ("SUBSTRING_INDEX(c, UNHEX('01'), 1)", "BLOB", b"\xff"),
        ("SUBSTRING_INDEX(CONCAT(c, c, c), CONCAT(c, c), -1)", "BLOB", b""),
        ("REVERSE(REPLACE(c, 'a', ''))", "BLOB", b"\x01\xff"),
        ("REVERSE(0x4142)", "BLOB", b"BA"),
        ("TRIM(LEADING UNHEX('FF') FROM c)", "BLOB", b"\x01"),
        ("LPAD(c, 4, 'ab')", "BLOB", b"ab\xff\x01"),
        ("RPAD(c, 1)", "BLOB", b"\xff"),
        ("INSERT(c, 2, 0, 'a')", "BLOB", b"\xffa\x01"),
        ("ELT(1, c, 'x')", "BLOB", b"\xff\x01"),
        ("INSTR(c, UNHEX('01'))", "BIGINT", 2),
        ("LOCATE(UNHEX('FF'), c, 2)", "BIGINT", 0),
        ("FIND_IN_SET(c, CONCAT('a,', c))", "BIGINT", 2),
        ("FIELD(c, 'a', c)", "BIGINT", 2),
        ("STRCMP(c, 'a')", "BIGINT", 1),
        ("c LIKE 'heartbeat%'", "BIGINT", 0),
        ("c NOT LIKE 'heartbeat%'", "BIGINT", 1),
        ("c LIKE '__'", "BIGINT", 1),
        ("c LIKE CONCAT(UNHEX('FF'), '%')", "BIGINT", 1),
        ("c + 1", "DOUBLE", 1.0),
        ("NOT c", "BIGINT", 1),
        ("CAST(CONCAT(' 12', c) AS SIGNED)", "BIGINT", 12),
        ("DATE(c)", "DATE", None),
        ("JSON_VALID(c)", "BIGINT", 0),
        ("CONVERT(c USING utf8mb4)", "VARCHAR", None),
        ("CAST(c AS CHAR)", "VARCHAR", None),
    ],
)  # fmt: skip
def test_bytes_that_are_not_text_stay_bytes(text: str, wanted: str, expected: Any) -> None:
    block = pa.table({"c": pa.array([b"\xff\x01"], pa.binary()), "i": [1]})
    assigned = [Assigned("o", f"mysql: {text}", parse_type(wanted))]
    found, reasons = Evaluator(Columns.of({"c": "BLOB", "i": "BIGINT"}), "", assigned).values(block)
    assert (found.column("o").to_pylist(), reasons) == ([expected], {})


@each_case(
    "text, wanted",
    [
        ("c", "VARCHAR"),
        ("IFNULL(c, '')", "VARCHAR"),
        ("c REGEXP 'a'", "BIGINT"),
        ("QUOTE(c)", "VARCHAR"),
        ("JSON_OBJECT('a', c)", "JSON"),
        ("JSON_EXTRACT_STRING(c, 'a')", "VARCHAR"),
        ("c", "BIGINT"),
        ("c", "JSON"),
    ],
)
def test_a_row_with_bytes_that_are_not_text_fails_where_a_text_is_needed(text: str, wanted: str) -> None:
    block = pa.table({"c": pa.array([b"\xff", b"7", None], pa.binary())})
    found, reasons = Evaluator(Columns.of({"c": "BLOB"}), "", [Assigned("o", f"mysql: {text}", parse_type(wanted))]).values(block)
    assert found.num_rows == 2 and list(reasons) == [0]


def test_a_text_in_a_condition_is_its_number() -> None:
    """A column of type BOOLEAN takes the texts true and false; a condition is MySQL's."""
    texts = ["true", "2", "abc", "0", " 1.5x", "", None]
    block, columns = pa.table({"c": texts}), Columns.of({"c": "VARCHAR"})
    expected = [False, True, False, False, True, False, False]
    for text in ("c", "c AND 1", "NOT NOT c", "(c)", "IF(c, 1, 0)", "c IS TRUE"):
        held, reasons = Evaluator(columns, f"mysql: {text}", ()).holds(block)
        assert (held.tolist(), reasons) == (expected, {}), text
    held, _ = Evaluator(columns, "mysql: NOT c", ()).holds(block)
    assert held.tolist() == [True, False, True, True, False, True, False]
    found, _ = Evaluator(columns, "", [Assigned("o", "mysql: c", parse_type("BOOLEAN"))]).values(block.slice(0, 1))
    assert found.column("o").to_pylist() == [True]


def test_a_condition_keeps_bytes_that_are_not_text() -> None:
    block = pa.table({"value": pa.array([b"\xff\x01", b"heartbeat 1", b"x", None], pa.binary())})
    where = "mysql: value NOT LIKE 'heartbeat%'"
    held, reasons = Evaluator(Columns.of({"value": "BLOB"}), where, ()).holds(block)
    assert (held.tolist(), reasons) == ([True, False, True, False], {})


def test_an_update_converts_bytes_and_texts_by_utf8() -> None:
    """DuckDB's casts between both would escape bytes, and reject letters that are not ASCII."""
    known = Columns.of({"name": "VARCHAR", "body": "BLOB"})
    update = {"name": "mysql: VALUES(body)", "body": "mysql: CONCAT(name, VALUES(name))"}
    later = folded(known, assignments(update, known.names(), (), known, "t").values, "nth")
    rows = "SELECT * FROM (VALUES (0, 'é', ''::BLOB), (1, 'ü', encode('日本'))) AS x(nth, name, body)"
    found = closed((), ()).execute(
        f"SELECT ({later}) FROM (SELECT nth, struct_pack(name := name, body := body) AS v FROM ({rows}))"
    )
    assert found.fetchone() == ({"name": "日本", "body": "éü".encode()},)
