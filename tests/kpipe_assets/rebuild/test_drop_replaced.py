"""`kpipe rebuild NAME --drop-replaced` drops what the exchange has replaced, whatever was edited since."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidStatement
from kpipe.rebuild.definitions import renamed
from kpipe_assets.rebuild import steps
from resources.home import Home
from resources.testing.place import batch, begin
from tests.resources.destinations.place import DuckDBPlace

FIELDS: dict[str, Any] = {
    "name": "orders", "source": {"brokers": "localhost:1", "topic": "orders"}, "columns": {"id": "BIGINT"},
}  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home after an exchange; another table has the name that the edited definition would give the old one."""
    place = DuckDBPlace(tmp_path)
    made = Home.at(tmp_path / "home")
    live = Pipeline.model_validate({**FIELDS, "into": {"table": "orders", "database": str(place.path)}})
    old = place.open("orders_replaced", "orders_replaced")
    old.commit(begin("orders_replaced", (0,)))
    old.commit(batch(place, old.ledger()[1], {0: 2}))
    place.sql("CREATE TABLE orders2_replaced AS SELECT 'mine' AS x")
    made.save(live)
    made.save(renamed(live))
    made.keep("orders_replaced", "exchanged", {"uid": old.ledger()[0]})
    return made


def tables(home: Home) -> set[str]:
    with duckdb.connect(home.pipeline("orders").into.database or "", read_only=True) as connection:
        return {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}


def edited(home: Home, name: str, table: str) -> None:
    pipeline = home.pipeline(name)
    home.save(pipeline.model_copy(update={"into": pipeline.into.model_copy(update={"table": table})}))


def test_after_an_edit_of_the_table(home: Home) -> None:
    edited(home, "orders", "orders2")
    steps.drop_replaced(home, "orders")
    assert "orders2_replaced" in tables(home) and "orders_replaced" not in tables(home)
    assert home.names() == ("orders",)


def test_a_table_of_the_user_is_refused(home: Home) -> None:
    edited(home, "orders_replaced", "orders2_replaced")
    with pytest.raises(InvalidStatement, match="table orders2_replaced: pipeline orders_replaced has not written it"):
        steps.drop_replaced(home, "orders")
    assert {"orders2_replaced", "orders_replaced"} <= tables(home)
    assert home.names() == ("orders", "orders_replaced")


def test_rows_that_no_pipeline_has_written_are_kept(home: Home) -> None:
    path = home.pipeline("orders").into.database or ""
    with duckdb.connect(path) as connection:
        connection.execute("INSERT INTO orders_replaced (id) VALUES (777), (778)")
    with pytest.raises(InvalidStatement, match="orders_replaced: no pipeline has written 2 of its rows; nothing was") as refused:
        steps.drop_replaced(home, "orders")
    assert "drop table orders_replaced by hand" in refused.value.hint
    assert "orders_replaced" in tables(home) and home.names() == ("orders", "orders_replaced")
    with duckdb.connect(path) as connection:
        connection.execute("DROP TABLE orders_replaced")
    steps.drop_replaced(home, "orders")
    assert home.names() == ("orders",)


@pytest.mark.parametrize("record", [None, {"old": "of an earlier exchange", "uid": "b", "seq": 1}])
def test_a_pipeline_of_the_user_with_that_name_is_kept(home: Home, record: dict[str, Any] | None) -> None:
    home.keep("orders_replaced", "exchanged", None)
    home.keep("orders", "replaced", record)
    with pytest.raises(InvalidStatement, match="orders_replaced: no exchange of orders has replaced its ledger"):
        steps.drop_replaced(home, "orders")
    assert "orders_replaced" in tables(home) and home.names() == ("orders", "orders_replaced")
    with pytest.raises(InvalidStatement, match="pipeline orders_replaced exists") as taken:
        steps.begin(home, "orders", None)
    assert "DROP PIPELINE orders_replaced" in taken.value.hint and "--drop-replaced" not in taken.value.hint


def test_a_table_that_an_older_kpipe_has_replaced_is_dropped(home: Home) -> None:
    uid = (home.kept("orders_replaced", "exchanged") or {})["uid"]
    home.keep("orders_replaced", "exchanged", None)
    home.keep("orders", "replaced", {"old": uid, "uid": "b", "seq": 1})
    home.seen("orders_replaced").note(uid, 2)
    with pytest.raises(InvalidStatement, match="pipeline orders_replaced exists") as taken:
        steps.begin(home, "orders", None)
    assert taken.value.hint == "kpipe rebuild orders --drop-replaced"
    steps.drop_replaced(home, "orders")
    assert "orders_replaced" not in tables(home) and home.names() == ("orders",)
    assert home.kept("orders_replaced", "exchanged") is None
