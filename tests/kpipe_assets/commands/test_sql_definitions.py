"""`kpipe sql`: create, show, alter and drop pipelines."""

from __future__ import annotations

from pathlib import Path

import pytest

from kpipe.definition.yaml_codec import to_yaml
from kpipe.sql.parser import read
from kpipe_assets.commands.sql_prompt import QuietHistory
from resources.home import Home
from tests.commandline import Kpipe, contents
from tests.kpipe_assets.commands.sql_client import SMALL, lines, sql, wrong


def test_a_pipeline_is_made_shown_replaced_and_dropped(offline: Kpipe) -> None:
    assert "pipeline orders created: DuckDB" in sql(offline, SMALL)
    assert lines(offline, "SHOW PIPELINES") == [{"pipeline": "orders", "state": "stopped"}]
    assert Home(offline.home).pipeline("orders") == read(SMALL).pipeline  # type: ignore[union-attr]
    assert "pipeline orders exists already -> use CREATE OR REPLACE" in wrong(offline, SMALL)
    assert "exists already and is unchanged" in sql(offline, SMALL.replace("PIPELINE", "PIPELINE IF NOT EXISTS"))
    changed = SMALL.replace("CREATE", "CREATE OR REPLACE").replace(" INTO", " BATCH_INTERVAL 7 INTO")
    assert "pipeline orders replaced" in sql(offline, changed)
    assert Home(offline.home).pipeline("orders").batch.interval_ms == 7
    shown = sql(offline, "SHOW CREATE PIPELINE orders EXTENDED")
    assert shown == "CREATE PIPELINE `orders`\nAS LOAD DATA KAFKA '127.0.0.1:1/orders'\nBATCH_INTERVAL 7\n" \
        "INTO TABLE `orders`\nFORMAT JSON;\n"  # fmt: skip
    assert "dropped; rows, history and ledger stay" in sql(offline, "DROP PIPELINE orders")
    assert sql(offline, "DROP PIPELINE IF EXISTS orders; SHOW PIPELINES") == "pipeline orders does not exist\n0 rows\n"
    assert "no pipeline 'orders' in" in wrong(offline, "DROP PIPELINE orders")


def test_a_name_that_is_none_brings_the_nearest_or_how_to_make_it(offline: Kpipe) -> None:
    nobody = offline("status", "orders", status=2).stderr
    assert "(there are: none yet) -> create it: CREATE PIPELINE orders AS LOAD DATA ... in kpipe sql, or write " in nobody
    home = Home(offline.home)
    for n in range(12):
        home.save(read(SMALL.replace("PIPELINE orders", f"PIPELINE Orders_{n:02}")).pipeline)  # type: ignore[union-attr]
    message = wrong(offline, "START PIPELINE orders_1")
    assert message.rstrip().endswith("Orders_09 and 2 more) -> did you mean Orders_11?")
    assert "create it: CREATE PIPELINE tweets" in wrong(offline, "TEST PIPELINE tweets")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SHOW PIPE", "did you mean SHOW PIPELINES?"), ("SHOW PIPELNES", "did you mean SHOW PIPELINES?"),
        ("STRAT PIPELINE orders", "did you mean START PIPELINE?"), ("SHOW ERRORS", "CREATE PIPELINE name, or SHOW TABLES"),
        ("DROP DATABASE shop", "DROP DATABASE shop: a home has one database"),
        ("DELIMITER //", "kpipe has no stored procedures"),
        ("CREATE OR REPLACE PROCEDURE p (q QUERY(a INT)) AS BEGIN END", "kpipe has no stored procedures"),
        ("CREATE LINK l AS KAFKA CONFIG '{}'", "kpipe stores no connections apart from pipelines"),
        ("CREATE TEMPORARY TABLE t (a INT)", "the table would not outlive its statement -> write CREATE TABLE"),
        ("CREATE TABLE shop.t (a INT, KEY (a))", "without a database, found shop.t -> remove shop: a home has one database"),
        ("CREATE TABLE t (a INT(11), b)", "Column b must have a type"),
        ("GRANT SELECT, INSERT ON shop.* TO 'loader'@'%'", "kpipe has no users"),
        ("SET GLOBAL pipelines_stop_on_error = OFF", "kpipe has no engine variables: each pipeline has its own settings"),
        ("SHOW VARIABLES LIKE 'pipelines%'", "kpipe has no engine variables"),
        ("FLUSH EXTRACTOR POOLS", "it manages SingleStore's nodes -> remove it"),
        ("CREATE RESOURCE POOL loads WITH MEMORY_PERCENTAGE = 60", "kpipe has no resource pools"),
        ("SELECT * FROM kpipe_batches INTO KAFKA 'h:9092/copy'", "a query cannot write -> write to a topic with a pipeline"),
        ("SELECT 1 AS a INTO OUTFILE '/tmp/x'", "kpipe sql --json 'SELECT ...' > FILE"),
        ("LOAD DATA KAFKA 'h/t' INTO TABLE t",
         "records are loaded by pipelines -> write CREATE PIPELINE name AS LOAD DATA KAFKA"),
        ("ALTER TABLE t ADD COLUMN c INT", "a pipeline adds new columns of records automatically"),
        ("CALL load_it()", "kpipe has no stored procedures"),
        ("INFER TABLE AS LOAD DATA KAFKA 'h/t' FORMAT JSON", "write INFER PIPELINE AS LOAD DATA ..., which prints the table"),
        ("SELECT 1 \\G", "is a command of MySQL's client -> end the statement with ;"),
        ("CREATE PIPELINE shop.orders AS LOAD DATA KAFKA 'k/t' INTO TABLE t", "write the pipeline's name alone"),
        ("SELECT * FROM information_schema.PIPELINES_NONE", "expected one of PIPELINES, PIPELINES_BATCHES,"),
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
        ('OPTIONS \'{"columns": {"a": "BIGIN"}}\' INTO TABLE t FORMAT JSON', "invalid column type: 'BIGIN'"),
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


def test_files_and_commands_are_credentials_that_a_definition_does_not_run(offline: Kpipe, tmp_path: Path) -> None:
    ran, program = tmp_path / "ran", tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\necho hunter2\n")
    program.chmod(0o755)
    config = """CONFIG '{"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}'"""
    given = f"""CREDENTIALS '{{"sasl.username": "${{file:/run/user}}", "sasl.password": "${{command:{program} x}}"}}'"""
    sql(offline, SMALL.replace("INTO", f"{config} {given} INTO"))
    shown = sql(offline, "SHOW CREATE PIPELINE orders")
    assert f"${{command:{program} x}}" in shown and "${file:/run/user}" in shown
    assert "***" not in shown and not ran.exists()
    relative = given.replace(str(program), "program")
    assert "absolute path" in wrong(offline, SMALL.replace("INTO", f"{config} {relative} INTO").replace("orders", "others"))
    bad = """CONFIG '{"client.id": "${file:/etc/passwd}"}'"""
    assert "for credentials only" in wrong(offline, SMALL.replace("INTO", f"{bad} INTO").replace("orders", "others"))


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
    history.append_string("SET s3_secret_access_key = hunter2;")
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
