"""Places without a server that the conformance suite runs in (resources/testing)."""

from __future__ import annotations

import functools
import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from kpipe import failpoints
from kpipe.interfaces import Destination
from kpipe.tables.upsert import KeyRule
from kpipe.testing.memory import MemoryDestination
from kpipe.testing.memory_store import MemoryStore
from resources.destinations.duckdb import DuckDBEngine
from resources.destinations.sql.destination import SqlDestination
from resources.destinations.sql.engine import TargetTable
from resources.testing.place import Place, source


def at(point: str, act: Callable[[], object]) -> None:
    """The act comes when the commit reaches that point for the first time."""
    done: list[object] = []

    def reached(name: str) -> None:
        if name == point and not done:
            done.append(True)
            act()

    failpoints.arm(reached)


class MemoryPlace(Place):
    fingerprints = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.store = MemoryStore()

    def open(self, pipeline: str = "tweets", table: str = "tweets", rule: KeyRule | None = None) -> Destination:
        assert rule is None
        return MemoryDestination(self.store, pipeline, table, lambda file: pq.read_table(file.path).to_pylist())

    def rows(self, table: str = "tweets") -> list[dict[str, Any]]:
        found = self.store.tables.get(table)
        return [{**dict.fromkeys(found.columns.names()), **row} for row in found.rows] if found else []

    def dead_letters(self, pipeline: str = "tweets") -> int:
        return len(self.store.pipelines[pipeline].dead_letters)

    def fail_next(self, fault: str) -> None:
        self.store.fail_next(fault)

    def _at(self, partition: int, offset: int) -> int:
        rows = self.store.tables["tweets"].rows
        return next(i for i, r in enumerate(rows) if (r["_kafka_partition"], r["_kafka_offset"]) == (partition, offset))

    def delete_row(self, partition: int, offset: int) -> None:
        self.store.tables["tweets"].rows.pop(self._at(partition, offset))

    def double_row(self, partition: int, offset: int) -> None:
        rows = self.store.tables["tweets"].rows
        rows.append(rows[self._at(partition, offset)])

    def delete_dead_letter(self) -> None:
        self.store.pipelines["tweets"].dead_letters.pop()

    def move_lane(self, partition: int, to: int) -> None:
        known = self.store.pipelines["tweets"]
        lane = known.ledger.live(source(partition))
        known.ledger = replace(known.ledger, lanes={**known.ledger.lanes, lane.key: lane.advanced(to)})

    def erase_lane(self, partition: int) -> None:
        known = self.store.pipelines["tweets"]
        kept = {key: lane for key, lane in known.ledger.lanes.items() if lane.source != source(partition)}
        known.ledger = replace(known.ledger, lanes=kept)

    def drop_table(self) -> None:
        del self.store.tables["tweets"]


@functools.cache
def _instance(process: int, thread: int) -> duckdb.DuckDBPyConnection:
    """Return this thread's DuckDB; a fork has none of its parent's threads."""
    return duckdb.connect()


@contextmanager
def opened(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Attach a file to a DuckDB that stays, and detach it: a DuckDB of its own would take 15 times the CPU."""
    instance = _instance(os.getpid(), threading.get_ident())
    instance.execute("ATTACH '" + str(path).replace("'", "''") + "'")
    connection = instance.cursor()  # with the settings of a new connection
    try:
        connection.execute(f'USE "{path.stem}"')
        yield connection
    finally:
        connection.close()
        instance.execute(f'DETACH "{path.stem}"')


class DuckDBStatements(Place):
    """What the suite does behind kpipe's back, in DuckDB's SQL."""

    @abstractmethod
    def sql(self, statement: str, *parameters: Any) -> list[tuple]:
        """Execute a statement as another client does."""

    def dead_letters(self, pipeline: str = "tweets") -> int:
        return self.sql("SELECT count(*) FROM kpipe_errors WHERE pipeline_name = ? AND dead_letter", pipeline)[0][0]

    def delete_row(self, partition: int, offset: int) -> None:
        self.sql("DELETE FROM tweets WHERE _kafka_partition = ? AND _kafka_offset = ?", partition, offset)

    def double_row(self, partition: int, offset: int) -> None:
        self.sql("INSERT INTO tweets FROM tweets WHERE _kafka_partition = ? AND _kafka_offset = ?", partition, offset)

    def delete_dead_letter(self) -> None:
        self.sql("DELETE FROM kpipe_errors WHERE rowid = (SELECT min(rowid) FROM kpipe_errors WHERE dead_letter)")

    def move_lane(self, partition: int, to: int) -> None:
        self.sql("UPDATE kpipe_ledger SET next_offset = ? WHERE partition = ? AND lane_end IS NULL", to, partition)

    def erase_lane(self, partition: int) -> None:
        self.sql("DELETE FROM kpipe_ledger WHERE partition = ?", partition)

    def drop_table(self) -> None:
        self.sql("DROP TABLE tweets")


class DuckDBPlace(DuckDBStatements):
    keyed = True
    keeps = True
    failure = duckdb.IOException
    lock_timeout_s: float = 5
    tables_with_defaults = (
        "CREATE SEQUENCE numbers",
        "CREATE TABLE tweets ({columns}, number BIGINT DEFAULT nextval('numbers'), made TIMESTAMP DEFAULT now(),"
        " computed BIGINT GENERATED ALWAYS AS (n * 2) VIRTUAL)",
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = folder / "data" / "kpipe.duckdb"
        self.path.parent.mkdir(exist_ok=True)

    def open(self, pipeline: str = "tweets", table: str = "tweets", rule: KeyRule | None = None) -> Destination:
        engine = DuckDBEngine(self.path, (self.staging,), self.lock_timeout_s)
        return SqlDestination(engine, pipeline, [TargetTable(table, rule)], {"source_type": "KAFKA"})

    def sql(self, statement: str, *parameters: Any) -> list[tuple]:
        with opened(self.path) as connection:
            return connection.execute(statement, list(parameters)).fetchall()

    def rows(self, table: str = "tweets") -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        with opened(self.path) as connection:
            known = connection.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = ?", [table]).fetchall()
            return connection.sql(f'SELECT * FROM main."{table}"').to_arrow_table().to_pylist() if known else []


PLACES: dict[str, type[Place]] = {"memory": MemoryPlace, "duckdb": DuckDBPlace}
