"""Staged files that become files of the table, and those whose rows are inserted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kpipe.errors import SchemaConflict
from kpipe.interfaces import Destination
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from resources.destinations.ducklake.footers import check_rows
from resources.testing.keyed import RULES, Write, commit_of, contents
from resources.testing.keyed import begun as keyed
from resources.testing.place import COLUMNS, DEAD_LETTERS, batch
from resources.testing.state import begun, proof
from tests.resources.destinations.ducklake_place import DuckLakePlace


def commit(place: DuckLakePlace, destination: Destination, end: int, columns: Columns = COLUMNS, values: Any = None) -> None:
    destination.commit(batch(place, destination.ledger()[1], {0: end}, columns, values))


def registered(place: DuckLakePlace) -> list[Path]:
    return sorted((place.data / "kpipe").glob("*.parquet"))


def test_files_are_registered_without_a_copy_and_filtered_as_rows_are(place: DuckLakePlace) -> None:
    destination = begun(place, 1)
    columns = Columns.of(
        {"d": "DOUBLE", "s": "VARCHAR", "t": "TIMESTAMP", "l": "STRUCT(a BIGINT, b VARCHAR[])[]", "m": "MAP(VARCHAR, DOUBLE)"}
    )
    values: list[dict[str, Any]] = [
        {"d": float("nan"), "s": "", "t": 10**16, "l": [{"a": 1, "b": ["x", None]}], "m": [("k", 1.5)]},
        {"d": -0.0, "s": "é" * 300, "t": -(10**16), "l": [], "m": []},
        {"d": 3.0, "s": "z", "t": None, "l": None, "m": None},
    ]
    for end, row in enumerate(values, 1):
        commit(place, destination, end, columns, row)
    files = registered(place)
    staged = {path.stat().st_ino for path in place.staging.glob("*.parquet")}
    assert len(files) == 3 and {path.stat().st_ino for path in files} <= staged
    # Statistics of the footers select the files: NaN is greater than every number, and none is lost.
    for condition in (
        "d > 100",
        "isnan(d)",
        "d = 0",
        "d < 4",
        "s >= 'é'",
        "s < 'a'",
        "t > '9000-01-01'",
        "t < '1900-01-01'",
        "t IS NULL",
    ):
        found = place.sql(f"SELECT _kafka_offset FROM tweets WHERE {condition} ORDER BY 1")
        copied = place.sql(
            f"SELECT _kafka_offset FROM (SELECT * FROM tweets OFFSET 0) AS x WHERE ({condition}) IS TRUE ORDER BY 1"
        )
        assert found == copied, condition
    assert place.sql("SELECT _kafka_offset FROM tweets WHERE d > 100") == [(0,)]
    assert proof(destination).ok


def test_a_text_with_nul_is_refused_as_queries_would_miss_rows(place: DuckLakePlace) -> None:
    destination = begun(place, 1)
    with pytest.raises(SchemaConflict, match="column text: a text contains the character NUL"):
        commit(place, destination, 1, values={"id": 1, "text": "a\x00b"})
    commit(place, destination, 1)
    assert proof(destination).ok


def test_a_text_with_nul_inside_of_the_staged_bounds_is_refused(place: DuckLakePlace) -> None:
    """The file that is written has other bounds than the staged one: here `m` is its greatest text."""
    rule = RULES["replace"]
    destination = keyed(place, rule, 1)
    writes = [Write(0, 0, 1, "z", 0), Write(0, 1, 2, "m\x00n", 0), Write(0, 2, 1, "a", 0)]
    with pytest.raises(SchemaConflict, match=r"partition 0 offset 1: table tweets: column text: .* the character NUL"):
        destination.commit(commit_of(place, destination.ledger()[1], writes, rule, cuts=1))
    destination.commit(commit_of(place, destination.ledger()[1], [writes[0], Write(0, 1, 2, "m", 0), writes[2]], rule, cuts=1))
    assert place.sql("SELECT id FROM tweets WHERE text < 'b'") == [(1,)] and proof(destination).ok


def test_an_expression_that_makes_nul_is_refused(place: DuckLakePlace) -> None:
    rule = KeyRule(("id",), "update", {"text": "CASE WHEN excluded.n = 1 THEN 'm' || chr(0) ELSE excluded.text END"})
    destination = keyed(place, rule, 1)
    writes = [Write(0, at, id, text, n) for at, (id, text, n) in enumerate([(1, "a", 0), (2, "b", 0), (3, "z", 0)])]
    destination.commit(commit_of(place, destination.ledger()[1], writes, rule))
    before = contents(place)
    with pytest.raises(SchemaConflict, match=r"partition 0 offset 3: table tweets: column text: .* the character NUL") as refused:
        destination.commit(commit_of(place, destination.ledger()[1], [Write(0, 3, 2, "b", 1)], rule))
    assert "into.update" in refused.value.hint and contents(place) == before
    destination.commit(commit_of(place, destination.ledger()[1], [Write(0, 3, 2, "c", 0)], rule))
    assert contents(place)[2][0] == "c" and proof(destination).ok


@pytest.mark.parametrize("inner", ["{'a': 'm' || chr(0)}", "['b', 'm' || chr(0)]", "MAP {'m' || chr(0): 1.5}"])
def test_nul_in_a_nested_text_of_inserted_rows_is_refused(place: DuckLakePlace, inner: str) -> None:
    destination = begun(place, 1)
    commit(place, destination, 1)
    with place.opened() as connection:
        rows = "SELECT 0 AS _kafka_partition, 7 AS _kafka_offset, {} AS x, 1 AS y, '\\x00'::BLOB AS z"
        check_rows(connection, "tweets", rows.format("'m'"))
        with pytest.raises(SchemaConflict, match=r"partition 0 offset 7: table tweets: column x"):
            check_rows(connection, "tweets", rows.format(inner))


@pytest.mark.parametrize("change", ["SET PARTITIONED BY (id)", "ALTER COLUMN id SET NOT NULL"])
def test_nul_inside_of_the_bounds_of_inserted_files_is_refused(place: DuckLakePlace, change: str) -> None:
    destination = begun(place, 1)
    commit(place, destination, 1)
    place.sql(f"ALTER TABLE tweets {change}")
    next_batch = batch(place, destination.ledger()[1], {0: 4}, COLUMNS, {"id": 1, "text": "x"})
    rows = [
        {"id": at, "text": text, "_kafka_partition": 0, "_kafka_offset": at, "_kafka_timestamp": at}
        for at, text in enumerate(("z", "m\x00n", "a"), 1)
    ]
    with pytest.raises(SchemaConflict, match=r"partition 0 offset 2: table tweets: column text: .* the character NUL"):
        destination.commit(next_batch.writing(files=(place.staged(rows, COLUMNS),)))
    commit(place, destination, 4)
    assert proof(destination).ok


def test_nul_in_reasons_and_errors_does_not_hide_rows_of_the_ledger(place: DuckLakePlace) -> None:
    """Reasons may quote the record, and errors a program."""
    destination = begun(place, 1)
    for end in range(1, 5):
        base = batch(place, destination.ledger()[1], {0: end}, dead=[(0, end - 1)])
        letter = place.dead(base.steps[0].source, end - 1, b"\x00", "odd: \x00" if end < 3 else "even")
        letter["headers"] = [{"name": "n\x00", "value": b"\x00"}, {"name": "m", "value": None}]
        destination.commit(replace(base, dead_letters=(place.file([letter], DEAD_LETTERS),), note=f"{end}: \x00"))
        destination.record_state("error", "it broke: \x00", "TransformFailed", stderr="and said \x00")
    errors = destination.view("errors")
    assert sum(row["dead_letter"] for row in errors) == 4 and len(errors) == 8
    for reason, count in (("odd: \\x00", 2), ("even", 2), ("it broke: \\x00", 4)):
        assert place.sql("SELECT count(*) FROM kpipe_errors WHERE error_message = ?", reason) == [(count,)]
    letter = next(row for row in errors if row["dead_letter"])
    assert letter["load_data_line"] == b"\x00"
    assert letter["headers"] == [{"name": "n\\x00", "value": b"\x00"}, {"name": "m", "value": None}]
    assert proof(destination).ok


def test_times_that_cannot_be_registered_are_inserted(place: DuckLakePlace) -> None:
    destination = begun(place, 1)
    columns = Columns.of({"d": "DATE", "t": "TIMESTAMP"})
    commit(place, destination, 1, columns, {"d": 2**31 - 2, "t": 253_402_300_800_000_000})
    commit(place, destination, 2, columns, {"d": 0, "t": 0})
    assert len(registered(place)) == 1
    assert place.sql("SELECT _kafka_offset FROM tweets WHERE t > '2000-01-01' AND d > '2000-01-01'") == [(0,)]
    assert proof(destination).ok


def test_columns_that_the_file_lacks_are_null_and_new_ones_are_read(place: DuckLakePlace) -> None:
    destination = begun(place, 1)
    commit(place, destination, 1)
    wide = Columns.of({"id": "BIGINT", "text": "VARCHAR", "n": "INTEGER"})
    commit(place, destination, 2, wide, {"id": 7, "text": "b", "n": 3})
    commit(place, destination, 3)
    assert [row["n"] for row in sorted(place.rows(), key=lambda row: row["_kafka_offset"])] == [None, 3, None]
    assert len(registered(place)) == 3 and proof(destination).ok


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE tweets SET PARTITIONED BY (id)",
        "ALTER TABLE tweets ALTER COLUMN text SET DEFAULT 'x'",
        "ALTER TABLE tweets ALTER COLUMN id SET NOT NULL",
    ],
)
def test_rows_are_inserted_where_the_table_computes_or_checks(place: DuckLakePlace, change: str) -> None:
    destination = begun(place, 1)
    commit(place, destination, 1)
    place.sql(change)
    place.sql("ALTER TABLE tweets ADD COLUMN made VARCHAR DEFAULT 'now'")
    commit(place, destination, 3)
    assert len(registered(place)) == 1
    assert [row["made"] for row in place.rows() if row["_kafka_offset"]] == ["now", "now"]
    if "NOT NULL" in change:
        assert destination.required() == ["id"]  # type: ignore[attr-defined]
        with pytest.raises(SchemaConflict, match="id"):
            commit(place, destination, 4, values={"id": None, "text": "c"})
    assert proof(destination).ok


def test_json_and_uuid_are_inserted(place: DuckLakePlace) -> None:
    destination = begun(place, 1)
    columns = Columns.of({"j": "JSON", "u": "UUID", "h": "HUGEINT"})
    value = {"j": '{"a":1}', "u": "123e4567-e89b-12d3-a456-426614174000", "h": str(2**100)}
    commit(place, destination, 1, columns, value)
    assert registered(place) == []
    assert place.sql("SELECT j->>'a', u::VARCHAR, h FROM tweets") == [("1", value["u"], 2**100)]
    assert proof(destination).ok


def test_ledger_stays_in_the_catalog(place: DuckLakePlace) -> None:
    """Rows of kpipe's tables in files would add two files for each change, and each later query would open all of them."""
    destination = begun(place, 16)
    for end in range(1, 4):
        destination.commit(batch(place, destination.ledger()[1], dict.fromkeys(range(16), end)))
    files = [path for path in place.data.rglob("*.parquet") if path.parent.name != "kpipe"]
    assert files == [] and len(registered(place)) == 48


def test_nan_beside_numbers_in_one_file_is_found(place: DuckLakePlace) -> None:
    destination = begun(place, 1)
    columns = Columns.of({"d": "DOUBLE", "s": "STRUCT(f FLOAT)"})
    batch_of_three = batch(place, destination.ledger()[1], {0: 3}, columns, {"d": 3.0, "s": {"f": 3.0}})
    values = (3.0, float("nan"), None)
    rows = [
        {"d": d, "s": {"f": d}, "_kafka_partition": 0, "_kafka_offset": at, "_kafka_timestamp": at} for at, d in enumerate(values)
    ]
    destination.commit(batch_of_three.writing(files=(place.staged(rows, columns),)))
    assert len(registered(place)) == 1
    for condition in ("d > 100", "d >= 4 OR d < 0", "isnan(d)", "d = 'nan'", "s.f > 100"):
        assert place.sql(f"SELECT _kafka_offset FROM tweets WHERE {condition}") == [(1,)], condition
    assert place.sql("SELECT _kafka_offset FROM tweets WHERE d IS NULL") == [(2,)]
    assert place.sql("SELECT _kafka_offset FROM tweets WHERE d < 4") == [(0,)]
    assert proof(destination).ok
