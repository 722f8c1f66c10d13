"""DuckLake's maintenance by another client, between two batches and beside a commit."""

from __future__ import annotations

import threading
from contextlib import suppress

import duckdb
import pytest

from kpipe.errors import Fenced
from resources.testing.place import batch
from resources.testing.state import begun, loaded, proof
from tests.resources.destinations.ducklake_place import DuckLakePlace

_CALLS = (
    "CALL ducklake_flush_inlined_data('elsewhere')",
    "CALL ducklake_merge_adjacent_files('elsewhere')",
    "CALL ducklake_expire_snapshots('elsewhere', older_than => now())",
    "CALL ducklake_cleanup_old_files('elsewhere', cleanup_all => true)",
    "CALL ducklake_delete_orphaned_files('elsewhere', cleanup_all => true)",
)


def test_batches_go_on_after_maintenance(place: DuckLakePlace) -> None:
    """The ledger is then in Parquet files: a change is a delete file, and the fence holds there, too."""
    destination = begun(place, 1)
    for end in (2, 4):
        destination.commit(batch(place, destination.ledger()[1], {0: end}, dead=[(0, end - 1)]))
    for call in _CALLS:
        place.sql(call)
    assert proof(place.open()).ok and len(place.rows()) == 2
    ledger = destination.ledger()[1]
    mine, other = batch(place, ledger, {0: 5}), batch(place, ledger, {0: 6})
    place.open().commit(mine)
    with pytest.raises(Fenced):
        place.open().commit(other)
    assert proof(place.open()).ok and len(place.rows()) == 3


@pytest.mark.chaos
@pytest.mark.parametrize("place", ["postgres"], indirect=True)
@pytest.mark.parametrize("call", _CALLS[:2])
def test_maintenance_beside_a_commit_duplicates_nothing(place: DuckLakePlace, call: str) -> None:
    """The flush of a table while another client inserts has duplicated rows (ducklake#650)."""
    destination, done = loaded(place), threading.Event()

    def maintain() -> None:
        while not done.wait(1):
            with suppress(duckdb.Error):  # DuckLake's own: the flush or the commit goes first
                place.sql(call)

    thread = threading.Thread(target=maintain)
    thread.start()
    try:
        for _ in range(6):
            at = {where.partition: offset for where, offset in destination.ledger()[1].positions().items()}
            destination.commit(batch(place, destination.ledger()[1], {name: offset + 2 for name, offset in at.items()}))
    finally:
        done.set()
        thread.join()
    audit = proof(place.open())
    assert audit.ok, audit.problems
