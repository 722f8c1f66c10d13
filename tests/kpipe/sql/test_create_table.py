"""CREATE TABLE of SingleStore and MySQL: DuckDB makes what it says, and a note says what means nothing here."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.errors import InvalidStatement
from kpipe.sql.create_table import made
from kpipe.sql.parser import is_complete, read_all
from kpipe.sql.statements import Query
from tests.cases import each_case

#: DuckDB's text of the default.
UTC = "timezone('UTC', now())"


def described(text: str, table: str = "t") -> list[tuple[str, str, str, str | None]]:
    """Name, type, whether NULL is taken, and key of each column of the table that is made."""
    with duckdb.connect() as connection:
        for statement in made(text).statements:
            connection.execute(statement)
        return [row[:4] for row in connection.execute(f'DESCRIBE "{table}"').fetchall()]


@each_case(
    ("column", "kind"),
    [
        ("int(11)", "INTEGER"), ("int(10) unsigned", "UINTEGER"), ("BIGINT(20)", "BIGINT"),
        ("bigint unsigned zerofill", "UBIGINT"),
        ("tinyint(1)", "TINYINT"), ("mediumint(9)", "INTEGER"), ("SMALLINT UNSIGNED", "USMALLINT"), ("year(4)", "SMALLINT"),
        ("float(7,4)", "FLOAT"), ("float(24)", "FLOAT"), ("FLOAT(25)", "DOUBLE"), ("float(53) unsigned", "DOUBLE"),
        ("float(53,4)", "FLOAT"), ("double(16,4)", "DOUBLE"), ("DOUBLE PRECISION", "DOUBLE"), ("real", "DOUBLE"),
        ("decimal(12,2)", "DECIMAL(12,2)"), ("dec(5)", "DECIMAL(5,0)"), ("numeric", "DECIMAL(10,0)"), ("bool", "BOOLEAN"),
        ("varchar(255)", "VARCHAR"), ("char(2)", "VARCHAR"), ("longtext", "VARCHAR"), ("enum('a','b')", "VARCHAR"),
        ("varbinary(16)", "BLOB"), ("longblob", "BLOB"), ("binary(20)", "BLOB"), ("json", "JSON"), ("geographypoint", "VARCHAR"),
        ("datetime", "TIMESTAMP"), ("datetime(6)", "TIMESTAMP"), ("timestamp(6)", "TIMESTAMP"), ("time(6)", "TIME"),
        ("STRUCT(a INT, b VARCHAR[])", "STRUCT(a INTEGER, b VARCHAR[])"), ("int[]", "INTEGER[]"), ("UUID", "UUID"),
        ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITH TIME ZONE"), ("MAP(VARCHAR, INT)", "MAP(VARCHAR, INTEGER)"),
    ],
)  # fmt: skip
def test_types(column: str, kind: str) -> None:
    assert described(f"CREATE TABLE t (c {column} NOT NULL, `d` TEXT)")[0] == ("c", kind, "NO", None)


@each_case(
    ("keys", "left"),
    [
        ("PRIMARY KEY (a)", []), ("PRIMARY KEY t_key (a)", []), ("PRIMARY KEY USING HASH (a) BUCKET_COUNT = 1024", []),
        ("PRIMARY KEY (a) USING BTREE", []), ("CONSTRAINT PRIMARY KEY (`a`(10) DESC)", []), ("CONSTRAINT k PRIMARY KEY (a)", []),
        ("PRIMARY KEY (a), SHARD KEY (a), SORT KEY (b)", ["SHARD KEY, SORT KEY"]),
        ("SHARD KEY () , SORT KEY (), PRIMARY KEY (a)", ["SHARD KEY, SORT KEY"]),
        ("PRIMARY KEY (a), KEY (b) USING CLUSTERED COLUMNSTORE", ["KEY"]),
        ("SHARD KEY (a) USING CLUSTERED COLUMNSTORE, PRIMARY KEY (a)", ["SHARD KEY"]),
        ("KEY `b` (`b`,`a`) USING HASH, INDEX (b), FULLTEXT (b), FULLTEXT USING VERSION 2 f (b), PRIMARY KEY (a)",
         ["KEY, INDEX, FULLTEXT"]),
        ("PRIMARY KEY (a), UNIQUE KEY u (b) UNENFORCED RELY", ["UNIQUE UNENFORCED"]),
    ],
)  # fmt: skip
def test_keys(keys: str, left: list[str]) -> None:
    text = f"CREATE TABLE t (a INT, b TEXT, {keys})"
    assert [row[3] for row in described(text)] == ["PRI", None]
    assert made(text).notes == [f"ignored, because it has no effect: {names}" for names in left]


def test_a_unique_key_keeps_rows_apart() -> None:
    assert [row[3] for row in described("CREATE TABLE t (a INT UNIQUE KEY, b INT KEY, c INT, UNIQUE KEY c (c) USING HASH)")] == [
        "UNI", "PRI", "UNI",
    ]  # fmt: skip


@each_case(
    ("before", "behind", "left"),
    [
        ("CREATE ROWSTORE TABLE", "", "ROWSTORE"), ("CREATE ROWSTORE REFERENCE TABLE IF NOT EXISTS", "", "ROWSTORE, REFERENCE"),
        ("CREATE COLUMNSTORE TABLE", "", "COLUMNSTORE"), ("CREATE TABLE", " USING ROWSTORE", "USING ROWSTORE"),
        ("CREATE TABLE", "ENGINE=InnoDB AUTO_INCREMENT=7 DEFAULT CHARSET=utf8 COMMENT='a, b'",
         "ENGINE=InnoDB, AUTO_INCREMENT=7, DEFAULT CHARSET=utf8, COMMENT='a, b'"),
        ("CREATE TABLE", " AUTOSTATS_SAMPLING=ON COMPRESSION = SPARSE", "AUTOSTATS_SAMPLING=ON, COMPRESSION = SPARSE"),
    ],
)  # fmt: skip
def test_kinds_and_options_of_tables(before: str, behind: str, left: str) -> None:
    text = f"{before} t (a INT){behind}"
    assert described(text) == [("a", "INTEGER", "YES", None)]
    assert made(text).notes == [f"ignored, because it has no effect: {left}"]


def test_names_are_columns_though_they_are_words() -> None:
    text = 'CREATE TABLE `order` (a INT, offset Text, partition Text, `key` INT, key2 INT, "group" INT, index INT, `a``b` INT)'
    assert [row[0] for row in described(text, "order")] == [
        "a", "offset", "partition", "key", "key2", "group", "index", "a`b",
    ]  # fmt: skip


def test_attributes_of_columns() -> None:
    found = made("""CREATE TABLE t (
        a varchar(20) CHARACTER SET utf8 COLLATE utf8_general_ci NOT NULL DEFAULT 'x, (y' COMMENT 'it''s, (odd', -- and a comment
        b text COLLATE utf8_bin DEFAULT NULL, c TEXT DEFAULT "word", d decimal NULL, e enum('a','b'),
        ts timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6), u TEXT COLLATE NOCASE)""")
    assert found.notes == [
        "ignored, because it has no effect: COMMENT",
        "COLLATE utf8_general_ci is ignored: texts are compared by their bytes, 'A' is not 'a'",
        "d has type DECIMAL(10,0) instead of decimal: it has 10 digits and no fraction, as in SingleStore",
        "e has type VARCHAR instead of enum('a','b'): its values are not checked",
        "ON UPDATE of ts is ignored: assign NOW() to it in the pipeline",
    ]
    with duckdb.connect() as connection:
        connection.execute(found.statements[0])
        connection.execute("INSERT INTO t (d, u) VALUES (1, 'A')")
        query = "SELECT a, b, c, abs(epoch(ts - (now() AT TIME ZONE 'UTC'))) < 60, u = 'a' FROM t"
        assert connection.execute(query).fetchall() == [("x, (y", None, "word", True, True)]


@each_case(
    ("column", "default"),
    [
        ("DATETIME DEFAULT CURRENT_TIMESTAMP", UTC), ("datetime(6) DEFAULT current_timestamp(6)", UTC),
        ("TIMESTAMP DEFAULT now()", UTC), ("timestamp DEFAULT (NOW(3)) ON UPDATE NOW(3)", UTC),
        ("DATETIME DEFAULT LOCALTIME()", UTC), ("TEXT DEFAULT UTC_TIMESTAMP()", UTC),
        ("TIMESTAMP WITHOUT TIME ZONE DEFAULT LOCALTIMESTAMP", UTC),
        ("DATE DEFAULT (CURRENT_DATE)", f"CAST({UTC} AS DATE)"), ("DATE DEFAULT (curdate())", f"CAST({UTC} AS DATE)"),
        ("TIME DEFAULT (CURRENT_TIME(6)) NOT NULL", f"CAST({UTC} AS TIME)"),
        ("TIMESTAMPTZ DEFAULT CURRENT_TIMESTAMP(6)", "now()"), ("TIMESTAMP WITH TIME ZONE DEFAULT now()", "now()"),
    ],
)  # fmt: skip
def test_defaults_of_times_are_in_utc(column: str, default: str) -> None:
    """Another client of the file has its own zone."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'America/New_York'")
        connection.execute(made(f"CREATE TABLE t (a {column}, b INT)").statements[0])
        assert connection.execute("SELECT column_default FROM duckdb_columns() WHERE column_name = 'a'").fetchone() == (default,)
        connection.execute("INSERT INTO t (b) VALUES (1)")
        assert connection.execute("SELECT count(a) FROM t").fetchone() == (1,)


@each_case(
    ("written", "value"),
    [
        (r"'C:\\tmp\n'", "C:\\tmp\n"), (r"'it\'s'", "it's"), ("'it''s'", "it's"), (r'"a\"b\\"', 'a"b\\'), (r"'50\%'", r"50\%"),
        ("'a, (b'", "a, (b"), (r"'\\'", "\\"), (r"(concat('x\'', '\\'))", "x'\\"), ("$$a\\'$$", "a\\'"), (r"E'a\tb'", "a\tb"),
    ],
)  # fmt: skip
def test_texts_have_escapes(written: str, value: str) -> None:
    text = rf"CREATE TABLE t (a TEXT DEFAULT {written} COMMENT 'it\'s', b INT) COMMENT='that\'s; it'"
    statement, after = read_all(f"{text};\nSELECT 1")
    assert isinstance(statement, Query) and isinstance(after, Query)
    assert (statement.text, after.text, is_complete(f"{text};")) == (text, "SELECT 1", True)
    with duckdb.connect() as connection:
        connection.execute(made(text).statements[0])
        connection.execute("INSERT INTO t (b) VALUES (1)")
        assert connection.execute("SELECT a FROM t").fetchone() == (value,)


def test_texts_of_queries_have_no_escapes() -> None:
    for text in (r"CREATE TABLE t AS SELECT 'a\' AS a", r"SELECT 'a\' AS a", r"CREATE VIEW v AS SELECT 'a\' AS a"):
        found = [statement.text for statement in read_all(f"{text}; SELECT 1") if isinstance(statement, Query)]
        assert found == [text, "SELECT 1"]


def test_numbered_columns_are_numbered_and_no_key() -> None:
    found = made("CREATE TABLE t (id BIGINT(20) NOT NULL AUTO_INCREMENT, name TEXT, PRIMARY KEY (id), UNIQUE KEY (name))")
    assert len(found.notes) == 1
    assert found.notes[0].startswith("PRIMARY KEY (id) is ignored: the table generates its values")
    with duckdb.connect() as connection:
        for statement in found.statements:
            connection.execute(statement)
        connection.execute("INSERT INTO t (name) VALUES ('x'), ('y')")
        assert connection.execute("SELECT id, name FROM t ORDER BY name").fetchall() == [(1, "x"), (2, "y")]


def test_computed_columns_are_computed_when_they_are_asked_for() -> None:
    """As the tables of the vendor's demonstration of 2016 have them."""
    found = made("""CREATE TABLE `t` (`id` BIGINT PRIMARY KEY, `tweet` JSON, `text` AS `tweet`::$text PERSISTED TEXT,
        `n` AS `tweet`::user::%`n k` PERSISTED INT, half AS id DIV 2 PERSISTED BIGINT, up AS id + 1)""")
    assert found.notes == []
    with duckdb.connect() as connection:
        connection.execute(found.statements[0])
        connection.execute("""INSERT INTO t (id, tweet) VALUES (86400, '{"text": "hé", "user": {"n k": 3}}')""")
        assert connection.execute("SELECT text, n, half, up FROM t").fetchall() == [("hé", 3, 43200, 86401)]


@each_case(
    "text",
    [
        "CREATE TABLE shop (id BIGINT PRIMARY KEY, city VARCHAR, cents BIGINT)",
        'CREATE TABLE t (a BIGINT, s STRUCT(x INT, "y z" VARCHAR[]), g INT GENERATED ALWAYS AS (a + 1), CHECK (a > 0))',
        "CREATE TABLE t AS SELECT 1 AS a", "CREATE TABLE t(a, b) AS SELECT 1, 2", "CREATE VIEW v AS SELECT 1",
        "CREATE OR REPLACE TABLE t (a TIMESTAMP DEFAULT NULL, key VARCHAR, FOREIGN KEY (a) REFERENCES u (a))",
        "CREATE", "CREATE TABLE",
    ],
)  # fmt: skip
def test_what_duckdb_reads_in_the_same_way_stays_as_it_is(text: str) -> None:
    assert (made(text).statements, made(text).notes) == ([text], [])


@each_case(
    ("text", "words"),
    [
        ("CREATE GLOBAL TEMPORARY TABLE t (a INT)", "CREATE TEMPORARY TABLE: the table would not outlive its statement"),
        (
            "CREATE TABLE shop.t (a INT)",
            "expected a table name without a database, found shop.t -> remove shop: a home has one database",
        ),
        ("CREATE TABLE t (a INT", "the list of columns is not closed -> add )"),
        (r"CREATE TABLE t (a TEXT DEFAULT 'C:\')", r"\ escapes the next character: write \\ for a backslash"),
        (r"CREATE TABLE t (a TEXT DEFAULT '\0')", "CREATE TABLE: a text contains NUL"),
        ("CREATE TABLE t (a INT,, b INT)", "a column is missing between two commas"),
        ("CREATE TABLE t (a INT, PRIMARY KEY)", "PRIMARY KEY without columns"),
        ("CREATE TABLE t (a INT, b AS SLEEP(a) PERSISTED INT)", "CREATE TABLE: column b: SLEEP is not supported"),
    ],
)
def test_what_cannot_be_made_is_said(text: str, words: str) -> None:
    with pytest.raises(InvalidStatement) as raised:
        made(text)
    assert words in str(raised.value)


_TOKENS = (
    "( ) , a `b` \"c\" 'd' INT int(11) KEY PRIMARY UNIQUE SHARD SORT INDEX FULLTEXT USING HASH NOT NULL DEFAULT ON UPDATE AS"
    " COMMENT AUTO_INCREMENT COLLATE CHARACTER SET utf8 CONSTRAINT CHECK PERSISTED DECIMAL ENUM UNSIGNED [ ] = ENGINE TABLE IF"
    " EXISTS . ` ' \\"
)
_WORDS = st.sampled_from(_TOKENS.split(" "))


@given(st.lists(_WORDS, max_size=14), st.sampled_from(["CREATE ", "CREATE TABLE ", "CREATE TABLE t (", "CREATE TABLE t (a INT "]))
def test_any_text_is_a_table_or_an_error_in_words(parts: list[str], begin: str) -> None:
    try:
        found = made(begin + " ".join(parts))
    except InvalidStatement as error:
        assert error.what and "\n" not in error.what
    else:
        assert found.statements and all(found.statements)


@given(st.text(max_size=12).filter(lambda name: bool(name) and "\0" not in name and name.lower() != "k"))
def test_a_name_is_only_ever_a_name(name: str) -> None:
    quoted = "`" + name.replace("`", "``") + "`"
    text = f"CREATE TABLE {quoted} ({quoted} BIGINT AUTO_INCREMENT, k INT(11), PRIMARY KEY ({quoted}), SHARD KEY ({quoted}))"
    assert [row[0] for row in described(text, name.replace('"', '""'))] == [name, "k"]
