"""docs/tutorial/postgres-to-lake.md: its blocks, in their order, with a real PostgreSQL, a real Debezium and a real lake."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.commandline import Kpipe
from tests.servers.debezium import DebeziumServer
from tests.servers.postgres import PASSWORD, PostgresServer

PAGE = (Path(__file__).parents[3] / "docs" / "tutorial" / "postgres-to-lake.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [body for name, body in BLOCKS if name == language]


class Tour:
    """The page with the test's names, addresses and folder.

    Args:
        kpipe: the command line.
        server: the source.
        folder: of the lake.
    """

    def __init__(self, kpipe: Kpipe, server: PostgresServer, folder: Path) -> None:
        self.kpipe, self.server, self.schema, self.lake = kpipe, server, server.schema(), folder / "lake"
        self.prefix = f"shop{uuid.uuid4().hex[:8]}"
        self.topic = f"{self.prefix}.{self.schema}.customers"

    def source(self, text: str) -> None:
        """Execute statements in PostgreSQL."""
        with self.server.admin() as connection:
            connection.execute(f"SET search_path = {self.schema}")
            for statement in text.split(";"):
                if statement.strip():
                    connection.execute(statement)

    def statement(self, text: str) -> None:
        """Execute a statement of kpipe."""
        text = text.replace("shop.public.customers", self.topic).replace("localhost:9092", self.kpipe.brokers)
        self.kpipe("sql", text.replace("/data/lake", str(self.lake)))

    def read(self) -> str:
        """What the page's program prints."""
        program = blocks("python")[0].replace("/data/lake", str(self.lake))
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=600)
        return done.stdout

    def loaded(self, wanted: str) -> None:
        """Run until the lake has these rows: Debezium writes when it can."""
        deadline, found = time.monotonic() + 600, ""
        while found != wanted:
            assert time.monotonic() < deadline, found
            done = self.kpipe("run", "customers", status=None)
            assert done.returncode == 0 or "does not exist" in done.stderr, done.stderr
            found = self.read() if (self.lake / "catalog.db").exists() else ""
        assert self.kpipe.json("verify", "customers")[0]["ok"]


@pytest.mark.spark
@pytest.mark.chaos
def test_the_lake_follows_the_source_as_the_page_shows(kpipe: Kpipe, tmp_path: Path) -> None:
    prepare, create, change, empty, again, behind = blocks("sql")
    first, second, third = blocks("text")
    with DebeziumServer(kpipe.brokers) as debezium, PostgresServer(wal_level="logical", wal_sender_timeout="10s") as server:
        tour = Tour(kpipe, server, tmp_path)
        tour.source(prepare)
        own: dict[str, Any] = {
            "database.hostname": "127.0.0.1", "database.port": str(server.port), "database.user": "admin",
            "database.password": PASSWORD, "database.dbname": "postgres", "topic.prefix": tour.prefix,
            "table.include.list": f"{tour.schema}.customers", "slot.name": tour.prefix, "publication.name": tour.prefix,
            "topic.creation.default.replication.factor": "1", "topic.creation.default.partitions": "1",
        }  # fmt: skip
        debezium.connector("customers", {**json.loads(blocks("json")[0]), **own})
        tour.statement(create)
        tour.loaded(first)
        tour.source(change)
        tour.loaded(second)

        tour.source(
            "ALTER TABLE customers ALTER COLUMN notes SET STORAGE EXTERNAL;"
            f"UPDATE customers SET notes = '{'x' * 9000}' WHERE id = 1"
        )
        large = second.replace("early", "x" * 9000)
        tour.loaded(large)
        tour.source("UPDATE customers SET balance = 12 WHERE id = 1")  # Debezium leaves out the notes
        tour.loaded(large.replace("11.75", "12.00"))
        tour.source(empty)
        tour.loaded(third)

        tour.source(f"INSERT INTO customers VALUES (1, 'Ada', '{'x' * 9000}', 12)")
        more = f"1 Ada {'x' * 9000} 12.00\n"
        tour.loaded(more + third)
        tour.source("UPDATE customers SET id = 6 WHERE id = 1")
        deadline, failed = time.monotonic() + 600, ""
        while "offset" not in failed:
            assert time.monotonic() < deadline
            time.sleep(1)
            failed = kpipe("run", "customers", status=None).stderr
        assert "an update left out notes, which it did not change" in failed and "REPLICA IDENTITY FULL" in failed
        found = re.search(r"offset ([\d,]+)", failed)
        assert found is not None, failed
        tour.source(again)
        tour.statement(behind.replace("17", str(int(found[1].replace(",", "")) + 1)))
        tour.loaded(third + more.replace("1 Ada", "6 Ada", 1))
