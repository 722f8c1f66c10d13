"""Errors of a definition are reported before it runs, by every way in, at their position."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, KpipeError, LedgerMismatch, NotAvailable, SchemaConflict
from kpipe.schema.columns import Columns
from kpipe.testing.memory import MemoryDestination
from kpipe.testing.memory_store import MemoryStore
from kpipe_assets.component import pipeline_defs
from kpipe_assets.validation import STEPS, Needs, validate
from resources.home import Home
from tests.cases import each_case
from tests.commandline import Kpipe
from tests.kpipe_assets.validation.statements import HEAD, TABLES, execute, refused


@pytest.mark.parametrize(
    ("clauses", "place", "words"),
    [
        # constants, and types of the table's columns
        ("INTO TABLE t FORMAT JSON SET amount = 'x'", "amount = 'x'", "x is not a valid BIGINT"),
        ("INTO TABLE t FORMAT JSON SET amount = DUCKDB('CAST(''x'' AS BIGINT)')", "amount = DUCKDB('CAST(''x'' AS BIGINT)')", "'x' is not a valid BIGINT"),  # noqa: E501
        ("INTO TABLE t FORMAT JSON SET day = 5", "day = 5", "5 is not a valid DATE"),
        ("INTO TABLE t FORMAT JSON SET amount = NOW()", "amount = NOW()", "is not a valid BIGINT"),
        ("INTO TABLE t FORMAT JSON WHERE DUCKDB('amount = day')", "WHERE DUCKDB('amount = day')", "cannot convert BIGINT to DATE"),  # noqa: E501
        ("INTO TABLE t FORMAT JSON WHERE DUCKDB('day + city')", "WHERE DUCKDB('day + city')", "+ cannot be applied to DATE and VARCHAR"),  # noqa: E501
        ("INTO TABLE t FORMAT JSON ALSO INTO TABLE plain SET city = 'a', amount = 'x'",
         "amount = 'x'", "x is not a valid BIGINT"),
        # what is no expression of a record
        ("INTO TABLE t FORMAT JSON WHERE sum(amount) > 1", "sum(amount) > 1", "SUM is not supported: it needs many rows"),
        ("INTO TABLE t FORMAT JSON SET amount = nope(city)", "nope(city)", "unknown function NOPE"),
        ("INTO TABLE t FORMAT JSON SET amount = CAST(city AS NOSUCH)", "CAST(city AS NOSUCH)", "unknown type NOSUCH"),
        # columns that do not exist
        ("INTO TABLE t FORMAT JSON (id <- id) SET amount = id + nosuch", "nosuch", "uses nosuch, which the record does not have"),
        ("INTO TABLE t FORMAT JSON SET amount = @nosuch", "@nosuch", "uses @nosuch"),
        ("INTO TABLE t FORMAT JSON (id <- id) WHERE _kafka_offst > 1", "_kafka_offst", "which is not a Kafka coordinate"),
        ("""OPTIONS '{"schema": "ignore"}' INTO TABLE t FORMAT JSON SET nosuch = 1""", "nosuch", "t has no column nosuch"),
        ("""OPTIONS '{"schema": "fail"}' INTO TABLE t FORMAT CSV (id, nosuch)""", "nosuch", "t has no column nosuch"),
        # keys
        ("REPLACE INTO TABLE plain FORMAT JSON", "REPLACE", "REPLACE requires a key, and table plain has no primary key"),
        ("INTO TABLE plain FORMAT JSON ON DUPLICATE KEY UPDATE amount = 1",
         "ON DUPLICATE KEY UPDATE amount = 1", "requires a key,"),
        ("INTO TABLE t FORMAT JSON ALSO INTO TABLE plain ON DUPLICATE KEY UPDATE amount = 1",
         "ON DUPLICATE KEY UPDATE amount = 1", "table plain has no primary key"),
        ("REPLACE INTO TABLE t KEY (id, nosuch) FORMAT JSON", "nosuch", "key column nosuch does not exist in table t"),
        ("REPLACE INTO TABLE t FORMAT JSON (city <- city)", "REPLACE", "rows have no value for key column id"),
        # ON DUPLICATE KEY UPDATE
        ("INTO TABLE t FORMAT JSON ON DUPLICATE KEY UPDATE nosuch = 1", "nosuch = 1", "which is not a column of the table"),
        ("INTO TABLE t FORMAT JSON ON DUPLICATE KEY UPDATE id = 1", "id = 1", "id, which is a key column"),
        ("INTO TABLE t FORMAT JSON ON DUPLICATE KEY UPDATE city = 'a', amount = nosuch", "nosuch", "has no column nosuch"),
        ("INTO TABLE t FORMAT JSON ON DUPLICATE KEY UPDATE amount = VALUES(nosuch)", "nosuch", "has no column nosuch"),
        ("INTO TABLE t FORMAT JSON ON DUPLICATE KEY UPDATE amount = 'x'", "amount = 'x'", "'x' is not a valid BIGINT"),
        ("INTO TABLE t FORMAT JSON ON DUPLICATE KEY UPDATE amount = day", "amount = day", "cannot convert DATE to BIGINT"),
        ("INTO TABLE t FORMAT JSON ON DUPLICATE KEY UPDATE amount = sum(amount)", "sum(amount)", "SUM is not supported"),
        ("INTO TABLE later FORMAT JSON ON DUPLICATE KEY UPDATE amount = nope(amount)", "nope(amount)", "unknown function NOPE"),
        # settings, programs, destinations
        ("""CONFIG '{"client.id": "x", "nope": 1}' INTO TABLE t FORMAT JSON""", '"nope"', "nope is not a setting"),
        ("WITH TRANSFORM ('/nowhere/p.py') INTO TABLE t FORMAT JSON", "TRANSFORM ('/nowhere/p.py')",
         "file '/nowhere/p.py' does not exist"),
        ("INTO TABLE t IN warehouse FORMAT JSON", "IN warehouse", "into.type 'warehouse' is not available"),
        ("INTO TABLE t IN kafka FORMAT JSON", "INTO TABLE t IN kafka", "kafka needs brokers and topic"),
        ("INTO TABLE t FORMAT AVRO SCHEMA REGISTRY 'ftp://r'", "SCHEMA REGISTRY 'ftp://r'",
         "format.registry: not an http address"),
        ("""OPTIONS '{"into": {"on_null": "delete"}}' INTO TABLE plain FORMAT JSON""", "OPTIONS",
         "into.on_null: delete requires"),
        ("""OPTIONS '{"into": {"on_null": "delete"}}' REPLACE INTO TABLE t FORMAT JSON SET id = id + 1""", "id = id + 1",
         "set.id: computes a column of the key"),
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
        'OPTIONS \'{"into": {"on_null": "delete"}}\' REPLACE INTO TABLE t FORMAT JSON SET id = `ID`, city = UPPER(city)',
    ],
)
def test_what_may_be_right_is_made(home: Home, clauses: str) -> None:
    execute(home, HEAD + clauses)
    assert home.names() == ("p",)


def test_null_for_a_column_that_takes_none(home: Home) -> None:
    execute(home, "CREATE TABLE strict (id BIGINT NOT NULL, city VARCHAR)")
    said, marked = refused(home, HEAD + "INTO TABLE strict FORMAT JSON SET id = NULL")
    assert "set.id: column id of table strict is NOT NULL" in said and marked == "id = NULL"
    execute(home, HEAD + "INTO TABLE strict FORMAT JSON SET city = NULL")


def test_a_table_that_comes_later_may_have_the_key(home: Home) -> None:
    (said,) = execute(home, HEAD + "REPLACE INTO TABLE later FORMAT JSON")
    assert "table later does not exist yet, and REPLACE requires a key" in said
    execute(home, "CREATE TABLE later (id BIGINT)")
    said, marked = refused(home, "ALTER PIPELINE p SET BATCH_INTERVAL 7")
    assert "pipeline p: REPLACE requires a key, and table later has no primary key" in said
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
    assert "pipeline p changed; columns, types and key were not checked: the table could not be read" in said
    assert (
        "'x' is not a valid BIGINT"
        in refused(home, HEAD.replace("CREATE", "CREATE OR REPLACE") + clauses + "DUCKDB('CAST(''x'' AS BIGINT)')")[0]
    )


def test_alter_shows_its_own_clause(home: Home) -> None:
    execute(home, HEAD + "INTO TABLE t FORMAT JSON")
    for text, place, words in (
        ("SET BATCH_INTERVAL 9, MAX_PARTITIONS_PER_BATCH 0", "MAX_PARTITIONS_PER_BATCH 0", "batch.max_partitions"),
        ("SET CONFIG ::nope = 'x'", "nope", "nope is not a setting"),
        ("SET TRANSFORM ('/nowhere/p.py')", "TRANSFORM ('/nowhere/p.py')", "does not exist"),
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
        ("nosuch + 1", "an expression uses nosuch, which the record does not have (columns: id, @a)", Needs.FIELDS),
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


@each_case(
    "change, field",
    [
        ({"set": {"ID": "length(city)"}}, ("set", "ID")),
        ({"set": {"id": "city"}}, ("set", "id")),
        ({"set": {"id": "mysql: LENGTH(city)"}}, ("set", "id")),
        ({"select": "SELECT length(city) AS id, city FROM records"}, ("select",)),
        ({"select": "SELECT CAST(id AS BIGINT) AS id FROM records", "format": {"type": "debezium"}}, ("select",)),
        ({"into": {"table": "plain", "key": ["city"]}, "set": {"city": "lower(city)"}}, ("set", "city")),
        ({"into": {"table": "later", "key": ["city"]}, "set": {"city": "lower(city)"}}, ("set", "city")),
    ],
)
def test_a_key_of_deletes_is_not_computed(home: Home, change: dict[str, Any], field: tuple[str, ...]) -> None:
    """A tombstone has only a key: its row would have another one."""
    into = {"table": "t", "on_conflict": "replace", "on_null": "delete", **change.get("into", {})}
    made = {"name": "p", "source": {"brokers": "127.0.0.1:1", "topic": "a"}, **change, "into": into}
    with pytest.raises(InvalidPipeline, match="computes a column of the key") as caught:
        validate(Pipeline.model_validate(made), home)
    assert caught.value.field == field
    if made.get("format") is None:
        validate(Pipeline.model_validate({**made, "into": {**into, "on_null": "skip"}}), home)


def test_a_run_tells_what_the_table_says_and_notes_it(offline: Kpipe) -> None:
    home = Home(offline.home)
    execute(home, TABLES)
    home.save(Pipeline.model_validate({**WRONG, "set": {"amount": "'x'"}}))
    assert f"{home.pipelines / 'p.yaml'}:" in (said := offline("run", "p", status=2).stderr)
    assert "set.amount: x is not a valid BIGINT" in said
    assert (home.noted("p") or {})["state"] == "error"


def test_steps_have_names_and_an_order_and_are_those_of_the_design() -> None:
    assert len({step.name for step in STEPS}) == len(STEPS)
    assert [step.needs for step in STEPS] == sorted(step.needs for step in STEPS)
    design = (Path(__file__).parents[3] / "docs" / "design.md").read_text(encoding="utf-8")
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
        ({"into": {"table": "t", "type": "parquet", "on_conflict": "replace"}}, NotAvailable, ("into", "type")),
        ({"schema": "fail", "set": {"none": "1"}}, SchemaConflict, ("set", "none")),
        (
            {"errors": {"topic": "dead"}, "into": {"type": "kafka", "brokers": "b", "topic": "out"}},
            NotAvailable,
            ("errors", "topic"),
        ),
        (
            {
                "errors": {"topic": "dead"},
                "source": {"brokers": "127.0.0.1:1", "topics": ["a", "b"]},
                "into": {"type": "delta", "table": "{topic}"},
            },
            NotAvailable,
            ("errors", "topic"),
        ),
    ],
)
def test_errors_name_the_field(home: Home, change: dict[str, Any], error: type[KpipeError], field: tuple[str, ...]) -> None:
    base = {**WRONG, "set": {"amount": "@a * 2"} if "columns" in change else {}}
    if "select" in change:
        base.pop("format")
    with pytest.raises(error) as caught:
        validate(Pipeline.model_validate({**base, **change}), home)
    assert caught.value.field == field
