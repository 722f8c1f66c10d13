"""Functions of numbers that no MariaDB has, or that are random: by the examples of the manuals that are named."""

from __future__ import annotations

import re
from collections.abc import Iterator

import duckdb
import pytest

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.columns import of_columns
from kpipe.expressions.mysql.compiler import compiled
from kpipe.expressions.mysql.function_list import known
from kpipe.expressions.mysql.refused.functions import REFUSED
from kpipe.expressions.mysql.values import text
from kpipe.schema.columns import Columns
from tests.cases import each_case

RESOLVE = of_columns(Columns.of({"a": "BIGINT", "b": "VARCHAR", "dt": "DATE"}))


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        connection.execute("CREATE TABLE records AS SELECT 7::BIGINT AS a, '7' AS b, DATE '2024-02-29' AS dt FROM range(1000)")
        yield connection


def printed(engine: duckdb.DuckDBPyConnection, said: str) -> str | None:
    row = engine.execute(f"SELECT {text(compiled(said, RESOLVE)).sql} FROM records LIMIT 1").fetchone()
    assert row is not None
    return None if row[0] is None else str(row[0])


@each_case(
    ("said", "value"),
    [
        # SingleStore's manual, "TO_NUMBER"
        ("TO_NUMBER('9876.34')", "9876.34"),
        ("TO_NUMBER('9,876.34', '9,999.99')", "9876.34"),
        ("TO_NUMBER('$999', '$999')", "999"),
        ("TO_NUMBER('-12', '99999')", "-12"),
        ("TO_NUMBER('+5', 'S9')", "5"),
        ("TO_NUMBER('5-', '9S')", "-5"),
        ("TO_NUMBER('12,345', '9,999,999')", "12345"),
        ("TO_NUMBER(NULL)", None),
        ("TO_NUMBER('9876.34') + 1", "9877.340000000000000"),
        # SingleStore's manual, "TRUNC" and "TRUNCATE"
        ("TRUNC(PI())", "3"),
        ("TRUNC(42.422, 1)", "42.4"),
        ("TRUNCATE(PI(), 5)", "3.14159"),
        # MySQL 8.4 manual, "Mathematical Functions"
        ("PI()", "3.141593"),
        ("ROUND(-1.58)", "-2"),
        ("ROUND(1.298, 1)", "1.3"),
        ("ROUND(23.298, -1)", "20"),
        ("ROUND(25E-1)", "2"),
        ("ROUND(2.5)", "3"),
        ("ROUND(.12345678901234567890123456789012345, 35)", "0.123456789012345678901234567890"),
        ("TRUNCATE(10.28*100, 0)", "1028"),
        ("MOD(34.5, 3)", "1.5"),
        ("LOG(10, 100)", "2"),
        ("LOG(1, 100)", None),
        ("SIGN(-32)", "-1"),
        ("5 DIV 2", "2"),
        ("-5 DIV 2", "-2"),
        ("-5 DIV -2", "2"),
        # MySQL 8.4 manual, "Miscellaneous Functions"
        ("IS_UUID('6ccd780c-baba-1026-9564-5b8c656024db')", "1"),
        ("IS_UUID('6CCD780C-BABA-1026-9564-5B8C656024DB')", "1"),
        ("IS_UUID('6ccd780cbaba102695645b8c656024db')", "1"),
        ("IS_UUID('{6ccd780c-baba-1026-9564-5b8c656024db}')", "1"),
        ("IS_UUID('6ccd780c-baba-1026-9564-5b8c6560')", "0"),
        ("IS_UUID(RAND())", "0"),
        ("IS_UUID(NULL)", None),
        ("INET_ATON('10.0.5.9')", "167773449"),
        ("INET_NTOA(167773449)", "10.0.5.9"),
        ("INET_ATON('127.1')", "2130706433"),
        # MySQL 8.4 manual, "Hexadecimal Literals"; MariaDB reads x'41' beside numbers as a text
        ("x'41' + 0", "65"),
        ("0x41 + 0", "65"),
        # DECODE finds NULL by NULL, as Oracle's and MariaDB's DECODE_ORACLE
        ("DECODE(a, 1, 'one', 7, 'seven', 'many')", "seven"),
        ("DECODE(b, 1, 'one', 'many')", "many"),
        ("DECODE(a, 1, 'one')", None),
        ("DECODE(NULL, NULL, 'none', 'many')", "none"),
        ("DECODE(2, 1, 10, 2, 20.5, 30)", "20.5"),
        # MySQL 8.4 manual, "Arithmetic Operators" and "Flow Control Functions"
        ("9223372036854775807 DIV 2e0", "4611686018427387903"),
        ("IFNULL(1/0, 'yes')", "yes"),
        ("CASE 1 WHEN 1 THEN 'one' WHEN 2 THEN 'two' ELSE 'more' END", "one"),
        ("IF(NULL, 1, 2)", "2"),
    ],
)
def test_the_manuals_examples(engine: duckdb.DuckDBPyConnection, said: str, value: str | None) -> None:
    assert printed(engine, said) == value


@each_case("said", ["TO_NUMBER('abc')", "TO_NUMBER('')", "TO_NUMBER('1234', '999')", "TO_NUMBER('1,2', '9,999')"])
def test_to_number_fails_for_a_text_that_is_not_of_its_format(engine: duckdb.DuckDBPyConnection, said: str) -> None:
    with pytest.raises(duckdb.Error, match="TO_NUMBER"):
        printed(engine, said)


@each_case(
    ("said", "message"),
    [
        ("TO_NUMBER(b, b)", "format in quotes"),
        ("TO_NUMBER(b, '9.9EEEE')", "format in quotes"),
        ("TO_NUMBER(b, '9,,999')", "comma"),
        ("TO_NUMBER(a)", "expected a text"),
        ("TRUNC(b)", "TRUNCATE"),
        ("TRUNC(dt)", "DATE"),
        ("RAND(3)", "seed"),
        ("GREATEST(dt, b)", "DATE"),
        ("LEAST(dt, 5)", "DATE"),
        ("GREATEST('10', 9)", "mixes texts and numbers"),
        ("LEAST(b, 1e0, 'x')", "mixes texts and numbers"),
        ("GREATEST(a > 1, NULL, b)", "mixes texts and numbers"),
        ("dt = 'abc'", "is not a date"),
        ("dt > ''", "is not a date"),
        ("a IN (1) + 1", r"unexpected \+"),
        ("1 = NOT a", "unexpected NOT"),
        ("1e400", "out of range for DOUBLE"),
        ("SUM(a)", "many rows"),
        ("ISNUMERIC(b)", "REGEXP"),
        ("PI(1)", "expected 0 arguments"),
        ("ABS()", "expected 1 argument"),
    ],
)
def test_what_cannot_mean_the_same_is_refused(said: str, message: str) -> None:
    with pytest.raises(Untranslated, match=message):
        compiled(said, RESOLVE)


@each_case(
    ("said", "value"),
    [
        ("u", "18446744073709551615"),
        ("u - 1", "18446744073709551614"),
        ("u / 3", "6148914691236517205.0000"),
        ("u DIV 2", "9223372036854775807"),
        ("u & 5", "5"),
        ("u + 1", None),
        ("u * -1", None),
        ("small", "0.25"),
        ("small + 1", "1.25"),
        ("wide / 3", "411522.37448559636667"),
        ("ROUND(wide, 2)", "1234567.12"),
        ("wide * wide > 1", "1"),
        ("TRUNCATE(wide, 3)", "1234567.123"),
    ],
)
def test_columns_of_other_types(said: str, value: str | None) -> None:
    """Numbers without a sign are MySQL's BIGINT UNSIGNED: what is beyond it fails."""
    resolve = of_columns(Columns.of({"u": "UBIGINT", "small": "DECIMAL(2,2)", "wide": "DECIMAL(38,10)"}))
    sql = f"SELECT {text(compiled(said, resolve)).sql} FROM (SELECT {2**64 - 1}::UBIGINT AS u, 0.25::DECIMAL(2,2) AS small, "
    sql += "1234567.1234567891::DECIMAL(38,10) AS wide)"
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        if value is None:
            with pytest.raises(duckdb.Error):
                connection.execute(sql).fetchone()
        else:
            assert connection.execute(sql).fetchone() == (value,)


def test_random_numbers_lie_between_0_and_1_and_differ(engine: duckdb.DuckDBPyConnection) -> None:
    sql = compiled("RAND()", RESOLVE).sql
    found = [row[0] for row in engine.execute(f"SELECT {sql} FROM records").fetchall()]
    assert all(0 <= value < 1 for value in found)
    assert len(set(found)) > 900
    assert printed(engine, "FLOOR(RAND() * 10) BETWEEN 0 AND 9") == "1"


def test_every_record_gets_a_uuid_of_its_own(engine: duckdb.DuckDBPyConnection) -> None:
    sql = compiled("UUID()", RESOLVE).sql
    found = {row[0] for row in engine.execute(f"SELECT {sql} FROM records").fetchall()}
    assert len(found) == 1000
    assert all(re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", value) for value in found)


def test_nothing_is_both_refused_and_known() -> None:
    assert not set(REFUSED) & set(known())


@each_case("name", ["CBRT", "SINH", "COSH", "TANH", "RANDOM", "SQUARE", "EVEN", "ISNUMERIC"])
def test_what_is_written_instead_is_an_expression(engine: duckdb.DuckDBPyConnection, name: str) -> None:
    instead = REFUSED[name][1].removeprefix("write ").replace("value", "a")
    assert printed(engine, instead) is not None


def test_long_chains_stay_below_the_limit(engine: duckdb.DuckDBPyConnection) -> None:
    assert printed(engine, " + ".join(["b"] * 30)) == "210"
    assert printed(engine, "ROUND(" * 8 + "a / 3" + ", 2) / 3" * 8) is not None
    assert printed(engine, " / ".join(["1.0", *["3"] * 9])) is not None
