"""`kpipe sql` with a real Kafka: samples, inferred tables and positions."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kpipe.sql.parser import read
from kpipe.sql.renderer import to_sql
from kpipe.sql.statements import Create
from kpipe_assets.runs.run_locks import runs
from resources.home import Home
from tests.commandline import Kpipe, contents
from tests.kpipe_assets.commands.sql_client import lines, loaded, sql, state, wrong


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
    assert "exists already" in wrong(near, f"EXTRACT PIPELINE orders INTO OUTFILE '{file}'")
    assert "partition 9 does not exist" in wrong(near, f"EXTRACT PIPELINE orders FROM '9' INTO OUTFILE '{file}2'")
    assert "found [5, 99)" in wrong(near, f"EXTRACT PIPELINE orders FROM '1' OFFSETS 5 TO 99 INTO OUTFILE '{file}2'")
    assert not Path(f"{file}2").exists()
    program = Path(__file__).parents[3] / "transforms" / "programs" / "read_frames.py"
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
    assert f"skipped (BACKFILL PIPELINE reads them): {orders}/0 [0, 10), {orders}/1" in near("status").stdout
    assert sql(near, "BACKFILL PIPELINE orders PARTITION 2 FROM 5 TO 8") == f"backfill: {orders}/2 [5, 8)\n"
    assert sql(near, "ALTER PIPELINE orders SET OFFSETS EARLIEST").startswith("rewind: ")
    assert "no skipped offsets to read in this range" in sql(near, "BACKFILL PIPELINE orders")
    assert "exists: DROP PARTITION would read it again" in wrong(near, "ALTER PIPELINE orders DROP PARTITION '1'")
    assert "no partition 9 in the ledger" in wrong(near, "ALTER PIPELINE orders DROP PARTITION '9'")
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
    proof = kpipe.json("verify", "orders")[0]
    assert proof["ok"] is True and proof["repeated"] == [f"{name}/1 [2, 4)"]
    said = kpipe("verify", "orders")
    assert "no offset twice" not in said.stdout and "no offset is missing" in said.stdout
    assert f"read more than once, or to be read again; each reading is counted: {name}/1 [2, 4)" in said.stderr
    again = lines(kpipe, "SELECT batch_state, batch_earliest_offset a, batch_latest_offset b FROM kpipe_batches"
                         " WHERE closed_by = 'reread'")  # fmt: skip
    assert again == [{"batch_state": "Reread", "a": 2, "b": 4}]
    assert "it continues from" in sql(kpipe, f"CREATE OR REPLACE PIPELINE orders AS LOAD DATA KAFKA '{kpipe.brokers}/{name}'"
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
            assert "is running: its offsets cannot be changed" in wrong(near, "ALTER PIPELINE orders SET OFFSETS LATEST")
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
