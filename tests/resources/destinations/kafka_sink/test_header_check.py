"""Names of headers that Kafka's client would cut are refused in rows, and escaped in dead letters."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpipe.batch.batch import Commit
from kpipe.errors import SchemaConflict
from kpipe.ledger.ledger import Lane, Step
from kpipe.topics import PartitionId, TopicId
from resources.destinations.kafka_sink.header_check import check_headers
from resources.destinations.kafka_sink.messages import letters, parsed_letter
from resources.destinations.staged_file_check import Proven

_SOURCE = PartitionId(TopicId("c", "t", "in"), 0)
_HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))


def file(folder: Path, headers: list[Any]) -> Proven:
    table = pa.table(
        {
            "_kafka_partition": pa.array([0] * len(headers), pa.int32()),
            "_kafka_offset": pa.array(range(len(headers)), pa.int64()),
            "_kafka_headers": pa.array(headers, _HEADERS),
        }
    )
    path = folder / f"{uuid.uuid4()}.parquet"
    pq.write_table(table, path)
    return Proven(str(path), len(headers), 0, tuple(table.column_names), ())


def test_records_whose_headers_would_be_cut_are_named(tmp_path: Path) -> None:
    good, bad = {"name": "a", "value": b"\0"}, {"name": "a\0b", "value": None}
    commit = Commit("b", "p", (), steps=(Step(Lane(_SOURCE, 0, 0), 9),))
    check_headers(commit, [file(tmp_path, [None, [], [good, good]])], "out")
    with pytest.raises(SchemaConflict) as caught:
        check_headers(commit, [file(tmp_path, [None, [good, bad], [], [good], [bad, bad], [good]])], "out")
    assert {source: sorted(found) for source, found in caught.value.refused.items()} == {_SOURCE: [1, 4]}
    assert "NUL" in str(caught.value)


def test_dead_letters_keep_the_names() -> None:
    row = {
        "topic": "in", "partition": 0, "offset": 1, "timestamp": None, "key": None, "value": b"x",
        "headers": [{"name": "a\0b", "value": b"1"}], "stage": "parse", "reason": "r",
    }  # fmt: skip
    schema = pa.schema([("timestamp", pa.timestamp("us", "UTC"))])
    table = pa.Table.from_pylist([row]).set_column(3, schema.field(0), pa.nulls(1, schema.field(0).type))
    (message,) = letters(table, "out.dead-letters", "p", "b")
    assert message["headers"][0] == ("a\\0b", b"1")
    letter = parsed_letter(None, b"x", message["headers"])  # type: ignore[arg-type]
    assert letter is not None and letter["headers"] == [{"name": "a\\0b", "value": b"1"}]
