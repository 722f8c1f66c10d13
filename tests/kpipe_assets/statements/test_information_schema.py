"""SingleStore's views, information_schema.PIPELINES...: every documented column, and questions as monitors ask them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kpipe.errors import InvalidStatement
from kpipe_assets.statements.information_schema import resolved
from kpipe_assets.statements.pipeline_views import VIEWS
from resources.destinations.sql.ledger import duckdb_dialect
from tests.commandline import Kpipe

SMALL = "CREATE PIPELINE orders AS LOAD DATA KAFKA '127.0.0.1:1/orders' INTO TABLE orders FORMAT JSON"
#: As the documentation lists them, versions 6.7 to 9.1.
DOCUMENTED = {
    "PIPELINES": "DATABASE_NAME PIPELINE_NAME PIPELINE_ID CONFIG_JSON STATE SKIPPED_BATCH_PARTITIONS SKIPPED_BATCHES CREATE_TIME"
    " ALTER_TIME",
    "PIPELINES_BATCHES": "DATABASE_NAME PIPELINE_NAME BATCH_ID BATCH_STATE BATCH_ROWS_WRITTEN BATCH_TIME"
    " BATCH_START_UNIX_TIMESTAMP BATCH_PARTITION_STATE BATCH_PARTITION_PARSED_ROWS BATCH_SOURCE_PARTITION_ID"
    " BATCH_EARLIEST_OFFSET BATCH_LATEST_OFFSET BATCH_PARTITION_TIME BATCH_PARTITION_EXTRACTED_BYTES"
    " BATCH_PARTITION_TRANSFORMED_BYTES HOST PORT PARTITION",
    "PIPELINES_BATCHES_SUMMARY": "DATABASE_NAME PIPELINE_NAME BATCH_ID BATCH_STATE START_TIME BATCH_TIME ROWS_PER_SEC"
    " ROWS_STREAMED NUM_PARTITIONS NUM_PARTITIONS_FINISHED MB_STREAMED MB_PER_SEC ROWS_INSERTED ROWS_UPDATED ROWS_DELETED",
    "PIPELINES_ERRORS": "DATABASE_NAME PIPELINE_NAME ERROR_UNIX_TIMESTAMP ERROR_TYPE ERROR_CODE ERROR_MESSAGE ERROR_KIND"
    " STD_ERROR LOAD_DATA_LINE LOAD_DATA_LINE_NUMBER BATCH_ID ERROR_ID BATCH_SOURCE_PARTITION_ID BATCH_EARLIEST_OFFSET"
    " BATCH_LATEST_OFFSET HOST PORT PARTITION",
    "PIPELINES_CURSORS": "DATABASE_NAME PIPELINE_NAME SOURCE_TYPE SOURCE_PARTITION_ID EARLIEST_OFFSET LATEST_OFFSET"
    " CURSOR_OFFSET SUCCESSFUL_CURSOR_OFFSET UPDATED_UNIX_TIMESTAMP EXTRA_FIELDS",
    "PIPELINES_FILES": "DATABASE_NAME PIPELINE_NAME SOURCE_TYPE FILE_NAME FILE_SIZE FILE_STATE",
}


def rows(kpipe: Kpipe, text: str) -> list[dict[str, Any]]:
    return kpipe.json("sql", text)


def test_every_documented_column_is_there_before_anything_has_run(offline: Kpipe) -> None:
    assert DOCUMENTED.keys() == VIEWS.keys()
    offline("sql", SMALL)
    for name, columns in DOCUMENTED.items():
        assert set(columns.split()) <= set(VIEWS[name].columns)
        found = rows(offline, f"SELECT {columns.replace(' ', ', ')} FROM information_schema.{name}")
        assert len(found) == (name == "PIPELINES")
    (only,) = rows(offline, "SELECT * FROM information_schema.PIPELINES")
    assert (only["STATE"], only["PIPELINE_ID"], only["CREATE_TIME"]) == ("Stopped", None, None)


def test_questions_as_monitors_ask_them(
    kpipe: Kpipe, topic: Callable[..., str], write: Callable[..., int], tmp_path: Path
) -> None:
    """One pipeline writes the home's file, one another place; a question finds both."""
    name = topic(partitions=2)
    for part in (0, 1):
        write(name, ['{"id": 1}', '{"id": 2}', "no object"], part)
    load = f"LOAD DATA KAFKA '{kpipe.brokers}/{name}' INTO TABLE"
    kpipe("sql", f"CREATE PIPELINE near AS {load} near FORMAT JSON; CREATE PIPELINE far AS {load} far IN delta FORMAT JSON")
    kpipe("sql", "START PIPELINE near FOREGROUND; START PIPELINE far FOREGROUND")
    both = [{"PIPELINE_NAME": "far", "n": 4}, {"PIPELINE_NAME": "near", "n": 4}]
    assert rows(
        kpipe, "select PIPELINE_NAME, sum(ROWS_INSERTED) AS n from `information_schema`.`pipelines_batches_summary` b"
        " where b.`BATCH_STATE` in (\"Succeeded\", 'In Progress') and START_TIME > now() - interval 20 hour group by 1 order by 1"
    ) == both  # fmt: skip
    assert rows(
        kpipe, "SELECT PIPELINE_NAME, CAST(SUM(LATEST_OFFSET - CURSOR_OFFSET) AS INT) AS n"
        " FROM information_schema.PIPELINES_CURSORS WHERE SOURCE_PARTITION_ID = 1 AND SOURCE_TYPE = 'KAFKA' GROUP BY 1 ORDER BY 1"
    ) == [{**row, "n": 0} for row in both]  # fmt: skip
    errors = rows(
        kpipe, "SELECT e.PIPELINE_NAME AS p, e.BATCH_SOURCE_PARTITION_ID AS part, e.ERROR_TYPE, e.LOAD_DATA_LINE, e.PARTITION,"
        " b.BATCH_EARLIEST_OFFSET AS a, b.BATCH_LATEST_OFFSET AS z FROM INFORMATION_SCHEMA.PIPELINES_ERRORS e"
        " JOIN information_schema.pipelines_batches b ON b.PIPELINE_NAME = e.PIPELINE_NAME AND b.BATCH_ID = e.BATCH_ID"
        " AND b.BATCH_SOURCE_PARTITION_ID = e.BATCH_SOURCE_PARTITION_ID ORDER BY 1, 2"
    )  # fmt: skip
    warned = {"ERROR_TYPE": "Warning", "LOAD_DATA_LINE": "no object", "PARTITION": None, "a": 0, "z": 3}
    assert errors == [{"p": p, "part": part, **warned} for p in ("far", "near") for part in ("0", "1")]
    assert rows(
        kpipe, "SELECT DISTINCT PIPELINE_NAME AS p, BATCH_ROWS_WRITTEN AS w, TIMESTAMPDIFF(HOUR, FROM_UNIXTIME("
        "BATCH_START_UNIX_TIMESTAMP), now()) AS h FROM information_schema.PIPELINES_BATCHES ORDER BY 1"
    ) == [{"p": "far", "w": 4, "h": 0}, {"p": "near", "w": 4, "h": 0}]  # fmt: skip
    # As the page on debugging has it.
    assert rows(
        kpipe, "SELECT pe.DATABASE_NAME, pe.ERROR_CODE, pe.LOAD_DATA_LINE_NUMBER FROM information_schema.PIPELINES_FILES pf,"
        " information_schema.PIPELINES_ERRORS pe WHERE pe.BATCH_SOURCE_PARTITION_ID = pf.FILE_NAME and pf.FILE_STATE = 'Skipped'"
    ) == []  # fmt: skip
    config = "JSON_EXTRACT_STRING(CONFIG_JSON, 'table') AS t, JSON_EXTRACT_STRING(CONFIG_JSON, 'source_type') AS s"
    assert rows(kpipe, f"SELECT STATE, {config} FROM information_schema.PIPELINES ORDER BY t DESC") == [
        {"STATE": "Stopped", "t": table, "s": "KAFKA"} for table in ("near", "far")
    ]
    other = tmp_path / "other.duckdb"
    with duckdb.connect(str(other)) as connection:
        duckdb_dialect.create(connection)
    assert not kpipe.json("sql", "--database", str(other), "SELECT * FROM information_schema.PIPELINES_ERRORS")


def test_a_definition_that_cannot_be_read_takes_no_other_away(offline: Kpipe) -> None:
    offline("sql", SMALL)
    (offline.home / "pipelines" / "broken.yaml").write_text("type: [")
    found = rows(offline, "SELECT PIPELINE_NAME, STATE, CONFIG_JSON FROM information_schema.PIPELINES ORDER BY 1")
    assert [(row["PIPELINE_NAME"], row["STATE"], row["CONFIG_JSON"] is None) for row in found] == [
        ("broken", "Stopped", True), ("orders", "Stopped", False),
    ]  # fmt: skip
    assert rows(offline, "SELECT * FROM information_schema.PIPELINES_ERRORS") == []


def test_a_table_of_the_users_with_such_a_name_stays_his(offline: Kpipe) -> None:
    offline("sql", f"{SMALL}; CREATE TABLE pipelines AS SELECT 7 AS state")
    text = "SELECT p.state, information_schema.PIPELINES.STATE AS theirs FROM pipelines p, information_schema.PIPELINES"
    assert rows(offline, text) == [{"state": 7, "theirs": "Stopped"}]
    assert rows(offline, "SELECT state FROM pipelines") == [{"state": 7}]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'information_schema.pipelines'",
        "SELECT 1 -- information_schema.PIPELINES",
        "SELECT `a` FROM information_schema.tables",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert resolved(text).text == text


def test_a_view_that_is_not_there_brings_those_that_are() -> None:
    with pytest.raises(InvalidStatement, match="found PIPELINES_NONE") as refused:
        resolved("SELECT * FROM information_schema.`pipelines_none`")
    assert "PIPELINES_CURSORS" in refused.value.what
