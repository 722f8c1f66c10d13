"""What another run commits between two statements of this one. A catalog in SQLite or PostgreSQL does not exclude it."""

from __future__ import annotations

import pytest

from resources.destinations.ducklake import DuckLakeEngine
from resources.destinations.sql.ledger import ledger_table
from resources.testing.place import batch
from resources.testing.state import begun, positions, proof
from tests.resources.destinations.ducklake_place import DuckLakePlace
from tests.resources.destinations.sql.test_clearing import check_that_new_tables_are_cleared

pytestmark = pytest.mark.parametrize("place", ["postgres"], indirect=True)


def test_the_ledger_is_that_of_one_commit(place: DuckLakePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    destination, lanes = begun(place, 1), ledger_table.lanes

    def overtaken(connection: object, pipeline: str) -> object:
        monkeypatch.undo()
        other = place.open()
        other.commit(batch(place, other.ledger()[1], {0: 3}))
        return lanes(connection, pipeline)  # type: ignore[arg-type]

    reader = place.open()
    monkeypatch.setattr(ledger_table, "lanes", overtaken)
    assert positions(reader) == {0: 0}
    assert positions(destination) == {0: 3}


@pytest.mark.parametrize("read", ["columns", "commit"])
def test_a_table_that_another_run_creates_is_not_missing(
    place: DuckLakePlace, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    """Its rows are in the ledger, and it did not exist a statement before."""
    destination, exists, done = begun(place, 2), DuckLakeEngine.table_exists, list[bool]()
    first, second = (batch(place, destination.ledger()[1], {number: 3}) for number in range(2))

    def overtaken(connection: object, table: str) -> bool:
        found = exists(connection, table)  # type: ignore[arg-type]
        if table == "tweets" and not done:
            done.append(found)
            place.open().commit(first)
        return found

    reader = place.open()
    monkeypatch.setattr(DuckLakeEngine, "table_exists", staticmethod(overtaken))
    if read == "columns":
        assert reader.columns() is None
    else:
        reader.commit(second)
    assert done == [False]
    assert len(place.rows()) == (3 if read == "columns" else 6) and proof(place.open()).ok


def test_a_table_that_another_run_creates_is_cleared(place: DuckLakePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    check_that_new_tables_are_cleared(place, monkeypatch)
