"""Where MySQL and MariaDB differ, and what kpipe does: a part of the page of functions.

tests/kpipe/expressions/mysql/test_server_differences.py compares each row with the recorded answers of both servers and with
kpipe, and each recorded difference with the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from website.reference.markdown import table

__all__ = ["DIFFERENCES", "Difference", "server_differences"]


@dataclass(frozen=True)
class Difference:
    """One way in which the servers differ.

    Attributes:
        what: which values or functions.
        example: an expression of MySQL.
        mysql: its value in MySQL 9.7; None: NULL; "error": the server rejects it.
        mariadb: its value in MariaDB 10.11.
        follows_mysql: kpipe's value is MySQL's, not MariaDB's.
    """

    what: str
    example: str
    mysql: str | None
    mariadb: str | None
    follows_mysql: bool = False


DIFFERENCES = (
    Difference("digits of a quotient that is computed with further", "1 / 3 * 3", "0.9999", "1.0000"),
    Difference("bits of a text with a fraction", "'2.5' | 0", "2", "3"),
    Difference("bits of a DOUBLE that ends in .5", "2.5e0 & 3", "2", "3"),
    Difference("a shift by 2^32 or more", "1 << 4294967296", "0", "1", follows_mysql=True),
    Difference("a negative fraction, or a large DOUBLE, as UNSIGNED", "CAST(-1.5 AS UNSIGNED)", "18446744073709551614", "0"),
    Difference("a hexadecimal literal as a number", "BIN(0x4142)", "100000101000010", "0"),
    Difference("a hexadecimal literal of more than 64 bits", "0x1FFFFFFFFFFFFFFFFF + 0", "0", "18446744073709551615"),
    Difference(
        "a number of more than 64 bits in CONV", "CONV('-99999999999999999999999999999999999', 10, 16)", "0", "FFFFFFFFFFFFFFFF"
    ),
    Difference("zeros of a rounded DOUBLE", "ROUND(2e0, 2e0)", "2", "2.00"),
    Difference("zeros of a condition's value", "IF(0, 1.50, 2)", "2", "2.00"),
    Difference("a small or large DOUBLE as a text", "CONCAT(CEIL(1e15), '|')", "1e15|", "1000000000000000|"),
    Difference("minus zero", "CEIL(-0.5e0)", "-0", "0"),
    Difference("more than 30 decimals in FORMAT", "FORMAT(1234, 31)", "1,234." + "0" * 30, "1,234." + "0" * 31),
    Difference("overflow of an integer", "ROUND(9223372036854775807, -1)", "error", "9223372036854775810"),
    Difference("large integers beside texts", "'9007199254740993' = 9007199254740992", "1", "0"),
    Difference("a JSON text beside a number, a JSON number beside a text", """JSON_EXTRACT('{"a": "5"}', '$.a') = 5""", "0", "1"),
    Difference("JSON's true and false beside a number", """JSON_EXTRACT('{"a": true}', '$.a') = 1""", "0", "1"),
    Difference("order of JSON's members", """JSON_EXTRACT('{"bb": 1, "a": 2}', '$')""", '{"a": 2, "bb": 1}', '{"bb": 1, "a": 2}'),
    Difference("digits of JSON's numbers", "JSON_EXTRACT('[1.50]', '$')", "[1.5]", "[1.50]"),
    Difference("element 0 of a JSON object in JSON_KEYS", """JSON_KEYS('{"a": 1}', '$[0]')""", None, '["a"]'),
    Difference(
        "type of a large JSON integer",
        """JSON_TYPE(JSON_EXTRACT('{"a": 9007199254740993}', '$.a'))""",
        "UNSIGNED INTEGER",
        "INTEGER",
    ),
    Difference("a date or a number, as a number", "IF(TRUE, TIMESTAMP '2024-02-29 13:14:15', 1) * 1", "20240229131415", "2024"),
    Difference("a date rounded to tens", "ROUND(DATE '1999-11-05', '-1')", "19991100", "19991110"),
    Difference("a date beside a text that is not a date", "DATE '1999-11-05' < CONCAT('2023-02-3', '0')", "error", "1"),
    Difference("a time beside a text that is not a time", "TIME '00:00:00' = CONCAT('a', 'bc')", "0", "1"),
    Difference("a time with a plus sign", "TIME('+10:11:12')", None, "10:11:12"),
    Difference("a date as a time", "TIME(20130105)", None, "00:00:00"),
    Difference("other characters in a date or time", "CAST('20130105x' AS DATETIME)", None, "2013-01-05 00:00:00"),
    Difference("rounding beyond the year 9999", "CAST('9999-12-31 23:59:59.9' AS DATETIME)", None, "9999-12-31 23:59:59"),
    Difference(
        "dates without a time, in functions of times", "ADDTIME('2007-12-31', '10:00:00')", "2007-12-31 10:00:00", "10:20:07"
    ),
    Difference("a date as the second argument", "ADDTIME('10:00:00', '2007-12-31 10:00:00')", "20:00:00", None),
    Difference("a time plus days", "HOUR(TIME '10:00:00' + INTERVAL 1 DAY)", "10", "34"),
    Difference(
        "more than six digits of microseconds in INTERVAL",
        "'2024-01-31' + INTERVAL '1.1234567' SECOND_MICROSECOND",
        "2024-01-31 00:00:02.234567",
        "2024-01-31 00:00:01.123456",
    ),
    Difference("the year 0", "YEAR('0001-01-01' - INTERVAL 1 DAY)", "0", None),
    Difference("NULL as the mode of WEEK and YEARWEEK", "WEEK('2008-02-20', NULL)", "0", "7"),
    Difference("seconds of a text that is not a date", "UNIX_TIMESTAMP('x')", "0.000000", None),
    Difference("years in TIME_FORMAT", "TIME_FORMAT('10:11:12', '%Y')", "0000", None),
    Difference("a day of the year without a year", "STR_TO_DATE('123', '%j')", "0000-05-03", None),
    Difference("a number as a time in EXTRACT", "EXTRACT(HOUR FROM 101112)", "0", "10"),
    Difference("months beyond 12 in PERIOD_ADD and PERIOD_DIFF", "PERIOD_ADD(200813, 2)", "error", "200903"),
    Difference("padding with an empty text", "LPAD('abc', 6, '')", "abc", None),
    Difference("texts of more than 16 MiB", "CHAR_LENGTH(SPACE(20000000))", "20000000", None),
    Difference("an empty text behind the last character", "LOCATE('', 'abc', 4)", "4", "0", follows_mysql=True),
    Difference("punctuation in patterns", "'+' REGEXP '[[:punct:]]'", "0", "1"),
    Difference("groups in a replacement; `$1` is a group, too", r"REGEXP_REPLACE('abc', '^(.)(.)', '\\2\\1')", "21c", "bac"),
    Difference("NULL as an address", "IS_IPV4(NULL)", None, "0"),
)


def server_differences() -> str:
    """Return the section."""
    rows = [
        (item.what, f"`{item.example}`", _value(item.mysql), _value(item.mariadb), "MySQL" if item.follows_mysql else "MariaDB")
        for item in DIFFERENCES
    ]
    return "\n".join(
        [
            "## Where MySQL and MariaDB differ\n",
            "Every expression of the tests is computed by MySQL 9.7 and by MariaDB 10.11. Their values are equal, except"
            " here. The\nlast column names the server that kpipe agrees with.\n",
            table(("what", "example", "MySQL", "MariaDB", "kpipe"), rows),
            "MySQL 9.7 has no `MD5`, `SHA`, `SHA1`, `NVL`, `NVL2` and `JSON_EXISTS`; they are compared with MariaDB alone.\n",
        ]
    )


def _value(text: str | None) -> str:
    return "NULL" if text is None else text if text == "error" else f"`{text}`"
