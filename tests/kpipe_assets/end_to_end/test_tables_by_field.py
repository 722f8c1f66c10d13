"""A table for each value of a record's field: real Kafka, real Spark, a real database, and the command line."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import pytest

from tests.survival.small import killed

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def events(kind: str, start: int, end: int, **more: Any) -> list[str]:
    return [json.dumps({"id": number, "type": kind, **more}) for number in range(start, end)]


def proven(kpipe: Any, name: str = "events", **expected: Any) -> dict[str, Any]:
    (found,) = kpipe.json("verify", name)
    assert found["ok"] and not found["problems"], found
    assert {key: found[key] for key in expected} == expected
    return dict(found)


def tables(kpipe: Any, like: str = "e_%") -> list[str]:
    query = f"SELECT table_name FROM duckdb_tables() WHERE table_name LIKE '{like}' ORDER BY 1"
    return [name for (name,) in kpipe.sql(query)]


def test_values_of_a_field_with_a_kill_between_two_tables(kpipe: Any, topic: Any, write: Any) -> None:
    name = topic(2)
    hostile = [
        json.dumps({"id": -1, "type": kind})
        for kind in (None, "", "a b", 'x"; DROP TABLE e_order; --', "Order", "ÄÖ", "x" * 70, ["a"], {"a": 1})
    ]
    write(name, [*events("order", 0, 20, price=1.5), *hostile[:5]], 0)
    write(name, [*events("click", 0, 7, page="/"), "no json", '{"id": 1}', *hostile[5:]], 1)
    definition = {"table": "e_{field.type}", "max_tables": 3}
    kpipe.define("events", name, into=definition)
    killed(kpipe.home, "events", "commit.table:2")
    assert tables(kpipe) == []
    batch, summary = kpipe.json("run", "events")
    assert (summary["rows"], summary["dead_letters"]) == (27, 11)
    assert {key: rows["rows"] for key, rows in batch["targets"].items()} == {"e_click": 7, "e_order": 20}
    assert tables(kpipe) == ["e_click", "e_order"]
    assert [row[0] for row in kpipe.sql("DESCRIBE e_click")][:3] == ["id", "type", "page"]
    assert kpipe.sql("SELECT count(price), min(type), max(type) FROM e_order") == [(20, "order", "order")]
    found = proven(kpipe, rows=27, dead_letters=11, span=38)
    assert found["targets"] == {"e_click": {"rows": 7, "rows_found": 7}, "e_order": {"rows": 20, "rows_found": 20}}
    reasons = [row[0] for row in kpipe.sql("SELECT error_message FROM kpipe_errors WHERE dead_letter ORDER BY 1")]
    assert sum("missing or null" in why for why in reasons) == 2
    assert sum("cannot be a part of a table's name" in why for why in reasons) == 6
    assert any("differs from table e_order by upper and lower case only" in why or "e_Order" in why for why in reasons), reasons
    # A value that appears gets a table without a restart; a new member is a column of its table only; then there is no room.
    write(name, [*events("click", 7, 9, extra={"deep": [1]}), *events("view", 0, 3), *events("zoom", 0, 2)], 1)
    assert kpipe.json("run", "events")[-1]["rows"] == 5
    assert tables(kpipe) == ["e_click", "e_order", "e_view"]
    assert "extra" in [row[0] for row in kpipe.sql("DESCRIBE e_click")]
    assert "extra" not in [row[0] for row in kpipe.sql("DESCRIBE e_order")]
    assert kpipe.sql("SELECT count(*) FROM kpipe_errors WHERE error_message LIKE '%expected 3 tables at most%'") == [(2,)]
    proven(kpipe, rows=32, dead_letters=13)
    # A row that is in the wrong table, and one that is missing, are found.
    with duckdb.connect(str(kpipe.home / "data" / "kpipe.duckdb")) as connection:
        connection.execute("INSERT INTO e_view BY NAME SELECT * EXCLUDE (page, extra) FROM e_click WHERE id = 3")
        connection.execute("DELETE FROM e_click WHERE id = 3")
    problems = kpipe.json("verify", "events", status=1)[0]["problems"]
    assert {text.split(": ")[0] for text in problems} == {"table e_click", "table e_view"}
    assert "table e_order" in kpipe("trace", "events", f"{name}:0:3").stdout
    assert "RESET PIPELINE" in kpipe("sql", "-e", "TRUNCATE TABLE e_click", status=2).stderr
    kpipe("sql", "-e", "RESET PIPELINE events")
    assert kpipe.json("run", "events")[-1]["rows"] == 32
    proven(kpipe)
    assert [kpipe.sql(f"SELECT count(*) FROM {table}") for table in tables(kpipe)] == [[(9,)], [(20,)], [(3,)]]
