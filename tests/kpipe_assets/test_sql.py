"""`kpipe sql` as a person uses it: definitions, the switch, positions, samples, queries, the dialogue."""

from __future__ import annotations

import asyncio
import fcntl
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from kpipe.definition.yaml_codec import to_yaml
from kpipe.sql.parser import read
from kpipe.sql.renderer import to_sql
from kpipe.sql.statements import Create
from kpipe_assets.commands.sql_prompt import Dialogue, QuietHistory, StatementCompleter
from kpipe_assets.dagster_server.instance import open_instance
from kpipe_assets.runs.run_locks import runs
from kpipe_assets.runs.status import note_state
from kpipe_assets.runs.stop_requests import Ear, ask
from kpipe_assets.sensors import sensor_state
from kpipe_assets.sensors.sensor_state import Switches
from resources.home import Home
from tests.commandline import Kpipe, contents

SMALL = "CREATE PIPELINE orders AS LOAD DATA KAFKA '127.0.0.1:1/orders' INTO TABLE orders FORMAT JSON"


def sql(kpipe: Kpipe, text: str, status: int = 0, **environ: str) -> str:
    """What the statements print."""
    return kpipe("sql", text, status=status, **environ).stdout


def lines(kpipe: Kpipe, text: str) -> list[dict[str, Any]]:
    return kpipe.json("sql", text)


def wrong(kpipe: Kpipe, text: str, status: int = 2) -> str:
    return kpipe("sql", text, status=status).stderr


def state(kpipe: Kpipe, name: str = "orders") -> str:
    return {row["pipeline"]: row["state"] for row in lines(kpipe, "SHOW PIPELINES")}[name]


# Definitions


def test_a_pipeline_is_made_shown_replaced_and_dropped(offline: Kpipe) -> None:
    assert "pipeline orders created: DuckDB" in sql(offline, SMALL)
    assert lines(offline, "SHOW PIPELINES") == [{"pipeline": "orders", "state": "stopped"}]
    assert Home(offline.home).pipeline("orders") == read(SMALL).pipeline  # type: ignore[union-attr]
    assert "pipeline orders exists already -> write CREATE OR REPLACE" in wrong(offline, SMALL)
    assert "stays as it is" in sql(offline, SMALL.replace("PIPELINE", "PIPELINE IF NOT EXISTS"))
    changed = SMALL.replace("CREATE", "CREATE OR REPLACE").replace(" INTO", " BATCH_INTERVAL 7 INTO")
    assert "pipeline orders replaced" in sql(offline, changed)
    assert Home(offline.home).pipeline("orders").batch.interval_ms == 7
    shown = sql(offline, "SHOW CREATE PIPELINE orders EXTENDED")
    assert shown == "CREATE PIPELINE `orders`\nAS LOAD DATA KAFKA '127.0.0.1:1/orders'\nBATCH_INTERVAL 7\n" \
        "INTO TABLE `orders`\nFORMAT JSON;\n"  # fmt: skip
    assert "dropped; rows, history and ledger stay" in sql(offline, "DROP PIPELINE orders")
    assert sql(offline, "DROP PIPELINE IF EXISTS orders; SHOW PIPELINES") == "there is no pipeline orders\n0 rows\n"
    assert "no pipeline 'orders' in" in wrong(offline, "DROP PIPELINE orders")


def test_a_name_that_is_none_brings_the_nearest_or_how_to_make_it(offline: Kpipe) -> None:
    nobody = offline("status", "orders", status=2).stderr
    assert "(there are: none yet) -> make it: CREATE PIPELINE orders AS LOAD DATA ... in kpipe sql, or write " in nobody
    home = Home(offline.home)
    for n in range(12):
        home.save(read(SMALL.replace("PIPELINE orders", f"PIPELINE Orders_{n:02}")).pipeline)  # type: ignore[union-attr]
    message = wrong(offline, "START PIPELINE orders_1")
    assert message.rstrip().endswith("Orders_09 and 2 more) -> did you mean Orders_11?")
    assert "make it: CREATE PIPELINE tweets" in wrong(offline, "TEST PIPELINE tweets")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SHOW PIPE", "did you mean SHOW PIPELINES?"), ("SHOW PIPELNES", "did you mean SHOW PIPELINES?"),
        ("STRAT PIPELINE orders", "did you mean START PIPELINE?"), ("SHOW ERRORS", "of the database SHOW TABLES"),
        ("DROP DATABASE shop", "DROP DATABASE shop: a home has one database"),
        ("DELIMITER //", "there are no stored procedures"),
        ("CREATE OR REPLACE PROCEDURE p (q QUERY(a INT)) AS BEGIN END", "there are no stored procedures"),
        ("CREATE LINK l AS KAFKA CONFIG '{}'", "kpipe keeps no connections beside the pipelines"),
        ("CREATE TEMPORARY TABLE t (a INT)", "such a table ends with its statement -> write CREATE TABLE"),
        ("CREATE TABLE shop.t (a INT, KEY (a))", "a home has one database, found shop.t -> leave out shop"),
        ("CREATE TABLE t (a INT(11), b)", "Column b must have a type"),
        ("GRANT SELECT, INSERT ON shop.* TO 'loader'@'%'", "there are no users"),
        ("SET GLOBAL pipelines_stop_on_error = OFF", "there are no engine variables: each pipeline has settings of its own"),
        ("SHOW VARIABLES LIKE 'pipelines%'", "there are no engine variables"),
        ("FLUSH EXTRACTOR POOLS", "it is about SingleStore's own nodes -> leave it out"),
        ("CREATE RESOURCE POOL loads WITH MEMORY_PERCENTAGE = 60", "there are no pools"),
        ("SELECT * FROM kpipe_batches INTO KAFKA 'h:9092/copy'", "a question writes nowhere -> a pipeline writes to a topic"),
        ("SELECT 1 AS a INTO OUTFILE '/tmp/x'", "kpipe sql --json 'SELECT ...' > FILE"),
        ("LOAD DATA KAFKA 'h/t' INTO TABLE t", "records are loaded by pipelines -> CREATE PIPELINE name AS LOAD DATA KAFKA"),
        ("ALTER TABLE t ADD COLUMN c INT", "a pipeline adds the columns that records bring by itself"),
        ("CALL load_it()", "there are no stored procedures"),
        ("INFER TABLE AS LOAD DATA KAFKA 'h/t' FORMAT JSON", "INFER PIPELINE AS LOAD DATA ... prints the table"),
        ("SELECT 1 \\G", "is a command of MySQL's client -> end the statement with ;"),
        ("CREATE PIPELINE shop.orders AS LOAD DATA KAFKA 'k/t' INTO TABLE t", "a pipeline's name stands alone"),
        ("SELECT * FROM information_schema.PIPELINES_NONE", "there are PIPELINES, PIPELINES_BATCHES,"),
        ("SELECT a FROM nothing", "does not exist\n"),
    ],
)  # fmt: skip
def test_what_is_no_statement_brings_the_nearest(offline: Kpipe, text: str, words: str) -> None:
    assert words in wrong(offline, text)


def test_what_is_shown_makes_the_same_pipeline_again(offline: Kpipe, tmp_path: Path) -> None:
    program = tmp_path / "p.py"
    program.write_text("#!/bin/cat\n")
    program.chmod(0o755)
    text = f"""CREATE PIPELINE p AS LOAD DATA KAFKA 'a:1,b:2/t' CONFIG '{{"client.id": "it''s"}}' OFFSETS LATEST
        MAX_RETRIES_PER_BATCH_PARTITION 1 WITH TRANSFORM ('{program}', '', '-x') OPTIONS '{{"schema": "ignore"}}' INTO TABLE t
        FORMAT JSON"""
    sql(offline, text)
    shown = sql(offline, "SHOW CREATE PIPELINE p")
    before = Home(offline.home).pipeline("p")
    sql(offline, f"DROP PIPELINE p; {shown}")
    assert Home(offline.home).pipeline("p") == before


@pytest.mark.parametrize(
    ("clauses", "words"),
    [
        ("INTO TABLE t FORMAT PROTOBUF", "protobuf without a schema"),
        ('CONFIG \'{"group.id": "x"}\' INTO TABLE t FORMAT JSON', "group.id cannot be set"),
        ("WITH TRANSFORM ('/nowhere/p.py') INTO TABLE t FORMAT JSON", "/nowhere/p.py"),
        ("INTO TABLE t IN warehouse FORMAT JSON", "into.type 'warehouse' is not available"),
        ('OPTIONS \'{"columns": {"a": "BIGIN"}}\' INTO TABLE t FORMAT JSON', "not a column type: 'BIGIN'"),
    ],
)
def test_what_could_not_run_is_not_made(offline: Kpipe, clauses: str, words: str) -> None:
    assert words in wrong(offline, f"CREATE PIPELINE p AS LOAD DATA KAFKA 'k/t' {clauses}")
    assert Home(offline.home).names() == ()


def test_a_definition_is_altered_in_parts(offline: Kpipe) -> None:
    sql(offline, SMALL)
    quick = """CONFIG '{"operation.timeout.ms": 300}'"""
    sql(offline, f"ALTER PIPELINE orders SET BATCH_INTERVAL 5, MAX_PARTITIONS_PER_BATCH 2 {quick}")
    sql(offline, "ALTER PIPELINE orders SET CONFIG ::client.rack = 'r1' RETRY_OPTIONS '{\"exponential\": false}'")
    found = Home(offline.home).pipeline("orders")
    assert (found.batch.interval_ms, found.batch.max_partitions, found.batch.exponential) == (5, 2, False)
    assert found.source.config == {"operation.timeout.ms": 300, "client.rack": "r1"}
    before = to_yaml(found)
    for statement, words in {
        "SET BATCH_INTERVAL 9 CONFIG ::plugin.library.paths = 'x'": "plugin.library.paths cannot be set",
        "SET MAX_PARTITIONS_PER_BATCH 0": "batch.max_partitions: input should be greater than or equal to 1",
        "RELOAD TRANSFORM": "has no program to reload",
        "SET TRANSFORM ('/nowhere/p.py')": "/nowhere/p.py",
        "SET BATCH_INTERVAL 9 OFFSETS LATEST": "",
    }.items():
        assert words in wrong(offline, f"ALTER PIPELINE orders {statement}", 1 if not words else 2)
        assert to_yaml(Home(offline.home).pipeline("orders")) == before, "nothing is changed when a part of it is wrong"
    sql(offline, "ALTER PIPELINE orders STOP_ON_ERROR NONE")


def test_secrets_reach_no_file_no_output_and_no_history(offline: Kpipe) -> None:
    literal = SMALL.replace("INTO", """CREDENTIALS '{"sasl.password": "hunter2"}' INTO""")
    assert "hunter2" not in wrong(offline, literal)
    config = """CONFIG '{"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}'"""
    template = """CREDENTIALS '{"sasl.username": "u", "sasl.password": "${env:KPIPE_TEST_PASSWORD}"}'"""
    sql(offline, SMALL.replace("INTO", f"{config} {template} INTO"), KPIPE_TEST_PASSWORD="hunter2")
    shown = sql(offline, "SHOW CREATE PIPELINE orders; SELECT * FROM kpipe_pipelines", KPIPE_TEST_PASSWORD="hunter2")
    assert "${env:KPIPE_TEST_PASSWORD}" in shown
    assert "hunter2" not in shown
    history = QuietHistory(offline.home / "sql_history")
    history.append_string(literal)
    history.append_string("ALTER PIPELINE orders SET CREDENTIALS ::sasl.password = 'hunter2';")
    history.append_string("SELECT 'kept' FROM kpipe_cursors;")
    assert (offline.home / "sql_history").stat().st_mode & 0o077 == 0
    everything = b"".join(data for _, data in contents(offline.home))
    assert b"hunter2" not in everything
    assert b"SELECT 'kept' FROM kpipe_cursors;" in everything


def test_the_home_of_a_pipeline_that_cannot_be_read_can_be_cleaned(offline: Kpipe) -> None:
    Home(offline.home).make()
    (offline.home / "pipelines" / "broken.yaml").write_text("type: nonsense")
    assert "dropped" in sql(offline, "DROP PIPELINE broken")
    assert Home(offline.home).names() == ()


# Texts, files, standard input


def test_statements_come_from_arguments_files_and_standard_input(offline: Kpipe, tmp_path: Path) -> None:
    script = tmp_path / "up.sql"
    script.write_text(f"-- orders\n{SMALL};\nSHOW PIPELINES;\n")
    assert "orders" in offline("sql", "-f", str(script)).stdout
    assert offline("sql", "-e", "SELECT 1 AS a", "-e", "SELECT 2 AS b").stdout.split() == [
        "a",
        "1",
        "1",
        "row",
        "b",
        "2",
        "1",
        "row",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "kpipe_assets.cli", "sql", "--json"], input="SHOW PIPELINES;", env=offline.environment(),
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert (done.returncode, json.loads(done.stdout)) == (0, {"pipeline": "orders", "state": "stopped"})


def test_nothing_is_executed_when_a_later_statement_cannot_be_read(offline: Kpipe, tmp_path: Path) -> None:
    script = tmp_path / "up.sql"
    script.write_text(f"{SMALL};\n\nSTRT PIPELINE orders;\nSTART PIPLINE orders;\n")
    said = offline("sql", "-f", str(script), status=2).stderr
    assert said == f"  START PIPLINE orders;\n        ^^^^^^^\nkpipe: {script}:4:7: expected ALL, FAILED or PIPELINE," \
        " found PIPLINE -> did you mean PIPELINE?\n"  # fmt: skip
    assert Home(offline.home).names() == ()
    assert "cannot be read" in offline("sql", "-f", str(tmp_path / "none.sql"), status=2).stderr


# Queries


def test_the_views_are_there_before_anything_was_written(offline: Kpipe) -> None:
    assert lines(offline, "SELECT * FROM kpipe_cursors; SELECT count(*) AS n FROM kpipe_batches_summary") == [{"n": 0}]


def test_values_are_shown_as_they_are(offline: Kpipe) -> None:
    query = """SELECT TIMESTAMPTZ '2026-11-20 01:00:00+01' AS at, 'x'::BLOB AS text, '\\xFF'::BLOB AS bytes, NULL AS n,
        170141183460469231731687303715884105727 AS huge, {'a': [1]} AS s"""
    assert lines(offline, query) == [
        {"at": "2026-11-20T00:00:00Z", "text": "x", "bytes": "\\xff", "n": None,
         "huge": 170141183460469231731687303715884105727, "s": {"a": [1]}}
    ]  # fmt: skip
    assert "\x1b" not in sql(offline, "SELECT chr(27) || '[31m' AS \"a\x1bb\"")
    assert "NULL" in sql(offline, "SELECT NULL AS n")


def test_tables_are_made_and_nothing_else_is_written(offline: Kpipe) -> None:
    assert "table made" in sql(offline, "CREATE TABLE orders (id BIGINT PRIMARY KEY, note VARCHAR)")
    assert [row["column_name"] for row in lines(offline, "DESCRIBE orders")] == ["id", "note"]
    for statement, words in {
        "INSERT INTO orders VALUES (1, 'x')": "rows come through pipelines, so that each can be proven",
        "CREATE TABLE kpipe_ledger (a INT)": "CREATE: kpipe sql asks questions",
        "CREATE VIEW v AS SELECT 1": "CREATE: kpipe sql asks questions",
        "DROP TABLE orders": "the ledger still counts the table's rows",
        "ATTACH '/tmp/x.duckdb'": "ATTACH: kpipe sql asks questions",
        "SET threads = 1": "SET: kpipe sql asks questions",
        "EXPLAIN ANALYZE INSERT INTO orders VALUES (1, 'x')": "",
        "SELECT * FROM read_csv('/etc/passwd')": "",
        "SELEC 1": "not expected here: SELEC",
        "SELECT nothing FROM orders": "column nothing does not exist",
    }.items():
        assert words in wrong(offline, statement)
    assert lines(offline, "SELECT count(*) AS n FROM orders") == [{"n": 0}]


def test_a_table_of_singlestores_is_made_with_notes_of_what_it_is_not(offline: Kpipe) -> None:
    said = sql(
        offline,
        """DROP DATABASE IF EXISTS shop; CREATE DATABASE IF NOT EXISTS shop WITH ASYNC DURABILITY PARTITIONS 4; USE shop;
        DROP TABLE IF EXISTS `orders`;
        CREATE ROWSTORE TABLE IF NOT EXISTS orders (
            `id` int(11) unsigned NOT NULL COMMENT 'its number', `offset` text COLLATE utf8_general_ci,
            `n` bigint(20) AUTO_INCREMENT, PRIMARY KEY orders_key (`id`) USING HASH, SHARD KEY (`id`), KEY (`n`)
        ) AUTOSTATS_ENABLED=TRUE SQL_MODE='STRICT_ALL_TABLES'""",
    )
    assert said.count("a home has one database, and it is used: nothing was done\n") == 2
    assert said.startswith("there is no database shop\n") and "\nthere is no table orders\n" in said
    assert "the ledger still counts the table's rows" in wrong(offline, "DROP TABLE IF EXISTS orders")
    assert "its ledger is in it -> remove the folder" in wrong(offline, "DROP DATABASE IF EXISTS shop")
    left = "ROWSTORE, COMMENT, SHARD KEY, KEY, AUTOSTATS_ENABLED=TRUE, SQL_MODE='STRICT_ALL_TABLES'"
    assert f"\nnote: left out, as it means nothing here: {left}\n" in said
    assert "\nnote: COLLATE utf8_general_ci is left out: texts are compared by their bytes, 'A' is not 'a'\n" in said
    found = [(row["column_name"], row["column_type"], row["key"]) for row in lines(offline, "DESCRIBE orders")]
    assert found == [("id", "UINTEGER", "PRI"), ("offset", "VARCHAR", None), ("n", "BIGINT", None)]


@pytest.mark.parametrize("clause", ["SKIP DUPLICATE KEY ERRORS", "SKIP ALL ERRORS"])
def test_duplicates_are_skipped_where_there_is_a_key_and_a_note_says_where_there_is_none(offline: Kpipe, clause: str) -> None:
    sql(offline, "CREATE TABLE keyed (id BIGINT PRIMARY KEY); CREATE TABLE plain (id BIGINT)")
    for table, key, rule in (
        ("keyed", "", "ignore"),
        ("plain", "", "error"),
        ("later", "", "error"),
        ("later", "KEY (id)", "ignore"),
    ):
        text = f"CREATE OR REPLACE PIPELINE p AS LOAD DATA KAFKA 'k/t' INTO TABLE {table} {key} {clause} FORMAT JSON"
        said = sql(offline, text)
        note = f"note: SKIP DUPLICATE KEY ERRORS is left out: table {table} has no primary key, so no row is a duplicate"
        assert (note in said) == (rule == "error")
        assert Home(offline.home).pipeline("p").into.on_conflict == rule
        assert Home(offline.home).pipeline("p").errors.constraint == ("dead_letter" if "ALL" in clause else "fail")
    assert clause in sql(offline, "SHOW CREATE PIPELINE p")


# The switch


def test_start_and_stop_turn_the_switch(offline: Kpipe) -> None:
    sql(offline, SMALL)
    waits = "is on, and waits: nothing is there that would run it; start `kpipe ui`, or kpipe run {} --follow"
    for statement in ("START PIPELINE orders", "START PIPELINE orders", "START PIPELINE IF NOT RUNNING orders"):
        assert waits.format("orders") in sql(offline, statement)
        assert state(offline) == "waiting", "it is not called running while nothing would run it"
    assert "start `kpipe ui`" in offline("status").stdout
    with served(offline):
        assert state(offline) == "running"
        assert "is running already" in wrong(offline, "START PIPELINE orders")
        assert "is running already" in sql(offline, "START PIPELINE IF NOT RUNNING orders")
    assert sql(offline, "STOP PIPELINE orders") == "pipeline orders stopped\n"
    assert state(offline) == "stopped"
    assert "is not running" in wrong(offline, "STOP PIPELINE orders")
    assert "is not running" in sql(offline, "STOP PIPELINE IF RUNNING orders")
    sql(offline, SMALL.replace("PIPELINE orders", "PIPELINE other"))
    assert lines(offline, "START ALL PIPELINES") == [
        {"pipeline": name, "result": f"pipeline {name} {waits.format(name)}"} for name in ("orders", "other")
    ]
    assert [row["result"] for row in lines(offline, "STOP ALL PIPELINES")] == ["stopped", "stopped"]
    sql(offline, "START PIPELINE other; DROP PIPELINE other")
    sql(offline, SMALL.replace("PIPELINE orders", "PIPELINE other"))
    assert state(offline, "other") == "stopped", "a switch goes with its pipeline"


def test_switches_are_read_as_dagster_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its file where its settings are ours, as that takes no import of Dagster; else through Dagster."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    home = Home.at(tmp_path).make()
    assert sensor_state._read(home) is None, "nobody has ever turned one"
    with Switches(home) as switches:
        assert switches.on() == frozenset()
        for name, on in (("a", True), ("b", True), ("c_d", True), ("b", False)):
            switches.turn(name, on)
        assert switches.on() == {"a", "c_d"}, "by Dagster, which is loaded now"
    assert sensor_state._read(home) == {"a", "c_d"}
    with (home.dagster / "dagster.yaml").open("a") as file:
        file.write("# edited\n")
    assert sensor_state._read(home) is None
    with Switches(home) as switches:
        assert switches.on() == {"a", "c_d"}


@contextmanager
def served(kpipe: Kpipe) -> Iterator[None]:
    """While inside, `kpipe ui` seems to run on the home."""
    with (Home(kpipe.home).make().state / "ui.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_the_daemon_of_a_dagster_of_ones_own_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dagster._daemon.types import DaemonHeartbeat

    (tmp_path / "own").mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "own"))
    with Switches(Home.at(tmp_path / "home").make()) as switches:
        assert not switches.is_served()
        with open_instance(tmp_path / "own") as instance:
            for age, served in ((3600, False), (5, True)):
                instance.add_daemon_heartbeat(DaemonHeartbeat(time.time() - age, "SENSOR", "1", []))
                assert switches.is_served() == served


def states_of(kpipe: Kpipe) -> dict[str, str]:
    """By SHOW PIPELINES, which must be what `kpipe status` says."""
    shown = {row["pipeline"]: row["state"] for row in lines(kpipe, "SHOW PIPELINES")}
    assert {row["pipeline"]: row["state"] for row in kpipe.json("status")} == shown
    return shown


def test_failed_pipelines_are_started_again_by_their_own_statement(offline: Kpipe) -> None:
    quick = SMALL.replace("INTO", """CONFIG '{"operation.timeout.ms": 100}' INTO""")
    for name in ("a", "b", "c", "d"):
        sql(offline, quick.replace("PIPELINE orders", f"PIPELINE {name}"))
    home = Home(offline.home)
    sql(offline, "START PIPELINE a; DETACH PIPELINE b")
    note_state(home, "a", "error")
    note_state(home, "c", "needs_operator")
    assert states_of(offline) == {"a": "error", "b": "detached", "c": "needs_operator", "d": "stopped"}
    assert [row["pipeline"] for row in lines(offline, "START FAILED PIPELINES")] == ["a", "c"]
    assert states_of(offline) == {"a": "waiting", "b": "detached", "c": "needs_operator", "d": "stopped"}
    sql(offline, "START PIPELINE b")
    for name in ("a", "d"):  # as a run leaves it that was killed
        home.note(name, "running")
    assert states_of(offline) == {"a": "waiting", "b": "waiting", "c": "needs_operator", "d": "stopped"}
    with served(offline):
        assert states_of(offline) == {"a": "running", "b": "running", "c": "needs_operator", "d": "stopped"}


# The dialogue


def test_a_dialogue_reads_until_the_semicolon(tmp_path: Path) -> None:
    async def typed(keys: str) -> list[str]:
        with create_pipe_input() as pipe:
            pipe.send_text(keys)
            dialogue = Dialogue(tmp_path / "history", lambda: ["orders"], input=pipe, output=DummyOutput())
            return await asyncio.get_running_loop().run_in_executor(None, list, dialogue)

    found = asyncio.run(typed("SELECT ';',\n 1;\nSHOW PIPELINES;\n\nexit\n"))
    assert found == ["SELECT ';',\n 1;", "SHOW PIPELINES;"]
    assert "+SHOW PIPELINES;" in (tmp_path / "history").read_text()


@pytest.mark.parametrize(
    ("text", "some", "none"),
    [
        ("", {"CREATE PIPELINE", "SHOW PIPELINES", "SELECT"}, {"INTO"}),
        ("STA", {"START PIPELINE", "START ALL PIPELINES"}, {"STOP PIPELINE"}),
        ("START PIPELINE ", {"orders", "other", "IF"}, {"FOREGROUND"}),
        ("START PIPELINE ot", {"other"}, {"orders"}),
        ("START PIPELINE orders ", {"FOREGROUND"}, {"orders"}),
        ("SHOW PIPELINES; DROP PIPELINE ", {"orders"}, {"PIPELINES"}),
        ("CREATE PIPELINE p AS LOAD DATA KAFKA 'k/t' ", {"INTO", "CONFIG", "BATCH_INTERVAL"}, {"LINK", "FORMAT"}),
        ("CREATE PIPELINE p AS LOAD DATA KAFKA 'k/t' INTO TABLE t FORMAT ", {"JSON", "CSV"}, {"PARQUET"}),
        ("CREATE PIPELINE p AS LOAD DATA KAFKA 'k/t' INTO TABLE t FORMAT JSON (a <- b) ", {"SET", "WHERE"}, {"INTO"}),
        ("SELECT * FROM kpipe_cur", {"kpipe_cursors"}, {"kpipe_errors"}),
        ("CREATE PIPELINE p AS NONSENSE ", set(), {"INTO"}),
    ],
)
def test_completion_knows_the_grammar(text: str, some: set[str], none: set[str]) -> None:
    completer = StatementCompleter(lambda: ["orders", "other"])
    found = {item.text for item in completer.get_completions(Document(text), CompleteEvent())}
    assert some <= found
    assert not none & found


# With a real Kafka: samples and positions


@pytest.fixture
def near(tmp_path: Path, brokers: str) -> Iterator[Kpipe]:
    """A home and the session's Kafka, without Spark."""
    command = Kpipe(tmp_path / "home", brokers)
    yield command
    command.kill()


@pytest.fixture
def orders(near: Kpipe, topic: Callable[..., str], write: Callable[..., int]) -> str:
    """A topic of three partitions with ten records each, and the pipeline `orders` over it."""
    name = topic(3)
    for partition in range(3):
        write(name, [json.dumps({"id": partition * 100 + at, "city": "Köln"}) for at in range(10)], partition)
    sql(near, f"CREATE PIPELINE orders AS LOAD DATA KAFKA '{near.brokers}/{name}' INTO TABLE orders FORMAT JSON")
    return name


def traces(home: Path) -> dict[str, bytes]:
    """Everything that a home holds beyond its definitions."""
    return {str(file.relative_to(home)): data for file, data in contents(home) if "pipelines" not in file.parts}


@pytest.mark.broker
def test_a_test_shows_rows_and_writes_nothing(near: Kpipe, orders: str, write: Callable[..., int]) -> None:
    write(orders, ["{not json", None], 2)
    before = traces(near.home)
    rows = lines(near, "TEST PIPELINE orders LIMIT 2")
    assert [(row["id"], row["city"], row["_kafka_partition"], row["_kafka_offset"]) for row in rows] == [
        (partition * 100 + at, "Köln", partition, at) for partition in range(3) for at in range(2)
    ]
    said = sql(near, "TEST PIPELINE orders")
    assert "32 offsets of 3 partitions: 30 rows, 1 dead letter, 1 filtered; nothing was written" in said
    assert f"{orders}/2 offset 10, parse: " in said
    assert traces(near.home) == before
    assert lines(near, "SELECT * FROM kpipe_cursors") == []


@pytest.mark.broker
def test_a_sample_is_extracted_as_a_program_would_get_it(near: Kpipe, orders: str, tmp_path: Path) -> None:
    file = tmp_path / "sample"
    said = sql(near, f"EXTRACT PIPELINE orders FROM '1' OFFSETS 2 TO 5 INTO OUTFILE '{file}'")
    assert "3 records of" in said and "nothing was written to the table" in said
    assert [json.loads(line)["id"] for line in file.read_text().splitlines()] == [102, 103, 104]
    assert "is there already" in wrong(near, f"EXTRACT PIPELINE orders INTO OUTFILE '{file}'")
    assert "there is no partition 9" in wrong(near, f"EXTRACT PIPELINE orders FROM '9' INTO OUTFILE '{file}2'")
    assert "does not hold [5, 99)" in wrong(near, f"EXTRACT PIPELINE orders FROM '1' OFFSETS 5 TO 99 INTO OUTFILE '{file}2'")
    assert not Path(f"{file}2").exists()
    program = Path(__file__).parent.parent.parent / "transforms" / "programs" / "read_frames.py"
    sql(near, f"ALTER PIPELINE orders SET TRANSFORM ('{program}') STDIN LENGTH_PREFIXED MODE MAP")
    sql(near, f"EXTRACT PIPELINE orders INTO OUTFILE '{file}3'")
    data = Path(f"{file}3").read_bytes()
    assert int.from_bytes(data[:8], sys.byteorder) == len(data[8:].split(b"}")[0]) + 1


@pytest.mark.broker
def test_table_and_mapping_are_inferred(near: Kpipe, orders: str) -> None:
    said = sql(near, f"INFER PIPELINE AS LOAD DATA KAFKA '{near.brokers}/{orders}' INTO TABLE towns FORMAT JSON")
    assert said.startswith('CREATE TABLE "towns" (\n    "id" BIGINT,\n    "city" VARCHAR\n);\nCREATE PIPELINE `towns`\n')
    table, _, statement = said.partition(";\n")
    made = read(statement)
    assert isinstance(made, Create)
    assert made.pipeline.format.mapping == {"id": "id", "city": "city"}
    sql(near, table)
    assert [row["column_name"] for row in lines(near, "DESCRIBE towns")] == ["id", "city"]
    assert read(to_sql(made.pipeline)) == made


@pytest.mark.broker
def test_positions_move_as_the_ledger_says(near: Kpipe, orders: str) -> None:
    def cursors() -> dict[int, tuple[int, int]]:
        query = "SELECT source_partition_id p, cursor_offset c, successful_cursor_offset s FROM kpipe_cursors"
        return {row["p"]: (row["c"], row["s"]) for row in lines(near, query)}

    assert sql(near, """ALTER PIPELINE orders SET OFFSETS '{"1": 4}'""") == f"jump: {orders}/1 from 0 to 4\n"
    assert cursors() == {0: (0, 0), 1: (4, 0), 2: (0, 0)}, "only the partition that was named"
    sql(near, "ALTER PIPELINE orders SET OFFSETS LATEST")
    assert cursors() == {0: (10, 0), 1: (10, 0), 2: (10, 0)}
    shown = sql(near, "SHOW CREATE PIPELINE orders EXTENDED")
    assert """ALTER PIPELINE `orders` SET OFFSETS '{"0": 10, "1": 10, "2": 10}';""" in shown
    assert "has no offset 11" in wrong(near, """ALTER PIPELINE orders SET OFFSETS '{"0": 11}'""")
    assert "partition 7" in wrong(near, """ALTER PIPELINE orders SET OFFSETS '{"7": 1}'""")
    assert near.json("status", "orders")[0]["skipped"] == [f"{orders}/{partition} [0, 10)" for partition in range(3)]
    assert f"skipped; BACKFILL PIPELINE reads it: {orders}/0 [0, 10), {orders}/1" in near("status").stdout
    assert sql(near, "BACKFILL PIPELINE orders PARTITION 2 FROM 5 TO 8") == f"backfill: {orders}/2 [5, 8)\n"
    assert sql(near, "ALTER PIPELINE orders SET OFFSETS EARLIEST").startswith("rewind: ")
    assert "nothing that can be read was skipped" in sql(near, "BACKFILL PIPELINE orders")
    assert "is there: to forget it is to read it again" in wrong(near, "ALTER PIPELINE orders DROP PARTITION '1'")
    assert "knows no partition 9" in wrong(near, "ALTER PIPELINE orders DROP PARTITION '9'")
    notes = [row["note"] for row in lines(near, "SELECT note FROM kpipe_commits ORDER BY seq")]
    assert [note.partition(":")[0] for note in notes] == ["begin", "jump", "jump", "backfill", "rewind"]
    assert all(note.endswith("in kpipe sql") for note in notes[1:])
    sql(near, "ALTER PIPELINE orders SET OFFSETS TIMESTAMP '2099-01-01 00:00:00'; ALTER PIPELINE orders DROP ORPHAN PARTITIONS")
    near("verify", "orders")


@pytest.mark.broker
@pytest.mark.spark
def test_what_is_skipped_filled_in_and_read_again_is_in_the_table_so_often(
    kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., int]
) -> None:
    name = topic(2)
    write(name, [json.dumps({"id": at}) for at in range(10)], 0)
    write(name, [json.dumps({"id": 100 + at}) for at in range(4)], 1)

    def ids() -> Counter[int]:
        return Counter(row[0] for row in kpipe.sql("SELECT id FROM orders"))

    sql(kpipe, f"CREATE PIPELINE orders AS LOAD DATA KAFKA '{kpipe.brokers}/{name}' MAX_OFFSETS_PER_BATCH_PARTITION 4"
               " INTO TABLE orders FORMAT JSON")  # fmt: skip
    done = kpipe("sql", "START PIPELINE orders FOREGROUND LIMIT 1 BATCHES")
    assert "orders: batch limit reached after 1 batch: 8 records, 8 rows" in done.stdout
    sql(kpipe, """ALTER PIPELINE orders SET OFFSETS '{"0": 8}'""")
    summary = kpipe.json("sql", "START PIPELINE orders FOREGROUND")[-1]
    assert (summary["event"], summary["status"], summary["rows"]) == ("summary", "caught_up", 2)
    assert ids() == Counter([0, 1, 2, 3, 8, 9, 100, 101, 102, 103])
    assert "offsets [0, 4) [8, 10) have been read" in wrong(kpipe, "ALTER PIPELINE orders SET OFFSETS EARLIEST")
    sql(kpipe, "BACKFILL PIPELINE orders; START PIPELINE orders FOREGROUND")
    assert ids() == Counter([*range(10), 100, 101, 102, 103])
    kpipe("verify", "orders")
    sql(kpipe, """ALTER PIPELINE orders SET OFFSETS '{"1": 2}' REREAD; START PIPELINE orders FOREGROUND""")
    assert ids() == Counter([*range(10), 100, 101, 102, 103, 102, 103])
    assert kpipe.json("verify", "orders")[0]["ok"] is True
    again = lines(kpipe, "SELECT batch_state, batch_earliest_offset a, batch_latest_offset b FROM kpipe_batches"
                         " WHERE closed_by = 'reread'")  # fmt: skip
    assert again == [{"batch_state": "Reread", "a": 2, "b": 4}]
    assert "it goes on from" in sql(kpipe, f"CREATE OR REPLACE PIPELINE orders AS LOAD DATA KAFKA '{kpipe.brokers}/{name}'"
                                           " INTO TABLE orders FORMAT JSON")  # fmt: skip


@pytest.mark.broker
@pytest.mark.spark
def test_errors_are_cleared_and_dead_letters_stay(kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., int]) -> None:
    name = topic(1)
    write(name, ['{"id": 1}', "{bad"], 0)
    sql(kpipe, f"CREATE PIPELINE orders AS LOAD DATA KAFKA '{kpipe.brokers}/{name}' INTO TABLE orders FORMAT JSON")
    sql(kpipe, "START PIPELINE orders FOREGROUND")
    sql(kpipe, f"CREATE OR REPLACE PIPELINE orders AS LOAD DATA KAFKA '{kpipe.brokers}/{name}'"
               """ OPTIONS '{"errors": {"parse": "fail"}}' INTO TABLE orders FORMAT JSON""")  # fmt: skip
    write(name, ["{worse"], 0)
    assert f"{name}/0 offset 2: not JSON" in kpipe("sql", "START PIPELINE orders FOREGROUND", status=1).stderr
    assert state(kpipe) == "error"
    assert [row["error_type"] for row in lines(kpipe, "SELECT error_type FROM kpipe_errors ORDER BY error_id")] == [
        "Warning", "Error"
    ]  # fmt: skip
    assert "1 error cleared;" in sql(kpipe, "CLEAR PIPELINE ERRORS FOR orders")
    assert [row["error_type"] for row in lines(kpipe, "SELECT error_type FROM kpipe_errors")] == ["Warning"]


# Runs that are at work


def until(what: Callable[[], Any], seconds: float = 300) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return found


def loaded(kpipe: Kpipe) -> int:
    """Rows of the table; 0 while there is none, and while a commit holds the database."""
    with suppress(duckdb.Error):
        return int(kpipe.sql("SELECT count(*) FROM orders")[0][0])
    return 0


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.spark
def test_stop_ends_a_run_of_the_command_line(near: Kpipe, orders: str) -> None:
    home = Home(near.home)
    for statement, status in (("STOP PIPELINE orders", "stopped"), ("STOP PIPELINE orders CANCEL", "stopped")):
        follow = near.start("run", "orders", "--follow", "--json")
        try:
            until(lambda: list(runs(home, "orders")) and loaded(near) == 30)
            assert state(near) == "running"
            assert "is running, and would be moved" in wrong(near, "ALTER PIPELINE orders SET OFFSETS LATEST")
            assert "is running -> STOP PIPELINE orders first" in wrong(near, "START PIPELINE orders FOREGROUND")
            assert "pipeline orders stopped" in sql(near, statement)
            out, _ = follow.communicate(timeout=600)
        finally:
            follow.kill()
            follow.communicate()
        assert state(near) == "stopped"
        if "CANCEL" not in statement:
            assert json.loads(out.splitlines()[-1])["status"] == status
            assert lines(near, "SELECT count(*) AS n FROM orders") == [{"n": 30}]


# What the UI and the statements see of each other: test_ui.py, beside a running UI


def test_a_run_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    home = Home(tmp_path).make()
    follow, continuous = Ear(home, "orders", restarts=False), Ear(home, "orders", restarts=True)
    assert not follow.asked() and not continuous.asked()
    ask(home, "others", "stop")
    ask(home, "orders", "restart")
    assert (follow.asked(), continuous.asked()) == (False, True), "only runs that somebody starts again"
    assert not Ear(home, "orders", restarts=True).asked(), "nor those that begin afterwards"
    naps: list[float] = []
    follow.wait(0.02, lambda seconds: (naps.append(seconds), time.sleep(seconds))[1])
    ask(home, "orders", "stop")
    follow.wait(1000, naps.append)
    assert follow.asked() and continuous.asked()
    assert len(naps) >= 1 and max(naps) <= 0.02, "nobody sleeps on once it was asked"
