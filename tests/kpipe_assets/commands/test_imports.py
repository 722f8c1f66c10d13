"""Modules that a command does not import: they are most of its time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kpipe.definition.pipeline import Into, Pipeline, Source
from resources.home import Home
from tests.cases import each_case

RUN = """
import sys
from kpipe_assets.cli import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    print("status", ended.code)
print("modules", *sorted(sys.modules))
"""
ENGINES = "dagster pyspark pandas deltalake pyiceberg boto3 sqlglot pyarrow numpy"

# What each command does not import, and its exit status.
CASES = [
    (("--help",), f"{ENGINES} lark duckdb rich pydantic psutil confluent_kafka", 0),
    (("status", "--json"), f"{ENGINES} lark rich psutil", 0),
    (("status",), f"{ENGINES} lark psutil", 0),
    (("sql", "--json", "-e", "SHOW PIPELINES"), f"{ENGINES} rich psutil confluent_kafka", 0),
    (("sql", "-e", "STOP PIPELINE IF RUNNING p"), f"{ENGINES} rich", 0),
    (("verify", "--json", "p"), f"{ENGINES} lark rich psutil confluent_kafka", 2),
    (("errors", "--json", "p"), f"{ENGINES} lark psutil confluent_kafka", 0),
    (("run", "--json", "p"), f"{ENGINES} lark rich psutil urllib3", 1),
    (("batches", "--json", "p"), f"{ENGINES} lark rich psutil confluent_kafka", 0),
]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home.at(tmp_path / "home").make()
    source = Source(brokers="127.0.0.1:1", topic="t", config={"operation.timeout.ms": 300})
    found.save(Pipeline(name="p", source=source, columns={"id": "BIGINT"}, into=Into(table="p")))
    return found


@each_case(("arguments", "without", "status"), CASES)
def test_a_command_imports_only_what_it_needs(home: Home, arguments: tuple[str, ...], without: str, status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        env={**os.environ, "KPIPE_HOME": str(home.path)}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    *_, ended, modules = done.stdout.splitlines()
    assert ended == f"status {status}", done.stdout + done.stderr
    loaded = {name.partition(".")[0] for name in modules.split()}
    assert sorted(loaded & set(without.split())) == []
