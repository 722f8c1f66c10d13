"""The lock of a DuckDB file: waited for, and its holder named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kpipe import failpoints
from kpipe.errors import (
    DestinationBusy,
    OutcomeUnknown,
)
from resources.testing.place import batch
from resources.testing.state import begun, loaded, positions, proof
from tests.resources.destinations.place import DuckDBPlace

HOLD = """
import duckdb, sys, time
connection = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "read")
print("held", flush=True)
time.sleep(3600)
"""


def opened(place: DuckDBPlace) -> Any:
    """A destination that remembers nothing of the file, and so has to open it."""
    return place.open()


@contextmanager
def held(path: Path, mode: str = "write") -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path), mode], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        try:
            yield holder
        finally:
            holder.kill()


@pytest.mark.parametrize("mode", ["write", "read"])
def test_held_lock_is_waited_for_then_names_its_holder(place: DuckDBPlace, mode: str) -> None:
    destination = loaded(place)
    commit = batch(place, destination.ledger()[1], {0: 12})
    destination.engine.database.lock_timeout_s = 0.3
    with held(place.path, mode) as holder:
        with pytest.raises(DestinationBusy, match=rf"python.*\(PID {holder.pid}\); waited 0.3 s") as caught:
            destination.commit(commit)
        assert caught.value.retriable
        other = opened(place)
        other.engine.database.lock_timeout_s = 0.3
        if mode == "write":
            with pytest.raises(DestinationBusy, match=str(holder.pid)):
                other.ledger()
        else:
            assert positions(other) == {0: 10, 1: 5}
    destination.commit(commit)
    assert proof(destination).ok


def test_lock_that_is_let_go_in_time_is_no_error(place: DuckDBPlace) -> None:
    destination = loaded(place)
    with held(place.path) as holder:
        destination.engine.database.lock_timeout_s = 300
        with subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -9 {holder.pid}"]):
            destination.commit(batch(place, destination.ledger()[1], {0: 12}))
    assert positions(destination)[0] == 12


def test_connection_of_the_same_process_is_busy_too_and_keeps_its_settings(place: DuckDBPlace) -> None:
    loaded(place)
    destination = opened(place)
    destination.engine.database.lock_timeout_s = 0.1
    with duckdb.connect(str(place.path)) as mine:
        with pytest.raises(DestinationBusy, match="this process"):
            destination.ledger()
        assert mine.execute("SELECT current_setting('lock_configuration')").fetchone() == (False,)
    assert destination.ledger()[1].seq == 2


def test_file_is_free_between_calls(place: DuckDBPlace) -> None:
    destination = begun(place)
    for end in (1, 2, 3):
        destination.commit(batch(place, destination.ledger()[1], {0: end}))
        code = f"import duckdb; print(duckdb.connect({str(place.path)!r}).execute('SELECT count(*) FROM tweets').fetchone()[0])"
        assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == str(end)


def test_reading_back_that_is_kept_out_is_unknown(place: DuckDBPlace) -> None:
    """The answer of COMMIT is never believed, also when it is yes."""
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 10})
    destination.engine.database.lock_timeout_s = 0.2
    holders = []

    def reached(point: str) -> None:
        if point == "readback":
            holders.append(
                subprocess.Popen([sys.executable, "-c", HOLD, str(place.path), "write"], stdout=subprocess.PIPE, text=True)
            )
            holders[0].stdout.readline()

    failpoints.arm(reached)
    try:
        with pytest.raises(OutcomeUnknown, match="cannot be read back"):
            destination.commit(commit)
    finally:
        failpoints.arm(None)
        for holder in holders:
            holder.kill()
            holder.communicate()
    assert place.open().commit(commit).seq == 2 and len(place.rows()) == 10
