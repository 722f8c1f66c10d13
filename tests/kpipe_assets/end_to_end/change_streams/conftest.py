"""A real Debezium, and the databases that it reads (`make cdc`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kpipe_assets.end_to_end.change_streams.sources import MariaSource
from tests.servers.debezium import DebeziumServer
from tests.servers.mariadb import MariaServer
from tests.servers.postgres import PostgresServer


@pytest.fixture(scope="module")
def debezium(brokers: str) -> Iterator[DebeziumServer]:
    with DebeziumServer(brokers) as server:
        yield server


@pytest.fixture(scope="module")
def postgres_source(debezium: DebeziumServer) -> Iterator[PostgresServer]:
    with PostgresServer(wal_level="logical", wal_sender_timeout="10s") as server:
        yield server


@pytest.fixture(scope="module")
def mariadb_source(debezium: DebeziumServer) -> Iterator[MariaServer]:
    with MariaServer(*MariaSource.BINARY_LOG) as server:
        yield server
