"""Functions of texts where no MariaDB can be asked: examples of the manuals, and what is refused.

Each group names the page that its values are from. MariaDB differs from MySQL's manual in REPLACE with NULL, REGEXP_SUBSTR
without a match, and in functions that it does not have or that take fewer arguments there.
"""

from __future__ import annotations

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

STRINGS = [  # MySQL 8.4 manual, "String Functions and Operators"
    ("ASCII('2')", "50"),
    ("ASCII(2)", "50"),
    ("ASCII('dx')", "100"),
    ("BIN(12)", "1100"),
    ("BIT_LENGTH('text')", "32"),
    ("CHAR(77,121,83,81,'76')", "MySQL"),
    ("CHAR(77,77.3,'77.3')", "MMM"),
    ("HEX(CHAR(1,0))", "0100"),
    ("HEX(CHAR(256))", "0100"),
    ("HEX(CHAR(1,0,0))", "010000"),
    ("HEX(CHAR(256*256))", "010000"),
    ("CONCAT('My', 'S', 'QL')", "MySQL"),
    ("CONCAT('My', NULL, 'QL')", None),
    ("CONCAT(14.3)", "14.3"),
    ("CONCAT_WS(',', 'First name', 'Second name', 'Last Name')", "First name,Second name,Last Name"),
    ("CONCAT_WS(',', 'First name', NULL, 'Last Name')", "First name,Last Name"),
    ("ELT(1, 'Aa', 'Bb', 'Cc', 'Dd')", "Aa"),
    ("ELT(4, 'Aa', 'Bb', 'Cc', 'Dd')", "Dd"),
    ("FIELD('Bb', 'Aa', 'Bb', 'Cc', 'Dd', 'Ff')", "2"),
    ("FIELD('Gg', 'Aa', 'Bb', 'Cc', 'Dd', 'Ff')", "0"),
    ("FIND_IN_SET('b', 'a,b,c,d')", "2"),
    ("FORMAT(12332.123456, 4)", "12,332.1235"),
    ("FORMAT(12332.1, 4)", "12,332.1000"),
    ("FORMAT(12332.2, 0)", "12,332"),
    ("TO_BASE64('abc')", "YWJj"),
    ("FROM_BASE64(TO_BASE64('abc'))", "abc"),
    ("HEX('abc')", "616263"),
    ("UNHEX(HEX('abc'))", "abc"),
    ("HEX(255)", "FF"),
    ("CONV(HEX(255), 16, 10)", "255"),
    ("INSERT('Quadratic', 3, 4, 'What')", "QuWhattic"),
    ("INSERT('Quadratic', -1, 4, 'What')", "Quadratic"),
    ("INSERT('Quadratic', 3, 100, 'What')", "QuWhat"),
    ("INSTR('foobarbar', 'bar')", "4"),
    ("INSTR('xbar', 'foobar')", "0"),
    ("LEFT('foobarbar', 5)", "fooba"),
    ("LENGTH('text')", "4"),
    ("LOCATE('bar', 'foobarbar')", "4"),
    ("LOCATE('xbar', 'foobar')", "0"),
    ("LOCATE('bar', 'foobarbar', 5)", "7"),
    ("LOWER('QUADRATICALLY')", "quadratically"),
    ("LPAD('hi', 4, '??')", "??hi"),
    ("LPAD('hi', 1, '??')", "h"),
    ("LTRIM('  barbar')", "barbar"),
    ("MAKE_SET(1, 'a', 'b', 'c')", "a"),
    ("MAKE_SET(1 | 4, 'hello', 'nice', 'world')", "hello,world"),
    ("MAKE_SET(1 | 4, 'hello', 'nice', NULL, 'world')", "hello"),
    ("MAKE_SET(0, 'a', 'b', 'c')", ""),
    ("OCT(12)", "14"),
    ("ORD('2')", "50"),
    (r"QUOTE('Don\'t!')", r"'Don\'t!'"),
    ("QUOTE(NULL)", "NULL"),
    ("REPEAT('MySQL', 3)", "MySQLMySQLMySQL"),
    ("REPLACE('www.mysql.com', 'w', 'Ww')", "WwWwWw.mysql.com"),
    ("REVERSE('abc')", "cba"),
    ("TRIM(TRAILING 0x00 FROM CONCAT(t, '100'))", "abc100"),
    ("TRIM(TRAILING 0x00 FROM CONCAT(t, CHAR(0 USING utf8mb4)))", "abc"),
    ("TRIM(0x09 FROM CONCAT('9', t))", "9abc"),
    ("TRIM(b'1001' FROM CONCAT('9', t, CHAR(9 USING utf8mb4)))", "9abc"),
    ("REGEXP_REPLACE(t, 'b', 0x20, 'g')", "a c"),
    ("DATE_FORMAT('2026-01-02', 0x2559)", "2026"),
    ("RIGHT('foobarbar', 4)", "rbar"),
    ("RPAD('hi', 5, '?')", "hi???"),
    ("RPAD('hi', 1, '?')", "h"),
    ("RTRIM('barbar   ')", "barbar"),
    ("SOUNDEX('Hello')", "H400"),
    ("SOUNDEX('Quadratically')", "Q36324"),
    ("SPACE(6)", "      "),
    ("SUBSTRING('Quadratically', 5)", "ratically"),
    ("SUBSTRING('foobarbar' FROM 4)", "barbar"),
    ("SUBSTRING('Quadratically', 5, 6)", "ratica"),
    ("SUBSTRING('Sakila', -3)", "ila"),
    ("SUBSTRING('Sakila', -5, 3)", "aki"),
    ("SUBSTRING('Sakila' FROM -4 FOR 2)", "ki"),
    ("SUBSTRING('Sakila', 0)", ""),
    ("SUBSTRING_INDEX('www.mysql.com', '.', 2)", "www.mysql"),
    ("SUBSTRING_INDEX('www.mysql.com', '.', -2)", "mysql.com"),
    ("TRIM('  bar   ')", "bar"),
    ("TRIM(LEADING 'x' FROM 'xxxbarxxx')", "barxxx"),
    ("TRIM(BOTH 'x' FROM 'xxxbarxxx')", "bar"),
    ("TRIM(TRAILING 'xyz' FROM 'barxxyz')", "barx"),
    ("UNHEX('4D7953514C')", "MySQL"),
    ("HEX(UNHEX('1267'))", "1267"),
    ("UNHEX('GG')", None),
    ("STRCMP('text', 'text2')", "-1"),
    ("STRCMP('text2', 'text')", "1"),
    ("STRCMP('text', 'text')", "0"),
    ("REPLACE('abc', 'x', NULL)", None),
    ("CRC32('MySQL')", "3259397556"),
    ("CRC32('mysql')", "2501908538"),
    ("MD5('testing')", "ae2b1fca515949e5d54fb22b8ed95575"),
    ("SHA1('abc')", "a9993e364706816aba3e25717850c26c9cd0d89d"),
    ("CONV('a', 16, 2)", "1010"),
    ("CONV('6E', 18, 8)", "172"),
    ("CONV(-17, 10, -18)", "-H"),
    ("CONV(10 + '10' + '10' + X'0A', 10, 10)", "40"),
]
PATTERNS = [  # MySQL 8.4 manual, "Regular Expressions" and "String Comparison Functions and Operators"
    ("'Michael!' REGEXP '.*'", "1"),
    (r"'new*\n*line' REGEXP 'new\\*.\\*line'", "0"),
    ("'a' REGEXP '^[a-d]'", "1"),
    ("'dog cat dog' RLIKE 'cat'", "1"),
    ("REGEXP_INSTR('dog cat dog', 'dog')", "1"),
    ("REGEXP_INSTR('dog cat dog', 'dog', 2)", "9"),
    ("REGEXP_INSTR('aa aaa aaaa', 'a{2}')", "1"),
    ("REGEXP_INSTR('aa aaa aaaa', 'a{4}')", "8"),
    ("REGEXP_INSTR('dog cat dog', 'dog', 1, 2, 1)", "12"),
    ("REGEXP_INSTR('dog cat dog', 'dog', 1, 3)", "0"),
    ("REGEXP_LIKE('CamelCase', 'CAMELCASE', 'i')", "1"),
    ("REGEXP_LIKE('CamelCase', 'CAMELCASE', 'c')", "0"),
    (r"REGEXP_LIKE('fo\nfo', '^fo$')", "0"),
    ("REGEXP_LIKE('fofo', '^fo')", "1"),
    (r"REGEXP_LIKE('fo\no', '^o$', 'm')", "1"),
    (r"REGEXP_LIKE('fo\r\n', '.\r.', 'n')", "1"),
    ("REGEXP_LIKE('Ban', '^Ba*n')", "1"),
    ("REGEXP_LIKE('pi', '^(pi)*$')", "1"),
    ("REGEXP_LIKE('pip', '^(pi)*$')", "0"),
    ("REGEXP_LIKE('abcde', 'a[bcd]{2}e')", "0"),
    ("REGEXP_LIKE('abcde', 'a[bcd]{1,10}e')", "1"),
    ("REGEXP_LIKE('justalnums', '[[:alnum:]]+')", "1"),
    ("REGEXP_LIKE('!!', '[[:alnum:]]+')", "0"),
    (r"REGEXP_LIKE('1+2', '1\\+2')", "1"),
    ("REGEXP_REPLACE('abc def ghi', '[a-z]+', 'X', 1, 3)", "abc def X"),
    ("REGEXP_REPLACE('abc def ghi', '[a-z]+', 'X', 1, 0)", "X X X"),
    ("REGEXP_REPLACE('abc def ghi', '[a-z]+', 'X', 5)", "abc X X"),
    ("REGEXP_SUBSTR('abc def ghi', '[a-z]+')", "abc"),
    ("REGEXP_SUBSTR('abc def ghi', '[a-z]+', 1, 3)", "ghi"),
    ("REGEXP_SUBSTR('abc', 'z')", None),
    (r"REGEXP_REPLACE('John Smith', '(\\w+) (\\w+)', '$2, $1', 1, 0)", "Smith, John"),
    (r"REGEXP_REPLACE('a', 'a', '\\$1', 1, 0)", "$1"),
    ("'David!' LIKE 'David_'", "1"),
    ("'David!' LIKE '%D%v%'", "1"),
    (r"'David!' LIKE 'David\_'", "0"),
    ("'David_' LIKE 'David|_' ESCAPE '|'", "1"),
    ("'a ' LIKE 'a'", "0"),
    ("10 LIKE '1%'", "1"),
    (r"'a%' LIKE 'a\\%' ESCAPE ''", "0"),
    ("'ä' LIKE 'a'", "0"),
]
SINGLESTORE = [  # SingleStore's manual, "INITCAP", "REGEXP_REPLACE", "RLIKE and REGEXP"
    ("INITCAP('alan storm')", "Alan Storm"),
    ("INITCAP(CONCAT('jade', ' ', 'blue'))", "Jade Blue"),
    ("INITCAP('SUSAN GRAHAM, C@ss n1te, dEaN wHiTe')", "Susan Graham, C@Ss N1te, Dean White"),
    ("INITCAP(NULL)", None),
    ("INITCAP('über ÉTÉ')", "Über Été"),
    ("REGEXP_REPLACE('a1b2', '[0-9]', '#', 'c')", "a#b2"),
    ("REGEXP_REPLACE('a1b2', '[0-9]', '#', 'g')", "a#b#"),
    ("REGEXP_REPLACE('aXbx', 'x', '-', 'gi')", "a-b-"),
    (r"REGEXP_REPLACE('ab', '(a)(b)', '\\2\\1', 'c')", "ba"),
    ("'adog' RLIKE 'o'", "1"),
    ("'adog' RLIKE '.o'", "1"),
    ("'dog58' RLIKE '[:digit:]'", "1"),
    ("'rat' RLIKE 'b|c'", "0"),
    ("'cat5mouse' RLIKE 'cat$'", "0"),
    ("'dogcat2' RLIKE '^dog'", "1"),
    (r"'a\n' RLIKE 'a$'", "0"),
]
REFUSALS = [
    ("REGEXP_REPLACE('a1b2', '[0-9]', '#')", "'g') for all"),
    ("t REGEXP t", "must be a literal"),
    ("t REGEXP '(?=a)'", "lookaround"),
    ("t REGEXP '(?<=a)b'", "lookaround"),
    (r"t REGEXP '(a)\\1'", "back-references"),
    (r"t REGEXP '\\bfoo'", "[^[:alnum:]_]"),
    ("t REGEXP 'a++'", "++ in a pattern"),
    ("t REGEXP '[z-a]'", "not a valid range"),
    ("t REGEXP '(a'", "unmatched ("),
    ("t REGEXP '[[:<:]]a'", "[ in brackets"),
    ("t REGEXP 'a{1001}'", "1000"),
    (r"t REGEXP '\\w{400}'", "too large"),
    ("t REGEXP ''", "empty"),
    ("t REGEXP '*a'", "follows nothing"),
    ("REGEXP_LIKE(t, 'a', 'x')", "c, i, m, n, u"),
    ("REGEXP_SUBSTR(t, '^a', 2)", "SUBSTRING"),
    ("REGEXP_SUBSTR(t, 'a', 0)", "write 1 or more"),
    ("REGEXP_REPLACE(t, 'a', t, 'g')", "expected a literal replacement"),
    ("REGEXP_REPLACE(t, 'a', '$1', 'g')", "group 1 does not exist"),
    ("SHA2(t, 512)", "SHA2(value, 256)"),
    ("SHA2(t, n)", "must be a literal"),
    ("CONV(t, n, 10)", "must be a literal"),
    ("FORMAT(1.5, 2, 'de_DE')", "en_US"),
    ("FORMAT(1.5, n)", "must be a literal"),
    ("t LIKE 'a' ESCAPE 'ab'", "one character"),
    ("t COLLATE utf8mb4_general_ci", "LOWER(a)"),
    ("CONVERT(t USING latin1)", "UTF-8"),
    ("CAST(t AS CHAR CHARACTER SET latin1)", "UTF-8"),
    ("LENGHT(t)", "did you mean LENGTH?"),
    ("LOAD_FILE(t)", "LOOKUP"),
    ("SPLIT_PART(t, ',', 1)", "SUBSTRING_INDEX"),
    ("LEFT(t)", "expected 2 arguments"),
    ("LEFT(t FROM 2)", "expected )"),
    ("CONCAT(t USING utf8mb4)", "expected )"),
]


CONNECTION = duckdb.connect(":memory:", config={"threads": 1})


def value(expression: str) -> str | None:
    resolve = of_columns(Columns.of({"t": "VARCHAR", "n": "BIGINT"}))
    sql = text(compiled(expression, resolve)).sql
    row = CONNECTION.execute(f"SELECT {sql} FROM (SELECT 'abc' AS t, CAST(2 AS BIGINT) AS n)").fetchone()
    assert row is not None
    found: str | None = row[0]
    return found


@each_case(("expression", "expected"), [*STRINGS, *PATTERNS, *SINGLESTORE])
def test_the_manuals_examples(expression: str, expected: str | None) -> None:
    assert value(expression) == expected


@each_case(("expression", "said"), REFUSALS)
def test_refused_with_what_to_write(expression: str, said: str) -> None:
    with pytest.raises(Untranslated) as caught:
        value(expression)
    assert said in str(caught.value)
    assert caught.value.hint or "argument" in caught.value.what


def test_no_function_is_both_taken_and_refused() -> None:
    assert not set(REFUSED) & set(known())
    assert all(what and hint for what, hint in REFUSED.values())


@each_case(
    "expression",
    [
        "REPEAT(t, 1000000000)",
        "SPACE(1000000000)",
        "LPAD(t, 1000000000, 'x')",
        "RPAD(t, 1000000000, 'x')",
        "REPEAT(t, 9223372036854775807)",
    ],
)
def test_a_text_beyond_the_limit_is_null(expression: str) -> None:
    assert value(expression) is None


def test_nested_calls_grow_by_no_more_than_they_say() -> None:
    nested = "t"
    for _ in range(12):
        nested = f"SUBSTRING(INSERT(LPAD({nested}, n + 40, '*'), n, 1, 'x'), -30)"
    sql = compiled(nested, of_columns(Columns.of({"t": "VARCHAR", "n": "BIGINT"}))).sql
    assert len(sql) < 40_000
    assert value(nested) is not None
