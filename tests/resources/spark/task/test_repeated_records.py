"""Records that give many rows: what each row gets a copy of is bounded, and the record's value is not copied."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpipe.batch.batch import Piece, RangeReport
from kpipe.definition.formats import Format
from kpipe.definition.pipeline import Pipeline
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, TopicId
from resources.decode import repeated, schema_decoder
from resources.decode.block import Decoded, Payloads, TooManyRows, in_parts
from resources.decode.csv import decoder as csv
from resources.decode.factory import decoder, sampled
from resources.decode.json import divided
from resources.duckdb_engine.expression_checks import checked_selection
from resources.kafka.record_block import RecordBlock
from resources.spark.task import repeated_records
from resources.spark.task.projection import Selector
from resources.spark.task.projection_plan import shaped
from resources.spark.task.range_writer import RangeOutput
from resources.spark.task.task_spec import JobSpec, TableSpec
from tests.resources.decode.avro.records import record, written

SOURCE = PartitionId(TopicId("c", "t", "orders"), 0)


def _staged(
    folder: Path, held: RecordBlock, table: dict[str, str], extras: tuple[str, ...] = (), originals: bool = False, **fields: Any
) -> tuple[RangeReport, list[dict[str, Any]], list[tuple[int, str]]]:
    """Stage a block; return the report, the rows, and the dead letters' offsets and reasons."""
    definition = Pipeline.model_validate(
        {"name": "p", "source": {"brokers": "b", "topic": "orders"}, "into": {"table": "t"}, **fields}
    )
    kinds = Columns.of(table)
    shape = shaped(definition, checked_selection(definition), kinds, lambda: kinds)
    job = JobSpec(
        "b", {}, str(folder), definition.format, (TableSpec(kinds, shape=shape, originals=originals),),
        constraint="dead_letter", extras=extras, fan_out=True,
    )  # fmt: skip
    output = RangeOutput(job, Piece(SOURCE, Range(0, len(held))))
    (reads,) = job.decoders
    output.decoded([reads.decode(Payloads.of_array(held.column("line")), held.column("key"))], held)
    report = output.finish(len(held), 0, 0)
    assert report.counts.unaccounted(len(held)) == 0
    rows = [row for file in report.tables[0].files for row in pq.read_table(file.path).to_pylist()]
    dead = [] if report.dead_letters is None else pq.read_table(report.dead_letters.path).to_pylist()
    return report, rows, [(row["offset"], row["reason"]) for row in dead]


def _small(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    for module in (repeated, repeated_records):
        monkeypatch.setattr(module, "MOST_BYTES", most)


@pytest.mark.parametrize("kind", [{"type": "json", "explode": "%"}, {"type": "csv", "fields": ["id"]}], ids=["json", "csv"])
def test_a_record_of_some_hundred_kilobytes_may_be_a_hundred_thousand_rows(tmp_path: Path, kind: dict[str, Any]) -> None:
    """A copy of the value for each row would be 20 GB and more."""
    count = 100_000
    text = b"[" + b",".join([b"{}"] * count) + b"]" if kind["type"] == "json" else b"7\n" * count
    report, _, dead = _staged(tmp_path, RecordBlock.of([5], [1], [text]), {"id": "BIGINT"}, format=kind)
    assert (report.counts.rows, report.counts.given, dead) == (count, 1, [])


def test_copies_of_keys_and_headers_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _small(monkeypatch, 5_000)
    values = [json.dumps([{"id": at}] * 10).encode() for at in range(6)]
    keys = [b"k" * 400, b"k" * 600, None, b"k" * 100, b"k" * 400, b"k" * 400]
    headers: list[Any] = [None, None, [("h", b"x" * 600)], None, None, None]
    held = RecordBlock.of(range(6), [1] * 6, values, keys, headers)
    options: dict[str, Any] = {"format": {"type": "json", "explode": "%"}}
    assert not _staged(tmp_path, held, {"id": "BIGINT"}, **options)[2], "nothing is copied"
    _, rows, dead = _staged(tmp_path, held, {"id": "BIGINT"}, ("key", "headers"), **options)
    assert dead == [(at, "10 rows, each with the record's key, headers: over 0 MiB in all") for at in (1, 2)]
    assert [(row["id"], row["_kafka_offset"], row["_kafka_key"]) for row in rows] == [
        (at, at, keys[at]) for at in (0, 3, 4, 5) for _ in range(10)
    ]
    _, _, dead = _staged(tmp_path, held, {"id": "BIGINT", "k": "BLOB"}, set={"k": "_kafka_key"}, **options)
    assert [at for at, _ in dead] == [1], "an expression reads the key"


def test_a_record_that_is_staged_with_each_row_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _small(monkeypatch, 5_000)
    values = [json.dumps([{"id": at}] * size).encode() for at, size in enumerate((10, 40, 10, 1, 12))]
    held = RecordBlock.of(range(5), [1] * 5, values)
    _, rows, dead = _staged(tmp_path, held, {"id": "BIGINT"}, originals=True, format={"type": "json", "explode": "%"})
    assert dead == [(1, "40 rows, each with the record's key, headers, value: over 0 MiB in all")]
    assert [(row["id"], row["_kafka_original"]["value"]) for row in rows] == [
        (at, values[at]) for at, size in ((0, 10), (2, 10), (3, 1), (4, 12)) for _ in range(size)
    ]


def test_unnest_does_not_copy_the_list_and_bounds_other_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _small(monkeypatch, 5_000)
    records = [{"id": at, "note": "x" * size, "lines": ["a" * 90] * 12} for at, size in enumerate((9, 900, 300))]
    held = RecordBlock.of(range(3), [1] * 3, [json.dumps(record).encode() for record in records])
    declared = {"lines": "VARCHAR[]", "id": "BIGINT"}
    few = "SELECT id, upper(line) AS line FROM records, UNNEST(lines) AS line"
    _, rows, dead = _staged(tmp_path, held, {"id": "BIGINT", "line": "VARCHAR"}, select=few, columns=declared)
    assert (len(rows), dead) == (36, [])
    many = "SELECT id, note, line FROM records, UNNEST(lines) AS line"
    _, rows, dead = _staged(tmp_path, held, {"id": "BIGINT", "note": "VARCHAR", "line": "VARCHAR"}, select=many, columns=declared)
    assert [row["id"] for row in rows] == [0] * 12 + [2] * 12
    assert [at for at, _ in dead] == [1]
    assert "select only the columns" in dead[0][1]


_LINES = "SELECT note, line FROM records, UNNEST(lines) AS line"


def _noted(count: int, **members: Any) -> RecordBlock:
    record = json.dumps({"note": "x" * 300, "lines": ["a"] * 12, **members}).encode()
    return RecordBlock.of(range(count), [1] * count, [record] * count)


def _unnested(folder: Path, held: RecordBlock, **options: Any) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    table = {"note": "VARCHAR", "line": "VARCHAR"}
    _, rows, dead = _staged(folder, held, table, select=_LINES, columns={"lines": "VARCHAR[]"}, **options)
    return rows, dead


@pytest.mark.parametrize("limit", ["bytes", "cells"])
def test_unnest_bounds_the_copies_of_all_rows_of_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    if limit == "bytes":
        _small(monkeypatch, 5_000)
    else:
        monkeypatch.setattr(repeated, "MOST_CELLS", 500)
    rows, dead = _unnested(tmp_path, _noted(1, orders=[{}] * 50), format={"type": "json", "explode": "orders"})
    assert (rows, len(dead)) == ([], 1)
    assert dead[0][1].startswith("UNNEST: 600 rows, each with the record's other columns")


@pytest.mark.parametrize("limit", ["bytes", "cells"])
def test_unnest_of_several_records_is_computed_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    if limit == "bytes":
        _small(monkeypatch, 5_000)
    else:
        monkeypatch.setattr(repeated, "MOST_CELLS", 80)
    apply, blocks = Selector.apply, list[int]()

    def counted(self: Selector, decoded: Decoded, coordinate: Any) -> Decoded:
        made = apply(self, decoded, coordinate)
        blocks.append(made.rows)
        return made

    monkeypatch.setattr(Selector, "apply", counted)
    rows, dead = _unnested(tmp_path, _noted(50))
    assert (len(rows), dead) == (600, [])
    assert blocks == [12] * 50


def test_blocks_of_too_many_rows_are_decoded_in_halves() -> None:
    def decode(start: int, end: int) -> int:
        if end - start > 2 or (start, end) in ((0, 2), (6, 8), (7, 8)):
            raise TooManyRows
        return end - start

    assert list(in_parts(5, decode)) == [(0, 1, 1), (1, 2, 1), (2, 3, 1), (3, 5, 2)]
    assert list(in_parts(0, decode)) == [(0, 0, 0)]
    with pytest.raises(TooManyRows):  # a record alone
        list(in_parts(8, decode))


@pytest.mark.parametrize("kind", ["json", "avro", "csv"])
def test_rows_of_several_records_that_are_too_many_together_are_decoded_apart(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits are those of a record; the rows of a block are in memory together."""
    for module in (divided, schema_decoder, csv):
        monkeypatch.setattr(module, "MOST_CELLS", 60)
    columns = Columns.of({"id": "BIGINT", "a": "STRUCT(x VARCHAR)", "b": "DATE"})  # 4 names
    sizes = (10, 3, 16, 0, 15)
    if kind == "json":
        options: dict[str, Any] = {"explode": "%"}
        payloads = [json.dumps([{"id": at}] * size).encode() for at, size in enumerate(sizes)]
    elif kind == "csv":
        columns, options = Columns.of({"id": "BIGINT", "a": "DATE", "b": "DATE"}), {"fields": ["id"]}
        sizes = (19, 3, 21, 0, 20)
        payloads = [f"{at}\n".encode() * size for at, size in enumerate(sizes)]
    else:
        schema = record(("id", {"type": "array", "items": "long"}))
        options = {"schema": json.dumps(schema), "explode": "id"}
        payloads = written(schema, *({"id": [at] * size} for at, size in enumerate(sizes)))
    reads, block = decoder(Format.model_validate({"type": kind, **options}), columns), Payloads.of(payloads)
    with pytest.raises(TooManyRows):
        reads.decode(block)
    parts = list(in_parts(len(block), lambda start, end: reads.decode(block.part(start, end))))
    assert [one for _, _, part in parts for one in part.table.column("id").to_pylist()] == [
        at for at, size in enumerate(sizes) for _ in range(0 if at == 2 else size)
    ]
    assert [start + at for start, _, part in parts for at, _ in part.rejects] == [2]


def test_objects_that_are_too_large_together_are_decoded_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divided, "_MOST_TEXT", 300)
    columns, kind = Columns.of({"n": "BIGINT", "s": "VARCHAR"}), Format(explode="n")
    payloads = [json.dumps({"s": "x" * size, "n": [at, at]}).encode() for at, size in enumerate((100, 90, 200, 10))]
    reads, block = decoder(kind, columns), Payloads.of(payloads)
    parts = list(in_parts(len(block), lambda start, end: reads.decode(block.part(start, end))))
    assert [one for _, _, part in parts for one in part.table.column("n").to_pylist()] == [0, 0, 1, 1, 3, 3]
    assert [start + at for start, _, part in parts for at, _ in part.rejects] == [2]
    numbered = Format(explode="%", ordinality="number_of_the_row")
    found = decoder(numbered, columns).decode(Payloads.of([b"[" + b"{}," * 40 + b"{}]"]))
    assert found.rejects[0][1].startswith("explode: 41 items or more")


def test_copies_are_counted_by_record() -> None:
    values = pa.table({"s": ["x" * 1_000_000, *["y"] * 999]})
    few = np.array([1_000, *[1] * 999])
    assert repeated.repeated_too_often(values, few) == [0]
    assert repeated.copies(values, few) >= 1_000_000_000
    many = np.array([1, *[100_000] * 999])
    assert repeated.repeated_too_often(values, many) == []
    assert 0 < repeated.copies(values, many) < 2_000_000_000


def test_sizes_of_values_of_every_type() -> None:
    item = pa.struct([("s", pa.string()), ("n", pa.int64())])
    nested = pa.array([[{"s": "abc", "n": 1}, None], None, [], [{"s": None, "n": None}]], pa.list_(item))
    assert repeated.sizes(nested).tolist() == [19, 0, 0, 8]
    assert repeated.sizes(nested.slice(2)).tolist() == [0, 8]
    maps = pa.array([[("k", b"1234")], [], None, [("kk", None), ("l", b"")]], pa.map_(pa.string(), pa.binary()))
    assert repeated.sizes(maps).tolist() == [5, 0, 0, 3]
    assert repeated.sizes(maps.slice(3)).tolist() == [3]
    assert repeated.sizes(pa.array(["äb", None, ""])).tolist() == [3, 0, 0]
    assert repeated.sizes(pa.array([True])).tolist() == [1]
    assert repeated.sizes(pa.array([1], pa.decimal128(38, 0))).tolist() == [16]
    assert repeated.sizes(pa.nulls(2)).tolist() == [0, 0]
    assert repeated.sizes(pa.array([], pa.list_(pa.string()))).tolist() == []


def test_columns_are_inferred_from_a_bounded_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divided, "_SAMPLE_TEXT", 25)
    payloads = [b"[]", b"{", b'[{"a":1},{"a":1},{"a":1}]', b'[{"b":1}]', b'[{"c":1}]']
    assert sampled(Format(explode="%"), payloads).names() == ("a", "b")
