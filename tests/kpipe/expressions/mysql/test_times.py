"""Dates and times where no server is at hand, or two of them differ: examples of the manuals, each with its page."""

from __future__ import annotations

import duckdb
import pytest

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.compiler import compiled, of_columns
from kpipe.expressions.mysql.times import clocks, time_arithmetic, time_functions
from kpipe.expressions.mysql.values import text
from kpipe.schema.columns import Columns
from resources.duckdb_engine.in_memory import register
from tests.cases import each_case
from tests.kpipe.expressions.mysql.records import COLUMNS, DUCKDB, ROWS, TYPES

RESOLVE = of_columns(Columns.of({"t": "VARCHAR"}))


def value(expression: str) -> str | None:
    """What an expression without columns prints."""
    with duckdb.connect(":memory:", config={"threads": 1}) as engine:
        register(engine)
        engine.execute("SET TimeZone = 'America/New_York'")
        found = engine.execute(f"SELECT {text(compiled(expression, RESOLVE)).sql}").fetchall()[0][0]
    return None if found is None else str(found)


# SingleStore's manual, each page by its title.
SINGLESTORE = [
    ("TO_CHAR", "TO_CHAR('2018-03-01' :> DATE, 'MM/DD')", "03/01"),
    ("TO_CHAR", "TO_CHAR('2018-03-01' :> DATE, 'The year is YYYY')", "The year is 2018"),
    ("TO_CHAR", "TO_CHAR('2018-03-01 05:10:38' :> DATE, 'MM/DD/YYYY')", "03/01/2018"),
    ("TO_CHAR", "TO_CHAR('2018-03-01 05:10:38' :> DATETIME, 'MM/DD/YYYY')", "03/01/2018"),
    ("TO_CHAR", "TO_CHAR('2018-03-01 05:10:38.123456' :> DATETIME(6), 'MM/DD/YYYY HH:MI:SS:FF4')", "03/01/2018 05:10:38:1234"),
    ("TO_CHAR", "TO_CHAR('05:10:38' :> TIME, 'The time is HH:MM:SS')", "The time is 05:10:38"),
    ("TO_CHAR", "TO_CHAR('18-03-01' :> TIMESTAMP, 'MM/DD/YYYY')", "03/01/2018"),
    (
        "TO_TIMESTAMP",
        "TO_TIMESTAMP('The date and time are 01/01/2018 2:30:15.123456', 'The date and time are MM/DD/YYYY HH:MI:SS.FF6')",
        "2018-01-01 02:30:15.123456",
    ),
    ("TO_TIMESTAMP", "TO_TIMESTAMP('10-APR-2018 11:59:59', 'DD-MON-YYYY HH:MI:SS')", "2018-04-10 11:59:59"),
    ("TO_TIMESTAMP", "TO_TIMESTAMP('10-APR-18 11:59:59', 'DD-MON-YY HH:MI:SS')", "2018-04-10 11:59:59"),
    ("TO_TIMESTAMP", "TO_TIMESTAMP('10-APR-18 11:59:59', 'DD-MON-RR HH:MI:SS')", "2018-04-10 11:59:59"),
    ("TO_TIMESTAMP", "TO_TIMESTAMP('2018.04.10', 'YYYY-MM-DD')", "2018-04-10 00:00:00"),  # any punctuation for any other
    ("TO_TIMESTAMP", "TO_TIMESTAMP('at 2018', 'on YYYY')", None),  # other characters that differ: NULL
    ("TO_DATE", "TO_DATE('03/01/2019', 'MM/DD/YYYY')", "2019-03-01"),
    ("TO_DATE", "TO_DATE('03/01/2019 10:40:27', 'MM/DD/YYYY HH:MI:SS')", "2019-03-01 10:40:27"),
    ("TO_DATE", "TO_DATE('2019-03', 'YYYY-MM')", "2019-03-01"),  # a missing day is the first
    ("TO_DATE", "TO_DATE('15', 'DD') = DATE_FORMAT(NOW(), '%Y-%m-15')", "1"),  # year and month are today's
    ("DATE_TRUNC", "DATE_TRUNC('hour', '2016-08-08 12:05:31')", "2016-08-08 12:00:00"),
    ("DATE_TRUNC", "DATE_TRUNC('minute', '2016-08-08 12:05:31')", "2016-08-08 12:05:00"),
    ("DATE_TRUNC", "DATE_TRUNC('week', '2016-08-11 12:05:31')", "2016-08-08 00:00:00"),  # weeks begin on Monday
]
# MySQL 8.4 manual, where MariaDB gives something else, or has no zones loaded.
MYSQL = [
    ("CONVERT_TZ", "CONVERT_TZ('2004-01-01 12:00:00', 'GMT', 'MET')", "2004-01-01 13:00:00"),
    ("CONVERT_TZ", "CONVERT_TZ('2004-07-01 12:00:00', 'europe/berlin', 'America/New_York')", "2004-07-01 06:00:00"),
    ("CONVERT_TZ", "CONVERT_TZ('2004-07-01 12:00:00', '+01:00', 'Europe/Berlin')", "2004-07-01 13:00:00"),
    # MySQL's TIME_to_gmt_sec, and MariaDB 10.11: the beginning of a gap, and the earlier of two times
    ("UNIX_TIMESTAMP", "CONVERT_TZ('2005-03-27 02:00:00', 'MET', 'UTC')", "2005-03-27 01:00:00"),
    ("UNIX_TIMESTAMP", "CONVERT_TZ('2005-03-27 03:00:00', 'MET', 'UTC')", "2005-03-27 01:00:00"),
    ("CONVERT_TZ", "CONVERT_TZ('2024-03-31 01:59:59', 'Europe/Berlin', '+00:00')", "2024-03-31 00:59:59"),
    ("CONVERT_TZ", "CONVERT_TZ('2024-03-31 02:30:00', 'Europe/Berlin', '+00:00')", "2024-03-31 01:00:00"),
    ("CONVERT_TZ", "CONVERT_TZ('2024-03-31 02:59:59.5', 'Europe/Berlin', '+00:00')", "2024-03-31 01:00:00.500000"),
    ("CONVERT_TZ", "CONVERT_TZ('2024-03-10 02:30:00', 'America/New_York', '+00:00')", "2024-03-10 07:00:00"),
    ("CONVERT_TZ", "CONVERT_TZ('2024-10-06 02:29:59', 'Australia/Lord_Howe', '+00:00')", "2024-10-05 15:30:00"),
    ("CONVERT_TZ", "CONVERT_TZ('2011-12-30 12:00:00', 'Pacific/Apia', '+00:00')", "2011-12-30 10:00:00"),
    ("CONVERT_TZ", "CONVERT_TZ('2024-10-27 01:59:59', 'Europe/Berlin', '+00:00')", "2024-10-26 23:59:59"),
    ("CONVERT_TZ", "CONVERT_TZ('2024-10-27 02:00:00', 'Europe/Berlin', '+00:00')", "2024-10-27 00:00:00"),
    ("CONVERT_TZ", "CONVERT_TZ('2024-10-27 02:59:59', 'Europe/Berlin', '+00:00')", "2024-10-27 00:59:59"),
    ("CONVERT_TZ", "CONVERT_TZ('2024-10-27 03:00:00', 'Europe/Berlin', '+00:00')", "2024-10-27 02:00:00"),
    ("CONVERT_TZ", "CONVERT_TZ('2024-11-03 01:30:00', 'America/New_York', '+00:00')", "2024-11-03 05:30:00"),
    ("Server Time Zone Support", "CONVERT_TZ('2004-01-01 12:00:00', '-13:59', '+14:00')", "2004-01-02 15:59:00"),
    ("FROM_UNIXTIME", "FROM_UNIXTIME(32536771199)", "3001-01-18 23:59:59"),
    ("FROM_UNIXTIME", "FROM_UNIXTIME(32536771200)", None),
    ("UNIX_TIMESTAMP", "UNIX_TIMESTAMP('1969-12-31')", "0"),
    ("UNIX_TIMESTAMP", "UNIX_TIMESTAMP('3002-01-01')", "0"),
    ("Date and Time Literals", "CAST('2020-01-01 10:10:10+05:30' AS DATETIME)", "2020-01-01 04:40:10"),
    ("Date and Time Literals", "CAST('2013-01-05T03:04:05Z' AS DATETIME)", "2013-01-05 03:04:05"),
    ("Fractional Seconds", "CAST('2013-01-05 03:04:05.1234567' AS DATETIME(6))", "2013-01-05 03:04:05.123457"),
    ("Fractional Seconds", "CAST('1960-01-05 03:04:05.5' AS DATETIME)", "1960-01-05 03:04:06"),
    ("TIME_TO_SEC", "TIME_TO_SEC('22:23:00.9')", "80580"),
    ("The TIME Type", "SEC_TO_TIME(1e9)", "838:59:59"),
    ("The TIME Type", "ADDTIME('-800:00:00', '-800:00:00')", "-838:59:59"),
    ("EXTRACT", "EXTRACT(HOUR FROM '100:11:12')", "100"),
    ("STR_TO_DATE", "STR_TO_DATE('00/00/0000', '%m/%d/%Y')", None),  # NO_ZERO_DATE, the default
    ("STR_TO_DATE", "STR_TO_DATE('9', '%m')", None),
    ("STR_TO_DATE", "STR_TO_DATE('2013-05', '%Y-%m-%d')", None),
    ("YEAR", "YEAR('2013-00-00')", None),
]


@each_case(("page", "expression", "expected"), [*SINGLESTORE, *MYSQL])
def test_the_manuals_examples(page: str, expression: str, expected: str | None) -> None:
    assert value(expression) == expected, page


@each_case("expression", ["TO_DATE('x', 'YYYY-MM-DD')", "TO_TIMESTAMP('2018-14-10', 'YYYY-MM-DD')"])
def test_a_failed_conversion_is_an_error_of_the_record(expression: str) -> None:
    with pytest.raises(duckdb.Error, match="a text is not a date of the format YYYY-MM-DD"):
        value(expression)


@each_case(
    ("expression", "words"),
    [
        ("STR_TO_DATE(t, t)", "STR_TO_DATE: expected a literal format"),
        ("DATE_FORMAT(t, CONCAT('%', t))", "DATE_FORMAT: expected a literal format"),
        ("STR_TO_DATE(t, '%Y %%')", "%% is not supported"),
        ("STR_TO_DATE(t, '%Y %Y')", "duplicate year"),
        ("CONVERT_TZ(t, 'UTC', 'Europe/Berln')", "Europe/Berlin"),
        ("CONVERT_TZ(t, 'UTC', '+15:00')", "invalid offset"),
        ("CONVERT_TZ(t, 'UTC', t)", "choose among several with CASE"),
        ("NOW(7)", "expected 0 to 6 digits"),
        ("WEEK(t, t)", "the mode of a week"),
        ("DATE_ADD(t, 1)", "ADDDATE"),
        ("TIMESTAMPDIFF(DAY_HOUR, t, t)", "unsupported unit DAY_HOUR"),
        ("TO_CHAR(t, 'yyyy-mm-dd')", "write YYYY"),
        ("TO_CHAR(t, 'MONTH')", "two meanings"),
        ("DATE_TRUNC('eon', t)", "units are"),
        ("DATE_DIFF(t, t)", "DATEDIFF"),
        ("DATE_PART(t, t)", "EXTRACT"),
    ],
)
def test_what_cannot_mean_the_same_is_refused(expression: str, words: str) -> None:
    with pytest.raises(Untranslated, match=words.replace("+", r"\+")):
        compiled(expression, RESOLVE)


def test_now_has_as_many_digits_of_a_second_as_asked() -> None:
    with duckdb.connect(":memory:", config={"threads": 1}) as engine:
        register(engine)
        for call, unit in (
            ("NOW()", 1_000_000),
            ("CURRENT_TIMESTAMP", 1_000_000),
            ("SYSDATE(3)", 1_000),
            ("UTC_TIMESTAMP(6)", 1),
        ):
            made = compiled(call, RESOLVE)
            assert made.kind == "datetime", call
            left, behind = engine.execute(
                f"SELECT epoch_us({made.sql}) % {unit}, epoch_us(now()) - epoch_us({made.sql})"
            ).fetchall()[0]
            assert left == 0 <= behind < unit, call
    kinds = {"CURDATE()": "date", "UTC_DATE": "date", "CURRENT_TIME": "time", "CURTIME(6)": "time"}
    assert {call: compiled(call, RESOLVE).kind for call in kinds} == kinds


COLUMN_KINDS = ("t", "i", "d", "f", "b", "dt", "at", "tm", "j", "NULL", "TIMEDIFF(tm, '12:00:00')", "0x32303234")
_TIMES_NOW = [f"{zone}TIME{kind}" for zone in ("LOCAL", "CURRENT_", "UTC_") for kind in ("", "STAMP")]
_OF_DIGITS = (*_TIMES_NOW, "CURTIME", "NOW", "SYSDATE")
OF_ONE = sorted(
    name
    for module in (clocks, time_arithmetic, time_functions)
    for name, function in module.FUNCTIONS.items()
    if function.least <= 1 and function.most and name not in _OF_DIGITS
)


@each_case("name", OF_ONE)
def test_no_record_fails_whatever_its_type(name: str) -> None:
    columns = of_columns(Columns.of({name: TYPES[name.rstrip("2")] for name in COLUMNS}))
    with duckdb.connect(":memory:", config={"threads": 1}) as engine:
        register(engine)
        engine.execute(f"CREATE TABLE records (place INTEGER, {DUCKDB})")
        engine.executemany(
            f"INSERT INTO records VALUES ({', '.join('?' * (len(COLUMNS) + 1))})", [[at, *row] for at, row in enumerate(ROWS)]
        )
        made = [text(compiled(f"{name}({item})", columns)).sql for item in COLUMN_KINDS]
        assert len(engine.execute(f"SELECT {', '.join(made)} FROM records").fetchall()) == len(ROWS)


_OF_COLUMNS = [
    "dt", "at", "z", "YEAR(dt)", "dt + INTERVAL 1 DAY", "DATE_FORMAT(at, '%Y')", "LAST_DAY(z)", "dt = at", "CAST(at AS CHAR)",
    "DATEDIFF(dt, '2024-01-01')", "UNIX_TIMESTAMP(z)", "IF(dt IS NULL, NULL, 1)",
]  # fmt: skip


@each_case("moment", ["10000-01-01 00:00:00", "0001-12-31 (BC) 00:00:00", "infinity", "-infinity", "290000-12-21 00:00:00"])
@each_case("said", _OF_COLUMNS)
def test_columns_beyond_the_years_1_to_9999_are_null(said: str, moment: str) -> None:
    columns = Columns.of({"dt": "DATE", "at": "TIMESTAMP", "z": "TIMESTAMP WITH TIME ZONE"})
    given = f"(SELECT TIMESTAMP '{moment}' AS m)"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE TABLE r AS SELECT CAST(m AS DATE) dt, m AS at, m AT TIME ZONE 'UTC' z FROM {given}")
        assert connection.execute(f"SELECT {compiled(said, of_columns(columns)).sql} FROM r").fetchall() == [(None,)]


@each_case(
    "said",
    [
        "CAST('9999-12-31 23:59:59-10:00' AS DATETIME)",
        "CAST('0001-01-01 00:00:00+10:00' AS DATETIME)",
        "STR_TO_DATE('9999 366', '%Y %j')",
        "STR_TO_DATE('9999 53 Sunday', '%x %v %W')",
        "DATE('9999-12-31') + INTERVAL 1 DAY",
    ],
)
def test_values_beyond_the_years_1_to_9999_are_null(said: str) -> None:
    with duckdb.connect() as connection:
        assert connection.execute(f"SELECT {compiled(said, RESOLVE).sql}").fetchall() == [(None,)]
