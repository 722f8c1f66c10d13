"""PostgreSQL has no room left: an error that says so, nothing written, and the next try lands once there is room."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kpipe.errors import DestinationBusy
from kpipe.schema.columns import Columns
from resources.testing.place import batch
from resources.testing.state import begun, positions, proof
from tests.resources.destinations.postgres_place import PostgresPlace
from tests.servers.postgres import PostgresServer


@pytest.fixture
def small(postgres: PostgresServer, tmp_path: Path) -> Iterator[Path]:
    """A tablespace of 6 MB, in which the tables of the role are made."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    disk = postgres.folder / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(disk)], check=False, capture_output=True).returncode:
        disk.rmdir()
        pytest.skip("a tmpfs cannot be mounted here")
    shutil.chown(disk, "postgres", "postgres")
    try:
        postgres.sql(f"CREATE TABLESPACE small LOCATION '{disk}'")
        postgres.sql("GRANT CREATE ON TABLESPACE small TO PUBLIC")
        postgres.sql("ALTER ROLE loader SET default_tablespace = small")
        yield disk
    finally:
        postgres.sql("ALTER ROLE loader RESET default_tablespace")
        for (schema,) in postgres.sql("SELECT DISTINCT schemaname FROM pg_tables WHERE tablespace = 'small'"):
            postgres.sql(f"DROP SCHEMA {schema} CASCADE")
        postgres.sql("DROP TABLESPACE small")
        subprocess.run(["umount", str(disk)], check=True)
        disk.rmdir()


def test_full_disk(postgres: PostgresServer, small: Path, tmp_path: Path) -> None:
    place = PostgresPlace(tmp_path, postgres)
    destination = begun(place, 1)
    columns, done = Columns.of({"text": "VARCHAR"}), 0
    with pytest.raises(DestinationBusy, match="No space left on device") as caught:
        for end in range(20, 4000, 20):
            commit = batch(place, destination.ledger()[1], {0: end}, columns, {"text": os.urandom(4000).hex()})
            destination.commit(commit)
            done = end
    assert caught.value.retriable and "free some" in str(caught.value)
    assert done and positions(destination) == {0: done} and len(place.rows()) == done and proof(destination).ok
    subprocess.run(["mount", "-o", "remount,size=40m", str(small)], check=True)
    destination.commit(commit)
    assert positions(destination) == {0: done + 20} and len(place.rows()) == done + 20 and proof(destination).ok
