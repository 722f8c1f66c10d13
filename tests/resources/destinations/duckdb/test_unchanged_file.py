"""What was read of a DuckDB file is read again only if the file has changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import pytest

from kpipe.errors import LedgerMismatch
from resources.duckdb_engine.file_connection import Connection, Database
from resources.testing.place import batch
from resources.testing.state import loaded
from tests.resources.destinations.place import DuckDBPlace


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The accesses to files, as they happen."""
    found: list[str] = []

    def counting(name: str) -> Any:
        method = getattr(Database, name)

        @contextmanager
        def count(self: Database, *args: Any, **options: Any) -> Iterator[Connection]:
            found.append(name)
            with method(self, *args, **options) as connection:
                yield connection

        return count

    for name in ("read", "write"):
        monkeypatch.setattr(Database, name, counting(name))
    return found


def test_a_commit_opens_the_file_to_write_and_to_read_back_and_leaves_nothing_to_read(
    place: DuckDBPlace, opened: list[str]
) -> None:
    destination: Any = loaded(place)
    before = destination.ledger()[1]
    opened.clear()
    done = destination.commit(batch(place, before, {0: 12}))
    assert opened == ["write", "read"]
    assert destination.ledger()[1].seq == done.seq and destination.columns()
    assert opened == ["write", "read"]
    assert place.open().ledger() == destination.ledger() and place.open().columns() == destination.columns()


def test_changes_of_other_clients_are_read(place: DuckDBPlace) -> None:
    destination: Any = loaded(place)
    destination.commit(batch(place, destination.ledger()[1], {0: 12}))
    (table,) = {table.name for table in destination.store.tables}
    with duckdb.connect(str(destination.engine.database.path)) as other:
        other.execute(f"ALTER TABLE {table} ADD COLUMN by_hand INTEGER")
    columns = destination.columns()
    assert columns is not None and "by_hand" in columns
    with duckdb.connect(str(destination.engine.database.path)) as other:
        other.execute("UPDATE kpipe_ledger SET next_offset = next_offset + 1")
    with pytest.raises(LedgerMismatch):
        destination.ledger()


def test_a_replaced_or_missing_file_is_read(place: DuckDBPlace) -> None:
    destination: Any = loaded(place)
    path = destination.engine.database.path
    old = path.read_bytes()
    before = destination.ledger()[1]
    destination.commit(batch(place, before, {0: 12}))
    path.write_bytes(old)
    assert destination.ledger()[1] == before
    path.unlink()
    assert destination.ledger()[0] == "" and destination.columns() is None


def test_a_file_with_a_log_beside_it_is_read(place: DuckDBPlace) -> None:
    """Its newest commits are in the log."""
    destination: Any = loaded(place)
    destination.commit(batch(place, destination.ledger()[1], {0: 12}))
    database = destination.engine.database
    assert database.state() is not None
    database.path.with_name(f"{database.path.name}.wal").touch()
    assert database.state() is None
