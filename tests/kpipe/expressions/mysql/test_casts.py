"""Casts where no MariaDB can be asked: SingleStore's operators, and MySQL's manual where MariaDB differs or has no such type."""

from __future__ import annotations

import duckdb
import pytest

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.columns import of_columns
from kpipe.expressions.mysql.compiler import compiled
from kpipe.expressions.mysql.values import text
from kpipe.schema.columns import Columns
from tests.cases import each_case

CONNECTION = duckdb.connect(":memory:", config={"threads": 1})


def value(expression: str) -> str | None:
    sql = text(compiled(expression, of_columns(Columns.of({"t": "VARCHAR"})))).sql
    row = CONNECTION.execute(f"SELECT {sql} FROM (SELECT 'abc' AS t)").fetchone()
    assert row is not None
    found: str | None = row[0]
    return found


@each_case(
    ("expression", "expected"),
    [  # SingleStore's manual, "CAST or CONVERT"
        ("CONVERT(-123, UNSIGNED)", "18446744073709551493"),
        ("CAST('2019-01-01 16:15:00' AS DATE)", "2019-01-01"),
        ("CAST(123 AS CHAR(2))", "12"),
        ("'7' LIKE CAST(007 AS CHAR)", "1"),
        ("'12abc' :> INT", "12"),
        ("'12abc' !:> INT", "12"),
        ("'3' :> INT + 1", "4"),
        ("-'3' :> INT", "-3"),
        ("t :> VARCHAR(2)", "ab"),
        ("'1.25' :> DECIMAL(5,1)", "1.3"),
        ("'1.5' :> DOUBLE", "1.5"),
        ("300 :> TINYINT", "127"),
        ("(-300) :> TINYINT", "-128"),
        ("300 :> TINYINT UNSIGNED", "255"),
        ("(-1) :> TINYINT UNSIGNED", "0"),
        ("40000 :> SMALLINT", "32767"),
        ("5000000000 :> INT", "2147483647"),
        ("NULL :> INT", None),
        ("t :> TEXT", "abc"),
        ("'2' :> BOOL", "1"),
        ("CONCAT(1 :> BIGINT, '2' :> BIGINT)", "12"),
    ],
)
def test_singlestores_operators(expression: str, expected: str | None) -> None:
    assert value(expression) == expected


@each_case(
    ("expression", "expected"),
    [  # MySQL 8.4 manual, "Cast Functions and Operators" and "Fractional Seconds in Time Values": fractions are rounded
        ("CAST('2024-02-29 13:14:15.5' AS DATETIME)", "2024-02-29 13:14:16"),
        ("CAST('2024-12-31 23:59:59.999999' AS DATETIME)", "2025-01-01 00:00:00"),
        ("CAST('1969-12-31 23:59:58.4' AS DATETIME)", "1969-12-31 23:59:58"),
        ("CAST('2024-02-29 13:14:15.678901' AS DATETIME(2))", "2024-02-29 13:14:15.68"),
        ("CAST('2024-02-29 13:14:15.678901' AS DATETIME(6))", "2024-02-29 13:14:15.678901"),
        ("CAST('1944-06-06' AS YEAR)", "1944"),
        ("CAST(1944 AS YEAR)", "1944"),
        ("CAST('10' AS YEAR)", "2010"),
        ("CAST(70 AS YEAR)", "1970"),
        ("CAST(69 AS YEAR)", "2069"),
        ("CAST('0' AS YEAR)", "2000"),
        ("CAST(0 AS YEAR)", "0"),
        ("CAST(2156 AS YEAR)", None),
        ("CAST(TIMESTAMP '2024-02-29 13:14:15.7' AS SIGNED)", "20240229131416"),
        ("HEX(CAST('a' AS BINARY(3)))", "610000"),
        ("HEX(CAST('日本' AS BINARY(4)))", "E697A5E6"),
        ("LENGTH(CAST('abc' AS BINARY))", "3"),
        ("CAST('1e3' AS DECIMAL(10,1))", "1000.0"),
        ("CAST('123456789012345678.125' AS DECIMAL(30,2))", "123456789012345678.13"),
        ("CAST('1e400' AS DECIMAL(5,2))", "999.99"),
        ("CAST('-1e400' AS DECIMAL(5,2))", "-999.99"),
        ("CAST('1e-400' AS DECIMAL(5,2))", "0.00"),
        # A DOUBLE becomes a DECIMAL through its shortest text (double2decimal in MySQL's my_decimal.h)
        ("CAST(1.005e0 AS DECIMAL(10,2))", "1.01"),
        ("CAST(-1.005e0 AS DECIMAL(10,2))", "-1.01"),
        ("CAST('1.005' * 1 AS DECIMAL(10,2))", "1.01"),
        ("CAST(123456.789e0 AS DECIMAL(38,15))", "123456.789000000000000"),
        ("CAST(1e23 AS DECIMAL(38,0))", "100000000000000000000000"),
        ("CAST(12345678901234567e4 AS DECIMAL(38,2))", "123456789012345670000.00"),
        ("CAST(-1.5e-7 AS DECIMAL(38,10))", "-0.0000001500"),
        ("CAST(5e-324 AS DECIMAL(38,38))", "0.00000000000000000000000000000000000000"),
        ("CAST(1.5e38 AS DECIMAL(38,0))", "99999999999999999999999999999999999999"),
    ],
)
def test_mysqls_types(expression: str, expected: str | None) -> None:
    assert value(expression) == expected


@each_case(
    ("expression", "said"),
    [
        ("CAST(t AS FLOAT)", "CAST(value AS DOUBLE)"),
        ("t :> GEOGRAPHY", "DECIMAL(p, s)"),
        ("CAST(t AS DECIMAL(39))", "38 digits"),
        ("CAST(t AS DECIMAL(3,4))", "38 digits"),
    ],
)
def test_types_that_are_refused(expression: str, said: str) -> None:
    with pytest.raises(Untranslated) as caught:
        value(expression)
    assert said in str(caught.value)
