"""Store Dagster's runs, events and schedules in SQLite as Dagster does, with less CPU for each tick and each event.

`dagster.yaml` of a kpipe home names `Storage`; the files and their tables are Dagster's own. Three things differ:

- Engines of SQLAlchemy are kept. Dagster makes one for each statement, which is half of what a statement costs.
- Migrations are checked once for each file and process. Dagster checks them whenever an instance is opened, which compiles
  some 90 files of alembic: 0.08 of the 0.09 s of CPU of a sensor's tick (bench/studies/idle.py).
- Events are stored many in one transaction. Dagster stores each in two of its own, 15 to 25 ms of CPU; it hands over many at
  once only where DAGSTER_EVENT_BATCH_SIZE is set (kpipe_assets/dagster_server/instance.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import sqlalchemy
from dagster._core.events import ASSET_EVENTS
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.runs.sqlite.sqlite_run_storage import SqliteRunStorage
from dagster._core.storage.schedules.sqlite.sqlite_schedule_storage import SqliteScheduleStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS, create_db_conn_string
from dagster._core.storage.sqlite_storage import DagsterSqliteStorage
from dagster._serdes import ConfigurableClassData
from sqlalchemy.pool import NullPool
from typing_extensions import Self

__all__ = ["EventLogStorage", "RunStorage", "ScheduleStorage", "Storage"]

# Each run has a file of its own. The three of all runs are always among the newest.
_ENGINES = 32
_OPTIONS: dict[str, Any] = {"poolclass": NullPool, "connect_args": {"timeout": SQLITE_BUSY_TIMEOUT_SECONDS}}


@lru_cache(_ENGINES)
def _engine(address: str, inode: int) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(address, **_OPTIONS)


def _file(address: str) -> Path:
    return Path(str(sqlalchemy.make_url(address).database))


@contextmanager
def _connection(address: str) -> Iterator[sqlalchemy.Connection]:
    with _engine(address, _file(address).stat().st_ino).connect() as connection, connection.begin():
        yield connection


@lru_cache(_ENGINES)
def _migrated(file: Path, inode: int) -> bool:
    """Return whether Dagster has made the tables of a file. It never changes back."""
    with closing(
        sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=SQLITE_BUSY_TIMEOUT_SECONDS)
    ) as connection:
        try:
            return connection.execute("SELECT version_num FROM alembic_version").fetchone() is not None
        except sqlite3.DatabaseError:
            return False


def _is_ready(file: Path) -> bool:
    try:
        inode = file.stat().st_ino
    except OSError:
        return False
    if _migrated(file, inode):
        return True
    _migrated.cache_clear()
    return False


class RunStorage(SqliteRunStorage):
    """Runs."""

    @classmethod
    def from_local(cls, base_dir: str, inst_data: ConfigurableClassData | None = None) -> Self:
        """Open the file, and make it if it is missing."""
        return _opened(cls, super().from_local, base_dir, "runs", inst_data)

    @contextmanager
    def connect(self) -> Iterator[sqlalchemy.Connection]:
        """Connect, in one transaction."""
        with _connection(self._conn_string) as connection:
            yield connection


class ScheduleStorage(SqliteScheduleStorage):
    """Sensors, their ticks and cursors."""

    @classmethod
    def from_local(cls, base_dir: str, inst_data: ConfigurableClassData | None = None) -> Self:
        """Open the file, and make it if it is missing."""
        return _opened(cls, super().from_local, base_dir, "schedules", inst_data)

    @contextmanager
    def connect(self) -> Iterator[sqlalchemy.Connection]:
        """Connect, in one transaction."""
        with _connection(self._conn_string) as connection:
            yield connection


def _opened(cls: Any, make: Any, base_dir: str, name: str, inst_data: ConfigurableClassData | None) -> Any:
    file = Path(base_dir, f"{name}.db")
    return cls(create_db_conn_string(base_dir, name), inst_data) if _is_ready(file) else make(base_dir, inst_data)


class EventLogStorage(SqliteEventLogStorage):
    """Events: a file for each run, and one of all events of assets."""

    def _initdb(self, engine: sqlalchemy.Engine, for_index_shard: bool = False) -> None:
        if not _is_ready(_file(str(engine.url))):
            super()._initdb(engine, for_index_shard)

    @contextmanager
    def _connect(self, shard: str) -> Iterator[sqlalchemy.Connection]:
        address = self.conn_string_for_shard(shard)
        with self._db_lock:
            if shard not in self._initialized_dbs:
                self._initdb(sqlalchemy.create_engine(address, **_OPTIONS))
                self._initialized_dbs.add(shard)
            with _connection(address) as connection:
                yield connection

    def has_table(self, table_name: str) -> bool:
        """Return whether the index of all runs has that table. Takes no lock: Dagster calls it inside a transaction."""
        with _connection(self.conn_string_for_shard("index")) as connection:
            return bool(sqlalchemy.inspect(connection).has_table(table_name))

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        """Store what `store_event` stores for each, in the same order of files: the run's own, then the index of all runs.

        In each file all of them are stored, or none. Where the second fails, Dagster stores the events one by one: the run's
        page then shows them twice, those of assets and partitions once.
        """
        of_assets = [event for event in events if _of_asset(event)]
        rows = [self._event_to_row(event) for event in of_assets]
        for run in dict.fromkeys(event.run_id for event in of_assets):
            with self.run_connection(run) as connection:
                connection.execute(SqlEventLogStorageTable.insert(), [row for row in rows if row["run_id"] == run])
        if rows:
            with self.index_connection() as connection:
                ids = [connection.execute(SqlEventLogStorageTable.insert(), row).lastrowid for row in rows]
                self._store_asset_event_tags(connection, of_assets, ids)
                # A row for each asset describes its newest event of each kind: only the last of them stays.
                last = {(event.get_dagster_event().asset_key, event.dagster_event_type): at for at, event in enumerate(of_assets)}
                for at in sorted(last.values()):
                    self._store_asset_event(connection, of_assets[at], ids[at])
        for event in events:
            if not _of_asset(event):  # planned checks: a few
                self.store_event(event)


def _of_asset(event: EventLogEntry) -> bool:
    return event.is_dagster_event and event.dagster_event_type in ASSET_EVENTS


class Storage(DagsterSqliteStorage):
    """All three, in the folders that Dagster's own storage has."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        self.base_dir = base_dir
        history = Path(base_dir, "history")
        self._run_storage = RunStorage.from_local(str(history))
        self._event_log_storage = EventLogStorage(str(history / "runs"))
        self._schedule_storage = ScheduleStorage.from_local(str(Path(base_dir, "schedules")))
        self._inst_data = inst_data
        super(DagsterSqliteStorage, self).__init__()

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> Self:
        """Open the storage that `dagster.yaml` names."""
        return cls.from_local(config_value["base_dir"], inst_data)
