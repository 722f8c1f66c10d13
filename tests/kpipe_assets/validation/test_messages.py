"""Messages of invalid statements, expressions and probes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kpipe.errors import KpipeError
from kpipe.schema.columns import Columns
from kpipe.sql.grammar import parser
from kpipe.sql.parser import _names, read
from kpipe.sql.statements import Create
from kpipe_assets.validation.probes import _block
from resources.duckdb_engine.error_messages import in_words, place_of
from resources.home import Home
from tests.commandline import Kpipe
from tests.kpipe_assets.validation.statements import HEAD, STRANGE, TABLES, execute, refused

TERMINALS = sorted(terminal.name for terminal in parser().terminals)


def test_no_pattern_of_the_lexer_is_shown() -> None:
    shown = _names(set(TERMINALS) - {"_SPACE"})
    assert not [name for name in shown if re.search(r"[\\\[\]?|]|\(.", name) and len(name) > 1]


ODD = (
    "", "'", '"', "`", "'abc", "(", ")", "1 +", "1 + + *", "= =", "1 2", "\\x", "\U0001f600", "'\U0001f600", "`\U0001f600`",
    "\x00", "'a\x00b'", "@", "?", "$1", "*", ";", "/* open", "x.y.z.w", "CASE WHEN 1 THEN 2", "id BETWEEN 1", "id IN ()",
    "id NOT", "[1, 'x']", "{'a': 1", "unnest([1])", "count(*)", "row_number() OVER ()", "(SELECT 1)", "FROM t",
    "abs(1, 2, 3)", "CAST(1 AS NOPE)", "DATE 'x'", "INTERVAL 1 FOO", "'x' + 1", "NOW() + 'x'", "lambda x: 1", "1 GROUP BY 2",
    "1 LIMIT 5", "1 UNION SELECT 2", "DROP TABLE t", "COLUMNS(*)", "ä" * 70,
)  # fmt: skip
LARGE = ("'" + "x" * 100_000, "(" * 3000 + "1" + ")" * 3000, "1" + " + 1" * 1500, "x" * 100_000, "'" + "x" * 100_000 + "'")


def plainly_refused(home: Home, text: str, part: str) -> None:
    """Execute; what is said, if anything is, is short, and in words."""
    try:
        execute(home, text)
    except KpipeError as error:
        said = f"{error} {getattr(error, 'excerpt', '')}".replace(part or "\n", "")
        assert not STRANGE.search(said), said[:300]
        assert len(str(error)) < 1000


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home that many statements are tried on."""
    place = Home(tmp_path_factory.mktemp("shared") / "home")
    execute(place, TABLES)
    return place


@pytest.mark.parametrize("text", ODD, ids=lambda text: ascii(text[:20]))
def test_whatever_is_written_is_refused_in_words(shared: Home, text: str) -> None:
    head = HEAD.replace("CREATE", "CREATE OR REPLACE") + "INTO TABLE t FORMAT JSON "
    for clause in ("SET amount = {}", "ON DUPLICATE KEY UPDATE amount = {}", "SET {} = 1", "({} <- id)", "{}"):
        plainly_refused(shared, head + clause.replace("{}", text), text)
    for question in ("{}", "SELECT {}", "CREATE TABLE {} (a INT)", "CREATE PIPELINE {}", "ALTER PIPELINE p {}"):
        plainly_refused(shared, question.replace("{}", text), text)


@pytest.mark.parametrize("text", LARGE, ids=lambda text: ascii(text[:20]))
def test_however_much_is_written_it_is_refused_in_words(shared: Home, text: str) -> None:
    plainly_refused(shared, f"{HEAD}INTO TABLE t FORMAT JSON SET amount = {text}", text)
    plainly_refused(shared, f"SELECT {text}", text)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("SELECT 1;\nSELECT\n nosuch FROM t", "nosuch", "line 3, column 2: column nosuch does not exist"),
        ("SELEC 1", "SELEC", "line 1, column 1: unexpected SELEC"),
        ("SELECT * FROM nosuch", "nosuch", "table nosuch does not exist"),
        ("SELECT 'abc", "'", "unterminated text in quotes"),
        ("SELECT sum(city) FROM t", "sum(city)", "function sum does not take (VARCHAR)"),
        ("SELECT day + city FROM t", "+", "+ cannot be applied to DATE and VARCHAR"),
        ("CREATE TABLE x (id NOPE)", "NOPE", "type NOPE does not exist"),
        ("SELECT " + "1 + " * 60 + "nosuch FROM t", "nosuch", "column nosuch does not exist"),
    ],
)
def test_a_question_that_is_wrong_shows_where(home: Home, text: str, place: str, words: str) -> None:
    said, marked = refused(home, text)
    assert words in said
    assert marked.strip() == place


def test_what_an_engine_says_is_said_in_words() -> None:
    message = (
        "Binder Error: No function matches the given name and argument types '+(BIGINT, DATE)'. You might\n\nLINE 1: a + d\n"
    )
    assert in_words(message) == "+ cannot be applied to BIGINT and DATE"
    assert in_words("Weird Error: nobody knows this!\n\nLINE 1: x") == "nobody knows this"
    assert place_of("x\nLINE 2: b c\n          ^", "a\nb c") == (4, 1)
    assert place_of("x", "y") is None


def test_probes_hold_values_of_every_type() -> None:
    kinds = ["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT", "FLOAT"]
    kinds += ["DOUBLE", "BOOLEAN", "DATE", "TIME"]
    kinds += ["TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "DECIMAL(2,2)", "DECIMAL(38,10)", "JSON", "UUID", "BLOB", "VARCHAR"]
    rows = _block(Columns.of({f"c{at}": kind for at, kind in enumerate([*kinds, "BIGINT[]", "STRUCT(a BIGINT)"])})).to_pylist()
    assert all(value is None for value in rows[0].values())
    assert all(rows[1][f"c{at}"] is not None for at in range(len(kinds)))


def test_a_caret_stands_below_its_word_behind_wide_and_unprintable_signs(home: Home) -> None:
    with pytest.raises(KpipeError) as caught:
        execute(home, "CREATE PIPELINE p AS LOAD DATA KAFKA '\U0001f600\0' INTO TABLE t FORMAT JSN")
    shown, marks = getattr(caught.value, "excerpt").split("\n")  # noqa: B009
    assert "\0" not in shown
    assert len(marks) - len(shown) == len("\U0001f600"), "it takes two columns of a terminal"


def test_places_do_not_count_when_statements_are_compared() -> None:
    one, other = read(HEAD + "INTO TABLE t FORMAT JSON"), read("  " + HEAD + "INTO TABLE t FORMAT JSON")
    assert one == other
    assert isinstance(one, Create) and isinstance(other, Create)
    assert one.places != other.places
    assert "places" not in repr(one)


# With a real Kafka


@pytest.fixture
def near(tmp_path: Path, brokers: str) -> Iterator[Kpipe]:
    """A home and the session's Kafka, without Spark."""
    command = Kpipe(tmp_path / "home", brokers)
    yield command
    command.kill()


@pytest.mark.broker
@pytest.mark.parametrize(
    ("clauses", "place", "words"),
    [
        (
            "FORMAT JSON SET total = DUCKDB('city * 2')",
            "`total` = DUCKDB('city * 2')",
            "set.total: * cannot be applied to VARCHAR and a number",
        ),
        (
            "FORMAT JSON WHERE DUCKDB('id + city')",
            "WHERE DUCKDB('id + city')",
            "where: + cannot be applied to BIGINT and VARCHAR",
        ),
        ("KEY (id) FORMAT JSON ON DUPLICATE KEY UPDATE id2 = 1", "`id2` = 1", "id2, which is not a column of the table"),
        (
            "KEY (id) FORMAT JSON ON DUPLICATE KEY UPDATE city = DUCKDB('id + excluded.city')",
            "`city` = DUCKDB('id + excluded.city')",
            "+ cannot be applied",
        ),
    ],
)
def test_a_test_tells_what_only_records_say(
    near: Kpipe, topic: Callable[..., str], write: Callable[..., int], clauses: str, place: str, words: str
) -> None:
    name = topic(1)
    write(name, [json.dumps({"id": at, "city": "Köln"}) for at in range(3)])
    near("sql", f"CREATE PIPELINE p AS LOAD DATA KAFKA '{near.brokers}/{name}' INTO TABLE fresh {clauses}")
    said = near("sql", "TEST PIPELINE p", status=2).stderr
    assert "pipeline p: " in said and words in said
    assert place in said.splitlines()[0], "the line of SHOW CREATE PIPELINE"
    assert "^" in said.splitlines()[1]
