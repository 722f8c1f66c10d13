"""What is wrong with a definition is told before it runs, by every way in, with the place where it is written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, KpipeError, LedgerMismatch, NotAvailable, SchemaConflict
from kpipe.schema.columns import Columns
from kpipe.sql.grammar import parser
from kpipe.sql.parser import _names, read
from kpipe.sql.statements import Create
from kpipe.testing.memory import MemoryDestination
from kpipe.testing.memory_store import MemoryStore
from kpipe_assets.component import pipeline_defs
from kpipe_assets.statements.execute import Session
from kpipe_assets.validation import STEPS, Needs, validate
from kpipe_assets.validation.probes import _block
from resources.duckdb_engine.error_messages import in_words, place_of
from resources.home import Home
from tests.commandline import Kpipe

HEAD = "CREATE PIPELINE p AS LOAD DATA KAFKA '127.0.0.1:1/orders' "
TABLES = (
    "CREATE TABLE t (id BIGINT PRIMARY KEY, city VARCHAR, amount BIGINT, day DATE, price DECIMAL(10,2));"
    "CREATE TABLE plain (id BIGINT, city VARCHAR, amount BIGINT);"
)
#: What no message may hold: words of the lexer's and of the engine's.
STRANGE = re.compile(r"\bLINE \d|\(\?[:=!]|\\s|[A-Z][a-z]+ Error:|Traceback|\bINT64\b|_LITERAL|max_expression_depth")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home whose database holds the tables."""
    place = Home(tmp_path / "home")
    monkeypatch.setenv("KPIPE_HOME", str(place.path))
    execute(place, TABLES)
    return place


def execute(home: Home, text: str) -> list[str]:
    from kpipe.sql.parser import read_all

    with Session(home, as_json=False) as session:
        return [result.message for statement in read_all(text) for result in session.execute(statement)]


def refused(home: Home, text: str) -> tuple[str, str]:
    """The message, and the part of the statement above its carets."""
    with pytest.raises(KpipeError) as caught:
        execute(home, text)
    error = caught.value
    assert error.exit_status == 2
    excerpt = getattr(error, "excerpt", "")
    assert not STRANGE.search(f"{error} {excerpt}"), str(error)
    shown, marks = [*excerpt.split("\n"), "", ""][:2]
    return str(error), "".join(sign for sign, mark in zip(shown, marks.ljust(len(shown)), strict=False) if mark == "^")


@pytest.mark.parametrize(
    ("clauses", "place", "words"),
    [
        # constants, and types of the table's columns
        ("INTO TABLE t FORMAT JSON SET amount = 'x'", "amount = 'x'", "x is no BIGINT"),
        ("INTO TABLE t FORMAT JSON SET amount = DUCKDB('CAST(''x'' AS BIGINT)')", "amount = DUCKDB('CAST(''x'' AS BIGINT)')", "'x' is no BIGINT"),  # noqa: E501
        ("INTO TABLE t FORMAT JSON SET day = 5", "day = 5", "5 is no DATE"),
        ("INTO TABLE t FORMAT JSON SET amount = NOW()", "amount = NOW()", "is no BIGINT"),
        ("INTO TABLE t FORMAT JSON WHERE DUCKDB('amount = day')", "WHERE DUCKDB('amount = day')", "a value of type BIGINT is no DATE"),  # noqa: E501
        ("INTO TABLE t FORMAT JSON WHERE DUCKDB('day + city')", "WHERE DUCKDB('day + city')", "+ cannot be applied to DATE and VARCHAR"),  # noqa: E501
        ("INTO TABLE t FORMAT JSON ALSO INTO TABLE plain SET city = 'a', amount = 'x'", "amount = 'x'", "x is no BIGINT"),
        # what is no expression of a record
        ("INTO TABLE t FORMAT JSON WHERE sum(amount) > 1", "sum(amount) > 1", "SUM is not translated: it takes many rows"),
        ("INTO TABLE t FORMAT JSON SET amount = nope(city)", "nope(city)", "NOPE is no function that kpipe knows"),
        ("INTO TABLE t FORMAT JSON SET amount = CAST(city AS NOSUCH)", "CAST(city AS NOSUCH)", "NOSUCH is no type of kpipe's"),
        # columns that do not exist
        ("INTO TABLE t FORMAT JSON (id <- id) SET amount = id + nosuch", "nosuch", "uses nosuch, which the record does not give"),
        ("INTO TABLE t FORMAT JSON SET amount = @nosuch", "@nosuch", "uses @nosuch"),
        ("INTO TABLE t FORMAT JSON (id <- id) WHERE _kafka_offst > 1", "_kafka_offst", "none of Kafka's coordinates"),
        ("""OPTIONS '{"schema": "ignore"}' INTO TABLE t FORMAT JSON SET nosuch = 1""", "nosuch", "t has no column nosuch"),
        ("""OPTIONS '{"schema": "fail"}' INTO TABLE t FORMAT CSV (id, nosuch)""", "nosuch", "t has no column nosuch"),
        # keys
        ("REPLACE INTO TABLE plain FORMAT JSON", "REPLACE", "REPLACE needs a key, and table plain has no primary key"),
        ("INTO TABLE plain FORMAT JSON ON DUPLICATE KEY UPDATE amount = 1", "ON DUPLICATE KEY UPDATE amount = 1", "needs a key"),
        ("INTO TABLE t FORMAT JSON ALSO INTO TABLE plain ON DUPLICATE KEY UPDATE amount = 1",
         "ON DUPLICATE KEY UPDATE amount = 1", "table plain has no primary key"),
        ("REPLACE INTO TABLE t KEY (id, nosuch) FORMAT JSON", "nosuch", "t has no column nosuch, which is of the key"),
        ("REPLACE INTO TABLE t FORMAT JSON (city <- city)", "REPLACE", "rows get no value for id, which is of the key"),
        # ON DUPLICATE KEY UPDATE
        ("INTO TABLE t FORMAT JSON ON DUPLICATE KEY UPDATE nosuch = 1", "nosuch = 1", "nosuch, which is no column of the table"),
        ("INTO TABLE t FORMAT JSON ON DUPLICATE KEY UPDATE id = 1", "id = 1", "id, which is of the key"),
        ("INTO TABLE t FORMAT JSON ON DUPLICATE KEY UPDATE city = 'a', amount = nosuch", "nosuch", "has no column nosuch"),
        ("INTO TABLE t FORMAT JSON ON DUPLICATE KEY UPDATE amount = VALUES(nosuch)", "nosuch", "has no column nosuch"),
        ("INTO TABLE t FORMAT JSON ON DUPLICATE KEY UPDATE amount = 'x'", "amount = 'x'", "'x' is no BIGINT"),
        ("INTO TABLE t FORMAT JSON ON DUPLICATE KEY UPDATE amount = day", "amount = day", "a value of type DATE is no BIGINT"),
        ("INTO TABLE t FORMAT JSON ON DUPLICATE KEY UPDATE amount = sum(amount)", "sum(amount)", "SUM is not translated"),
        ("INTO TABLE later FORMAT JSON ON DUPLICATE KEY UPDATE amount = nope(amount)", "nope(amount)", "NOPE is no function that kpipe knows"),  # noqa: E501
        # settings, programs, destinations
        ("""CONFIG '{"client.id": "x", "nope": 1}' INTO TABLE t FORMAT JSON""", '"nope"', "nope is not a setting"),
        ("WITH TRANSFORM ('/nowhere/p.py') INTO TABLE t FORMAT JSON", "TRANSFORM ('/nowhere/p.py')", "no file '/nowhere/p.py'"),
        ("INTO TABLE t IN warehouse FORMAT JSON", "IN warehouse", "into.type 'warehouse' is not available"),
        ("INTO TABLE t IN kafka FORMAT JSON", "INTO TABLE t IN kafka", "kafka needs brokers and topic"),
        ("INTO TABLE t FORMAT AVRO SCHEMA REGISTRY 'ftp://r'", "SCHEMA REGISTRY 'ftp://r'", "format.registry is no address"),
        ("""OPTIONS '{"into": {"on_null": "delete"}}' INTO TABLE plain FORMAT JSON""", "OPTIONS", "into.on_null: delete needs"),
        ("INTO TABLE t FORMAT PROTOBUF", "FORMAT PROTOBUF", "protobuf without a schema"),
        ("INTO TABLE t IN delta KEY (id) FORMAT JSON", "", "expected"),
    ],
)  # fmt: skip
def test_create_tells_it_at_its_place(home: Home, clauses: str, place: str, words: str) -> None:
    said, marked = refused(home, HEAD + clauses)
    assert words in said
    assert place in marked if place else marked
    assert re.match(r"line 1, column \d+: ", said)
    assert home.names() == ()


@pytest.mark.parametrize(
    "clauses",
    [
        "INTO TABLE t FORMAT JSON SET amount = likes * 2",  # only a record says what `likes` is
        "INTO TABLE t FORMAT JSON SET nosuch = 1",  # the column is added
        "INTO TABLE t FORMAT JSON SET amount = CAST(city AS BIGINT)",  # some texts are numbers
        "INTO TABLE t FORMAT JSON SET city = DUCKDB('COALESCE(city, error(''a city is missing''))')",
        "INTO TABLE t FORMAT JSON WHERE day > DATE '2026-01-01' AND price < 5 AND amount IN (1, 2)",
        "INTO TABLE t FORMAT JSON (id <- id, @a <- a) SET amount = CAST(@a AS BIGINT),"
        " city = get_kafka_pipeline_prop('prop_offset')",
        "INTO TABLE t FORMAT JSON ON DUPLICATE KEY UPDATE amount = amount + VALUES(amount), price = t.price + excluded.price,"
        " city = CONCAT(city, VALUES(city)), day = GREATEST(day, VALUES(day))",
        "INTO TABLE t FORMAT JSON SET city = NULL, amount = NULL",
        "INTO TABLE t FORMAT JSON SET city = INTERVAL 1 DAY",  # its text
        "REPLACE INTO TABLE plain KEY (id) FORMAT JSON",
        "REPLACE INTO TABLE later KEY (id) FORMAT JSON",
    ],
)
def test_what_may_be_right_is_made(home: Home, clauses: str) -> None:
    execute(home, HEAD + clauses)
    assert home.names() == ("p",)


def test_null_for_a_column_that_takes_none(home: Home) -> None:
    execute(home, "CREATE TABLE strict (id BIGINT NOT NULL, city VARCHAR)")
    said, marked = refused(home, HEAD + "INTO TABLE strict FORMAT JSON SET id = NULL")
    assert "set.id: column id of table strict takes no NULL" in said and marked == "id = NULL"
    execute(home, HEAD + "INTO TABLE strict FORMAT JSON SET city = NULL")


def test_a_table_that_comes_later_may_have_the_key(home: Home) -> None:
    (said,) = execute(home, HEAD + "REPLACE INTO TABLE later FORMAT JSON")
    assert "table later does not exist yet, and REPLACE needs a key" in said
    execute(home, "CREATE TABLE later (id BIGINT)")
    said, marked = refused(home, "ALTER PIPELINE p SET BATCH_INTERVAL 7")
    assert "pipeline p: REPLACE needs a key, and table later has no primary key" in said
    assert marked == "REPLACE"
    assert home.pipeline("p").batch.interval_ms == 2500


def test_a_destination_that_cannot_be_asked_holds_nothing_up(home: Home, tmp_path: Path) -> None:
    broken = tmp_path / "broken.duckdb"
    broken.write_bytes(b"no database" * 1000)
    clauses = f"INTO TABLE t IN duckdb '{broken}' FORMAT JSON SET amount = "
    with pytest.raises(KpipeError):  # behind the definition, the ledger is asked for
        execute(home, HEAD + clauses + "1")
    assert home.names() == ("p",)
    (said,) = execute(home, "ALTER PIPELINE p SET BATCH_INTERVAL 7")
    assert "pipeline p changed; its table could not be asked" in said
    assert (
        "'x' is no BIGINT"
        in refused(home, HEAD.replace("CREATE", "CREATE OR REPLACE") + clauses + "DUCKDB('CAST(''x'' AS BIGINT)')")[0]
    )


def test_alter_shows_its_own_clause(home: Home) -> None:
    execute(home, HEAD + "INTO TABLE t FORMAT JSON")
    for text, place, words in (
        ("SET BATCH_INTERVAL 9, MAX_PARTITIONS_PER_BATCH 0", "MAX_PARTITIONS_PER_BATCH 0", "batch.max_partitions"),
        ("SET CONFIG ::nope = 'x'", "nope", "nope is not a setting"),
        ("SET TRANSFORM ('/nowhere/p.py')", "TRANSFORM ('/nowhere/p.py')", "no file"),
    ):
        said, marked = refused(home, f"ALTER PIPELINE p {text}")
        assert words in said
        assert marked == place
        assert said.startswith("line 1, column ")


def test_what_a_destination_says_of_itself_is_left_to_the_run(home: Home) -> None:
    class Gone(MemoryDestination):
        def columns(self) -> Columns | None:
            raise LedgerMismatch("table t is gone")

    pipeline = Pipeline.model_validate({**WRONG, "set": {"amount": "CAST(@a AS BIGINT)"}})
    (note,) = validate(pipeline, home, Needs.RECORDS, Gone(MemoryStore(), "p", "t"), lambda: Columns.of({"id": "BIGINT"}))
    assert "table t is gone" in note


WRONG: dict[str, Any] = {
    "name": "p",
    "source": {"brokers": "127.0.0.1:1", "topic": "t"},
    "format": {"mapping": {"id": "id", "@a": "a"}},
    "set": {"amount": "@a * DATE '2026-01-01'"},
    "into": {"table": "t"},
}


@pytest.mark.parametrize(
    ("expression", "words", "needs"),
    [
        ("nosuch + 1", "an expression uses nosuch, which the record does not give (id, @a)", Needs.FIELDS),
        ("@a * DATE '2026-01-01'", "set.amount: * cannot be applied to VARCHAR and DATE", Needs.FILES),
    ],
)
def test_every_way_in_tells_the_same(home: Home, expression: str, words: str, needs: Needs) -> None:
    pipeline = Pipeline.model_validate({**WRONG, "set": {"amount": expression}})
    said = []
    with pytest.raises(InvalidPipeline) as caught:
        validate(pipeline, home, needs)
    assert caught.value.field == ("set", "amount")
    said.append(caught.value.what.removeprefix("pipeline p: "))
    home.save(pipeline)
    file = home.pipelines / "p.yaml"
    line = next(at for at, text in enumerate(file.read_text().splitlines(), 1) if "amount:" in text)
    if needs == Needs.FIELDS:
        with pytest.raises(InvalidPipeline) as caught:
            pipeline_defs(pipeline, home)
        said.append(caught.value.what.removeprefix(f"{file}:{line}: "))
    for text, place in (
        ("TEST PIPELINE p", "pipeline p"),
        ("ALTER PIPELINE p SET BATCH_INTERVAL 7", "pipeline p"),
        ("START PIPELINE p FOREGROUND", f"{file}:{line}"),
    ):
        with pytest.raises(KpipeError) as told:
            execute(home, text)
        assert told.value.what.startswith(f"{place}: ")
        said.append(told.value.what.removeprefix(f"{place}: "))
    assert set(said) == {said[0]}, said
    assert said[0].startswith(words)


def test_a_run_tells_what_the_table_says_and_notes_it(offline: Kpipe) -> None:
    home = Home(offline.home)
    execute(home, TABLES)
    home.save(Pipeline.model_validate({**WRONG, "set": {"amount": "'x'"}}))
    assert f"{home.pipelines / 'p.yaml'}:" in (said := offline("run", "p", status=2).stderr)
    assert "set.amount: x is no BIGINT" in said
    assert (home.noted("p") or {})["state"] == "error"


def test_steps_have_names_and_an_order_and_are_those_of_the_design() -> None:
    assert len({step.name for step in STEPS}) == len(STEPS)
    assert [step.needs for step in STEPS] == sorted(step.needs for step in STEPS)
    design = (Path(__file__).parents[2] / "docs" / "design.md").read_text(encoding="utf-8")
    rows = design.split("<!-- steps:", 1)[1].split("\n\n", 1)[0].splitlines()[3:]
    told = [row.split("|")[2].strip().split(", ") for row in rows]
    assert told == [[step.name for step in STEPS if step.needs == needs] for needs in Needs]


@pytest.mark.parametrize(
    ("change", "error", "field"),
    [
        ({"select": "SELECT 1"}, InvalidPipeline, ("select",)),
        ({"columns": {"@a": "DATE"}}, InvalidPipeline, ("set", "amount")),
        ({"also": [{"table": "plain", "where": "nope(1)"}]}, InvalidPipeline, ("also", "0", "where")),
        ({"also": [{"table": "plain", "on_conflict": "replace"}]}, InvalidPipeline, ("also", "0", "on_conflict")),
        ({"into": {"table": "t", "type": "delta", "on_conflict": "replace"}}, NotAvailable, ("into", "type")),
        ({"schema": "fail", "set": {"none": "1"}}, SchemaConflict, ("set", "none")),
    ],
)
def test_errors_name_the_field(home: Home, change: dict[str, Any], error: type[KpipeError], field: tuple[str, ...]) -> None:
    base = {**WRONG, "set": {"amount": "@a * 2"} if "columns" in change else {}}
    if "select" in change:
        base.pop("format")
    with pytest.raises(error) as caught:
        validate(Pipeline.model_validate({**base, **change}), home)
    assert caught.value.field == field


# Messages


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
        ("SELEC 1", "SELEC", "line 1, column 1: not expected here: SELEC"),
        ("SELECT * FROM nosuch", "nosuch", "table nosuch does not exist"),
        ("SELECT 'abc", "'", "a text in quotes does not end"),
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
        ("KEY (id) FORMAT JSON ON DUPLICATE KEY UPDATE id2 = 1", "`id2` = 1", "id2, which is no column of the table"),
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
