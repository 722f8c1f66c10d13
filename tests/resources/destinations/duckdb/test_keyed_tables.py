"""Rows with a key in a user's DuckDB table: how it spells its columns, and how it compares its keys."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpipe.batch.batch import Commit, TableWrite
from kpipe.batch.counts import Counts
from kpipe.errors import SchemaConflict
from kpipe.interfaces import Destination
from kpipe.schema.column_names import fault, rules
from kpipe.schema.columns import VARCHAR, Columns
from kpipe.tables.changes import EMPTIES
from kpipe.tables.upsert import KeyRule
from resources.testing.keyed import COLUMNS, RULES, Write, begun, commit_of
from resources.testing.place import COORDINATES as COORDINATE_TYPES
from resources.testing.place import arrow, live, read_step
from resources.testing.state import proof
from tests.resources.destinations.place import DuckDBPlace

COORDINATES = "_kafka_partition INTEGER, _kafka_offset BIGINT, _kafka_timestamp TIMESTAMPTZ"


def load(place: DuckDBPlace, destination: Destination, writes: Sequence[Write], rule: KeyRule) -> None:
    destination.commit(commit_of(place, destination.ledger()[1], writes, rule))


@pytest.mark.parametrize("name", ["replace", "update", "ignore"])
def test_columns_in_another_case_are_filled(place: DuckDBPlace, name: str) -> None:
    """A user may recreate the table between staging and commit."""
    place.sql(f'CREATE TABLE tweets (ID BIGINT, "Text" VARCHAR, N BIGINT, {COORDINATES})')
    destination = begun(place, RULES[name], 1)
    load(place, destination, [Write(0, 0, 1, "a"), Write(0, 1, 2, "b")], RULES[name])
    load(place, destination, [Write(0, 2, 2, "c"), Write(0, 3, 3, "d")], RULES[name])
    found = {row["ID"]: row["Text"] for row in place.rows()}
    assert set(found) == {1, 2, 3} and found[1] == "a" and found[3] == "d" and proof(destination).ok


def test_keys_are_compared_as_by_a_primary_key_whatever_the_collation(place: DuckDBPlace) -> None:
    place.sql(f"CREATE TABLE tweets (id BIGINT, text VARCHAR COLLATE NOCASE PRIMARY KEY, n BIGINT, {COORDINATES})")
    place.sql("CREATE TABLE peer (text VARCHAR COLLATE NOCASE PRIMARY KEY)")
    place.sql("INSERT INTO peer VALUES ('ada'), ('Ada')")  # DuckDB's own rule
    rule = KeyRule(None, "replace")
    destination = begun(place, rule, 1)
    load(place, destination, [Write(0, 0, 1, "ada"), Write(0, 1, 2, "Ada")], rule)
    load(place, destination, [Write(0, 2, 3, "ADA"), Write(0, 3, 4, "Ada")], rule)
    assert sorted((row["text"], row["id"]) for row in place.rows()) == [("ADA", 3), ("Ada", 4), ("ada", 1)]
    assert proof(destination).problems == []


def test_a_truncate_empties_a_table_whose_keys_differ_in_case(place: DuckDBPlace) -> None:
    place.sql(f"CREATE TABLE tweets (id BIGINT, text VARCHAR COLLATE NOCASE PRIMARY KEY, n BIGINT, {COORDINATES})")
    rule = KeyRule(None, "replace", deletes=True)
    destination = begun(place, rule, 1)
    load(place, destination, [Write(0, 0, 1, "ada"), Write(0, 1, 2, "Ada"), Write(0, 2, 3, "bob")], rule)
    step = read_step(live(destination.ledger()[1], 0), 4)
    fields = [("text", pa.string()), (EMPTIES, pa.bool_()), *COORDINATE_TYPES.items()]
    row = {"text": None, EMPTIES: True, "_kafka_partition": 0, "_kafka_offset": 3, "_kafka_timestamp": 3}
    write = TableWrite("", COLUMNS, (), (place.file([row], pa.schema(fields)),), {step.lane.key: Counts(deletes=1)})
    emptied = Commit(
        uuid.uuid4().hex, "tweets", (step.change,), steps=(step,), tables=(write,),
        records={step.lane.key: Counts(messages=1)}, ends={step.source: (0, 4)},
    )  # fmt: skip
    destination.commit(emptied)
    assert place.rows() == [] and proof(destination).problems == []


def test_a_column_that_hides_the_row_number_is_refused_by_name(place: DuckDBPlace) -> None:
    """A merge would delete rows of other keys."""
    place.sql(f"CREATE TABLE tweets (id BIGINT, text VARCHAR, n BIGINT, RowId BIGINT, {COORDINATES})")
    destination = begun(place, RULES["replace"], 1)
    with pytest.raises(SchemaConflict, match="column 'RowId' hides DuckDB's row numbers"):
        load(place, destination, [Write(0, 0, 1, "a")], RULES["replace"])
    assert place.rows() == []
    assert fault(rules("duckdb", True), "RowId") and not fault(rules("duckdb", False), "rowid")


def test_a_field_named_as_duckdbs_number_of_a_row_in_a_file(place: DuckDBPlace) -> None:
    destination = begun(place, RULES["replace"], 1)
    made = commit_of(place, destination.ledger()[1], [Write(0, 0, 1, "a"), Write(0, 1, 2, "b")], RULES["replace"])
    columns = Columns((*COLUMNS.items, ("file_row_number", VARCHAR)))
    (write,) = made.tables
    rows = [{**row, "file_row_number": f"x{at}"} for at, row in enumerate(pq.read_table(write.files[0].path).to_pylist())]
    fields = [*((name, arrow(kind)) for name, kind in columns), *COORDINATE_TYPES.items()]
    files = (place.file(rows, pa.schema(fields)),)
    destination.commit(replace(made, tables=(replace(write, columns=columns, files=files),)))
    assert [row["file_row_number"] for row in place.rows()] == ["x0", "x1"] and proof(destination).problems == []
