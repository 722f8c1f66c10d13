"""Lists of Avro and Protobuf as rows, by the rule of JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from resources.decode import repeated
from resources.decode.block import Decoded, Payloads
from resources.decode.exploded_columns import ColumnLists
from resources.decode.factory import decoder, sampled
from resources.decode.payload_schemas import Unfit
from resources.duckdb_engine.arrow_types import staged_type
from tests.resources.decode.avro.records import record, written
from tests.resources.decode.protobuf.messages import SMALL, made

LINE = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": ["null", "long"]}]}
ORDER = {"type": "record", "name": "Order", "fields": [
    {"name": "day", "type": "string"}, {"name": "lines", "type": ["null", {"type": "array", "items": LINE}]},
]}  # fmt: skip
SCHEMA = record(("id", "long"), ("orders", {"type": "array", "items": ORDER}), ("big", "string"))
ROWS = [
    {"id": 1, "big": "x", "orders": [{"day": "a", "lines": [{"sku": "p", "n": 1}, {"sku": "q", "n": None}]},
                                     {"day": "b", "lines": [{"sku": "r", "n": 2}]}]},
    {"id": 2, "big": "x", "orders": []},
    {"id": 3, "big": "x", "orders": [{"day": "c", "lines": None}, {"day": "d", "lines": [{"sku": "s", "n": 3}]}]},
]  # fmt: skip
MAPPING = {"id": "id", "day": "orders::day", "sku": "orders::lines::sku"}
COLUMNS = {"id": "BIGINT", "day": "VARCHAR", "sku": "VARCHAR"}


def _decoded(columns: dict[str, str], rows: list[Any] = ROWS, schema: Any = SCHEMA, **more: Any) -> Decoded:
    kind = Format.model_validate({"type": "avro", "schema": json.dumps(schema), "explode": "orders::lines", **more})
    return decoder(kind, Columns.of(columns)).decode(Payloads.of(written(schema, *rows)))


def test_items_of_nested_lists_are_rows_with_the_members_around_them() -> None:
    done = _decoded(COLUMNS, mapping=MAPPING)
    assert [tuple(row.values()) for row in done.table.to_pylist()] == [(1, "a", "p"), (1, "a", "q"), (1, "b", "r"), (3, "d", "s")]
    assert done.kept == [0, 0, 0, 2]
    assert not done.rejects


def test_records_without_items_are_rows_when_asked() -> None:
    mapping = {**MAPPING, "sku": {"path": "orders::lines::sku", "default": None}, "day": {"path": "orders::day", "default": None}}
    done = _decoded(COLUMNS, mapping=mapping, explode_outer=True)
    assert [tuple(row.values()) for row in done.table.to_pylist()] == [
        (1, "a", "p"), (1, "a", "q"), (1, "b", "r"), (2, None, None), (3, "c", None), (3, "d", "s"),
    ]  # fmt: skip
    assert done.kept == [0, 0, 0, 1, 2, 2]


def test_as_many_rows_as_records_are_still_theirs() -> None:
    done = _decoded(COLUMNS, ROWS[:1] + ROWS[1:2] * 2, mapping=MAPPING)
    assert (done.rows, done.kept) == (3, [0, 0, 0])


def test_one_bad_item_rejects_its_record() -> None:
    done = _decoded({"id": "BIGINT", "sku": "BIGINT"}, mapping={"id": "id", "sku": "orders::lines::sku"})
    assert [at for at, _ in done.rejects] == [0, 2]
    assert done.rejects[0][1].startswith("row 1: sku: ")
    assert done.rows == 0


def test_columns_are_those_of_the_schema_with_items_in_place_of_lists() -> None:
    kind = Format.model_validate({"type": "avro", "schema": json.dumps(SCHEMA), "explode": "orders::lines"})
    want = Columns.of({"id": "BIGINT", "orders": "STRUCT(day VARCHAR, lines STRUCT(sku VARCHAR, n BIGINT))", "big": "VARCHAR"})
    assert sampled(kind, written(SCHEMA, *ROWS)) == want
    assert _decoded({"id": "BIGINT"}).new_columns == want.without(["id"])


def test_rows_are_numbered_in_their_record_when_asked() -> None:
    columns = {"id": "BIGINT", "line": "BIGINT"}
    for mapping in ({"id": "id", "line": "line"}, None):
        done = _decoded(columns, mapping=mapping, ordinality="line")
        assert [(row["id"], row["line"]) for row in done.table.to_pylist()] == [(1, 1), (1, 2), (1, 3), (3, 1)]
    assert "has a field ID" in _decoded(columns, ordinality="ID").rejects[0][1]


def test_repeated_fields_of_protobuf_are_lists() -> None:
    kind = Format.model_validate({"type": "protobuf", "schema": SMALL, "message": "t.M", "explode": "r"})
    payloads = [made(SMALL)(i=at, r=range(at)).SerializeToString() for at in range(3)]
    done = decoder(kind, Columns.of({"i": "INTEGER", "r": "UINTEGER"})).decode(Payloads.of(payloads))
    assert [(row["i"], row["r"]) for row in done.table.to_pylist()] == [(1, 0), (2, 0), (2, 1)]
    assert done.kept == [1, 2, 2]


def test_a_schema_without_the_list_rejects_its_records() -> None:
    done = _decoded({"id": "BIGINT"}, [{"id": 1}], record(("id", "long")))
    assert done.rejects == [(0, "explode: the schema has no list at orders::lines")]


def test_columns_that_are_repeated_too_often_make_the_record_a_reject(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated, "MOST_BYTES", 20_000)
    wide = {"id": 1, "big": "x" * 10_000, "orders": [{"day": "a", "lines": [{"sku": "p", "n": 1}] * 10}]}
    done = _decoded({"id": "BIGINT", "big": "VARCHAR"}, [ROWS[2], wide, ROWS[2]])
    assert done.kept == [0, 2]
    assert "too large" in done.rejects[0][1]
    assert _decoded({"id": "BIGINT"}, [ROWS[2], wide, ROWS[2]]).rows == 12, "a column that the table lacks is not repeated"


@pytest.mark.parametrize("path", ["id", "orders::day", "nothing", "orders::lines::sku", "ORDERS"])
def test_a_path_must_end_at_a_list(path: str) -> None:
    natural = Columns.of({"id": "BIGINT", "orders": "STRUCT(day VARCHAR, lines STRUCT(sku VARCHAR)[])[]"})
    with pytest.raises(Unfit, match=f"no list at {path}"):
        ColumnLists(natural, path, False, set())


def test_slices_and_nulls_at_every_level() -> None:
    kind = Columns.of({"a": "STRUCT(b BIGINT[])[]", "c": "BIGINT"})
    values = [[{"b": [1, 2]}, None, {"b": None}, {"b": []}], None, [], [{"b": [3]}]]
    arrays = [
        pa.array([None, *values], staged_type(kind.items[0][1])).slice(1),
        pa.array([0, 1, 2, 3, 4], pa.int64()).slice(1),
    ]
    inner = [(1, 1), (2, 1), (3, 4)]
    for outer, want in ((False, inner), (True, [*inner[:2], *[(None, 1)] * 3, (None, 2), (None, 3), inner[2]])):
        lists = ColumnLists(kind, "a::b", outer, {"a", "c"})
        (found, c), parents = lists.apart(arrays, 4)
        have = [
            (None if item is None else item["b"], number) for item, number in zip(found.to_pylist(), c.to_pylist(), strict=True)
        ]
        assert have == want
        assert (parents + 1 == np.array([number for _, number in want])).all()
        assert str(lists.columns.get("a")) == "STRUCT(b BIGINT)"
