"""TRUNCATE TABLE names a statement that reads the rows again, and that is not refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.planning.seek import backfills, set_offsets
from kpipe.sql.statements import Truncate
from kpipe.topics import PartitionState, TopicSnapshot
from kpipe_assets.statements.clearing import truncate
from resources.home import Home
from resources.testing.place import batch, begin, source
from tests.resources.destinations.place import DuckDBPlace

KEYED = {"on_conflict": "replace", "key": ["id"], "on_null": "delete"}


@pytest.mark.parametrize(
    ("cleared", "more", "statement"),
    [
        (["a"], {}, "BACKFILL PIPELINE tweets reads them again, into table b"),
        (["b"], {}, "BACKFILL PIPELINE tweets reads them again"),
        (
            ["a"],
            KEYED,
            "ALTER PIPELINE tweets SET OFFSETS EARLIEST REREAD reads all records again, also those of the rows"
            " that another table still has, into table b",
        ),
        (["a", "b"], {}, "ALTER PIPELINE tweets SET OFFSETS EARLIEST reads them again"),
    ],
)
def test_the_statement_after_an_edit_of_the_table(tmp_path: Path, cleared: list[str], more: Any, statement: str) -> None:
    place, home = DuckDBPlace(tmp_path), Home.at(tmp_path / "home").make()
    place.open(table="a").commit(begin("tweets", (0,)))
    for table, end in (("a", 50), ("b", 100)):
        destination = place.open(table=table)
        destination.commit(batch(place, destination.ledger()[1], {0: end}))
    into = {"type": "duckdb", "database": str(place.path), "table": "b", **more}
    formats = {"key_format": {"type": "json"}, "columns": {"id": "BIGINT", "text": "VARCHAR"}} if more else {}
    topic = {"brokers": "b:9092", "topic": "tweets"}
    home.save(Pipeline.model_validate({"name": "tweets", "source": topic, "into": into, **formats}))
    said = [truncate(home, Truncate(table)).message for table in cleared][-1]
    assert f"; {statement}" in said and ("into table" in statement) == (cleared == ["a"]), said
    ledger, snapshot = place.open(table="b").ledger()[1], TopicSnapshot({source(0): PartitionState(0, 100, 100, 0)})
    decisions = (
        set_offsets(ledger, snapshot, {source(0): 0}, "REREAD" in said)
        if "SET OFFSETS" in said
        else backfills(ledger, snapshot)[0]
    )
    assert decisions
