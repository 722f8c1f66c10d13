"""`kpipe sql`: statements from arguments, files and standard input; queries; the prompt."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from kpipe_assets.commands.sql_prompt import Dialogue, StatementCompleter
from resources.home import Home
from tests.commandline import Kpipe
from tests.kpipe_assets.commands.sql_client import SMALL, lines, sql, wrong


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
    assert "table created" in sql(offline, "CREATE TABLE orders (id BIGINT PRIMARY KEY, note VARCHAR)")
    assert [row["column_name"] for row in lines(offline, "DESCRIBE orders")] == ["id", "note"]
    for statement, words in {
        "INSERT INTO orders VALUES (1, 'x')": "only pipelines write rows, so that kpipe can verify each row",
        "CREATE TABLE kpipe_ledger (a INT)": "CREATE: expected a query, CREATE TABLE or a pipeline statement",
        "CREATE VIEW v AS SELECT 1": "CREATE: expected a query, CREATE TABLE or a pipeline statement",
        "DROP TABLE orders": "the ledger still counts the table's rows",
        "ATTACH '/tmp/x.duckdb'": "ATTACH: expected a query, CREATE TABLE or a pipeline statement",
        "SET threads = 1": "SET: expected a query, CREATE TABLE or a pipeline statement",
        "EXPLAIN ANALYZE INSERT INTO orders VALUES (1, 'x')": "",
        "SELECT * FROM read_csv('/etc/passwd')": "",
        "SELEC 1": "unexpected SELEC",
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
    assert said.count("a home has one database, which is always selected: no change\n") == 2
    assert said.startswith("database shop does not exist\n") and "\ntable orders does not exist\n" in said
    assert "the ledger still counts the table's rows" in wrong(offline, "DROP TABLE IF EXISTS orders")
    assert "its ledger is in it -> remove the folder" in wrong(offline, "DROP DATABASE IF EXISTS shop")
    left = "ROWSTORE, COMMENT, SHARD KEY, KEY, AUTOSTATS_ENABLED=TRUE, SQL_MODE='STRICT_ALL_TABLES'"
    assert f"\nnote: ignored, because it has no effect: {left}\n" in said
    assert "\nnote: COLLATE utf8_general_ci is ignored: texts are compared by their bytes, 'A' is not 'a'\n" in said
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
