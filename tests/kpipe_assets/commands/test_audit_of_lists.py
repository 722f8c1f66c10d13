"""`kpipe audit` on a table with several rows of a record: the column that numbers them distinguishes them from duplicates."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.commandline import Kpipe

pytestmark = pytest.mark.broker


def test_rows_of_lists_are_told_from_duplicates(
    tmp_path: Path, brokers: str, topic: Callable[..., str], write: Callable[..., int]
) -> None:
    command, name, file = Kpipe(tmp_path / "home", brokers), topic(), tmp_path / "lake.duckdb"
    write(name, [b"{}"] * 3)
    with duckdb.connect(str(file)) as connection:
        connection.execute("CREATE TABLE lines (_partition INT, _offset BIGINT, n INT)")
        connection.execute("INSERT INTO lines SELECT 0, t.o, s.n FROM range(3) AS t(o), range(1, 3) AS s(n)")

    def run(subcommand: str, *options: str, status: int = 0) -> Any:
        place = ("--type", "duckdb", "--database", str(file), "--table", "lines")
        return command(subcommand, name, "--brokers", brokers, *place, *options, status=status)

    said = run("audit", status=1).stderr
    assert "3 offsets: more than one row" in said and "(--ordinality-column)" in said
    found = json.loads(run("audit", "--ordinality-column", "n", "--json").stdout.splitlines()[-1])
    assert (found["verdict"], found["rows"]["further"], found["misnumbered"]) == ("explained", 3, [])
    with duckdb.connect(str(file)) as connection:
        connection.execute("INSERT INTO lines VALUES (0, 1, 2)")
    said = run("audit", "--ordinality-column", "n", status=1).stderr
    assert "partition 0, offset 1: 3 rows, numbers 1 to 2" in said and "problem: 1 record: rows are not numbered" in said
    assert "not available with --key" in run("audit", "--ordinality-column", "n", "--key", "n", status=2).stderr
