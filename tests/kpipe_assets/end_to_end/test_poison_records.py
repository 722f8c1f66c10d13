"""Records that make the program fail, through real Kafka, Spark and DuckDB: found, named, and dealt with as the pipeline says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark

# Does what the record says; each of its rows says which run wrote it.
PROGRAM = """#!/usr/bin/env python3
import json, os, signal, sys, uuid
run, out = uuid.uuid4().hex, sys.stdout.buffer
sys.stderr.write("ready\\n")
for record in sys.stdin.buffer:
    row = json.loads(record)
    do = row.pop("do", "")
    if do == "exit":
        sys.exit(f"boom: cannot take {row['id']}")
    if do == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if do == "drop":
        continue
    if do == "tear":
        out.write(b'{"id":')
        break
    out.write(json.dumps({**row, "run": run}).encode() + b"\\n")
    if do == "twice":
        out.write(b"{}\\n")
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    file = tmp_path / "obedient.py"
    file.write_text(PROGRAM)
    file.chmod(0o755)
    return str(file)


def records(count: int, orders: dict[int, str]) -> list[str]:
    return [json.dumps({"id": n, "text": "x" * 20, **({"do": orders[n]} if n in orders else {})}) for n in range(count)]


def test_dead_letters_are_exactly_the_killers_and_all_others_are_rows_of_one_run(
    kpipe: Any, topic: Any, write: Any, program: str
) -> None:
    name = topic(3)
    orders = {0: "exit", 700: "tear", 2999: "crash"}
    write(name, records(3000, orders), 0)
    write(name, records(100, {40: "drop"}), 1)
    write(name, records(100, {41: "twice"}), 2)
    kpipe.define(
        "hardy", name, errors={"transform": "dead_letter"},
        transform={"program": program},
    )  # fmt: skip
    lines = kpipe.json("run", "hardy")
    assert [line["event"] for line in lines] == ["batch", "summary"]
    assert (lines[0]["rows"], lines[0]["dead_letters"], lines[0]["filtered"]) == (3195, 5, 0)
    assert kpipe.json("verify", "hardy")[0]["ok"]

    dead = {(row["partition"], row["offset"]): row for row in kpipe.json("errors", "hardy")}
    assert set(dead) == {*((0, offset) for offset in orders), (1, 40), (2, 41)}
    assert {row["stage"] for row in dead.values()} == {"transform"}
    assert len({row["batch_id"] for row in dead.values()}) == 1
    for (partition, offset), said in {
        (0, 0): "exited with status 1; stderr: ready | boom: cannot take 0 (alone, 2 times; found in",
        (0, 700): "torn",
        (0, 2999): "killed by SIGSEGV",
        (1, 40): "1 records in, 0 out",
        (2, 41): "1 records in, 2 out",
    }.items():
        row = dead[partition, offset]
        assert said in row["error_message"], row
        assert json.loads(row["load_data_line"])["id"] == offset

    ids = {0: set(range(3000)) - set(orders), 1: set(range(100)) - {40}, 2: set(range(100)) - {41}}
    for partition, expected in ids.items():
        found = kpipe.sql(f"SELECT id, _kafka_offset, run FROM hardy WHERE _kafka_partition = {partition}")
        assert sorted(row[0] for row in found) == sorted(expected)
        assert all(row[0] == row[1] for row in found)
        assert len({row[2] for row in found}) == 1  # no row of an attempt that failed, or of a trial
    assert kpipe.json("run", "hardy")[-1]["batches"] == 0


def test_fail_names_the_record_and_changes_nothing(kpipe: Any, topic: Any, write: Any, program: str) -> None:
    name = topic(1)
    write(name, records(600, {}))
    kpipe.define("strict", name, transform={"program": program})
    kpipe("run", "strict")
    write(name, records(600, {321: "exit", 400: "exit"}))
    done = kpipe("run", "strict", status=1)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("kpipe: ")]
    assert f"{name}/0 offset 921: this record makes the program fail: " in line
    assert "exited with status 1; stderr: ready | boom: cannot take 321 (alone, 2 times; found in" in line
    assert "errors.transform: dead_letter" in line
    assert kpipe.sql("SELECT count(*), max(_kafka_offset) FROM strict") == [(600, 599)]
    assert kpipe.json("status", "strict")[0]["positions"] == {"0": 600}

    kpipe.define("strict", name, transform={"program": program}, errors={"transform": "dead_letter"})
    assert kpipe.json("run", "strict")[-1]["dead_letters"] == 2  # the same records, now allowed to stay aside
    assert kpipe.json("verify", "strict")[0]["ok"]


def test_what_runs_is_what_was_checked_though_it_is_replaced_between_batches(
    kpipe: Any, topic: Any, write: Any, tmp_path: Path
) -> None:
    name = topic(1)
    write(name, records(30, {}))
    file, evil = tmp_path / "first", tmp_path / "evil"
    evil.write_text('#!/bin/sh\nsed "s/.*/{\\"id\\": -1}/"\n')
    evil.chmod(0o755)
    file.write_text(f"#!/bin/sh\n[ -e {evil} ] && mv {evil} {file}\nexec cat\n")
    file.chmod(0o755)
    kpipe.define("same", name, transform={"program": str(file)}, batch={"max_offsets_per_partition": 10})
    assert kpipe.json("run", "same")[-1]["batches"] == 3
    assert not evil.exists()
    assert kpipe.sql("SELECT count(*), min(id), sum(id) FROM same") == [(30, 0, sum(range(30)))]
    write(name, records(5, {}))
    kpipe.json("run", "same")  # the next run looks again, and takes what is there
    assert kpipe.sql("SELECT count(*) FROM same WHERE id = -1") == [(5,)]


def test_a_limit_on_dead_letters_holds_for_them(kpipe: Any, topic: Any, write: Any, program: str) -> None:
    name = topic(1)
    write(name, records(100, {5: "exit", 6: "exit"}))
    errors = {"transform": "dead_letter", "max_dead_letters": 1}
    kpipe.define("few", name, errors=errors, transform={"program": program})
    done = kpipe("run", "few", status=1)
    assert "errors.max_dead_letters: expected at most 1 dead letters" in done.stderr and "boom: cannot take 5" in done.stderr


def test_a_broken_program_is_not_searched_for_records(kpipe: Any, topic: Any, write: Any, program: str) -> None:
    name = topic(1)
    write(name, records(100, {}))
    Path(program).write_text("#!/usr/bin/env python3\nimport no_such_module\n")
    kpipe.define("broken", name, errors={"transform": "dead_letter"}, transform={"program": program})
    done = kpipe("run", "broken", status=1)
    assert "No module named 'no_such_module'" in done.stderr
    assert "it fails without any record, too (1 try)" in done.stderr
