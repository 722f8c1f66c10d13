"""Errors point at the place and say what was expected; what is not supported names itself and the reason; no secret is shown."""

from __future__ import annotations

import pytest

from kpipe.definition.references import from_statement, to_statement
from kpipe.errors import InvalidStatement
from kpipe.sql.grammar import parser
from kpipe.sql.masking import masked
from kpipe.sql.parser import _names, read, read_all
from tests.cases import each_case

HEAD = "CREATE PIPELINE p AS LOAD DATA KAFKA 'k/t' "


def refused(text: str) -> InvalidStatement:
    with pytest.raises(InvalidStatement) as raised:
        list(read_all(text))
    assert raised.value.exit_status == 2
    return raised.value


@each_case(
    ("text", "marked", "words"),
    [
        ("CREATE PIPLINE p AS", "PIPLINE", "expected OR, PIPELINE or SOURCE, found PIPLINE -> did you mean PIPELINE?"),
        (
            HEAD + "INTO TABLE t FORMAT JSN",
            "JSN",
            "expected AVRO, CSV, DEBEZIUM, JSON, PROTOBUF or RAW, found JSN -> did you mean JSON?",
        ),
        (HEAD + "BATCH_INTRVAL 5 INTO TABLE t", "BATCH_INTRVAL", "did you mean BATCH_INTERVAL?"),
        (HEAD + "BATCH_INTERVAL fast INTO TABLE t", "fast", "expected a number, found fast"),
        (HEAD + "FORMAT JSON INTO TABLE t", "FORMAT", "found FORMAT -> write FORMAT after INTO TABLE"),
        (
            HEAD + "INTO TABLE t FORMAT JSON ON DUPLICATE KEY UPDATE * REPLACE",
            "REPLACE",
            "(, IGNORE n LINES or the end, found REPLACE -> write REPLACE before SET, WHERE and ON DUPLICATE KEY",
        ),
        (
            HEAD + "INTO TABLE t FORMAT JSON SET a = b SKIP PARSER ERRORS",
            "b SKIP PARSER ERRORS",
            "SKIP must precede SET, WHERE and ON DUPLICATE KEY UPDATE -> move it",
        ),
        (HEAD + "INTO TABLE t FORMAT JSON WHERE a > 1 CONFIG '{}'", "a > 1 CONFIG '{}'", "CONFIG must precede SET, WHERE"),
        (HEAD + "INTO t FORMAT JSON", "t", "expected KAFKA or TABLE, found t"),
        (HEAD.rstrip(), " ", "found the end"),
        (HEAD + "INTO TABLE t FORMAT JSON (a <- @raw)", "@raw", "expected %, a name or a number, found @raw"),
        (HEAD + "INTO TABLE t FORMAT JSON (a - b)", "-", "found -"),
        (HEAD + "INTO TABLE t FORMAT JSON (a <- b,)", ")", "expected a @variable or a name, found )"),
        (HEAD + "INTO TABLE t FORMAT JSON SET a =", " ", "expected ( or an expression, found the end"),
        (HEAD + "INTO TABLE t FORMAT JSON WHERE a = 1) FROM (b", ")", "found )"),
        (HEAD + "INTO TABLE t FORMAT JSON WHERE 'x", "'", "found an unterminated quote"),
        ("CREATE PIPELINE p AS LOAD DATA KAFKA k/t INTO TABLE t", "k", "expected a text in quotes, found k"),
        ("TEST PIPELINE p LIMIT 10 ROWS", "ROWS", "expected the end, found ROWS"),
        ("STOP", " ", "expected ALL or PIPELINE, found the end"),
        ("SHOW CREATE PIPELINE", " ", "expected a name, found the end"),
        ("START PIPELINE p FOREGROUND LIMIT 0 BATCHES", "FOREGROUND LIMIT 0 BATCHES", "reads nothing"),
        ("BACKFILL PIPELINE p FROM 9 TO 9", "9", "is empty: its end is exclusive"),
        ("ALTER PIPELINE p SET OFFSETS 'x'", "'x'", "OFFSETS is not JSON"),
        ("ALTER PIPELINE p SET OFFSETS '{\"a\": 1}'", "'{\"a\": 1}'", "expected offsets by partition number"),
        ("ALTER PIPELINE p SET OFFSETS TIMESTAMP 'soon'", "TIMESTAMP 'soon'", "TIMESTAMP: invalid time"),
        ("ALTER PIPELINE p DROP PARTITION 'x'", "'x'", "is not a partition number"),
    ],
)
def test_an_error_points_at_the_place(text: str, marked: str, words: str) -> None:
    error = refused(text)
    line, marks = error.excerpt.split("\n")
    start = marks.index("^")
    assert line[start : start + marks.count("^")] == (marked if marked != " " else "")
    assert words in str(error)
    assert str(error).startswith(f"line 1, column {start + 1}: ")


@each_case(
    ("text", "words"),
    [
        ("CREATE PIPELINE p AS LOAD DATA LINK l 'k/t' INTO TABLE t", "LINK is not supported: kpipe stores no connections"),
        ("CREATE PIPELINE p AS LOAD DATA S3 'bucket' INTO TABLE t", "S3 is not supported: paths name their store"),
        ("CREATE PIPELINE p AS LOAD DATA FS '/data/*.csv' INTO TABLE t", "FS is not supported: paths name their store"),
        (HEAD + "RESOURCE POOL big INTO TABLE t", "RESOURCE POOL is not supported: kpipe has no resource pools"),
        (HEAD + "IGNORE INTO TABLE t", "IGNORE is not supported: it would silently change invalid values"),
        (HEAD + "INTO PROCEDURE f FORMAT JSON (a <- %)", "INTO PROCEDURE is not supported: kpipe has no stored procedures"),
        (HEAD + "INTO TABLE t FORMAT PARQUET", "FORMAT PARQUET is not supported: a Kafka message is not a Parquet file"),
        (HEAD + "INTO TABLE t CHARACTER SET latin1", "CHARACTER SET latin1 is not supported: kpipe reads UTF-8"),
        (HEAD + "WITH TRANSFORM ('http://h/p.py') INTO TABLE t", "TRANSFORM from http:// is not supported"),
        ("CREATE PIPELINE p AS LOAD DATA KAFKACONNECT 'c' INTO TABLE t", "KAFKACONNECT is not supported: kpipe runs no source"),
        ("CREATE PIPELINE p AS LOAD DATA LINK shop.l 't' INTO TABLE t", "LINK is not supported: kpipe stores no connections"),
        (HEAD + "WITH TRANSFORM ('memsql://json', '', '.a') INTO TABLE t", "it is a program inside SingleStore"),
        ("INFER TABLE AS LOAD DATA KAFKA 'k/t' FORMAT JSON", "INFER TABLE is not supported: it is part of INFER PIPELINE"),
        ("CREATE INFERRED PIPELINE p AS LOAD DATA KAFKA 'k/t' FORMAT JSON", "CREATE INFERRED PIPELINE is not supported"),
        ("PROFILE PIPELINE p", "PROFILE PIPELINE is not supported: kpipe has no query plans"),
        ("ALTER PIPELINE p FIELDS TERMINATED BY ','", "FIELDS is not supported: a format is replaced as a whole"),
        ("ALTER PIPELINE p SET RESOURCE POOL x", "RESOURCE POOL is not supported"),
        (
            "ALTER PIPELINE p SET OFFSETS CURSOR",
            "OFFSET CURSOR is not supported: a position in Kafka is an offset for each partition",
        ),
        ("ALTER PIPELINE p SET OFFSET CURSOR kind", "OFFSET CURSOR is not supported"),
        ("ALTER PIPELINE p SET BATCH_MATCHES_SNAPSHOT ON", "BATCH_MATCHES_SNAPSHOT is not supported: a Kafka topic has no"),
        ("ALTER PIPELINE p SET LINK other", "LINK is not supported"),
        ("ALTER PIPELINE p DROP FILE 'a.csv'", "DROP FILE is not supported: a file that was read is never read again"),
        ("ALTER PIPELINE p DROP ORPHAN FILES", "DROP FILE is not supported"),
        ("ALTER PIPELINE p SET RETRY_OPTIONS ::tries = '2'", "RETRY_OPTIONS: unknown option tries"),
        (
            "ALTER PIPELINE p SET RETRY_OPTIONS ::max_retries = 'two'",
            "RETRY_OPTIONS: max_retries: expected a whole number, true or false, found 'two'",
        ),
        (HEAD + "IGNORE PARSER ERRORS INTO TABLE t", "IGNORE is not supported: it would silently change invalid values"),
        ("SHOW PROFILE PIPELINE p", "PROFILE PIPELINE is not supported: kpipe has no query plans"),
        ("SHOW PROFILE JSON PIPELINE p", "PROFILE PIPELINE is not supported"),
        ("SHOW PROFILE UI PIPELINE p ON NODE 3", "PROFILE PIPELINE is not supported"),
        (HEAD + "INTO TABLE t FORMAT JSON SET a = SLEEP(1)", "SLEEP is not supported"),
        (HEAD + "INTO TABLE t FORMAT JSON SET a = pipeline_batch_id()", "PIPELINE_BATCH_ID is not supported: a task does not"),
        (HEAD + "INTO TABLE t FORMAT JSON SET a = (SELECT 1)", "a query is not allowed in an expression"),
        (HEAD + "INTO TABLE t FORMAT JSON SET a = sum(b) OVER ()", "a window function is not allowed in an expression"),
    ],
)
def test_what_is_not_taken_names_itself_and_the_reason(text: str, words: str) -> None:
    error = refused(text)
    assert words in error.what
    assert error.hint, "and what to write instead"


@each_case(
    ("text", "words"),
    [
        ("BATCH_INTERVAL 1 BATCH_INTERVAL 2 INTO TABLE t", "duplicate clause: BATCH_INTERVAL"),
        ("BATCH_INTERVAL 99999999999999999999 INTO TABLE t", "is too large"),
        ("MAX_PARTITIONS_PER_BATCH 0 INTO TABLE t", "MAX_PARTITIONS_PER_BATCH: input should be greater than or equal to 1"),
        ("REPLACE SKIP DUPLICATE KEY ERRORS INTO TABLE t", "REPLACE and SKIP DUPLICATE KEY ERRORS exclude each other"),
        ("REPLACE INTO TABLE t FORMAT JSON ON DUPLICATE KEY UPDATE a = 1", "exclude each other"),
        ("INTO TABLE db.t", "INTO TABLE: expected a table name without a database"),
        ("INTO TABLE kpipe_x", "INTO TABLE: 'kpipe_x': names that begin with kpipe_ are reserved for the ledger"),
        ("INTO TABLE t (a <- b)", "`column <- path` is not supported for CSV -> add FORMAT JSON"),
        ("INTO TABLE t FORMAT JSON (a, b)", "a list of columns without paths is only for CSV, not for JSON"),
        ("INTO TABLE t FORMAT JSON (a <- a, b)", "b has no path, a has one"),
        ("INTO TABLE t FORMAT JSON (a <- a, A <- b)", "duplicate column A"),
        (
            "INTO TABLE t FORMAT JSON (a <- a DEFAULT 12345678901234567.89)",
            "DEFAULT 12345678901234567.89: the number has more digits than a float can have -> write it in quotes",
        ),
        (
            "INTO TABLE t FORMAT JSON OPTIONS '{\"a\": 0.1000000000000000055}'",
            "OPTIONS: 0.1000000000000000055: the number has more digits than a float can have -> write it in quotes",
        ),
        ("INTO TABLE t FORMAT JSON (u.a <- a)", "u.a is not a column of t"),
        ("INTO TABLE t FORMAT JSON (_kafka_offset <- a)", "names that begin with _kafka_ are reserved for Kafka's coordinates"),
        ("INTO TABLE t FORMAT JSON FORMAT JSON", "duplicate clause: FORMAT"),
        ("INTO TABLE t FORMAT JSON FIELDS TERMINATED BY ','", "delimiter is an option of csv, not of json"),
        ("INTO TABLE t FORMAT JSON SET @a = 1", "SET cannot set the variable @a"),
        ("INTO TABLE t FORMAT JSON SET a = 1, a = 2", "SET: duplicate column a"),
        ("INTO TABLE t FORMAT JSON WHERE a b c", "unexpected b"),
        ("CONFIG 'x' INTO TABLE t", "CONFIG is not JSON"),
        ("CONFIG '[1]' INTO TABLE t", "CONFIG is not a JSON object"),
        ('CONFIG \'{"a": 1, "a": 2}\' INTO TABLE t', "CONFIG: duplicate member"),
        ("CONFIG '{\"a\": NaN}' INTO TABLE t", "CONFIG is not JSON: NaN is not a number"),
        ('CONFIG \'{"a": "${env:NOT_SET_AT_ALL}"}\' INTO TABLE t', "environment variable NOT_SET_AT_ALL is not set"),
        ("RETRY_OPTIONS '{\"tries\": 1}' INTO TABLE t", "RETRY_OPTIONS: unknown option tries -> options: exponential"),
        (
            'OPTIONS \'{"batch": {"interval_ms": 1}}\' BATCH_INTERVAL 2 INTO TABLE t',
            "another clause sets batch.interval_ms",
        ),
        ('OPTIONS \'{"source": {"credentials": {}}}\' INTO TABLE t', "source.credentials has its own clause"),
        ("OPTIONS '{\"colums\": {}}' INTO TABLE t", "OPTIONS: colums: extra inputs are not permitted"),
        ("WITH TRANSFORM ('x.tgz') INTO TABLE t", "the program in the archive is missing"),
        ("WITH TRANSFORM ('p.py', 'q.py') INTO TABLE t", "a program is only allowed with an archive"),
        ("OFFSETS LATEST TO EARLIEST INTO TABLE t", "TO: "),
    ],
)
def test_what_does_not_fit_is_said_of_its_clause(text: str, words: str) -> None:
    assert words in str(refused(HEAD + text))


def test_no_error_shows_a_regular_expression_of_the_lexer() -> None:
    """Nor a word that is only there to be refused."""
    shown = _names({str(terminal.name) for terminal in parser().terminals if terminal.name != "_SPACE"} - {"TEXT", "OPERATOR"})
    assert [name for name in shown if "(?" in name or "\\" in name] == []
    assert "expected ERRORS, found ERROR" in str(refused(HEAD + "SKIP ALL ERROR INTO TABLE t"))
    assert "expected PIPELINE, found TABEL" in str(refused("INFER TABEL AS LOAD DATA KAFKA 'k/t'"))


def test_a_topic_is_needed() -> None:
    assert "KAFKA: the topic is missing" in str(refused("CREATE PIPELINE p AS LOAD DATA KAFKA 'k:9092' INTO TABLE t"))
    assert "'a b' is not a topic's name" in str(refused("CREATE PIPELINE p AS LOAD DATA KAFKA 'k/a b' INTO TABLE t"))


def test_places_are_counted_in_a_script_of_several_lines() -> None:
    error = refused("SELECT 1;\n\nSTART PIPELINE p;\n\tSTOP PIPELINE;\n")
    assert str(error).startswith("line 4, column 15: expected IF or a name, found ;")
    assert error.excerpt == "\tSTOP PIPELINE;\n\t             ^"
    with pytest.raises(InvalidStatement, match=r"^up\.sql:2:7: "):
        list(read_all("SELECT 1;\n STOP x", "up.sql"))


def test_a_long_line_is_cut_around_the_place() -> None:
    line, marks = refused("SELECT 1; " * 30 + HEAD + "INTO TABLE t FORMAT JSN " + "-- x" * 40).excerpt.split("\n")
    assert len(line) <= 110
    assert line[marks.index("^") :].startswith("JSN")


SECRET = "hunter2"
#: Secrets in signs that are not quotes of a text, or in none.
UNQUOTED = (
    HEAD + """CREDENTIALS `{"sasl.password": "hunter2"}` INTO TABLE t""",
    HEAD + """CREDENTIALS ‘{“sasl.password”: “hunter2”}’ INTO TABLE t""",
    HEAD + """CREDENTIALS ‘hunter2’ INTO TABLE t""",
    HEAD + """CREDENTIALS ‘x::hunter2.hunter2::hunter2’ INTO TABLE t""",
    HEAD + """CREDENTIALS sasl.password=hunter2 INTO TABLE t""",
    "ALTER PIPELINE p SET CREDENTIALS ::sasl.password = hunter2",
    "ALTER PIPELINE p SET CREDENTIALS ::sasl.password = `hunter2`",
    "ALTER PIPELINE p SET CREDENTIALS ::sasl.password hunter2",
    HEAD + "INTO TABLE t IN postgres postgresql://me:hunter2@db/shop",
    HEAD + "INTO TABLE t FORMAT JSON WHERE token = 'a' ) hunter2",
    HEAD + "INTO TABLE t FORMAT AVRO SCHEMA REGISTRY `me:hunter2@registry:8081`",
    HEAD + "INTO TABLE t FORMAT AVRO SCHEMA REGISTRY “me:hunter2@registry:8081”",
    HEAD + "INTO TABLE t FORMAT AVRO SCHEMA REGISTRY me:hunter2@registry:8081",
)


def test_what_cannot_be_a_secret_is_shown() -> None:
    error = refused("ALTER PIPELINE p SET CREDENTIALS ::sasl.password = hunter2")
    assert error.excerpt.split("\n")[0] == "ALTER PIPELINE p SET CREDENTIALS ::sasl.password = *******"
    assert error.what.endswith("expected a text in quotes, found *******")
    error = refused(HEAD + "CREDENTIAL '{}' INTO TABLE t")
    assert error.excerpt.split("\n")[0] == "CREATE PIPELINE p AS LOAD DATA KAFKA '***' ********** '**' INTO TABLE t"
    assert error.hint == "did you mean CREDENTIALS?"


@each_case(
    "text",
    [
        HEAD + """CREDENTIALS '{"sasl.password": "hunter2"}' INTO TABLE t""",
        HEAD + """CREDENTIALS "{'sasl.password': 'hunter2'}" INTO TABLE t""",
        HEAD + """CREDENTIALS '{"sasl.password": "hunter2"}' INTO TABEL t""",
        HEAD + """CREDENTIAL '{"sasl.password": "hunter2"}' INTO TABLE t""",
        HEAD + """CREDENTIALS '{"sasl.password": "hunter2' INTO TABLE t""",
        HEAD + """CREDENTIALS {"sasl.password": "hunter2"} INTO TABLE t""",
        HEAD + """CREDENTIALS '{"sasl.password": "hunter2"} INTO TABLE t""",
        HEAD + """CREDENTIALS '{"sasl.password": ["hunter2"]}' INTO TABLE t""",
        HEAD + """CREDENTIALS '{"sasl.password": hunter2}' INTO TABLE t""",
        HEAD + """CONFIG '{"sasl.password": "hunter2"}' INTO TABLE t""",
        HEAD + """OPTIONS '{"source": {"credentials": {"sasl.password": "hunter2"}}}' INTO TABLE t""",
        "ALTER PIPELINE p SET CREDENTIALS ::sasl.password = 'hunter2'",
        "ALTER PIPELINE p SET CONFIG ::sasl.password = 'hunter2'",
        'ALTER PIPELINE p SET CREDENTIALS \'{"ssl.key.password": "x\\nhunter2"}\'',
        f"-- the shop's orders\n{HEAD}INTO TABLE t IN postgres 'postgresql://me:hunter2@db/shop' FORMAT JSN",
        f"{HEAD}/* it's */ INTO TABLE t # and it's\n IN postgres 'postgresql://me:hunter2@db/shop' FORMAT JSN",
        *UNQUOTED,
    ],
)
def test_a_secret_is_in_no_error(text: str) -> None:
    error = refused(text)
    assert SECRET not in str(error) + error.excerpt + repr(error)
    assert error.__cause__ is None


def test_masked_text_keeps_its_places() -> None:
    text = """TEST CREDENTIALS '{"sasl.password": "hunter2"}'\n'open"""
    assert masked(text) == "TEST CREDENTIALS '" + "*" * 28 + "'\n'****"
    assert masked("SELECT 'nothing to hide' -- of it's owner") == "SELECT 'nothing to hide' -- of it's owner"


@each_case(
    ("text", "hidden"),
    [
        (r"CREATE SECRET s (TYPE s3, KEY_ID 'A\', SECRET 'hunter2')", None),
        ("SET s3_secret_access_key = hunter2;", "SET ******************** = *******;"),
        ("/* a */ SET s3_secret_access_key = hunter2", "******* SET ******************** = *******"),
        ("SHOW PIPELINES; SET a_secret = hunter2; SELECT b", "SHOW PIPELINES; SET ******** = *******; SELECT *"),
        ("SELECT token FROM t WHERE a = $$hunter2$$", "SELECT ***** FROM * WHERE * = $*********$"),
        ("SELECT token, $a$it's$a$ = 'hunter2', $b$hunter2", "SELECT *****, $********$ = '*******', $*********"),
        ("SELECT token -- it's\n, 'hunter2'", "SELECT ***** *******\n, '*******'"),
        ("SET a_secret = a;hunter2", "SET ******** = *;*******"),
        ("SET a_secret = a-table-@x!hunter2", "SET ******** = ******************"),
        ("TEST PIPELINE p; SET a_secret = 1234", "TEST PIPELINE p; SET ******** = ****"),
        *((text, None) for text in UNQUOTED),
        (r"SELECT token, 'a\', 'hunter2', 'b\'hunter2'", None), (r"TEST TOKEN 'it\'s' 'hunter2'", None),
        ("-- password: hunter2\nSELECT 1", "********************\nSELECT *"),
    ],
)  # fmt: skip
def test_a_secret_is_masked_in_every_notation(text: str, hidden: str | None) -> None:
    """The history of kpipe sql has the text of each statement, whether it is valid or not."""
    assert SECRET not in masked(text) and len(masked(text)) == len(text)
    assert hidden is None or masked(text) == hidden


@each_case(
    ("statement", "definition"),
    [
        ("${env:A}", "{{ env('A') }}"),
        ("${env:A:-b c}", "{{ env('A', 'b c') }}"),
        ("x${env:A}y${env:B}", "x{{ env('A') }}y{{ env('B') }}"),
        ("{{ env('A') }}", "{{ env('A') }}"),
    ],
)
def test_templates_of_statements_and_of_definitions(statement: str, definition: str) -> None:
    assert from_statement(statement) == definition
    assert from_statement(to_statement(definition)) == definition


def test_one_statement_is_one() -> None:
    with pytest.raises(InvalidStatement, match="expected one statement, found 2"):
        read("SHOW PIPELINES; SHOW PIPELINES")
