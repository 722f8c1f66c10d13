"""Expressions of both languages on values; those expected of MySQL's are of MySQL's and SingleStore's manuals."""

from __future__ import annotations

import datetime as dt
import hashlib
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from kpipe.expressions import languages
from kpipe.expressions.duckdb_dialect import columns_of, to_duckdb
from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.columns import of_columns
from kpipe.schema.columns import Columns
from tests.cases import each_case
from tests.kpipe.expressions.values import value

AT = dt.datetime
VALUES: list[tuple[str, Any]] = [
    # conditions and NULL
    ("IF(a > 3, 'many', 'few')", "many"),
    ("IF(n > 3, 'many', 'few')", "few"),
    ("IFNULL(n, 7)", 7),
    ("TIMESTAMPADD(HOUR, 1, '2026-01-05 03:04:05')", "2026-01-05 04:04:05"),
    ("TIMESTAMPADD(MONTH, 1, '2024-01-31')", "2024-02-29"),
    ("TIMESTAMPADD(SQL_TSI_WEEK, -a, d)", dt.date(2025, 12, 1)),
    ("TIMESTAMPADD(QUARTER, n, d)", None),
    ('GET_KAFKA_PIPELINE_PROP("prop_topicname")', "orders"),
    ("STR_TO_DATE(@day, \"%d/%c/%Y\")", dt.date(2026, 1, 20)),
    ("NVL(n, a)", 5),
    ("COALESCE(n, a)", 5),
    ("NULLIF(a, 5)", None),
    ("ISNULL(n)", True),
    ("ISNULL(a) OR ISNULL(n)", True),
    ("n <=> NULL", True),
    ("a <=> n", False),
    # texts
    ("CONCAT(t, '-', a)", "abc-5"),
    ("CONCAT(t, n)", None),
    ("CONCAT('x')", "x"),
    ("CONCAT_WS('-', t, NULL, a)", "abc-5"),
    ("duckdb: t || '-' || a", "abc-5"),
    ("CHAR_LENGTH('日本')", 2),
    ("CHARACTER_LENGTH(t)", 3),
    ("LOCATE('c', t)", 3),
    ("LOCATE('z', t)", 0),
    ("SUBSTRING_INDEX(host, '.', 2)", "www.example"),
    ("SUBSTRING_INDEX(host, '.', -2)", "example.com"),
    ("SUBSTRING_INDEX(host, '.', 9)", "www.example.com"),
    ("SUBSTRING_INDEX(host, '.', 0)", ""),
    ("LCASE('ABC')", "abc"),
    ("UCASE(t)", "ABC"),
    ("MID(t, 2, 1)", "b"),
    ("SHA(t)", hashlib.sha1(b"abc").hexdigest()),
    ("SHA2(t, 256)", hashlib.sha256(b"abc").hexdigest()),
    ("MD5(t)", hashlib.md5(b"abc").hexdigest()),
    ("t RLIKE '^a'", True),
    ("t NOT REGEXP 'z$'", True),
    ("`odd name`", "x"),
    # numbers
    ("a DIV 2", 2),
    ("a % 2", 1),
    ("POW(2, 3)", 8.0),
    ("CAST('7' AS SIGNED) + 1", 8),
    ("CAST('7' AS UNSIGNED)", Decimal(7)),
    ("'7' :> BIGINT", 7),
    ("RAND() < 1", True),
    # dates and times
    ("STR_TO_DATE(@iso, '%Y-%m-%dT%H:%i:%s.%f')", AT(2026, 11, 20, 8, 5, 7, 250000)),
    ("STR_TO_DATE(@day, '%d/%m/%Y')", dt.date(2026, 1, 20)),
    ("STR_TO_DATE('3:04 PM', '%l:%i %p')", "15:04:00"),
    ("STR_TO_DATE('May 1, 2013', '%M %e, %Y')", dt.date(2013, 5, 1)),
    ("STR_TO_DATE('soon', '%Y-%m-%d')", None),
    ("STR_TO_DATE(NULL, '%Y')", None),
    ("DATE_FORMAT(at, '%Y-%m-%d %H:%i:%s')", "2026-01-05 03:04:05"),
    ("DATE_FORMAT(at, '%a %W %b %M %c %e %y %j %k %l %p %f %T %r %w %%')",
     "Mon Monday Jan January 1 5 26 005 3 3 AM 678901 03:04:05 03:04:05 AM 1 %"),
    ("DATE_FORMAT('2026-01-05', '%d.%m.')", "05.01."),
    ("FROM_UNIXTIME(s)", AT(2023, 11, 14, 22, 13, 20)),
    ("FROM_UNIXTIME(ms / 1000)", AT(2023, 11, 14, 22, 13, 20, 123000)),
    ("FROM_UNIXTIME(@text)", AT(2023, 11, 14, 22, 13, 20)),
    ("FROM_UNIXTIME(n)", None),
    ("FROM_UNIXTIME(s, '%Y/%m')", "2023/11"),
    ("UNIX_TIMESTAMP(at)", Decimal("1767582245.678901")),
    ("UNIX_TIMESTAMP('1970-01-02 00:00:00')", 86400.0),
    ("UNIX_TIMESTAMP() - UNIX_TIMESTAMP(NOW()) <= 0", True),
    ("UNIX_TIMESTAMP() > 1700000000", True),
    ("DATE(at)", dt.date(2026, 1, 5)),
    ("DATE('2026-01-05 23:59:59')", dt.date(2026, 1, 5)),
    ("TIMESTAMP('2026-01-05')", AT(2026, 1, 5)),
    ("DATE_ADD('2026-01-31', INTERVAL 1 MONTH)", "2026-02-28"),
    ("DATE_ADD(at, INTERVAL a DAY)", AT(2026, 1, 10, 3, 4, 5, 678901)),
    ("DATE_SUB(at, INTERVAL 1 HOUR)", AT(2026, 1, 5, 2, 4, 5, 678901)),
    ("ADDDATE(d, INTERVAL 1 DAY)", dt.date(2026, 1, 6)),
    ("SUBDATE(d, INTERVAL 5 DAY)", dt.date(2025, 12, 31)),
    ("DATEDIFF('2026-01-05 23:59:59', '2026-01-04')", 1),
    ("DATEDIFF(d, at)", 0),
    ("TIMESTAMPDIFF(MONTH, '2003-02-01', '2003-05-01')", 3),
    ("TIMESTAMPDIFF(MINUTE, '2003-02-01', '2003-05-01 12:05:55')", 128885),
    ("TIMESTAMPDIFF(YEAR, '2002-05-01', '2001-01-01')", -1),
    ("YEAR(@iso)", 2026),
    ("QUARTER(d)", 1),
    ("MONTH(d)", 1),
    ("DAY('2026-01-05')", 5),
    ("DAYOFMONTH(d)", 5),
    ("HOUR(at)", 3),
    ("MINUTE(at)", 4),
    ("SECOND(at)", 5),
    ("EXTRACT(DAY FROM d)", 5),
    ("CAST('2026-01-05' AS DATETIME)", AT(2026, 1, 5)),
    # JSON
    ("JSON_EXTRACT_STRING(doc, 's')", "text"),
    ("JSON_EXTRACT_STRING(doc, 'a', 'b c', 1)", 'x"y'),
    ("JSON_EXTRACT_STRING(doc, 'k\"q')", "1"),
    ("JSON_EXTRACT_STRING(doc, 'z')", None),
    ("JSON_EXTRACT_STRING(doc, 'nowhere', 'at all')", None),
    ("doc->>'$.s'", "text"),
    ("JSON_EXTRACT_BIGINT(doc, 'big')", 9007199254740993),
    ("JSON_EXTRACT_BIGINT(doc, 's')", 0),
    ("JSON_EXTRACT_DOUBLE(doc, 'a', 'b c', 3)", 2.5),
    ("JSON_EXTRACT_DOUBLE(doc, 'n') / 8", 1.5),
    ("JSON_EXTRACT_JSON(doc, 'a', 'b c', 0)", "10"),
    ("JSON_LENGTH(JSON_EXTRACT_JSON(doc, 'a', 'b c'))", 4),
    ("JSON_UNQUOTE(JSON_EXTRACT_JSON(doc, 's'))", "text"),
    ("JSON_EXTRACT(doc, '$.n')", "12"),
    # a pipeline's own
    ("get_kafka_pipeline_prop('prop_offset')", "120"),
    ("CAST(GET_KAFKA_PIPELINE_PROP('prop_partition') AS INT)", 3),
    ("get_kafka_pipeline_prop('prop_timestamp')", "1795132800123"),
    ("get_kafka_pipeline_prop('prop_topicname')", "orders"),
    ("get_kafka_pipeline_prop('prop_key')", "key"),
    ("get_kafka_pipeline_prop('trace')", "two"),
    ("get_kafka_pipeline_prop('bad')", None),
    ("get_kafka_pipeline_prop('it''s not there')", None),
    ("duckdb: list_transform([1, 2], lambda x: x + coalesce(n, 1))", [2, 3]),
    ("round(CAST(CONCAT(a, '.125') AS DECIMAL(10, 3)), 2)", Decimal("5.13")),
    ("NOT IFNULL(n, FALSE) AND a = 5", True),
    ("-IF(a > 1, a, 0) * 2", -10),
    ("IF(a > 1, 1, 0) = 1 OR FALSE", True),
]  # fmt: skip


@each_case(("expression", "expected"), VALUES, ids=[text for text, _ in VALUES])
def test_values(engine: duckdb.DuckDBPyConnection, expression: str, expected: Any) -> None:
    found = value(engine, expression)
    assert found == (pytest.approx(expected, abs=1e-6) if isinstance(expected, float) else expected)
    assert type(found) is type(expected) or isinstance(expected, float)


@each_case("call", ["NOW()", "NOW(6)", "SYSDATE()", "CURRENT_TIMESTAMP(6)", "UTC_TIMESTAMP()", "LOCALTIME()",
                                  "LOCALTIMESTAMP()", "CURRENT_TIMESTAMP()"])  # fmt: skip
def test_now_is_utc_whatever_the_zone(engine: duckdb.DuckDBPyConnection, call: str) -> None:
    before = dt.datetime.now(dt.timezone.utc).replace(tzinfo=None, microsecond=0)
    found = value(engine, call)
    assert found.tzinfo is None
    assert before <= found <= dt.datetime.now(dt.timezone.utc).replace(tzinfo=None)


@each_case("call", ["CURDATE()", "CURRENT_DATE()", "UTC_DATE()", "DATE(NOW())"])
def test_today_is_utc(engine: duckdb.DuckDBPyConnection, call: str) -> None:
    before = dt.datetime.now(dt.timezone.utc).date()
    assert before <= value(engine, call) <= dt.datetime.now(dt.timezone.utc).date()


def test_the_time_of_day_is_utc(engine: duckdb.DuckDBPyConnection) -> None:
    assert isinstance(value(engine, "CURTIME()"), dt.time)


@each_case(
    "text",
    [
        "a", "a + 1", "strptime(t, '%Y')", "t::BIGINT", "a ->> '$.x'", "struct_extract(s, 'x')", "s.x[1]", "{'k': [1, 2]}",
        "list_filter(l, x -> x > 1)", "list_filter(l, lambda x: x > 1)", "CASE WHEN a THEN b END", "a IS DISTINCT FROM b",
        "t LIKE 'x%' ESCAPE '!'", "TRY_CAST(t AS DATE)", "INTERVAL 1 DAY + d", "date_trunc('day', at)", "a // 2",
        "format('{}', a)",
        "'it''s'", "\"Odd Name\"", "t[1:2]", "current_timestamp", "a BETWEEN 1 AND 2", "a IN (1, 2)", "(a, b)", "a.b.c",
    ],
)  # fmt: skip
def test_what_is_duckdbs_own_comes_out_as_it_was_written(text: str) -> None:
    assert to_duckdb(text) == text
    assert to_duckdb(f"  {text}\n") == text


@each_case(
    ("text", "columns"),
    [
        ("a + @v", {"a", "@v"}),
        ("CONCAT(`odd name`, \"Other\", 'text')", {"odd name", "Other"}),
        ("s.x + list_sum(list_transform(l, y -> y + z))", {"s", "l", "z"}),
        ("get_kafka_pipeline_prop('prop_offset')", {"_kafka_offset"}),
        ("get_kafka_pipeline_prop('trace')", {"_kafka_headers"}),
        ("now()", set()),
    ],
)
def test_columns_that_an_expression_needs(text: str, columns: set[str]) -> None:
    assert columns_of(text) == columns


def test_a_json_true_is_1_in_a_variable(engine: duckdb.DuckDBPyConnection) -> None:
    """SingleStore's manual, "Extracting and Converting JSON Values"."""
    sql = languages.to_duckdb("mysql: @f", of_columns(Columns.of({"@f": "JSON"})))
    for given_text, wanted in [
        ("true", "1"),
        ("false", "0"),
        ('"true"', "true"),
        ("1.50", "1.50"),
        ("null", None),
        ('{"k":true}', '{"k":true}'),
    ]:
        found = engine.execute(f'SELECT {sql} FROM (SELECT CAST($1 AS JSON) AS "@f")', [given_text]).fetchone()
        assert found == (wanted,)


@each_case("name", ["_a", "_b", "_i", "_v1", "h", "x", "v", "p", "a0"])
@each_case(
    ("text", "wanted"),
    [
        ("SUBSTRING_INDEX('1y2y3', {}, 2)", "1y2"),
        ("CRC32({})", "4225443349"),
        ("CONCAT({}, get_kafka_pipeline_prop('trace'))", "ytwo"),
    ],
)
def test_no_column_is_taken_for_a_variable_of_a_rule(
    engine: duckdb.DuckDBPyConnection, name: str, text: str, wanted: str
) -> None:
    sql = languages.to_duckdb("mysql: " + text.format(f"`{name}`"), of_columns(Columns.of({name: "VARCHAR"})))
    assert str(engine.execute(f"SELECT {sql} FROM (SELECT *, 'y' AS \"{name}\" FROM record)").fetchone()[0]) == wanted  # type: ignore[index]


def test_a_date_beyond_every_time_is_null_and_no_error(engine: duckdb.DuckDBPyConnection) -> None:
    sql = languages.to_duckdb("mysql: TIMESTAMPDIFF(HOUR, d2, t)", of_columns(Columns.of({"d2": "DATE", "t": "VARCHAR"})))
    assert engine.execute(f"SELECT {sql} FROM (SELECT DATE '5881580-07-10' AS d2, '2024-01-01' AS t)").fetchone() == (None,)


@each_case(
    ("text", "wanted"),
    [
        ("'10' + 0", "10"),
        ("POW(2, 3)", "8"),
        ("1e300 * 1", "1e300"),
        ("1e15 + 0e0", "1e15"),
        ("f", "0.1"),
        ("small", "0.25"),
        ("CAST('2024-01-02 03:04:05.1' AS DATETIME(3))", "2024-01-02 03:04:05.100"),
        ("NOW() > d", "1"),
    ],
)
def test_a_value_in_a_text_column_is_as_mysql_prints_it(engine: duckdb.DuckDBPyConnection, text: str, wanted: str) -> None:
    resolve = of_columns(Columns.of({"f": "FLOAT", "small": "DECIMAL(2,2)", "d": "DATE"}))
    row = "(SELECT 0.1::FLOAT AS f, 0.25::DECIMAL(2,2) AS small, DATE '2024-01-01' AS d)"
    stored = f"CAST({languages.to_duckdb(f'mysql: {text}', resolve, 'VARCHAR')} AS VARCHAR)"
    printed = languages.to_duckdb(f"mysql: CONCAT({text})", resolve)
    assert engine.execute(f"SELECT {stored}, {printed} FROM {row}").fetchone() == (wanted, wanted)


@each_case("literal", ["abc", "2024", "", "24 hours"])
def test_a_date_compared_with_what_is_none_is_refused(literal: str) -> None:
    with pytest.raises(Untranslated, match="is compared with a date, but is not a date"):
        languages.to_duckdb(f"mysql: d > '{literal}'", of_columns(Columns.of({"d": "DATE"})))
