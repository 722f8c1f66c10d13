"""Whatever is wrong is said in one line that names it, with the right exit status, and nothing is touched."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.commandline import contents

_AUDIT = ("--brokers", "b:1", "--type", "parquet", "--database", "x")


def only_line(done: Any) -> str:
    """The reason: the last line of stderr, and no traceback."""
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith(("kpipe: ", "Error: "))]
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_a_misspelled_command_gets_a_suggestion(offline: Any) -> None:
    assert only_line(offline("verfy", "tweets", status=2)) == "Error: No such command 'verfy'. Did you mean 'verify'?"


def test_one_invalid_definition_does_not_hide_the_status_of_others(offline: Any) -> None:
    offline.define("good", "t")
    (offline.home / "pipelines" / "odd.yaml").write_text("type: kpipe_assets.KafkaPipeline\nattributes: {name: odd, x: 1}\n")
    lines = [json.loads(line) for line in offline("status", "--json", status=1).stdout.splitlines()]
    assert [line["pipeline"] for line in lines] == ["good", "odd"]
    assert lines[0].keys() == lines[1].keys() and "odd.yaml:2: unknown field x" in lines[1]["last_error"]
    assert "odd: now: " in offline("status", status=1).stdout
    assert "unknown field x" in only_line(offline("status", "odd", status=2))


def test_an_unknown_field_names_file_line_and_what_is_known(offline: Any) -> None:
    offline.define("odd", "t")
    file = offline.home / "pipelines" / "odd.yaml"
    file.write_text(
        "type: kpipe_assets.KafkaPipeline\nattributes:\n  name: odd\n  source: {brokers: b, topic: t}\n"
        "  batch:\n    max_offsets: 3\n  into: {table: odd}\n"
    )
    line = only_line(offline("run", "odd", status=2))
    assert f"{file}:6: unknown field batch.max_offsets" in line and "max_offsets_per_partition" in line


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"transform": {"program": "missing.py"}}, ["missing.py"]),
        ({"source": {"start": {"0": -1}}}, ["source.start", "earliest"]),
        ({"source": {"start": "early"}}, ["source.start", "earliest"]),
        ({"format": {"type": "avro"}}, ["format: avro without a schema", "registry"]),
        ({"format": {"type": "avro", "schema": "{}"}}, ["format.schema", "without a type"]),
        ({"format": {"type": "protobuf"}}, ["format: protobuf without a schema", "descriptors"]),
        ({"format": {"type": "protobuf", "schema": "message M {"}}, ["format.schema", "cannot be compiled"]),
        ({"format": {"type": "protobuf", "registry": "r:1", "descriptors": "x"}}, ["`descriptors` beside a registry"]),
        ({"format": {"type": "protobuf", "descriptors": "gone.desc"}}, ["format.descriptors: gone.desc cannot be read"]),
        ({"format": {"registry": "ftp://r"}}, ["format.registry: not an http address"]),
        ({"key_format": {"type": "csv"}}, ["key_format: csv without fields"]),
        ({"key_format": {"type": "raw"}}, ["metadata: [key]"]),
        ({"select": "SELECT 1"}, ["select", "FROM records"]),
        ({"delivery": "at_least_once", "into": {"table": "x", "key": ["id"]}}, ["at_least_once", "key that is there"]),
        ({"into": {"table": "x", "type": "mongodb"}}, ["mongodb", "duckdb"]),
        ({"into": {"table": "drop table"}}, ["into.table", "name"]),
        ({"columns": {"a": "BIGINTEGER"}}, ["columns", "BIGINTEGER"]),
        ({"columns": {"_kafka_offset": "BIGINT"}}, ["_kafka_offset"]),
        ({"source": {"config": {"plugin.library.paths": "x.so"}}}, ["plugin.library.paths"]),
        ({"source": {"config": {"sasl.password": "hunter2"}}}, ["sasl.password", "credentials"]),
        ({"source": {"credentials": {"sasl.password": "{{ env('NOT_SET_ANYWHERE') }}"}}}, ["NOT_SET_ANYWHERE"]),
        ({"transform": {"program": "/bin/cat", "env": ["NOT_SET_ANYWHERE"]}}, ["NOT_SET_ANYWHERE"]),
    ],
)
def test_definitions_that_cannot_be_right(offline: Any, fields: dict[str, Any], words: list[str]) -> None:
    offline.define("wrong", "t", **fields)
    line = only_line(offline("run", "wrong", status=2))
    assert all(word in line for word in words), line
    assert "hunter2" not in line
    assert not (offline.home / "data" / "kpipe.duckdb").exists()


def test_a_program_that_is_not_executable(offline: Any, tmp_path: Path) -> None:
    file = tmp_path / "p.py"
    file.write_text("#!/usr/bin/env python3\n")
    file.chmod(0o644)
    offline.define("p", "t", transform={"program": str(file)})
    assert f"chmod +x {file}" in only_line(offline("run", "p", status=2))


def test_no_such_pipeline(offline: Any) -> None:
    offline.define("orders", "t")
    line = only_line(offline("run", "ordres", status=2))
    assert "ordres" in line and "orders" in line


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "", "x" * 300])
def test_names_are_never_paths(offline: Any, name: str) -> None:
    offline.define("orders", "t")
    assert "no pipeline" in only_line(offline("verify", name, status=2))


def test_a_home_that_cannot_be_written(offline: Any, tmp_path: Path) -> None:
    offline.define("p", "t")
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    line = only_line(offline("demo", status=1, KPIPE_HOME=str(blocked / "home")))
    assert str(blocked) in line and "KPIPE_HOME" in line


@pytest.mark.parametrize(
    "arguments",
    [
        ("status",),
        ("run", "p"),
        ("verify", "p"),
        ("errors", "p"),
        ("batches", "p"),
        ("sql", "SHOW PIPELINES"),
        ("broker", "status"),
    ],
)
def test_a_home_that_others_can_write_to(offline: Any, arguments: tuple[str, ...]) -> None:
    offline.define("p", "t")
    offline.home.chmod(0o755)
    offline.home.joinpath("pipelines").chmod(0o777)
    line = only_line(offline(*arguments, status=1))
    assert f"chmod go-w {offline.home / 'pipelines'}" in line and "KPIPE_HOME_WRITERS" in line


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_home_without_permission(offline: Any, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(stat.S_IRUSR | stat.S_IXUSR)
    assert "KPIPE_HOME" in only_line(offline("demo", status=1, KPIPE_HOME=str(locked / "home")))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run",), "NAME"),
        (("run", "p", "--partitions", "1-"), "expected partitions as 0,2-5"),
        (("run", "p", "--partitions", "0-99999999999"), "expected partitions below 2^31"),
        (("run", "p", "--partitions", "0-2000000"), "at most 1,000,000"),
        (("run", "p", "--max-batches", "0"), "max-batches"),
        (("run", "p", "--on-data-loss", "ignore"), "record"),
        (("frobnicate",), "frobnicate"),
        (("audit", "../../x", *_AUDIT), "topic: '../../x' is not a topic's name"),
        (("audit", "t", "--brokers", "", "--type", "parquet", "--database", "x"), "brokers: names no broker"),
        (("audit", "t", *_AUDIT, "--snapshot", "-1"), "--snapshot"),
        (("audit", "t", *_AUDIT, "--snapshot", "99999999999999999999"), "--snapshot"),
        (("audit", "t", *_AUDIT, "--partitions", "0-99999999999"), "expected partitions below 2^31"),
    ],
)
def test_wrong_usage(offline: Any, arguments: tuple[str, ...], words: str) -> None:
    done = offline(*arguments, status=2)
    assert words in done.stderr and "Traceback" not in done.stderr


def test_brokers_that_do_not_answer(offline: Any) -> None:
    """An address that never answered is not retried."""
    offline.define("far", "t", source={"config": {"operation.timeout.ms": 3000}})
    done = offline("run", "far", "--json", status=1)
    line = only_line(done)
    assert "no broker of 127.0.0.1:1 answered within 3 s: connection refused" in line and "source.brokers" in line
    assert json.loads(done.stdout)["status"] == "error"
    state = offline.json("status", "far")[0]
    assert state["lag"] is None and state["high"] == {} and "127.0.0.1:1" in state["last_error"]


def test_a_topic_that_does_not_exist(kpipe: Any) -> None:
    kpipe.define("none", "no-such-topic")
    assert "no-such-topic" in only_line(kpipe("run", "none", status=1))
    state = kpipe.json("status", "none")[0]
    assert state["state"] == "error" and "no-such-topic" in state["last_error"]


def test_offsets_and_partitions_that_do_not_exist(kpipe: Any, topic: Any, write: Any) -> None:
    name = topic(2)
    write(name, ["{}"] * 5)
    kpipe.define("far", name, source={"start": {"0": 99}})
    assert "expected 0 to 5" in only_line(kpipe("run", "far", status=2))
    kpipe.define("more", name, source={"start": {"7": 0}})
    assert "partition 7" in only_line(kpipe("run", "more", status=2))
    kpipe.define("chosen", name)
    assert "9" in only_line(kpipe("run", "chosen", "--partitions", "9", status=2))


def test_a_secret_never_shows(kpipe: Any, topic: Any) -> None:
    name, canary = topic(1), "canary-4711-secret"
    kpipe.define(
        "hidden", name,
        source={
            "config": {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "u",
                "operation.timeout.ms": 700,
            },
            "credentials": {"sasl.password": "{{ env('KPIPE_TEST_SECRET') }}"},
        },
        batch={"max_retries": 0},
    )  # fmt: skip
    for arguments in (("run", "hidden", "--debug"), ("status", "hidden"), ("status", "--json")):
        done = kpipe(*arguments, status=None, KPIPE_TEST_SECRET=canary)
        assert canary not in done.stdout + done.stderr
    for file, data in contents(kpipe.home):
        assert canary.encode() not in data, file


def test_a_spark_that_cannot_run_kpipes_tasks_is_refused_before_anything_is_asked(offline: Any) -> None:
    """No broker is there either, and it is not what the message is about."""
    offline.define("connect", "a")
    line = only_line(offline("run", "connect", status=2, KPIPE_SPARK_MASTER="sc://host:15002/;token=canary-99"))
    assert "KPIPE_SPARK_MASTER" in line and "does not support RDDs" in line and "canary" not in line
