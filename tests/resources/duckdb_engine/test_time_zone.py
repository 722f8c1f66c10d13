"""The zone of every engine is UTC, whatever the machine's zone is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kpipe.schema.columns import Columns, Scalar
from kpipe.sql.parser import read
from kpipe.sql.statements import Query
from kpipe_assets.sensors.sensor_state import SensorStates
from kpipe_assets.statements.queries import query
from resources.destinations.sql.merge.conflict_expressions import assignments, folded
from resources.destinations.sql.staged_reader import reader
from resources.duckdb_engine.file_connection import Connection, Database
from resources.duckdb_engine.sandbox import closed
from resources.home import Home

ENGINES: dict[str, Callable[[Path], AbstractContextManager[Connection]]] = {
    "closed": lambda folder: closed((), ()),
    "cursor": lambda folder: closed((), ()).cursor(),
    "file": lambda folder: Database(folder / "a.duckdb", ()).write(),
    "staged files": lambda folder: reader([folder]),
}


@pytest.fixture(autouse=True)
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("kind", ENGINES)
def test_times_are_utc(kind: str, tmp_path: Path) -> None:
    with ENGINES[kind](tmp_path) as connection:
        found = connection.execute("SELECT current_setting('TimeZone'), TIMESTAMPTZ '2026-01-01 00:00:00+00'::VARCHAR").fetchone()
        assert found == ("UTC", "2026-01-01 00:00:00+00")


@pytest.mark.parametrize("kind", ENGINES)
def test_an_update_keeps_the_time(kind: str, tmp_path: Path) -> None:
    known = Columns((("id", Scalar("BIGINT")), ("seen", Scalar("TIMESTAMP WITH TIME ZONE"))))
    update = {"seen": "mysql: GREATEST(seen, VALUES(seen))"}
    later = folded(known, assignments(update, known.names(), ("id",), known, "t").values, "nth")
    rows = "(0, 1, TIMESTAMPTZ '2026-01-01 02:00:00+00'), (1, 1, TIMESTAMPTZ '2026-01-01 03:00:00+00')"
    with ENGINES[kind](tmp_path) as connection:
        found = connection.execute(
            f"SELECT epoch_us(({later}).seen) FROM (SELECT nth, struct_pack(id := id, seen := seen) AS v"
            f" FROM (VALUES {rows}) AS x(nth, id, seen))"
        ).fetchone()
    assert found == (1767236400000000,), "2026-01-01 03:00 UTC"


def test_a_query_before_the_first_commit_is_in_utc(tmp_path: Path) -> None:
    home = Home(tmp_path).make()
    statement = read("SELECT current_setting('TimeZone')")
    assert isinstance(statement, Query)
    assert [list(result.rows) for result in query(home, SensorStates(home), statement)] == [[("UTC",)]]
