"""A run that follows a topic takes passwords that are replaced in its database and in a file, in either order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from tests.patience import looks
from tests.servers.mariadb import MariaServer
from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.spark

OLD, NEW, LAST = "canary-old-1a", "canary-new-2b", "canary-last-3c"


def rows(start: int, end: int) -> list[str]:
    return [json.dumps({"id": n}) for n in range(start, end)]


def replace(file: Path, text: str) -> None:
    """As Kubernetes does: the path never lacks a file."""
    fresh = file.with_suffix(".new")
    fresh.write_text(f"{text}\n")
    fresh.rename(file)


@pytest.fixture(params=["postgres", "mysql"])
def place(request: pytest.FixtureRequest) -> tuple[dict[str, Any], Callable[[str], None], Callable[[], int]]:
    """`into` without credentials, a way to change the password, and a count of the rows that are there."""
    role = f"r{os.urandom(4).hex()}"
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        schema = postgres.schema()
        postgres.sql(f"CREATE ROLE {role} LOGIN PASSWORD '{OLD}'")
        postgres.sql(f"GRANT ALL ON SCHEMA {schema} TO {role}")
        address = f"postgresql://{role}@127.0.0.1:{postgres.port}/postgres?options=-csearch_path%3D{schema}"

        def count() -> int:
            try:
                return int(postgres.sql(f"SELECT count(*) FROM {schema}.orders")[0][0])
            except psycopg.errors.UndefinedTable:
                return 0

        return (
            {"type": "postgres", "database": address},
            lambda password: [postgres.sql(f"ALTER ROLE {role} PASSWORD '{password}'"), None][1],
            count,
        )
    mariadb: MariaServer = request.getfixturevalue("mariadb")
    database = mariadb.database()
    mariadb.sql(f"CREATE USER {role}@'%' IDENTIFIED BY '{OLD}'")
    mariadb.sql(f"GRANT ALL ON {database}.* TO {role}@'%'")

    def count_mysql() -> int:
        try:
            return int(mariadb.sql(f"SELECT count(*) FROM {database}.orders")[0][0])
        except pymysql.err.ProgrammingError:
            return 0

    return (
        {"type": "mysql", "database": f"mysql://{role}@127.0.0.1:{mariadb.port}/{database}"},
        lambda password: mariadb.sql(f"SET PASSWORD FOR {role}@'%' = PASSWORD('{password}')"),
        count_mysql,
    )


def test_a_run_goes_on_with_a_password_that_was_replaced(kpipe: Any, topic: Any, write: Any, place: Any, tmp_path: Path) -> None:
    into, change, count = place
    file = tmp_path / "password"
    replace(file, OLD)
    name = topic(1)
    write(name, rows(0, 5))
    credentials = {"password": f"{{{{ file('{file}') }}}}"}
    kpipe.define(
        "orders", name, into={**into, "table": "orders", "credentials": credentials},
        batch={"interval_ms": 100, "max_retries": 100, "retry_interval_ms": 200, "max_retry_interval_ms": 500},
    )  # fmt: skip
    process = kpipe.start("run", "orders", "--follow", "--json")
    try:
        until(process, lambda: count() == 5)
        replace(file, NEW)  # the file first
        write(name, rows(5, 7))
        time.sleep(1)
        change(NEW)
        until(process, lambda: count() == 7)
        change(LAST)  # the database first
        write(name, rows(7, 9))
        time.sleep(1)
        replace(file, LAST)
        until(process, lambda: count() == 9)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 0, err
    found = [out, err, *(path.read_text(errors="replace") for path in (kpipe.home / "logs").rglob("*") if path.is_file())]
    assert not [secret for secret in (OLD, NEW, LAST) if any(secret in text for text in found)]
    assert kpipe.json("verify", "orders")[0]["ok"]


def until(process: subprocess.Popen[str], true: Callable[[], bool]) -> None:
    for _ in looks(600, 0.1):
        if true():
            return
        assert process.poll() is None, process.communicate()
    raise AssertionError("not within 600 s")
