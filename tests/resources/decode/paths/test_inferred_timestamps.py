"""Timestamps in new columns of JSON, by every way in which a block is decoded."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from resources.decode.block import Decoded, Payloads
from resources.decode.factory import decoder, sampled
from resources.decode.growth_guard import Bound
from tests.cases import each_case

MOMENT = "2026-11-26T18:00:00.25Z"


def _decoded(records: list[Any], columns: dict[str, str], bound: Bound | None = None, **options: Any) -> Decoded:
    kind = Format(type="json", infer_timestamps=True, **options)
    return decoder(kind, Columns.of(columns), bound=bound).decode(Payloads.of([json.dumps(one).encode() for one in records]))


@each_case(
    ("options", "wrap"),
    [({}, None), ({"mapping": {"id": "id", "at": "at"}}, None), ({"explode": "%"}, list), ({"documents": "many"}, None)],
    ids=["by name", "mapping", "list", "documents"],
)
def test_a_new_column_of_timestamps_is_one(options: dict[str, Any], wrap: type | None) -> None:
    for count in (1, 40):
        records: list[Any] = [{"id": at, "at": MOMENT} for at in range(count)]
        records = [[one] for one in records] if wrap else records
        found = _decoded(records, {"id": "BIGINT"}, **options)
        assert found.new_columns == Columns.of({"at": "TIMESTAMP WITH TIME ZONE"})
        kind = Format(type="json", infer_timestamps=True, **options)
        texts = [json.dumps(one).encode() for one in records]
        assert sampled(kind, texts) == Columns.of({"id": "BIGINT", "at": "TIMESTAMP WITH TIME ZONE"})
        assert str(sampled(kind.model_copy(update={"infer_timestamps": False}), texts).get("at")) == "VARCHAR"


def test_an_inferred_column_stores_what_it_was_inferred_from() -> None:
    texts = [MOMENT, "2026-11-26 19:00:00.25+01:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"]
    found = _decoded([{"at": text} for text in texts], {"at": "TIMESTAMP WITH TIME ZONE"})
    assert not found.rejects
    assert found.table.column("at").cast(pa.int64()).to_pylist()[:2] == [1_795_716_000_250_000] * 2


def test_one_other_text_of_a_block_makes_it_text_and_a_rejected_record_does_not_count() -> None:
    records = [{"id": at, "at": MOMENT, "deep": {"t": MOMENT}} for at in range(30)]
    mixed = [*records, {"id": 1, "at": "soon"}]
    assert str(_decoded(mixed, {"id": "BIGINT"}).new_columns.get("at")) == "VARCHAR"
    rejected = [*records, {"id": "no number", "at": "soon"}]
    found = _decoded(rejected, {"id": "BIGINT"}).new_columns
    assert found == Columns.of({"at": "TIMESTAMP WITH TIME ZONE", "deep": "STRUCT(t TIMESTAMP WITH TIME ZONE)"})


def test_a_default_of_the_mapping_counts_as_a_value() -> None:
    mapping = {"at": {"path": "at", "default": "never"}}
    texts = [json.dumps({"at": MOMENT}).encode(), b"{}"]
    assert str(sampled(Format(infer_timestamps=True, mapping=mapping), texts).get("at")) == "VARCHAR"


def test_a_table_that_takes_no_columns_reads_no_block_twice() -> None:
    found = _decoded([{"at": MOMENT}], {"id": "BIGINT"}, Bound(rejects=False))
    assert str(found.new_columns.get("at")) == "VARCHAR"
